//! A server as a table of `warmline.toml`. No secret is copied.

use std::fmt::Write as _;

use crate::declaration::{Declaration, SensitiveText};
use crate::plaintext_secrets::variable_for;
use crate::redaction::{PLACEHOLDER, REDACTED, SecretGuess, guess_words, redact_url};

/// A server as `[servers.NAME]`, and what was left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerToml {
    /// The text of its table.
    pub toml: String,
    /// What somebody has to fill in, in words.
    pub manual_steps: Vec<String>,
}

impl ServerToml {
    /// A server behind a URL, with the variable that holds its token, if it needs one.
    pub fn from_url(name: &str, url: &str, token_env: Option<&str>) -> Self {
        let mut table = Self::new(name);
        table.write_key("url", &toml_string(url));
        if let Some(variable) = token_env {
            table.write_credential(variable);
        }
        table
    }

    /// A server that is a program, with variables that are passed on to it.
    pub fn from_command(name: &str, words: &[String], env_pass: &[String]) -> Self {
        let mut table = Self::new(name);
        table.write_key("command", &toml_list(words.iter().map(String::as_str)));
        table.write_env_pass(env_pass.iter());
        table
    }

    fn new(name: &str) -> Self {
        Self {
            toml: format!("[servers.{name}]\n"),
            manual_steps: Vec::new(),
        }
    }

    fn write_key(&mut self, key: &str, value: &str) {
        // Writing into a String does not fail.
        writeln!(self.toml, "{key} = {value}").ok();
    }

    /// Says in the file, and to the caller, what is missing.
    fn add_manual_step(&mut self, what: String) {
        writeln!(self.toml, "# {what}").ok();
        self.manual_steps.push(what);
    }

    fn write_credential(&mut self, variable: &str) {
        self.write_key(
            "credential",
            &format!("{{ env = {} }}", toml_string(variable)),
        );
    }

    fn write_env_pass<'n>(&mut self, names: impl Iterator<Item = &'n String> + Clone) {
        if names.clone().next().is_some() {
            self.write_key("env_pass", &toml_list(names.map(String::as_str)));
        }
    }
}

impl Declaration {
    /// The same server as a table of `warmline.toml`. Values that may be secret are left out: they
    /// are named, and come from variables from now on.
    pub fn to_toml(&self) -> ServerToml {
        let mut table = ServerToml::new(&self.name);
        match &self.command {
            Some(argv) => self.write_program(&mut table, argv),
            None => {
                self.write_url(&mut table);
                self.write_headers(&mut table);
            },
        }
        if self.is_disabled() {
            table.write_key("enabled", "false");
        }
        table
    }

    fn write_url(&self, table: &mut ServerToml) {
        let written = self.url.as_ref().map_or("", |url| url.text.as_str());
        let redacted = redact_url(written);
        let plain = redacted.trim_end_matches("?…");
        let shown = plain.escape_debug();
        let problem = if plain.contains(REDACTED) {
            format!("a part of {shown} may be secret")
        } else if has_variable(plain) {
            format!("nothing is filled into {shown} here")
        } else {
            table.write_key("url", &toml_string(plain));
            if plain.trim_end_matches('/') != written.trim_end_matches('/') {
                let what = "the URL had a user or a query, which may be secret";
                table.add_manual_step(what.to_owned());
            }
            return;
        };
        let variable = variable_for(&self.name, "URL");
        table.write_key("url_env", &toml_string(&variable));
        table.add_manual_step(format!("put the whole URL into `{variable}`: {problem}"));
    }

    /// `Authorization` becomes a credential; other headers are only named.
    fn write_headers(&self, table: &mut ServerToml) {
        let mut has_credential = false;
        for name in self.headers.keys() {
            if !name.eq_ignore_ascii_case("authorization") || has_credential {
                table.add_manual_step(format!("the header `{name}` was not taken over"));
                continue;
            }
            has_credential = true;
            let variable = variable_for(&self.name, "TOKEN");
            table.write_credential(&variable);
            table.add_manual_step(format!(
                "put the token, without `Bearer`, into `{variable}`"
            ));
        }
    }

    fn write_program(&self, table: &mut ServerToml, argv: &[SensitiveText]) {
        let words = argv.iter().map(|word| word.text.as_str());
        let guesses = guess_words(words.clone());
        let kept = words.clone().zip(&guesses).map(|(word, guess)| {
            match *guess == SecretGuess::NotSecret && !has_variable(word) {
                true => word,
                false => PLACEHOLDER,
            }
        });
        table.write_key("command", &toml_list(kept));
        if words.clone().any(has_variable) {
            table.add_manual_step(format!(
                "arguments with a variable (`${{…}}`) stand as `{PLACEHOLDER}`: none is filled in here"
            ));
        }
        if guesses.iter().any(|guess| *guess != SecretGuess::NotSecret) {
            table.add_manual_step(format!(
                "arguments that may be secret stand as `{PLACEHOLDER}`"
            ));
        }
        table.write_env_pass(self.env.keys().chain(&self.env_pass));
        for name in self.env.keys() {
            table.add_manual_step(format!("set the variable `{name}` yourself"));
        }
        let Some(cwd) = &self.cwd else {
            return;
        };
        let cwd = self.base_folder.join(cwd);
        let cwd = cwd.to_string_lossy();
        match has_variable(&cwd) {
            true => {
                let what = "set `cwd` yourself: no variable is filled in here";
                table.add_manual_step(what.to_owned());
            },
            false => table.write_key("cwd", &toml_string(&cwd)),
        }
    }
}

