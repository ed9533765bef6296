//! Secrets that stand in a file in plain text, as far as their names and looks tell.

use url::Url;
use warmline_engine::settings::config_error::FileLocation;

use crate::declaration::{Declaration, SensitiveText};
use crate::expand::{Expansion, variable_names};
use crate::redaction::{SecretGuess, guess_value, guess_words, is_secret_name, looks_secret};

/// A value of a file that is probably a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaintextSecret {
    /// What it is the value of: a header, an option, a variable, a part of a URL.
    pub name: String,
    /// Where it stands.
    pub location: FileLocation,
    /// What to write instead.
    pub suggestion: String,
}

impl Declaration {
    /// Secrets in plain text: in headers, the URL, the command line and variables for the program.
    pub fn plaintext_secrets(&self) -> Vec<PlaintextSecret> {
        let mut found: Vec<PlaintextSecret> = Vec::new();
        found.extend(self.url.iter().filter_map(|url| self.find_in_url(url)));
        let headers = self.headers.iter();
        found.extend(headers.filter_map(|(name, value)| self.find_in_header(name, value)));
        found.extend(self.find_in_command());
        let env = self.env.iter();
        found.extend(env.filter_map(|(name, value)| self.find_in_variable(name, value)));
        found
    }

    /// `expanded` is what to write where the file has variables, `plain` what to do elsewhere.
    fn plaintext_secret(
        &self,
        name: &str,
        written: &SensitiveText,
        expanded: &str,
        plain: String,
    ) -> PlaintextSecret {
        let mut location = self.location.clone();
        if written.position.is_some() {
            (location.position, location.excerpt) = (written.position, None);
        }
        PlaintextSecret {
            name: name.to_owned(),
            location,
            suggestion: match self.expansion {
                Expansion::Variables => format!("{MOVE_TO_VARIABLE}`{expanded}`"),
                Expansion::Disabled => plain,
            },
        }
    }

    fn has_variables(&self, written: &SensitiveText) -> bool {
        !variable_names(&written.text, self.expansion).is_empty()
    }

    fn find_in_header(&self, name: &str, value: &SensitiveText) -> Option<PlaintextSecret> {
        if !is_secret_name(name) || value.text.is_empty() || self.has_variables(value) {
            return None;
        }
        let variable = variable_for(&self.name, "TOKEN");
        let (scheme, header) = match name.eq_ignore_ascii_case("authorization") {
            true => ("Bearer ", String::new()),
            false => ("", format!(", as = \"{name}\"")),
        };
        let plain = format!("{MOVE_TO_VARIABLE}`credential = {{ env = \"{variable}\"{header} }}`");
        let expanded = format!("{scheme}${{{variable}}}");
        Some(self.plaintext_secret(name, value, &expanded, plain))
    }

    fn find_in_url(&self, written: &SensitiveText) -> Option<PlaintextSecret> {
        let name = find_secret_in_url(&written.text)?;
        let expanded = format!("${{{}}}", variable_for(&self.name, &name));
        let variable = variable_for(&self.name, "url");
        let plain =
            format!("put the whole URL into a variable, and write `url_env = \"{variable}\"`");
        Some(self.plaintext_secret(&name, written, &expanded, plain))
    }

    fn find_in_command(&self) -> Vec<PlaintextSecret> {
        let argv = self.command.as_deref().unwrap_or_default();
        let guesses = guess_words(argv.iter().map(|word| word.text.as_str()));
        let secrets = guesses
            .into_iter()
            .zip(argv)
            .filter_map(|(guess, written)| {
                let SecretGuess::Secret { mut name, .. } = guess else {
                    return None;
                };
                if name.is_none() && written.text.contains("://") {
                    name = Some(find_secret_in_url(&written.text)?);
                }
                let variable = variable_for(&self.name, name.as_deref().unwrap_or("token"));
                let expanded = format!("${{{variable}}}");
                let plain = format!(
                    "pass it on as the variable that the program reads (`env_pass = [\"NAME\"]`), \
                 or let a shell fill in `${variable}`: `command = [\"sh\", \"-c\", …]`"
                );
                let name = name.as_deref().unwrap_or("command");
                Some(self.plaintext_secret(name, written, &expanded, plain))
            });
        secrets.collect()
    }

    fn find_in_variable(&self, name: &str, value: &SensitiveText) -> Option<PlaintextSecret> {
        let is_named = || {
            let guess = guess_value(name, &value.text);
            is_secret_name(name) && matches!(guess, SecretGuess::Secret { .. })
        };
        let is_secret = match value.text.contains("://") {
            true => find_secret_in_url(&value.text).is_some(),
            false => is_named() || looks_secret(&value.text),
        };
        if self.has_variables(value) || !is_secret {
            return None;
        }
        let plain = format!("{MOVE_TO_VARIABLE}`env_pass = [\"{name}\"]`");
        Some(self.plaintext_secret(name, value, &format!("${{{name}}}"), plain))
    }
}

const MOVE_TO_VARIABLE: &str = "put it into a variable, and write ";

/// The variable for something of a server, such as its `TOKEN`.
pub(crate) fn variable_for(server: &str, what: &str) -> String {
    let what = what.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let plain = |letter: char| match letter.is_ascii_alphanumeric() {
        true => letter.to_ascii_uppercase(),
        false => '_',
    };
    format!("{server}_{what}").chars().map(plain).collect()
}

