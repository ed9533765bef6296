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
//!   is in every text, and stays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::exchange::{Ending, Reply, Trouble};
use zeroize::Zeroizing;

use super::environment::{self, Environment, is_harmless, is_proxy};
use super::server::{HttpReach, Reach, Server};

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
    pub(crate) fn strike(&self, mut text: String) -> String {
        for value in &self.values {
            if text.contains(value.text.as_str()) {
                text = text.replace(value.text.as_str(), &value.mark());
            }
        }
        if text.contains(CUT) {
            text = self.strike_before_cuts(&text);
        }
        text
    }

    /// What was shortened may end with the beginning of one.
    fn strike_before_cuts(&self, text: &str) -> String {
        let mut pieces: Vec<Cow<'_, str>> = text.split(CUT).map(Cow::Borrowed).collect();
        let cut = pieces.len().saturating_sub(1);
        for piece in pieces.iter_mut().take(cut) {
            let torn = self.values.iter().filter_map(|value| {
                let starts = value.text.char_indices().map(|(at, _)| at).rev();
                let mut starts = starts.take_while(|at| *at >= SHORTEST_END);
                let length = starts.find(|at| {
                    let start = value.text.get(..*at);
                    start.is_some_and(|start| piece.ends_with(start))
                })?;
                Some((length, value.mark()))
            });
            if let Some((length, mark)) = torn.max_by_key(|(length, _)| *length) {
                let kept = piece.get(..piece.len() - length).unwrap_or_default();
                *piece = Cow::Owned(format!("{kept}{mark}"));
            }
        }
        pieces.join(CUT)
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
        let is_in = |value: &Value| memchr::memmem::find(&bytes, value.text.as_bytes()).is_some();
        if !self.values.iter().any(is_in) {
            return bytes;
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Bytes::from(self.strike(text.to_owned())),
            // JSON is UTF-8: whoever reads this would have refused it.
            Err(_) => bytes,
        }
    }

    /// The same for a text whose beginning is lost, perhaps in the middle of a value.
    pub(crate) fn strike_cut(&self, text: String) -> String {
        let text = self.strike(text);
        let torn = self.values.iter().filter_map(|value| {
            let ends = value.text.char_indices().map(|(at, _)| at);
            let mut ends = ends.filter_map(|at| value.text.get(at..));
            let end = ends.find(|end| text.starts_with(end))?;
            (end.len() >= SHORTEST_END).then_some(())?;
            Some((end.len(), value.mark()))
        });
        match torn.max_by_key(|(length, _)| *length) {
            Some((length, mark)) => mark + text.get(length..).unwrap_or_default(),
            None => text,
        }
    }
}

impl Value {
    /// Safe inside a JSON text.
    fn mark(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        match self.name.chars().all(is_plain) {
            true => format!("[redacted: {}]", self.name),
            false => "[redacted]".to_owned(),
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

/// How a text may stand in another one: as it is, in a URL, in JSON.
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
    let json = serde_json::Value::from(text).to_string();
    let json = json.trim_matches('"').to_owned();
    all.push(json.replace('/', "\\/"));
    all.push(json);
    all
}

/// The sign of what was shortened.
const CUT: &str = "…";
/// A part of a path that is as long is no word.
const LONG_PART: usize = 16;
/// Shorter values stand in every text.
const SHORTEST: usize = 6;
/// Less of a value tells nobody anything.
const SHORTEST_END: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(variables: &[(&str, &str)]) -> Hidden {
        let pairs = variables.iter();
        Hidden::of(
            &pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// reliability O24: what a child was given in confidence is not in what it says.
    #[test]
    fn values_are_struck_out_of_what_a_child_says() {
        let child = hidden(&[
            ("TOKEN", "canary-1"),
            ("LONGER", "canary-1-and-more"),
            ("KEY", "-----BEGIN-----\nbody-of-the-key\n-----END-----"),
            ("MODE", "quiet"),
            ("HOME", "/home/somebody"),
            ("LC_ALL", "C.UTF-8"),
            ("HTTPS_PROXY", "http://me:pass-word@proxy:3128"),
        ]);
        let table = [
            ("token=canary-1!", "token=[redacted: TOKEN]!"),
            ("canary-1-and-more", "[redacted: LONGER]"),
            ("a body-of-the-key b", "a [redacted: KEY] b"),
            ("quiet in /home/somebody", "quiet in /home/somebody"),
            ("C.UTF-8", "C.UTF-8"),
            ("me:pass-word@proxy", "me:[redacted: HTTPS_PROXY]@proxy"),
            ("nothing of it", "nothing of it"),
        ];
        for (said, shown) in table {
            assert_eq!(child.strike(said.to_owned()), shown, "{said}");
        }
        assert_eq!(
            child.strike_cut("ary-1 x".to_owned()),
            "[redacted: TOKEN] x"
        );
        assert_eq!(child.strike_cut("other x".to_owned()), "other x");
        assert_eq!(format!("{child:?}"), "Hidden(10)");
    }

    fn of_url(url: &str, filled: &[(&str, &str)]) -> Hidden {
        let pairs = filled.iter();
        let reach = HttpReach {
            url: url.parse().unwrap(),
            headers: vec![(
                http::header::AUTHORIZATION,
                HeaderValue::from_static("Bearer to/ken+1=="),
            )],
            ca_file: None,
            filled: pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        Hidden::of_url(&reach)
    }

    /// A66: what a server repeats of a request is struck out, in whatever form it repeats it; where
    /// the server is stays readable.
    #[test]
    fn what_a_server_repeats_of_a_request_is_struck_out() {
        let filled = [
            ("KEY", "s3cret&more"),
            ("HOST", "Example.com"),
            ("SHORT", "mcp"),
            (
                "PLACE",
                "http://other.example/hooks/0123456789abcdef?k=quite-long",
            ),
        ];
        let hidden = of_url("http://example.com/s3cret&more/mcp?key=in-query", &filled);
        let table = [
            ("Bearer to/ken+1==", "[redacted: authorization]"),
            ("got to/ken+1==.", "got [redacted: authorization]."),
            (
                r#"{"t":"to\/ken+1=="}"#,
                r#"{"t":"[redacted: authorization]"}"#,
            ),
            ("k=to%2Fken%2B1%3D%3D", "k=[redacted: authorization]"),
            ("?key=in-query", "?key=[redacted: key]"),
            (
                "http://example.com/s3cret&more/mcp",
                "http://example.com/[redacted: KEY]/mcp",
            ),
            ("/hooks/0123456789abcdef", "[redacted: PLACE]"),
            ("at 0123456789abcdef", "at [redacted: PLACE]"),
            ("http://other.example", "http://other.example"),
            ("cut off: to/ke…\"", "cut off: [redacted: authorization]…\""),
            ("not a token…", "not a token…"),
        ];
        for (said, shown) in table {
            assert_eq!(hidden.strike(said.to_owned()), shown, "{said}");
        }
    }
}
