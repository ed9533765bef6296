//! The environment of a child: a short allow-list of ours, and what the configuration adds. A server is
//! a foreign program: it gets what every program needs, and none of the tokens in our environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::target::{StdioConfig, is_variable_name};

/// Variables by name.
pub type Environment = BTreeMap<OsString, OsString>;

pub(crate) fn child_environment(reach: &StdioConfig) -> Environment {
    match &reach.base_env {
        Some(ours) => select_variables(to_os_strings(ours), reach),
        None => select_variables(std::env::vars_os(), reach),
    }
}

/// Our variables that a server's child would get, without those set for it: another process of this
/// user needs them to start the child as we would. Values that are no text are left out.
pub fn forwardable_variables(reach: &StdioConfig) -> BTreeMap<String, String> {
    let passed = std::env::vars_os().filter(|(name, _)| is_allowed(name, reach));
    let texts =
        passed.map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.flatten().collect()
}

/// The sorted names of our variables that a server's child does not get.
pub fn withheld_variables(reach: &StdioConfig) -> Vec<String> {
    withheld_names(std::env::vars_os(), reach)
}

/// Our variables that every child gets, and the login shell.
pub(crate) fn base_environment() -> Environment {
    std::env::vars_os()
        .filter(|(name, _)| is_allow_listed(name))
        .collect()
}

/// A variable is set to bytes that are no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUnicode;

/// One of our variables as text; none if it is not set. The only place that reads one.
pub fn variable_text(name: &str) -> Result<Option<String>, NotUnicode> {
    // A name that no variable can have is one that is not set.
    let value = is_variable_name(name).then(|| std::env::var_os(name));
    let text = value.flatten().map(OsString::into_string).transpose();
    text.map_err(|_| NotUnicode)
}

pub(crate) fn user_shell() -> Option<OsString> {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty())
}

fn select_variables(
    ours: impl Iterator<Item = (OsString, OsString)>,
    reach: &StdioConfig,
) -> Environment {
    let mut theirs: Environment = ours.filter(|(name, _)| is_allowed(name, reach)).collect();
    theirs.extend(to_os_strings(&reach.env));
    theirs
}

fn to_os_strings(
    variables: &BTreeMap<String, String>,
) -> impl Iterator<Item = (OsString, OsString)> {
    variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
}

fn withheld_names(
    ours: impl Iterator<Item = (OsString, OsString)>,
    reach: &StdioConfig,
) -> Vec<String> {
    let mut names: Vec<String> = ours
        .map(|(name, _)| name)
        .filter(|name| !is_allowed(name, reach))
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !reach.env.contains_key(name))
        .collect();
    names.sort_unstable();
    names
}

fn is_allowed(name: &OsStr, reach: &StdioConfig) -> bool {
    is_allow_listed(name) || reach.env_pass.iter().any(|passed| name == passed.as_str())
}

fn is_allow_listed(name: &OsStr) -> bool {
    let is_listed = |name: &str| ALLOW_LIST.contains(&name) || name.starts_with("LC_");
    name.to_str().is_some_and(is_listed) || is_proxy_variable(name)
}

/// Whether a variable names a proxy, perhaps with a password.
pub(crate) fn is_proxy_variable(name: &OsStr) -> bool {
    // They exist in capitals and in small letters, never mixed.
    let is_known = |name: &str| {
        let mut known = PROXY_VARIABLES.iter();
        known.any(|proxy| *proxy == name || proxy.to_ascii_lowercase() == name)
    };
    name.to_str().is_some_and(is_known)
}

/// Whether a variable holds no secret: places and languages.
pub(crate) fn is_public_variable(name: &OsStr) -> bool {
    let is_place = ["PWD", "OLDPWD"].iter().any(|place| name == *place);
    is_place || (is_allow_listed(name) && !is_proxy_variable(name))
}

const ALLOW_LIST: &[&str] = &[
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

const PROXY_VARIABLES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{ServerTarget, TransportConfig};

    fn reach() -> StdioConfig {
        let TransportConfig::Stdio(reach) =
            ServerTarget::stdio("files", "files", [""; 0]).transport
        else {
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
            assert_eq!(
                select_variables(ours(&[name]), &reach()).len(),
                1,
                "{name} must pass"
            );
            assert!(
                withheld_names(ours(&[name]), &reach()).is_empty(),
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
                select_variables(ours(&[name]), &reach()).is_empty(),
                "{name} must stay"
            );
            assert_eq!(withheld_names(ours(&[name]), &reach()), [name]);
        }
    }

    #[test]
    fn the_configuration_adds_and_wins() {
        let mut reach = reach();
        reach.env_pass.push("GITHUB_TOKEN".to_owned());
        reach.env.insert("HOME".to_owned(), "/elsewhere".to_owned());
        reach.env.insert("MODE".to_owned(), "quiet".to_owned());
        let names = ["GITHUB_TOKEN", "HOME", "MODE", "OTHER"];
        let theirs = select_variables(ours(&names), &reach);
        let expected: Environment = [
            ("GITHUB_TOKEN", "ours"),
            ("HOME", "/elsewhere"),
            ("MODE", "quiet"),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
        assert_eq!(theirs, expected);
        assert_eq!(withheld_names(ours(&names), &reach), ["OTHER"]);
    }
}
