//! What must not be told: secrets, struck out of what servers say.
//!
//! Asked by: [`Upstream`](super::Upstream) and [`Session`](super::Session), for every trouble that
//! leaves them; [`stderr`](super::stderr), where the end of a standard error is taken.
//!
//! Why it exists: a server that refuses a request often repeats it, and a program that dies often
//! prints its configuration. What they say is shown in the log, by `doctor` and in errors
//! (reliability O24).
//! What is struck out: the credential and every header that was declared, the values in a query,
//!   variables that were filled in; of a child every value that was given to it beyond what each
//!   program gets, and the password in the address of a proxy. What is shorter than six characters
//!   is in every text, and stays. How JSON may spell them: [`spelling`].

mod spelling;

use std::collections::BTreeMap;
use std::ffi::OsStr;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::exchange::{Ending, Reply, Trouble};
use zeroize::Zeroizing;

use self::spelling::{CUT, DEEPEST, first_letter, spelled};
use super::environment::{self, Environment, is_harmless, is_proxy};
use super::server::{HttpReach, Reach, Server, StdioReach};

/// Values that are struck out of a text, the longest first.
#[derive(Clone, Default)]
pub(crate) struct Hidden {
    values: Vec<Value>,
}

#[derive(Clone)]
struct Value {
    /// The name of its variable or header, which is no secret.
    name: String,
    text: Zeroizing<String>,
}

/// A place in a text where a value stands.
struct Found<'h> {
    from: usize,
    to: usize,
    value: &'h Value,
}

impl Hidden {
    /// What a child with these variables must not tell.
    pub(crate) fn of(environment: &Environment) -> Self {
        let variables = environment.iter().flat_map(|(name, value)| {
            let all = secrets(name, &value.to_string_lossy());
            let name = name.to_string_lossy().into_owned();
            all.into_iter().map(move |secret| (name.clone(), secret))
        });
        Self::default().and(variables)
    }

    /// What must not be told of a server, however it is reached and whoever speaks to it.
    pub(crate) fn of_server(server: &Server) -> Self {
        let credential = server
            .credential
            .as_ref()
            .and_then(|source| source.header());
        let hidden = match &server.reach {
            Reach::Http(reach) => Self::of_url(reach),
            Reach::Stdio(reach) => {
                Self::of(&environment::of_child(reach)).and_values(&reach.filled)
            },
        };
        hidden.and_headers(credential.as_slice())
    }

    /// What must not be told of a URL and its headers.
    pub(crate) fn of_url(reach: &HttpReach) -> Self {
        let url = &reach.url;
        let query = url.query_pairs();
        let query = query.map(|(name, value)| (name.into_owned(), value.into_owned()));
        let host = url.host_str().unwrap_or_default();
        let mut filled = reach.filled.clone();
        // Where a server is, everybody knows who looks its name up.
        filled.retain(|_, value| !host.contains(&value.to_ascii_lowercase()));
        Self::default()
            .and(query)
            .and_headers(&reach.headers)
            .and_values(&filled)
    }

