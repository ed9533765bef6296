//! Removes secrets from what servers say.
//!
//! A server that refuses a request often repeats it, and a program that dies often prints its
//! configuration. Logs, `doctor` and errors show it (reliability O24).
//!
//! Redacted are the credential and all configured headers, the values in a query, and variables that
//! were filled in; of a child each value that it got beyond the allow-list, and the password of a
//! proxy. Values of less than six characters are part of any text, and stay.

mod json_escapes;

use std::collections::BTreeMap;
use std::ffi::OsStr;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::exchange::{AttemptResult, Diagnostic, Reply};
use zeroize::Zeroizing;

use self::json_escapes::{ELLIPSIS, MAX_ESCAPE_DEPTH, decode_first_char, match_escaped};
use super::target::{HttpConfig, ServerTarget, StdioConfig, TransportConfig};
use crate::environment;
use crate::environment::{Environment, is_proxy_variable, is_public_variable};

/// The values to remove, longest first.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    secrets: Vec<SecretValue>,
}

#[derive(Clone)]
struct SecretValue {
    /// The name of its variable or header, which is no secret.
    name: String,
    text: Zeroizing<String>,
}

struct SecretMatch<'h> {
    start: usize,
    end: usize,
    secret: &'h SecretValue,
}

impl Redactor {
    pub(crate) fn for_environment(environment: &Environment) -> Self {
        let variables = environment.iter().flat_map(|(name, value)| {
            let all = secrets_of_variable(name, &value.to_string_lossy());
            let name = name.to_string_lossy().into_owned();
            all.into_iter().map(move |secret| (name.clone(), secret))
        });
        Self::default().with_secrets(variables)
    }

    pub(crate) fn for_server(server: &ServerTarget) -> Self {
        let credential = server.credential.as_ref().and_then(|it| it.header());
        let hidden = match &server.transport {
            TransportConfig::Http(reach) => Self::for_url(reach),
            TransportConfig::Stdio(reach) => {
                Self::for_environment(&environment::child_environment(reach))
                    .with_variables(&reach.substituted)
            },
        };
        hidden.with_headers(credential.as_slice())
    }

    pub(crate) fn for_url(reach: &HttpConfig) -> Self {
        let url = &reach.url;
        let query = url.query_pairs();
        let query = query.map(|(name, value)| (name.into_owned(), value.into_owned()));
        let host = url.host_str().unwrap_or_default();
        let mut filled = reach.substituted.clone();
        // The host of a server is no secret.
        filled.retain(|_, value| !host.contains(&value.to_ascii_lowercase()));
        Self::default()
            .with_secrets(query)
            .with_headers(&reach.headers)
            .with_variables(&filled)
    }

