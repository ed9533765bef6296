//! What of our environment a child will miss.

use warmline::config::{PLACEHOLDER, process_variable};
use warmline::upstream::{Reach, Server, StdioReach, withheld};

use super::Finding;

/// What stands in the environment that a reader may have counted on.
pub(super) fn look(server: &Server, names: Names) -> Vec<Finding> {
    let Reach::Stdio(stdio) = &server.reach else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = left_to_fill_in(stdio).into_iter().collect();
    findings.push(match unset(stdio) {
        Some(unset) => unset,
        None => missed(server, stdio, names),
    });
    findings
}

/// What `init` left out of the arguments, because it may be secret, and nobody put in.
fn left_to_fill_in(stdio: &StdioReach) -> Option<Finding> {
    let is_left = stdio.args.iter().any(|arg| arg == PLACEHOLDER);
    let says = format!("`{PLACEHOLDER}` stands where `warmline init` left a secret out");
    is_left.then(|| Finding::look("arguments", says).hint("put the value there"))
}

/// Variables that are to be passed on, and that we do not have.
fn unset(stdio: &StdioReach) -> Option<Finding> {
    let unset: Vec<&str> = stdio
        .env_pass
        .iter()
        .map(String::as_str)
        .filter(|name| !stdio.env.contains_key(*name) && process_variable(name).is_none())
        .collect();
    let first = unset.first()?;
    let says = format!(
        "the program will miss {}: it is to be passed on, and not set",
        unset.join(", ")
    );
    let hint = format!("set {first} where Warmline is started, or take it out of `env_pass`");
    Some(Finding::look("environment", says).hint(hint))
}

/// Which of the variables that are kept from a child are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Those that look like secrets: somebody may have counted on them.
    Telling,
    All,
}

fn missed(server: &Server, stdio: &StdioReach, names: Names) -> Finding {
    let withheld = withheld(stdio);
    let wanted: Vec<&str> = withheld
        .iter()
        .map(String::as_str)
        .filter(|name| speaks_of(name, server))
        .collect();
    if let [first, ..] = wanted.as_slice() {
        return Finding::look(
            "environment",
            format!(
                "the program will not see {}, which may be meant for it",
                wanted.join(", ")
            ),
        )
        .hint(format!(
            "pass it on with `--env-pass {first}`, or `env_pass = [\"{first}\"]`"
        ));
    }
    let passed = match withheld.len() {
        0 => "nothing of ours is kept from it".to_owned(),
        1 => "1 variable of ours is not passed on".to_owned(),
        many => format!("{many} variables of ours are not passed on"),
    };
    let mut named: Vec<&str> = withheld.iter().map(String::as_str).collect();
    named.sort_unstable();
    let says = match names {
        Names::All if named.is_empty() => passed,
        Names::All => format!("{passed}: {}", named.join(", ")),
        Names::Telling => {
            named.retain(|name| looks_secret(name));
            match named.as_slice() {
                [] => passed,
                [one] => format!("{passed}; {one} looks like a secret"),
                many => format!("{passed}; {} look like secrets", many.join(", ")),
            }
        },
    };
    Finding::ok("environment", says)
}

/// Whether a variable seems to be meant for this server: it shares a word with its name.
fn speaks_of(variable: &str, server: &Server) -> bool {
    if !looks_secret(variable) {
        return false;
    }
    let variable = variable.to_ascii_lowercase();
    let words = server
        .name
        .split(['-', '.', ':', '_'])
        .filter(|word| word.len() >= 4);
    words
        .filter(|word| !COMMON.contains(word))
        .any(|word| variable.split('_').any(|part| part == word))
}

fn looks_secret(variable: &str) -> bool {
    let variable = variable.to_ascii_uppercase();
    SECRET_WORDS
        .iter()
        .any(|word| variable.split('_').any(|part| part == *word))
}

const SECRET_WORDS: &[&str] = &[
    "TOKEN",
    "KEY",
    "APIKEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PAT",
    "CREDENTIALS",
    "DSN",
];
/// Words that say nothing of which server it is.
const COMMON: &[&str] = &["server", "mcp", "stdio", "http"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_speaks_of_a_server_by_a_word_of_its_name() {
        let server = |name: &str| Server::stdio(name, "x", [""; 0]);
        #[rustfmt::skip]
        let table = [
            ("GITHUB_TOKEN", "github",        true),
            ("GITHUB_TOKEN", "github-server", true),
            ("GITHUB_TOKEN", "gitlab",        false),
            ("GITHUB_URL",   "github",        false),
            ("SERVER_KEY",   "some-server",   false),
        ];
        for (variable, name, speaks) in table {
            assert_eq!(
                speaks_of(variable, &server(name)),
                speaks,
                "{variable} {name}"
            );
        }
    }
}