    /// And what headers carry: all of it, and each word behind the scheme.
    pub(crate) fn and_headers(self, headers: &[(HeaderName, HeaderValue)]) -> Self {
        let texts = headers.iter().flat_map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let words: Vec<String> = value.split(' ').skip(1).map(str::to_owned).collect();
            let all = std::iter::once(value).chain(words);
            all.map(|text| (name.to_string(), text))
        });
        self.and(texts)
    }

    /// And the values of variables, by their names.
    pub(crate) fn and_values(self, variables: &BTreeMap<String, String>) -> Self {
        let texts = variables.iter().flat_map(|(name, value)| {
            let all = match Url::parse(value) {
                Ok(url) if url.has_host() => secrets_of_url(&url),
                Ok(_) | Err(_) => secrets(OsStr::new(name), value),
            };
            all.into_iter().map(move |text| (name.clone(), text))
        });
        self.and(texts)
    }

    fn and(mut self, texts: impl Iterator<Item = (String, String)>) -> Self {
        for (name, text) in texts {
            for text in forms(text.trim()) {
                let is_long = text.chars().count() >= SHORTEST;
                if is_long && self.values.iter().all(|known| *known.text != text) {
                    self.values.push(Value {
                        name: name.clone(),
                        text: Zeroizing::new(text),
                    });
                }
            }
        }
        self.values
            .sort_by_key(|value| std::cmp::Reverse(value.text.len()));
        self
    }

    /// The text without them. Each leaves the name of its variable.
    pub(crate) fn strike(&self, text: String) -> String {
        match self.may_be_in(&text) {
            true => self.struck_from(&text, 0),
            false => text,
        }
    }

    /// Whether a closer look is needed.
    fn may_be_in(&self, text: &str) -> bool {
        let is_in = |value: &Value| text.contains(value.text.as_str());
        !self.values.is_empty() && (text.contains(['\\', CUT]) || self.values.iter().any(is_in))
    }

    /// The text without them, where it was escaped so often at least.
    fn struck_from(&self, text: &str, depth: usize) -> String {
        let mut out = String::with_capacity(text.len());
        let mut kept = 0;
        for Found { from, to, value } in self.found(text, depth) {
            out.push_str(text.get(kept..from).unwrap_or_default());
            out.push_str(&value.mark());
            kept = to;
        }
        out.push_str(text.get(kept..).unwrap_or_default());
        out
    }

    /// Where they stand. Those that overlap are one, which has the name of the longest.
    fn found(&self, text: &str, depth: usize) -> Vec<Found<'_>> {
        let deepest = if text.contains('\\') { DEEPEST } else { depth };
        let mut all: Vec<Found<'_>> = Vec::new();
        let mut from = 0;
        while let Some(rest) = text.get(from..)
            && let Some((_, step)) = first_letter(rest, depth)
        {
            for depth in depth..=deepest {
                let letter = first_letter(rest, depth).map(|(letter, _)| letter);
                let begun = self.values.iter().filter(|value| value.begins_with(letter));
                for value in begun {
                    let Some(length) = spelled(rest, &value.text, depth) else {
                        continue;
                    };
                    let found = Found {
                        from,
                        to: from + length,
                        value,
                    };
                    match all.last_mut() {
                        Some(last) if from < last.to => last.join(found),
                        Some(_) | None => all.push(found),
                    }
                }
            }
            from += step;
        }
        all
    }

    /// A trouble without them.
    pub(crate) fn struck(&self, mut trouble: Trouble) -> Trouble {
        trouble.what = self.strike(trouble.what);
        trouble.why = trouble.why.map(|why| self.strike(why));
        trouble.hint = trouble.hint.map(|hint| self.strike(hint));
        trouble
    }

    /// An ending without them. A result is its caller's; an error is told to others, too.
    pub(crate) fn struck_ending(&self, ending: Ending) -> Ending {
        match ending {
            Ending::Failed(mut failure) => {
                failure.trouble = self.struck(failure.trouble);
                Ending::Failed(failure)
            },
            Ending::Answered(Reply::Error(error)) => {
                Ending::Answered(Reply::Error(self.struck_bytes(error)))
            },
            Ending::Answered(reply @ Reply::Result(_)) => Ending::Answered(reply),
        }
    }

    fn struck_bytes(&self, bytes: Bytes) -> Bytes {
        let json = String::from_utf8_lossy(&bytes);
        match self.may_be_in(&json) {
            true => Bytes::from(self.struck_json(&json)),
            false => bytes,
        }
    }

    /// JSON without them, which is still JSON: strings are told from what stands between them.
    fn struck_json(&self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        let mut rest = json;
        while let Some((between, string)) = rest.split_once('"') {
            let mut is_escaped = false;
            let end = string.find(|letter| {
                let is_end = letter == '"' && !is_escaped;
                is_escaped = letter == '\\' && !is_escaped;
                is_end
            });
            let (string, after) = string.split_at(end.unwrap_or(string.len()));
            self.strike_numbers(between, &mut out);
            out.push('"');
            out.push_str(&self.struck_from(string, 1));
            out.push_str(if end.is_some() { "\"" } else { "" });
            rest = after.get(1..).unwrap_or_default();
        }
        self.strike_numbers(rest, &mut out);
        out
    }

    /// What stands between strings: a number that holds one becomes a string.
    fn strike_numbers(&self, between: &str, out: &mut String) {
        let is_sign = |letter: char| "[]{},:".contains(letter) || letter.is_ascii_whitespace();
        for piece in between.split_inclusive(is_sign) {
            let number = piece.trim_end_matches(is_sign);
            match self.found(number, 0).first() {
                Some(found) => {
                    let sign = piece.get(number.len()..).unwrap_or_default();
                    out.push_str(&format!("\"{}\"{sign}", found.value.mark()));
                },
                None => out.push_str(piece),
            }
        }
    }

    /// The same for a text whose beginning is lost, perhaps in the middle of a value.
    pub(crate) fn strike_cut(&self, text: String) -> String {
        let text = self.strike(text);
        let torn = self.values.iter().filter_map(|value| {
            let ends = value.text.char_indices();
            let ends = ends.filter_map(|(at, _)| value.text.get(at..));
            let ends = ends.filter(|end| end.len() >= SHORTEST_END);
            let said = ends.flat_map(|end| (0..=DEEPEST).map(move |depth| (end, depth)));
            let said = said.filter_map(|(end, depth)| spelled(&text, end, depth));
            Some((said.max()?, value.mark()))
        });
        match torn.max_by_key(|(length, _)| *length) {
            Some((length, mark)) => mark + text.get(length..).unwrap_or_default(),
            None => text,
        }
    }
}