    /// Adds header values: all of each, and each word behind its scheme.
    pub(crate) fn with_headers(self, headers: &[(HeaderName, HeaderValue)]) -> Self {
        let texts = headers.iter().flat_map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let words: Vec<String> = value.split(' ').skip(1).map(str::to_owned).collect();
            let all = std::iter::once(value).chain(words);
            all.map(|text| (name.to_string(), text))
        });
        self.with_secrets(texts)
    }

    pub(crate) fn with_variables(self, variables: &BTreeMap<String, String>) -> Self {
        let texts = variables.iter().flat_map(|(name, value)| {
            let all = match Url::parse(value) {
                Ok(url) if url.has_host() => secrets_of_url(&url),
                Ok(_) | Err(_) => secrets_of_variable(OsStr::new(name), value),
            };
            all.into_iter().map(move |text| (name.clone(), text))
        });
        self.with_secrets(texts)
    }

    fn with_secrets(mut self, texts: impl Iterator<Item = (String, String)>) -> Self {
        for (name, text) in texts {
            for text in encoded_forms(text.trim()) {
                let is_long = text.chars().count() >= MIN_SECRET_CHARS;
                if is_long && self.secrets.iter().all(|known| *known.text != text) {
                    self.secrets.push(SecretValue {
                        name: name.clone(),
                        text: Zeroizing::new(text),
                    });
                }
            }
        }
        self.secrets
            .sort_by_key(|value| std::cmp::Reverse(value.text.len()));
        self
    }

    /// Replaces each secret by its name.
    pub(crate) fn redact(&self, text: String) -> String {
        match self.may_match(&text) {
            true => self.redact_escaped(&text, 0),
            false => text,
        }
    }

    fn may_match(&self, text: &str) -> bool {
        let is_in = |value: &SecretValue| text.contains(value.text.as_str());
        !self.secrets.is_empty()
            && (text.contains(['\\', ELLIPSIS]) || self.secrets.iter().any(is_in))
    }

    /// The same for a text that was escaped at least so often.
    fn redact_escaped(&self, text: &str, depth: usize) -> String {
        let mut out = String::with_capacity(text.len());
        let mut kept = 0;
        for found in self.find_matches(text, depth) {
            out.push_str(text.get(kept..found.start).unwrap_or_default());
            out.push_str(&found.secret.placeholder());
            kept = found.end;
        }
        out.push_str(text.get(kept..).unwrap_or_default());
        out
    }

    /// Overlapping matches are merged, with the name of the longest.
    fn find_matches(&self, text: &str, depth: usize) -> Vec<SecretMatch<'_>> {
        let deepest = match text.contains('\\') {
            true => MAX_ESCAPE_DEPTH,
            false => depth,
        };
        let mut all: Vec<SecretMatch<'_>> = Vec::new();
        let mut from = 0;
        while let Some(rest) = text.get(from..)
            && let Some((_, step)) = decode_first_char(rest, depth)
        {
            for depth in depth..=deepest {
                let letter = decode_first_char(rest, depth).map(|(letter, _)| letter);
                let begun = self.secrets.iter();
                for secret in begun.filter(|secret| secret.text.chars().next() == letter) {
                    let Some(length) = match_escaped(rest, &secret.text, depth) else {
                        continue;
                    };
                    let (start, end) = (from, from + length);
                    match all.last_mut() {
                        Some(last) if start < last.end => {
                            last.end = last.end.max(end);
                            if secret.text.len() > last.secret.text.len() {
                                last.secret = secret;
                            }
                        },
                        Some(_) | None => all.push(SecretMatch { start, end, secret }),
                    }
                }
            }
            from += step;
        }
        all
    }

    pub(crate) fn redact_diagnostic(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        diagnostic.message = self.redact(diagnostic.message);
        diagnostic.cause = diagnostic.cause.map(|why| self.redact(why));
        diagnostic.hint = diagnostic.hint.map(|hint| self.redact(hint));
        diagnostic
    }

    /// A result is its caller's and stays as it is; an error goes to others, too.
    pub(crate) fn redact_ending(&self, ending: AttemptResult) -> AttemptResult {
        match ending {
            AttemptResult::Failed(mut failure) => {
                failure.diagnostic = self.redact_diagnostic(failure.diagnostic);
                AttemptResult::Failed(failure)
            },
            AttemptResult::Answered(Reply::Error(error)) => {
                AttemptResult::Answered(Reply::Error(self.redact_json_bytes(error)))
            },
            AttemptResult::Answered(reply @ Reply::Result(_)) => AttemptResult::Answered(reply),
        }
    }

    fn redact_json_bytes(&self, bytes: Bytes) -> Bytes {
        let json = String::from_utf8_lossy(&bytes);
        match self.may_match(&json) {
            true => Bytes::from(self.redact_json(&json)),
            false => bytes,
        }
    }

    /// The result is still JSON: strings are handled apart from what is between them.
    fn redact_json(&self, json: &str) -> String {
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
            self.redact_outside_strings(between, &mut out);
            out.push('"');
            out.push_str(&self.redact_escaped(string, 1));
            out.push_str(if end.is_some() { "\"" } else { "" });
            rest = after.get(1..).unwrap_or_default();
        }
        self.redact_outside_strings(rest, &mut out);
        out
    }

    /// Between strings a number that holds a secret becomes a string.
    fn redact_outside_strings(&self, between: &str, out: &mut String) {
        let is_sign = |letter: char| "[]{},:".contains(letter) || letter.is_ascii_whitespace();
        for piece in between.split_inclusive(is_sign) {
            let number = piece.trim_end_matches(is_sign);
            match self.find_matches(number, 0).first() {
                Some(found) => {
                    let sign = piece.get(number.len()..).unwrap_or_default();
                    out.push_str(&format!("\"{}\"{sign}", found.secret.placeholder()));
                },
                None => out.push_str(piece),
            }
        }
    }

    /// The same for a text that may start in the middle of a secret.
    pub(crate) fn redact_truncated(&self, text: String) -> String {
        let text = self.redact(text);
        let torn = self.secrets.iter().filter_map(|value| {
            let ends = value.text.char_indices();
            let ends = ends.filter_map(|(at, _)| value.text.get(at..));
            let ends = ends.filter(|end| end.len() >= MIN_SECRET_SUFFIX);
            let said = ends.flat_map(|end| (0..=MAX_ESCAPE_DEPTH).map(move |depth| (end, depth)));
            let said = said.filter_map(|(end, depth)| match_escaped(&text, end, depth));
            Some((said.max()?, value.placeholder()))
        });
        match torn.max_by_key(|(length, _)| *length) {
            Some((length, mark)) => mark + text.get(length..).unwrap_or_default(),
            None => text,
        }
    }
}