/// The name of a secret that a URL holds in plain text: a password, or a part of its query or path.
fn find_secret_in_url(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_plain =
        |value: &str| !value.is_empty() && !["${", "%7B"].iter().any(|sign| value.contains(sign));
    if url.password().is_some_and(is_plain) {
        return Some("password".to_owned());
    }
    let mut parts = url.query_pairs();
    let secret = parts.find(|(name, value)| is_secret_name(name) && is_plain(value));
    if let Some((name, _)) = secret {
        return Some(name.into_owned());
    }
    let mut parts = url.path_segments()?;
    let is_secret = parts.any(|part| is_plain(part) && looks_secret(part));
    is_secret.then(|| "path token".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::parse_text;

    #[test]
    fn secrets_in_plain_text_are_named_with_what_to_write_instead() {
        type Expected = &'static [(&'static str, &'static str)];
        #[rustfmt::skip]
        let table: [(&str, &str, Expected); 18] = [
            ("a.toml", "[servers.a-b]\nurl = 'https://x'\nheaders = { Authorization = 'Bearer x', Accept-Language = 'de' }",
                &[("Authorization a.toml:3:29", "`credential = { env = \"A_B_TOKEN\" }`")]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nheaders = { X-Api-Key = 'x' }",
                &[("X-Api-Key a.toml:3:25", "`credential = { env = \"A_TOKEN\", as = \"X-Api-Key\" }`")]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\ncredential = { env = 'X' }", &[]),
            ("a.json", "{\"mcpServers\": {\"a\": {\"url\": \"https://x\",\n \"headers\": {\"authorization\": \"Bearer x\"}}}}",
                &[("authorization a.json:2:31", "`Bearer ${A_TOKEN}`")]),
            ("a.json", r#"{"mcpServers": {"a": {"url": "https://x", "headers": {"X-Token": "${T}"}}}}"#, &[]),
            ("a.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#, &[]),
            ("a.toml", "[servers.q]\ncommand = ['npx', 'z',\n '--api-key', 'sk-live-1']",
                &[("--api-key a.toml:3:15", "pass it on as the variable that the program reads (`env_pass = [\"NAME\"]`), or let a shell \
                   fill in `$Q_API_KEY`: `command = [\"sh\", \"-c\", …]`")]),
            ("a.json", "{\"mcpServers\": {\"q\": {\"command\": \"npx\", \"args\": [\"z\",\n\"--token=abc\"]}}}",
                &[("--token a.json:2:1", "`${Q_TOKEN}`")]),
            ("a.json", r#"{"mcpServers": {"q": {"command": "npx", "args": ["--token", "${T}", "--max-tokens", "7", "--token-env", "T"]}}}"#, &[]),
            ("a.toml", "[servers.q]\nurl = 'http://x/mcp?api_key=sk-live-1'",
                &[("api_key a.toml:2:7", "put the whole URL into a variable, and write `url_env = \"Q_URL\"`")]),
            ("a.toml", "[servers.q]\nurl = 'http://x/mcp?region=eu'", &[]),
            ("a.toml", "[servers.q]\nurl = 'http://x/s/ghp_abcdefghij/mcp'",
                &[("path token a.toml:2:7", "put the whole URL into a variable, and write `url_env = \"Q_URL\"`")]),
            ("a.json", r#"{"mcpServers": {"q": {"url": "http://x/s/9f86d081884c7d659a2feaa0c55ad015"}}}"#,
                &[("path token a.json:1:30", "`${Q_PATH_TOKEN}`")]),
            ("a.json", r#"{"mcpServers": {"q": {"url": "http://x/s/${K}/mcp"}}}"#, &[]),
            ("a.json", r#"{"mcpServers": {"q": {"url": "http://x/mcp?api_key=abc"}}}"#, &[("api_key a.json:1:30", "`${Q_API_KEY}`")]),
            ("a.json", r#"{"mcpServers": {"q": {"url": "http://x/mcp?api_key=${K}"}}}"#, &[]),
            ("a.toml", "[servers.q]\ncommand = ['x']\nenv = { API_KEY = 'sk-1', KEY_FILE = '/x', DB = 'pg://a:b@c', MODE = 'fast' }",
                &[("API_KEY a.toml:3:19", "`env_pass = [\"API_KEY\"]`"), ("DB a.toml:3:49", "`env_pass = [\"DB\"]`")]),
            ("a.json", r#"{"mcpServers": {"q": {"command": "x", "env": {"API_KEY": "abc", "OTHER_KEY": "${O}"}}}}"#,
                &[("API_KEY a.json:1:58", "`${API_KEY}`")]),
        ];
        for (file, text, expected) in table {
            let read = parse_text(Path::new(file), text).unwrap();
            let found = read.declarations[0].plaintext_secrets();
            let found: Vec<(String, &str)> = found
                .iter()
                .map(|one| {
                    let instead = one.suggestion.strip_prefix(super::MOVE_TO_VARIABLE);
                    let instead = instead.unwrap_or(&one.suggestion);
                    (format!("{} {}", one.name, one.location), instead)
                })
                .collect();
            let expected: Vec<(String, &str)> = expected
                .iter()
                .map(|(name, instead)| ((*name).to_owned(), *instead))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
