//! Variables that a declaration cannot do without, and that nobody set.
//!
//! Asked by: whoever wants to know beforehand which servers cannot work.  Told by: the declaration,
//! and the environment, of which only names are told.

use super::credential::From;
use super::declaration::{Declaration, DeclaredReach, Written};
use super::expand;
use crate::settings::Lookup;

impl Declaration {
    /// The names of variables without which it cannot be reached, or has nothing to show.
    pub(super) fn unset(&self, lookup: Lookup<'_>) -> Vec<String> {
        let is_unset = |name: &String| matches!(lookup.text(name), Ok(None));
        let mut names: Vec<String> = Vec::new();
        for text in self.texts() {
            names.extend(expand::needed(&text.text, self.expand));
        }
        if let DeclaredReach::Url { url: None, .. } = &self.reach
            && self.described.slug.is_none()
        {
            names.extend(self.url_env.clone());
        }
        if let Some(From::Env(name)) = self.credential.as_ref().map(|shown| &shown.from)
            && self.auth_env.iter().all(is_unset)
        {
            names.push(name.clone());
        }
        names.retain(is_unset);
        names.sort();
        names.dedup();
        names
    }

    /// Every text that variables are filled into.
    pub(super) fn texts(&self) -> Vec<&Written> {
        match &self.reach {
            DeclaredReach::Url { url, headers, .. } => {
                let values = headers.iter().map(|(_, value)| value);
                url.iter().chain(values).collect()
            },
            DeclaredReach::Command { argv, env, .. } => argv.iter().chain(env.values()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::read_text;

    #[test]
    fn variables_that_a_server_cannot_do_without_are_named() {
        let lookup = |name: &str| (name == "SET").then(|| "1".to_owned());
        #[rustfmt::skip]
        let table: [(&str, &str, &[&str]); 10] = [
            ("a.json", r#"{"mcpServers": {"a": {"command": "${P}", "args": ["${Q:-1}", "${SET}"]}}}"#, &["P"]),
            ("a.json", r#"{"mcpServers": {"a": {"command": "p", "env": {"K": "${Y}${X}${Y}"}}}}"#, &["X", "Y"]),
            ("a.json", r#"{"mcpServers": {"a": {"url": "${U}", "headers": {"K": "${env:H}"}}}}"#, &["H", "U"]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\ncredential = { env = 'T' }", &["T"]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\ncredential = { env = 'SET' }", &[]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nauth_env = 'SET'\ncredential = { env = 'T' }", &[]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nauth_env = 'T'", &[]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nurl_env = 'U'", &[]),
            ("a.toml", "[servers.a]\nurl_env = 'U'", &["U"]),
            ("a.toml", "[servers.a]\nurl_env = 'U'\nslug = 's'", &[]),
        ];
        for (file, text, unset) in table {
            let read = read_text(Path::new(file), text).unwrap();
            assert_eq!(read.declarations[0].unset(&lookup), unset, "{text}");
        }
    }
}