impl StdioConfig {
    /// Removes the variables that were filled in.
    pub fn redact_substituted(&self, text: String) -> String {
        Redactor::default()
            .with_variables(&self.substituted)
            .redact(text)
    }
}

impl SecretValue {
    /// Safe inside a JSON text.
    fn placeholder(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        match self.name.chars().all(is_plain) {
            true => format!("[redacted: {}]", self.name),
            false => "[redacted]".to_owned(),
        }
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hidden({})", self.secrets.len())
    }
}

/// The secrets in a variable. A value of several lines is also printed line by line.
fn secrets_of_variable(name: &OsStr, value: &str) -> Vec<String> {
    if is_proxy_variable(name) {
        let url = Url::parse(value).ok();
        let password = url.and_then(|url| url.password().map(str::to_owned));
        return password.into_iter().collect();
    }
    if is_public_variable(name) {
        return Vec::new();
    }
    let value = value.trim();
    let lines = value.lines().map(str::trim);
    let mut all: Vec<String> = lines.map(str::to_owned).collect();
    all.push(value.to_owned());
    all.sort_unstable();
    all.dedup();
    all.retain(|text| text.chars().count() >= MIN_SECRET_CHARS);
    all
}

/// The secrets in a variable that holds a URL: not its host, but its path and query.
fn secrets_of_url(url: &Url) -> Vec<String> {
    let parts = url.path_segments().into_iter().flatten();
    let parts = parts.filter(|part| part.len() >= MIN_SECRET_PATH_SEGMENT);
    let query = url.query_pairs().map(|(_, value)| value.into_owned());
    let password = url.password().map(str::to_owned);
    let mut all: Vec<String> = parts.map(str::to_owned).chain(query).collect();
    all.push(url.path().to_owned());
    all.extend(password);
    all
}

/// The text itself, and its forms in a URL. Escapes of JSON are handled while matching.
fn encoded_forms(text: &str) -> Vec<String> {
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

/// A path segment of this length is no word.
const MIN_SECRET_PATH_SEGMENT: usize = 16;
/// Shorter values are part of any text.
const MIN_SECRET_CHARS: usize = 6;
/// A shorter end of a secret reveals nothing.
const MIN_SECRET_SUFFIX: usize = 3;

#[cfg(test)]
mod tests;