impl StdioReach {
    /// What is told of where it is, without the variables that were filled in there.
    pub fn without_filled(&self, told: String) -> String {
        Hidden::default().and_values(&self.filled).strike(told)
    }
}

impl Value {
    fn begins_with(&self, letter: Option<char>) -> bool {
        letter.is_some_and(|letter| self.text.starts_with(letter))
    }

    /// Safe inside a JSON text.
    fn mark(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        match self.name.chars().all(is_plain) {
            true => format!("[redacted: {}]", self.name),
            false => "[redacted]".to_owned(),
        }
    }
}

impl Found<'_> {
    /// Both of them, which overlap.
    fn join(&mut self, other: Self) {
        self.to = self.to.max(other.to);
        if other.value.text.len() > self.value.text.len() {
            self.value = other.value;
        }
    }
}

/// Shows how many there are, and none of them.
impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hidden({})", self.values.len())
    }
}

/// What of a variable's value is a secret. A value of several lines is also told line by line.
fn secrets(name: &OsStr, value: &str) -> Vec<String> {
    if is_proxy(name) {
        let url = Url::parse(value).ok();
        let password = url.and_then(|url| url.password().map(str::to_owned));
        return password.into_iter().collect();
    }
    if is_harmless(name) {
        return Vec::new();
    }
    let value = value.trim();
    let lines = value.lines().map(str::trim);
    let mut all: Vec<String> = lines.map(str::to_owned).collect();
    all.push(value.to_owned());
    all.sort_unstable();
    all.dedup();
    all.retain(|text| text.chars().count() >= SHORTEST);
    all
}

/// What of a variable is a secret that holds a whole URL: not where it leads, but what is asked for
/// there.
fn secrets_of_url(url: &Url) -> Vec<String> {
    let parts = url.path_segments().into_iter().flatten();
    let parts = parts.filter(|part| part.len() >= LONG_PART);
    let query = url.query_pairs().map(|(_, value)| value.into_owned());
    let password = url.password().map(str::to_owned);
    let mut all: Vec<String> = parts.map(str::to_owned).chain(query).collect();
    all.push(url.path().to_owned());
    all.extend(password);
    all
}

/// How a text may stand in another one: as it is, or in a URL. What JSON makes of it is read where
/// it is looked for.
fn forms(text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~".contains(letter);
    if text.chars().all(is_plain) {
        return all;
    }
    if let Ok(mut url) = Url::parse("http://h/") {
        url.set_path(text);
        all.push(url.path().trim_start_matches('/').to_owned());
        url.query_pairs_mut().append_pair("k", text);
        all.extend(
            url.query()
                .and_then(|query| query.get(2..))
                .map(str::to_owned),
        );
    }
    all
}

/// A part of a path that is as long is no word.
const LONG_PART: usize = 16;
/// Shorter values stand in every text.
const SHORTEST: usize = 6;
/// Less of a value tells nobody anything.
const SHORTEST_END: usize = 3;

#[cfg(test)]
mod tests;
