//! A server written down anew, as `warmline.toml` would have it. No secret is copied.
//!
//! Asked by: whoever takes over what other programs are configured with, or adds a server.

use std::fmt::Write as _;

use super::declaration::{Declaration, DeclaredReach, Written};
use super::outline::public_url;
use super::secrets::{self, Guess, STRUCK};

/// What stands in the place of an argument that may be secret, until somebody fills it in.
pub const PLACEHOLDER: &str = "FILL_IN";

/// A server as `[servers.NAME]`, and what was left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anew {
    /// The text of its table.
    pub toml: String,
    /// What somebody has to fill in, in words.
    pub left_out: Vec<String>,
}

impl Anew {
    /// A server behind a URL, with the variable that holds its token, if it needs one.
    pub fn of_url(name: &str, url: &str, token_env: Option<&str>) -> Self {
        let mut table = Table::new(name);
        table.line("url", &quoted(url));
        if let Some(variable) = token_env {
            table.line("credential", &format!("{{ env = {} }}", quoted(variable)));
        }
        table.done()
    }

    /// A server that is a program, with variables that are passed on to it.
    pub fn of_command(name: &str, words: &[String], env_pass: &[String]) -> Self {
        let mut table = Table::new(name);
        table.line("command", &list(words.iter().map(String::as_str)));
        if !env_pass.is_empty() {
            table.line("env_pass", &list(env_pass.iter().map(String::as_str)));
        }
        table.done()
    }
}

impl Declaration {
    /// The same server as a table of `warmline.toml`. Values that may be secret stay behind: they
    /// are named, and come from variables from now on.
    pub fn anew(&self) -> Anew {
        let mut table = Table::new(&self.name);
        match &self.reach {
            DeclaredReach::Url { url, headers, .. } => {
                table.url(url.as_ref());
                headers.iter().for_each(|(name, _)| table.header(name));
            },
            DeclaredReach::Command {
                argv,
                env,
                env_pass,
                cwd,
            } => {
                table.command(argv);
                let passed: Vec<&str> = env.keys().chain(env_pass).map(String::as_str).collect();
                if !passed.is_empty() {
                    table.line("env_pass", &list(passed.iter().copied()));
                }
                for name in env.keys() {
                    table.left_out(format!("set the variable `{name}` yourself"));
                }
                if let Some(cwd) = cwd {
                    table.folder(&self.base.join(cwd).to_string_lossy());
                }
            },
        }
        if self.is_off() {
            table.line("enabled", "false");
        }
        table.done()
    }
}

/// A table that is being written.
struct Table {
    text: String,
    left_out: Vec<String>,
    has_credential: bool,
}

impl Table {
    fn new(name: &str) -> Self {
        Self {
            text: format!("[servers.{name}]\n"),
            left_out: Vec::new(),
            has_credential: false,
        }
    }

    fn line(&mut self, key: &str, value: &str) {
        // Writing into a String does not fail.
        writeln!(self.text, "{key} = {value}").ok();
    }

    /// Says in the file and to whoever asked what is missing.
    fn left_out(&mut self, what: String) {
        writeln!(self.text, "# {what}").ok();
        self.left_out.push(what);
    }

    fn url(&mut self, url: Option<&Written>) {
        let written = url.map(|url| url.text.as_str()).unwrap_or_default();
        let shown = public_url(written);
        let plain = shown.trim_end_matches("?…");
        if plain.contains(STRUCK) {
            let variable = variable_of(&self.text, "URL");
            self.line("url_env", &quoted(&variable));
            self.left_out(format!(
                "put the whole URL into `{variable}`: a part of {} may be secret",
                plain.escape_debug()
            ));
            return;
        }
        if has_variable(plain) {
            let variable = variable_of(&self.text, "URL");
            self.line("url_env", &quoted(&variable));
            self.left_out(format!(
                "put the whole URL into `{variable}`: nothing is filled into {} here",
                plain.escape_debug()
            ));
            return;
        }
        self.line("url", &quoted(plain));
        if plain != written && plain.trim_end_matches('/') != written.trim_end_matches('/') {
            self.left_out("the URL had a user or a query, which may be secret".to_owned());
        }
    }

    /// The header that says who we are becomes a credential; others are named.
    fn header(&mut self, name: &str) {
        if name.eq_ignore_ascii_case("authorization") && !self.has_credential {
            self.has_credential = true;
            let variable = variable_of(&self.text, "TOKEN");
            self.line("credential", &format!("{{ env = {} }}", quoted(&variable)));
            self.left_out(format!(
                "put the token, without `Bearer`, into `{variable}`"
            ));
        } else {
            self.left_out(format!("the header `{name}` was not taken over"));
        }
    }

    fn command(&mut self, argv: &[Written]) {
        let words = argv.iter().map(|word| word.text.as_str());
        let guessed = secrets::guessed(words.clone());
        let kept = words
            .clone()
            .zip(&guessed)
            .map(|(word, guess)| match guess {
                Guess::Open if !has_variable(word) => word,
                // What stood there is not written anywhere else.
                Guess::Open | Guess::Perhaps | Guess::Secret { .. } => PLACEHOLDER,
            });
        self.line("command", &list(kept));
        if words.clone().any(has_variable) {
            self.left_out(format!(
                "arguments with a variable (`${{…}}`) stand as `{PLACEHOLDER}`: none is filled in here"
            ));
        }
        if guessed.iter().any(|guess| *guess != Guess::Open) {
            self.left_out(format!(
                "arguments that may be secret stand as `{PLACEHOLDER}`"
            ));
        }
    }

    fn folder(&mut self, folder: &str) {
        match has_variable(folder) {
            true => self.left_out("set `cwd` yourself: no variable is filled in here".to_owned()),
            false => self.line("cwd", &quoted(folder)),
        }
    }

    fn done(self) -> Anew {
        Anew {
            toml: self.text,
            left_out: self.left_out,
        }
    }
}

/// Whether other programs, or their editors, would fill something in. `warmline.toml` fills in
/// nothing, and with a text that counts on it the whole file is refused.
fn has_variable(text: &str) -> bool {
    text.contains("${")
}

/// The variable for something of the server whose table this is.
fn variable_of(table: &str, what: &str) -> String {
    let name = table.lines().next().unwrap_or_default();
    let name = name.trim_start_matches("[servers.").trim_end_matches(']');
    secrets::variable_of(name, what)
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(quoted).collect();
    format!("[{}]", words.join(", "))
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::read_text;
    use super::*;

    fn anew(json: &str) -> Anew {
        let text = format!(r#"{{"mcpServers": {{"My Server": {json}}}}}"#);
        let read = read_text(Path::new("/home/x/mcp.json"), &text).unwrap();
        read.declarations[0].anew()
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
            let anew = anew(json);
            assert!(!anew.toml.contains("canary"), "{}", anew.toml);
            assert!(
                anew.toml.contains(holds),
                "{holds} is missing:\n{}",
                anew.toml
            );
            let read = read_text(Path::new("warmline.toml"), &anew.toml).unwrap();
            assert_eq!(read.declarations[0].name, "my-server");
        }
    }
}
