//! What a child must not tell on: the values of its variables, struck out of what it says.
//!
//! Asked by: [`stderr`](super::stderr), where the end of a standard error is taken, and the
//! reports on a child.
//!
//! Why it exists: a program that dies often prints its configuration, and what it prints is shown
//! in the log, by `doctor` and in errors (reliability O24).
//! What is struck out: every value that was given to it beyond what each program gets, and the
//!   password in the address of a proxy. What is shorter than six characters is in every text, and
//!   stays.

use std::ffi::OsStr;

use url::Url;
use zeroize::Zeroizing;

use super::environment::{Environment, is_harmless, is_proxy};

/// Values that are struck out of a text, the longest first.
#[derive(Default)]
pub(crate) struct Hidden {
    values: Vec<Value>,
}

struct Value {
    /// The name of its variable, which is no secret.
    name: String,
    text: Zeroizing<String>,
}

impl Hidden {
    /// What a child with these variables must not tell.
    pub(crate) fn of(environment: &Environment) -> Self {
        let mut values = Vec::new();
        for (name, value) in environment {
            let text = value.to_string_lossy();
            for secret in secrets(name, &text) {
                values.push(Value {
                    name: name.to_string_lossy().into_owned(),
                    text: Zeroizing::new(secret),
                });
            }
        }
        values.sort_by_key(|value| std::cmp::Reverse(value.text.len()));
        Self { values }
    }

    /// The text without them. Each leaves the name of its variable.
    pub(crate) fn strike(&self, mut text: String) -> String {
        for value in &self.values {
            if text.contains(value.text.as_str()) {
                text = text.replace(value.text.as_str(), &value.mark());
            }
        }
        text
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
    fn mark(&self) -> String {
        format!("[redacted: {}]", self.name)
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
        assert_eq!(format!("{child:?}"), "Hidden(7)");
    }
}
