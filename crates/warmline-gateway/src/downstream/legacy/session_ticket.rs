//! The session id of a legacy client: a sealed ticket.
//!
//! It holds everything about a client session, so that an idle client costs no memory and a restart
//! loses none. It does not authenticate: the identity and the route of each request must match it, or
//! the id is unknown. ADR 0014 says why it holds the name of its run and not a digest.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::era::Version;
use warmline_core::exchange::{Diagnostic, ServerRequestKind};
use warmline_core::pool_key::Digest;
use warmline_store::keyring::{Keyring, Purpose};

/// The version of the sealed format. Others are not read.
const FORMAT_VERSION: u8 = 3;
/// Format version, identity, route, session key, protocol version, capabilities, time, and the run: the
/// length of its name, and space for the longest.
const PLAIN_LENGTH: usize = 1 + 16 + 16 + 16 + 1 + 2 + 8 + 1 + MAX_RUN_NAME;
const MAX_RUN_NAME: usize = 128;
/// The longest ticket. Longer texts are not decoded.
const MAX_TEXT: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionTicket {
    pub(crate) identity: Digest,
    /// The digest of the server and the run in the path.
    pub(crate) route: Digest,
    /// The run that the client named; `None` for the session's own.
    pub(crate) run: Option<Box<str>>,
    /// Its own unguessable key.
    pub(crate) session_key: Digest,
    pub(crate) version: Version,
    pub(crate) capabilities: CapabilityFlags,
    /// Seconds of the Unix epoch.
    pub(crate) issued_at: u64,
}

impl SessionTicket {
    pub(crate) fn seal(&self, vault: &Keyring) -> Result<String, Diagnostic> {
        let mut plain = Vec::with_capacity(PLAIN_LENGTH);
        plain.push(FORMAT_VERSION);
        for digest in [&self.identity, &self.route, &self.session_key] {
            plain.extend_from_slice(digest.as_bytes());
        }
        plain.push(version_index(self.version));
        plain.extend_from_slice(&self.capabilities.0.to_le_bytes());
        plain.extend_from_slice(&self.issued_at.to_le_bytes());
        let run = self.run.as_deref().unwrap_or_default();
        plain.push(u8::try_from(run.len()).unwrap_or_default());
        plain.extend_from_slice(run.as_bytes());
        // A longer name was rejected before, and a ticket of another length is not opened.
        plain.resize(PLAIN_LENGTH.max(plain.len()), 0);
        let sealed = vault.seal(Purpose::Ticket, b"", &plain)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The ticket in a text, if this gateway sealed it.
    pub(crate) fn open(vault: &Keyring, text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let plain = vault.unseal(Purpose::Ticket, b"", &sealed).ok()?;
        let mut rest = TicketReader(plain.get(..).filter(|plain| plain.len() == PLAIN_LENGTH)?);
        if rest.take_bytes::<1>()? != [FORMAT_VERSION] {
            return None;
        }
        Some(Self {
            identity: Digest::new(rest.take_bytes()?),
            route: Digest::new(rest.take_bytes()?),
            session_key: Digest::new(rest.take_bytes()?),
            version: {
                let [index] = rest.take_bytes()?;
                *Version::ALL.get(usize::from(index))?
            },
            capabilities: CapabilityFlags(u16::from_le_bytes(rest.take_bytes()?)),
            issued_at: u64::from_le_bytes(rest.take_bytes()?),
            run: {
                let [length] = rest.take_bytes()?;
                let name = std::str::from_utf8(rest.0.get(..length.into())?).ok()?;
                (length > 0).then(|| name.into())
            },
        })
    }

    pub(crate) fn own_run_name(&self) -> String {
        format!("client_{}", self.session_key.to_hex())
    }
}

struct TicketReader<'a>(&'a [u8]);

impl TicketReader<'_> {
    fn take_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
}

/// The index in the list of versions, which only grows.
fn version_index(version: Version) -> u8 {
    let place = Version::ALL.iter().position(|known| *known == version);
    place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(u8::MAX)
}

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

    fn ticket(version: Version) -> SessionTicket {
        SessionTicket {
            identity: Digest::new([1; 16]),
            route: Digest::new([2; 16]),
            run: Some("r1".into()),
            session_key: Digest::new([3; 16]),
            version,
            capabilities: CapabilityFlags(5),
            issued_at: 1_790_000_000,
        }
    }

    #[test]
    fn a_ticket_says_what_was_sealed_and_stays_short() {
        let vault = Keyring::ephemeral().unwrap();
        for version in Version::ALL {
            let text = ticket(version).seal(&vault).unwrap();
            assert!(text.len() <= MAX_TEXT, "{}", text.len());
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(
                SessionTicket::open(&vault, text.as_bytes()),
                Some(ticket(version))
            );
        }
    }

    /// A ticket knows its run again, and has one size whatever run it belongs to.
    #[test]
    fn a_ticket_knows_its_run_again() {
        let vault = Keyring::ephemeral().unwrap();
        let mut sizes = Vec::new();
        for length in [0, 1, MAX_RUN_NAME] {
            let name = "x".repeat(length);
            let named = Some(&*name).filter(|name| !name.is_empty());
            let given = SessionTicket {
                run: named.map(Box::from),
                ..ticket(Version::NEWEST_LEGACY)
            };
            let text = given.seal(&vault).unwrap();
            let opened = SessionTicket::open(&vault, text.as_bytes()).unwrap();
            assert_eq!(opened, given);
            sizes.push(text.len());
        }
        sizes.dedup();
        assert_eq!(sizes.len(), 1);
    }

    #[test]
    fn whatever_is_no_ticket_of_ours_is_none() {
        let (vault, other) = (Keyring::ephemeral().unwrap(), Keyring::ephemeral().unwrap());
        let text = ticket(Version::NEWEST_LEGACY).seal(&vault).unwrap();
        assert_eq!(SessionTicket::open(&other, text.as_bytes()), None);
        for place in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(SessionTicket::open(&vault, &forged), None, "{place}");
            assert_eq!(SessionTicket::open(&vault, &text.as_bytes()[..place]), None);
        }
        let record = vault
            .seal(Purpose::Record, b"", &[1; PLAIN_LENGTH])
            .unwrap();
        let record = URL_SAFE_NO_PAD.encode(record);
        assert_eq!(SessionTicket::open(&vault, record.as_bytes()), None);
        assert_eq!(SessionTicket::open(&vault, &[b'A'; 4096]), None);
    }

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