/// Whether other programs, or their editors, fill something in. `warmline.toml` does not, and a file
/// with such a text is refused.
fn has_variable(text: &str) -> bool {
    text.contains("${")
}

fn toml_list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(toml_string).collect();
    format!("[{}]", words.join(", "))
}

fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::parse_text;

    fn converted(json: &str) -> ServerToml {
        let text = format!(r#"{{"mcpServers": {{"My Server": {json}}}}}"#);
        let read = parse_text(Path::new("/home/x/mcp.json"), &text).unwrap();
        read.declarations[0].to_toml()
    }

    #[test]
    fn what_is_written_anew_can_be_read_and_holds_no_secret() {
        #[rustfmt::skip]
        let table = [
            (r#"{"command": "npx", "args": ["-y", "some-server@1.2.3", "--port", "8080"]}"#,
             r#"command = ["npx", "-y", "some-server@1.2.3", "--port", "8080"]"#),
            (r#"{"command": "npx", "args": ["s", "--api-key", "canary"]}"#, r#"["npx", "s", "--api-key", "FILL_IN"]"#),
            (r#"{"command": "npx", "args": ["s", "--token=canary"]}"#,      r#"["npx", "s", "FILL_IN"]"#),
            (r#"{"command": "npx", "args": ["s", "--header", "Authorization: canary"]}"#, "FILL_IN"),
            (r#"{"command": "npx", "args": ["s", "--header", "X-Org: canary"]}"#, r#""--header", "FILL_IN"]"#),
            (r#"{"command": "npx", "args": ["s", "--header", "X-Org:${ORG}"]}"#, r#""--header", "FILL_IN"]"#),
            (r#"{"command": "s", "args": ["${HOME}/x", "${input:k}"], "cwd": "${HOME}"}"#, "set `cwd` yourself"),
            (r#"{"command": "s", "args": ["--root", "${HOME}/x"]}"#,        r#"["s", "--root", "FILL_IN"]"#),
            (r#"{"url": "https://${HOST}/mcp"}"#,                           r#"url_env = "MY_SERVER_URL""#),
            (r#"{"command": "s", "args": ["--pass", "canary", "--pat=canary"]}"#, r#"["s", "--pass", "FILL_IN", "FILL_IN"]"#),
            (r#"{"command": "s", "args": ["-p", "canary", "-k", "canary", "-u", "me:canary", "--user=me:canary"]}"#,
                r#"["s", "-p", "FILL_IN", "-k", "FILL_IN", "-u", "FILL_IN", "FILL_IN"]"#),
            (r#"{"command": "s", "args": ["--header=X-Org: canary", "-p", "8080", "-u", "s.py"]}"#, r#"["s", "FILL_IN", "-p", "8080", "-u", "s.py"]"#),
            (r#"{"command": "s", "args": ["hf_canary", "--path", "x"]}"#,   r#"["s", "FILL_IN", "--path", "x"]"#),
            (r#"{"command": "s", "args": ["postgres://me:canary@db/x"]}"#,  r#"["s", "FILL_IN"]"#),
            (r#"{"command": "s", "args": ["ghp_canary"]}"#,                 r#"["s", "FILL_IN"]"#),
            (r#"{"command": "s", "env": {"API_KEY": "canary"}}"#,           r#"env_pass = ["API_KEY"]"#),
            (r#"{"command": "s", "disabled": true}"#,                       "enabled = false"),
            (r#"{"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer canary"}}"#,
             r#"credential = { env = "MY_SERVER_TOKEN" }"#),
            (r#"{"url": "https://example.com/mcp?key=canary"}"#,            r#"url = "https://example.com/mcp""#),
            (r#"{"url": "https://example.com/s/ghp_canary/mcp"}"#,          r#"url_env = "MY_SERVER_URL""#),
            (r#"{"url": "https://example.com/sk-proj-canary?a=b"}"#,        r#"url_env = "MY_SERVER_URL""#),
            (r#"{"url": "https://example.com/canary0123456789abcdef0123456789"}"#, "a part of https://example.com/… may be secret"),
            (r#"{"url": "https://${HOST}/s/ghp_canary/mcp"}"#,              "a part of https://${HOST}/s/…/mcp may be secret"),
            (r#"{"url": "https://1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed.example.com/mcp"}"#, "4bed.example.com/mcp"),
            (r#"{"command": "s", "args": ["/some/dir", "V1StGXR8-Z5jdHi6B-myT"]}"#, r#"["s", "/some/dir", "FILL_IN"]"#),
            (r#"{"url": "https://example.com/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/mcp"}"#, "a part of https://example.com/…/mcp may be secret"),
            (r#"{"command": "s", "args": ["https://example.com/s/ghp_canary"]}"#, r#"["s", "FILL_IN"]"#),
            (r#"{"url": "https://example.com/mcp", "headers": {"X-Api": "canary"}}"#, "the header `X-Api` was not taken over"),
        ];
        for (json, holds) in table {
            let written = converted(json);
            assert!(!written.toml.contains("canary"), "{}", written.toml);
            assert!(
                written.toml.contains(holds),
                "{holds} is missing:\n{}",
                written.toml
            );
            let read = parse_text(Path::new("warmline.toml"), &written.toml).unwrap();
            assert_eq!(read.declarations[0].name, "my-server");
        }
    }
}
