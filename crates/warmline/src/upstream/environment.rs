//! The environment of a child: a short list of ours, and what the configuration adds.
//!
//! Asked by: every start of a child, and `doctor`, which tells what a child will miss.
//!
//! Why it exists: a server is somebody else's program. It gets what every program needs to find
//! its way, and none of the tokens that happen to stand in our environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::upstream::server::StdioReach;

/// The variables a child starts with.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// The environment the child of this server gets.
pub(crate) fn of_child(reach: &StdioReach) -> Environment {
    match &reach.surroundings {
        Some(theirs) => {
            let theirs = theirs.iter();
            select(
                theirs.map(|(name, value)| (name.into(), value.into())),
                reach,
            )
        },
        None => select(std::env::vars_os(), reach),
    }
}

/// The variables of ours that the child of this server would get, what is set for it apart: all
/// that another process of this user needs to start it as we would. What is no text stays here.
pub(crate) fn to_hand_on(reach: &StdioReach) -> BTreeMap<String, String> {
    let passed = std::env::vars_os().filter(|(name, _)| is_passed(name, reach));
    let texts =
        passed.map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.flatten().collect()
}

/// The names of variables of ours that a child of this server will not get, sorted.
pub fn withheld(reach: &StdioReach) -> Vec<String> {
    leave_out(std::env::vars_os(), reach)
}

/// The variables of ours that every child gets, and the login shell too.
pub(crate) fn of_every_child() -> Environment {
    std::env::vars_os()
        .filter(|(name, _)| is_listed(name))
        .collect()
}

/// Whether a variable can have this name at all.
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// A variable that is set to bytes which are no text: nobody can do what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoText;

/// A variable of ours as text; none if it is not set. The only place that reads one.
pub(crate) fn text_of(name: &str) -> Result<Option<String>, NoText> {
    // A name that no variable can have is one that is not set.
    let value = is_variable_name(name).then(|| std::env::var_os(name));
    let text = value.flatten().map(OsString::into_string).transpose();
    text.map_err(|_| NoText)
}

/// The user's shell, if our environment names one.
pub(crate) fn shell() -> Option<OsString> {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty())
}

fn select(ours: impl Iterator<Item = (OsString, OsString)>, reach: &StdioReach) -> Environment {
    let mut theirs: Environment = ours.filter(|(name, _)| is_passed(name, reach)).collect();
    theirs.extend(
        reach
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    theirs
}

fn leave_out(ours: impl Iterator<Item = (OsString, OsString)>, reach: &StdioReach) -> Vec<String> {
    let mut names: Vec<String> = ours
        .map(|(name, _)| name)
        .filter(|name| !is_passed(name, reach))
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !reach.env.contains_key(name))
        .collect();
    names.sort_unstable();
    names
}

fn is_passed(name: &OsStr, reach: &StdioReach) -> bool {
    is_listed(name) || reach.env_pass.iter().any(|passed| name == passed.as_str())
}

fn is_listed(name: &OsStr) -> bool {
    let Some(text) = name.to_str() else {
        return false;
    };
    PASSED.contains(&text) || text.starts_with("LC_") || is_proxy(name)
}

/// Whether a variable tells how to reach the network, perhaps with a password in it.
pub(crate) fn is_proxy(name: &OsStr) -> bool {
    let text = name.to_str();
    text.is_some_and(|name| {
        let mut known = PROXIES.iter();
        known.any(|proxy| proxy.eq_ignore_ascii_case(name) && is_one_case(name))
    })
}

/// Whether what a variable holds may be read by anybody: where things are, and in which language.
pub(crate) fn is_harmless(name: &OsStr) -> bool {
    let is_place = name.to_str().is_some_and(|name| PLACES.contains(&name));
    is_place || (is_listed(name) && !is_proxy(name))
}

/// Proxy variables exist in capitals and in small letters, never mixed.
fn is_one_case(name: &str) -> bool {
    !(name.contains(|c: char| c.is_ascii_lowercase())
        && name.contains(|c: char| c.is_ascii_uppercase()))
}

const PASSED: &[&str] = &[
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "TMPDIR",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Where a shell stands.
const PLACES: &[&str] = &["PWD", "OLDPWD"];

const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::server::{Reach, Server};

    fn reach() -> StdioReach {
        let Reach::Stdio(reach) = Server::stdio("files", "files", [""; 0]).reach else {
            panic!("a program is reached over stdio");
        };
        reach
    }

    fn ours(names: &[&str]) -> std::vec::IntoIter<(OsString, OsString)> {
        let pairs: Vec<_> = names
            .iter()
            .map(|name| ((*name).into(), "ours".into()))
            .collect();
        pairs.into_iter()
    }

    /// reliability P31: only the listed names pass.
    #[test]
    fn only_the_listed_names_pass() {
        let passed = [
            "HOME",
            "LOGNAME",
            "PATH",
            "SHELL",
            "TERM",
            "USER",
            "LANG",
            "LC_ALL",
            "LC_TIME",
            "TMPDIR",
            "TZ",
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "NO_PROXY",
            "no_proxy",
            "ALL_PROXY",
            "all_proxy",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "NODE_EXTRA_CA_CERTS",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
        ];
        for name in passed {
            assert_eq!(select(ours(&[name]), &reach()).len(), 1, "{name} must pass");
            assert!(
                leave_out(ours(&[name]), &reach()).is_empty(),
                "{name} must pass"
            );
        }
        let kept = [
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "LC",
            "home",
            "Http_Proxy",
            "LD_PRELOAD",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "WARMLINE_LOG",
            "",
        ];
        for name in kept {
            assert!(
                select(ours(&[name]), &reach()).is_empty(),
                "{name} must stay"
            );
            assert_eq!(leave_out(ours(&[name]), &reach()), [name]);
        }
    }

    #[test]
    fn the_configuration_adds_and_wins() {
        let mut reach = reach();
        reach.env_pass.push("GITHUB_TOKEN".to_owned());
        reach.env.insert("HOME".to_owned(), "/elsewhere".to_owned());
        reach.env.insert("MODE".to_owned(), "quiet".to_owned());
        let names = ["GITHUB_TOKEN", "HOME", "MODE", "OTHER"];
        let theirs = select(ours(&names), &reach);
        let expected: Environment = [
            ("GITHUB_TOKEN", "ours"),
            ("HOME", "/elsewhere"),
            ("MODE", "quiet"),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
        assert_eq!(theirs, expected);
        assert_eq!(leave_out(ours(&names), &reach), ["OTHER"]);
    }
}
