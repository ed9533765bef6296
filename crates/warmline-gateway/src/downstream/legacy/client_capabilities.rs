//! The capabilities of a legacy client: as flags for its ticket and, while it is in memory, in its own
//! words where they say more.

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::exchange::ServerRequestKind;

/// What a client can answer. The meaning of a bit never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapabilityFlags(pub(super) u16);

/// The bit of each capability, and its path in the protocol's object.
const CAPABILITY_BITS: &[(u16, &[&str])] = &[
    (1, &["elicitation"]),
    (1 << 1, &["elicitation", "form"]),
    (1 << 2, &["elicitation", "url"]),
    (1 << 3, &["sampling"]),
    (1 << 4, &["sampling", "tools"]),
    (1 << 5, &["sampling", "context"]),
    (1 << 6, &["roots"]),
    (1 << 7, &["roots", "listChanged"]),
];

impl CapabilityFlags {
    /// Whether the client can answer such a server request. There are no flags for requests that the
    /// protocol does not define, so the client itself declines those.
    pub(crate) const fn can_answer(self, question: ServerRequestKind) -> bool {
        let bits = match question {
            ServerRequestKind::Elicitation => 0b111,
            ServerRequestKind::Sampling => 0b11_1000,
            ServerRequestKind::Roots => 0b1100_0000,
            ServerRequestKind::Other => return true,
        };
        self.0 & bits != 0
    }

    pub(crate) fn from_capabilities(capabilities: &[u8]) -> Self {
        let Ok(stated) = serde_json::from_slice::<Value>(capabilities) else {
            return Self::default();
        };
        let is_stated = |path: &[&str]| {
            let value = path.iter().try_fold(&stated, |value, name| value.get(name));
            value.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
        };
        let stated = CAPABILITY_BITS.iter().filter(|(_, path)| is_stated(path));
        Self(stated.fold(0, |bits, (bit, _)| bits | bit))
    }

    /// The object for these flags.
    pub(crate) fn to_capabilities(self) -> Bytes {
        let mut stated = json!({});
        for (bit, path) in CAPABILITY_BITS {
            match path {
                _ if self.0 & bit == 0 => {},
                [name] => stated[*name] = json!({}),
                ["roots", name] => stated["roots"][*name] = json!(true),
                [outer, name] => stated[*outer][*name] = json!({}),
                _ => {},
            }
        }
        Bytes::from(stated.to_string())
    }
}

/// The declaration itself, where it says more than the flags: experimental capabilities, extensions,
/// tasks.
pub(crate) fn capabilities_beyond_flags(capabilities: &[u8]) -> Option<Bytes> {
    if capabilities.len() > MAX_DECLARED_BYTES {
        return None;
    }
    let stated: Value = serde_json::from_slice(capabilities).ok()?;
    let flags = CapabilityFlags::from_capabilities(capabilities).to_capabilities();
    let is_more = serde_json::from_slice::<Value>(&flags).ok()? != stated;
    is_more.then(|| Bytes::copy_from_slice(capabilities))
}

/// A longer declaration is reduced to its flags.
const MAX_DECLARED_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_declared_is_said_again_from_its_flags() {
        for bits in 0..=255 {
            let answers =
                CapabilityFlags::from_capabilities(&CapabilityFlags(bits).to_capabilities());
            let again = CapabilityFlags::from_capabilities(&answers.to_capabilities());
            assert_eq!(again, answers);
            // A part of a capability implies the whole.
            assert_eq!(answers.0 & bits, bits);
        }
        let odd = br#"{"roots":{"listChanged":false},"sampling":null,"experimental":{"a":{}}}"#;
        assert_eq!(
            CapabilityFlags::from_capabilities(odd),
            CapabilityFlags(1 << 6)
        );
        assert_eq!(
            CapabilityFlags::from_capabilities(b"[]"),
            CapabilityFlags::default()
        );
    }

    #[test]
    fn words_are_kept_only_where_they_say_more_than_flags() {
        for bits in 0..=255 {
            let flags = CapabilityFlags(bits).to_capabilities();
            assert_eq!(capabilities_beyond_flags(&flags), None, "{flags:?}");
        }
        let spaced = br#"{ "sampling": {}, "roots": {"listChanged": true} }"#;
        assert_eq!(capabilities_beyond_flags(spaced), None);
        for more in [
            r#"{"experimental":{"acme/x":{"a":1}}}"#,
            r#"{"sampling":{},"tasks":{"list":{}}}"#,
            r#"{"sampling":{"tools":{"most":3}}}"#,
        ] {
            assert_eq!(
                capabilities_beyond_flags(more.as_bytes()).unwrap(),
                more.as_bytes()
            );
        }
        let long = format!(
            r#"{{"experimental":{{"a":"{}"}}}}"#,
            "x".repeat(MAX_DECLARED_BYTES)
        );
        assert_eq!(capabilities_beyond_flags(long.as_bytes()), None);
        assert_eq!(capabilities_beyond_flags(b"{"), None);
    }
}
