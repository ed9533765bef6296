//! What of a declaration may be shown: nothing secret, and nothing that looks like something else.

use url::Url;

use super::declaration::Written;
use super::expand::{Expand, names};
use super::looks::looks_secret;
use super::secrets::STRUCK;

/// A word of a command line as a reader can tell it from its neighbours.
///
/// Whoever accepts a command must see where each word ends: blanks are quoted, and what a terminal
/// would obey is written out.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-${}~^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut out = String::from("'");
    for letter in word.chars() {
        match letter {
            '\'' => out.push_str("'\\''"),
            letter if is_hidden(letter) => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out.push('\'');
    out
}

/// Whether a terminal would obey it, or show nothing or something else in its place.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A variable that is set for a program: its name, and its value if that decides what is executed.
pub(crate) fn setting(name: &str, value: &Written) -> String {
    let decides = EXECUTED.contains(&name) || EXECUTED_PREFIXES.iter().any(|p| name.starts_with(p));
    match decides {
        true => format!("{}={}", quoted(name), quoted(&value.text)),
        false => quoted(name),
    }
}

/// Variables that choose or change what a program executes.
const EXECUTED: &[&str] = &[
    "PATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "BASH_ENV",
    "ENV",
    "SHELL",
    "JAVA_TOOL_OPTIONS",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
];
const EXECUTED_PREFIXES: &[&str] = &["LD_", "DYLD_", "PYTHON"];

/// A URL for people: without user, password, query and fragment, where secrets travel, and without
/// parts of its path that look like secrets. Variables stay as they are written.
pub fn public_url(written: &str) -> String {
    let has_variables = !names(written, Expand::Variables).is_empty();
    let mut url = match Url::parse(written) {
        Ok(url) if !has_variables => url,
        Ok(_) | Err(_) => return public_text(written),
    };
    let struck = url.query().is_some() || url.fragment().is_some();
    let named = !url.username().is_empty() || url.password().is_some();
    url.set_query(None);
    url.set_fragment(None);
    if named && (url.set_username("").is_err() || url.set_password(None).is_err()) {
        return format!("{}://…", url.scheme());
    }
    let place = public_path(url.as_str());
    if struck {
        format!("{place}?…")
    } else {
        place
    }
}

/// A URL without what looks like a secret behind its host.
fn public_path(url: &str) -> String {
    let path = url.find("://").map_or(0, |at| at + 3);
    let path = url
        .get(path..)
        .and_then(|rest| Some(path + rest.find('/')?));
    let (host, path) = url.split_at(path.unwrap_or(url.len()));
    let parts = path.split('/').map(|part| {
        let is_secret = !part.contains("${") && looks_secret(part);
        if is_secret { STRUCK } else { part }
    });
    let parts: Vec<&str> = parts.collect();
    format!("{host}{}", parts.join("/"))
}

/// What is no URL, or not yet: what stands before `?` and `#` is its place.
fn public_text(written: &str) -> String {
    let place = written.split(['?', '#']).next().unwrap_or_default();
    let struck = if place.len() < written.len() {
        "?…"
    } else {
        ""
    };
    match place.rsplit_once('@') {
        Some((before, host)) => match before.split_once("://") {
            Some((scheme, _)) => public_path(&format!("{scheme}://{host}")) + struck,
            None => format!("…@{}{struck}", public_path(host)),
        },
        None => public_path(place) + struck,
    }
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
            assert_eq!(quoted(word), shown);
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
            assert_eq!(setting(name, &Written::new("x")), shown);
        }
    }
}
