//! What looks like a secret, and stands where everybody who reads the file sees it.
//!
//! Asked by: whoever writes a server down anew, and whoever looks whether a file is right.

use super::declaration::{Declaration, DeclaredReach};
use super::expand;
use super::outline::public_url;

/// A header whose value is written out, and is probably a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlainSecret {
    /// The name of the header.
    pub header: String,
    /// What to write instead.
    pub instead: String,
}

impl Declaration {
    /// Headers that hold a secret in plain text, as far as their names tell.
    pub fn plain_secrets(&self) -> Vec<PlainSecret> {
        let DeclaredReach::Url { headers, .. } = &self.reach else {
            return Vec::new();
        };
        let written_out = headers.iter().filter(|(name, value)| {
            is_secret_name(name)
                && !value.0.is_empty()
                && expand::names(&value.0, self.expand).is_empty()
        });
        written_out
            .map(|(name, _)| PlainSecret {
                header: name.clone(),
                instead: self.instead_of(name),
            })
            .collect()
    }

    /// How the same is said with a variable.
    fn instead_of(&self, header: &str) -> String {
        let variable = variable_of(&self.name);
        let is_usual = header.eq_ignore_ascii_case("authorization");
        match (self.expand, is_usual) {
            (expand::Expand::Variables, true) => format!("Bearer ${{{variable}}}"),
            (expand::Expand::Variables, false) => format!("${{{variable}}}"),
            (expand::Expand::Nothing, true) => {
                format!("credential = {{ env = \"{variable}\" }}")
            },
            (expand::Expand::Nothing, false) => {
                format!("credential = {{ env = \"{variable}\", as = \"{header}\" }}")
            },
        }
    }
}

/// The variable for the token of a server.
pub(super) fn variable_of(server: &str) -> String {
    format!("{}_TOKEN", server.to_ascii_uppercase().replace('-', "_"))
}

/// Whether something with this name is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

const SECRET_NAMES: &[&str] = &[
    "key",
    "token",
    "secret",
    "passw",
    "auth",
    "credential",
    "cookie",
    "bearer",
    "dsn",
];

/// Whether a word looks like a secret itself: a URL with a user or a query, or one long run of
/// letters and digits.
pub(super) fn looks_secret(word: &str) -> bool {
    if word.contains("://") {
        return public_url(word).trim_end_matches('/') != word.trim_end_matches('/');
    }
    let is_dense = |c: char| c.is_ascii_alphanumeric() || "_-.~+=".contains(c);
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let marked = ["sk-", "ghp_", "github_pat_", "xox", "glpat-", "wl_", "eyJ"];
    marked.iter().any(|mark| word.starts_with(mark))
        || (word.len() >= 32 && digits >= 6 && word.chars().all(is_dense))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::read_text;

    #[test]
    fn secrets_in_plain_text_are_named_with_what_to_write_instead() {
        type Expected = &'static [(&'static str, &'static str)];
        #[rustfmt::skip]
        let table: [(&str, &str, Expected); 6] = [
            ("a.toml", "[servers.a-b]\nurl = 'https://x'\nheaders = { Authorization = 'Bearer x', Accept-Language = 'de' }",
                &[("Authorization", "credential = { env = \"A_B_TOKEN\" }")]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nheaders = { X-Api-Key = 'x' }",
                &[("X-Api-Key", "credential = { env = \"A_TOKEN\", as = \"X-Api-Key\" }")]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\ncredential = { env = 'X' }", &[]),
            ("a.json", r#"{"mcpServers": {"a": {"url": "https://x", "headers": {"authorization": "Bearer x"}}}}"#,
                &[("authorization", "Bearer ${A_TOKEN}")]),
            ("a.json", r#"{"mcpServers": {"a": {"url": "https://x", "headers": {"X-Token": "${T}"}}}}"#, &[]),
            ("a.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#, &[]),
        ];
        for (file, text, expected) in table {
            let read = read_text(Path::new(file), text).unwrap();
            let found = read.declarations[0].plain_secrets();
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|one| (one.header.as_str(), one.instead.as_str()))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
