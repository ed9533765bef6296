//! What a client declares that it can answer: as flags that fit into a ticket and, while the client
//! is remembered, in its own words where they say more.
//!
//! Asked by: the legacy face at `initialize`, and whoever opens a session for a client.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use warmline::core::exchange::QuestionKind;

/// What a client can answer. Each is a bit that is never given a second meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers(u16);

/// A capability: its bit, and the place in the protocol's object that says it.
struct Bit(u16, &'static [&'static str]);

const BITS: &[Bit] = &[
    Bit(1, &["elicitation"]),
    Bit(1 << 1, &["elicitation", "form"]),
    Bit(1 << 2, &["elicitation", "url"]),
    Bit(1 << 3, &["sampling"]),
    Bit(1 << 4, &["sampling", "tools"]),
    Bit(1 << 5, &["sampling", "context"]),
    Bit(1 << 6, &["roots"]),
    Bit(1 << 7, &["roots", "listChanged"]),
];

impl Answers {
    pub(crate) const fn of_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Whether it can answer such a question. What the protocol does not name no flag tells: the
    /// client itself says so.
    pub(crate) const fn can(self, question: QuestionKind) -> bool {
        let bits = match question {
            QuestionKind::Elicitation => 0b111,
            QuestionKind::Sampling => 0b11_1000,
            QuestionKind::Roots => 0b1100_0000,
            QuestionKind::Other => return true,
        };
        self.0 & bits != 0
    }

    /// What a raw object of client capabilities says. Only what is known is taken.
    pub(crate) fn of(capabilities: &[u8]) -> Self {
        let Ok(stated) = serde_json::from_slice::<Value>(capabilities) else {
            return Self::default();
        };
        let says = |bit: &&Bit| {
            let place = bit
                .1
                .iter()
                .try_fold(&stated, |value, name| value.get(name));
            place.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
        };
        Self(BITS.iter().filter(says).fold(0, |bits, bit| bits | bit.0))
    }

    /// The object that says the same.
    pub(crate) fn capabilities(self) -> Bytes {
        let mut stated = Map::new();
        for Bit(bit, place) in BITS {
            if self.0 & bit == 0 {
                continue;
            }
            match place {
                [name] => {
                    stated.entry(*name).or_insert_with(|| json!({}));
                },
                ["roots", name] => set(&mut stated, "roots", name, json!(true)),
                [outer, name] => set(&mut stated, outer, name, json!({})),
                _ => {},
            }
        }
        Bytes::from(Value::Object(stated).to_string())
    }
}

/// What a client declared in its own words, where they say more than the flags do: what is
/// experimental, extensions, tasks. Too long ones are not kept.
pub(crate) fn beyond_flags(capabilities: &[u8]) -> Option<Bytes> {
    if capabilities.len() > LONGEST {
        return None;
    }
    let stated: Value = serde_json::from_slice(capabilities).ok()?;
    let flags = Answers::of(capabilities).capabilities();
    let is_more = serde_json::from_slice::<Value>(&flags).ok()? != stated;
    is_more.then(|| Bytes::copy_from_slice(capabilities))
}

/// A longer declaration is told by its flags alone.
const LONGEST: usize = 4 << 10;

fn set(stated: &mut Map<String, Value>, outer: &str, name: &str, value: Value) {
    let inside = stated.entry(outer).or_insert_with(|| json!({}));
    if let Value::Object(inside) = inside {
        inside.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_declared_is_said_again_from_its_flags() {
        for bits in 0..=255 {
            let answers = Answers::of(&Answers::of_bits(bits).capabilities());
            let again = Answers::of(&answers.capabilities());
            assert_eq!(again, answers);
            // A part of a capability implies the whole.
            assert_eq!(answers.bits() & bits, bits);
        }
        let odd = br#"{"roots":{"listChanged":false},"sampling":null,"experimental":{"a":{}}}"#;
        assert_eq!(Answers::of(odd), Answers::of_bits(1 << 6));
        assert_eq!(Answers::of(b"[]"), Answers::default());
    }

    #[test]
    fn words_are_kept_only_where_they_say_more_than_flags() {
        for bits in 0..=255 {
            let flags = Answers::of_bits(bits).capabilities();
            assert_eq!(beyond_flags(&flags), None, "{flags:?}");
        }
        let spaced = br#"{ "sampling": {}, "roots": {"listChanged": true} }"#;
        assert_eq!(beyond_flags(spaced), None);
        for more in [
            r#"{"experimental":{"acme/x":{"a":1}}}"#,
            r#"{"sampling":{},"tasks":{"list":{}}}"#,
            r#"{"sampling":{"tools":{"most":3}}}"#,
        ] {
            assert_eq!(beyond_flags(more.as_bytes()).unwrap(), more.as_bytes());
        }
        let long = format!(r#"{{"experimental":{{"a":"{}"}}}}"#, "x".repeat(LONGEST));
        assert_eq!(beyond_flags(long.as_bytes()), None);
        assert_eq!(beyond_flags(b"{"), None);
    }
}
