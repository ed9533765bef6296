//! The state of a request that asked something, sealed to whoever asked.
//!
//! Asked by: the modern face, on the way down and on the way up.
//!
//! A server may answer that it needs to know more, and give a state to come back with. To the
//! server two of our callers may look alike, because one credential speaks for both. So what the
//! server gave is sealed to its caller and to the server, until a time. Nothing is remembered here.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use warmline::core::exchange::Trouble;
use warmline::core::key::Digest;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::seal::Purpose;
use warmline::{Vault, clock};

/// The member that holds it, in results and in parameters.
pub(super) const MEMBER: &str = "requestState";
/// So long a state can be used, in seconds: as long as a call may take.
const LASTS: u64 = 60 * 60;
/// The methods that may be answered with a question.
const ASKING: [&str; 3] = ["tools/call", "resources/read", "prompts/get"];

/// Whose a state is, and for which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding(Digest);

/// It is no state that was given to this caller for this server, or it is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotOurs;

/// What of a result matters here.
#[derive(Deserialize)]
struct Asking<'a> {
    #[serde(borrow, default, rename = "resultType")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "requestState")]
    state: Option<&'a RawValue>,
}

impl Binding {
    pub(super) fn new(vault: &Vault, who: Digest, server: &str) -> Self {
        let parts: [&[u8]; 3] = [b"state", who.bytes(), server.as_bytes()];
        Self(vault.digest(Purpose::Route, &parts))
    }

    /// The result with the server's state sealed; as it is where there is none.
    pub(super) fn seal(self, vault: &Vault, method: &str, result: Bytes) -> Result<Bytes, Trouble> {
        self.seal_until(vault, method, result, clock::wall_seconds() + LASTS)
    }

    fn seal_until(
        self,
        vault: &Vault,
        method: &str,
        result: Bytes,
        until: u64,
    ) -> Result<Bytes, Trouble> {
        let named = || memchr::memmem::find(&result, b"\"input_required\"").is_some();
        if !ASKING.contains(&method) || !named() {
            return Ok(result);
        }
        let asking = serde_json::from_slice::<Asking<'_>>(&result).ok();
        let asks = asking.filter(|asking| asking.kind.as_deref() == Some("input_required"));
        let Some(state) = asks.and_then(|asking| asking.state) else {
            return Ok(result);
        };
        // The very bytes of the server, quotes and all.
        let mut plain = until.to_le_bytes().to_vec();
        plain.extend_from_slice(state.get().as_bytes());
        let sealed = vault.seal(Purpose::RequestState, self.0.bytes(), &plain)?;
        let text = format!("\"{}\"", URL_SAFE_NO_PAD.encode(sealed));
        let mut out = Vec::with_capacity(result.len() + text.len());
        let edits = [Edit::Set(MEMBER, text.as_bytes())];
        match splice::edit_object(&result, &edits, &mut out) {
            Ok(()) => Ok(out.into()),
            Err(_) => Ok(result),
        }
    }

    /// The server's own state, raw, where the parameters hold one.
    pub(super) fn open(
        self,
        vault: &Vault,
        method: &str,
        params: &Params,
    ) -> Result<Option<Vec<u8>>, NotOurs> {
        self.open_at(vault, method, params, clock::wall_seconds())
    }

    fn open_at(
        self,
        vault: &Vault,
        method: &str,
        params: &Params,
        now: u64,
    ) -> Result<Option<Vec<u8>>, NotOurs> {
        if !ASKING.contains(&method) {
            return Ok(None);
        }
        let Some(raw) = params.member(MEMBER) else {
            return Ok(None);
        };
        let text = serde_json::from_slice::<Cow<'_, str>>(raw).map_err(|_| NotOurs)?;
        let sealed = URL_SAFE_NO_PAD.decode(&*text).map_err(|_| NotOurs)?;
        let plain = vault.unseal(Purpose::RequestState, self.0.bytes(), &sealed);
        let plain = plain.map_err(|_| NotOurs)?;
        let (until, state) = plain.split_first_chunk::<8>().ok_or(NotOurs)?;
        if u64::from_le_bytes(*until) < now {
            return Err(NotOurs);
        }
        Ok(Some(state.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "tools/call";
    const GIVEN: &str = r#"{"resultType":"input_required","inputRequests":{"q":{}},"requestState":"\u00e9t\/ \"1\""}"#;

    fn binding(vault: &Vault, who: u8, server: &str) -> Binding {
        Binding::new(vault, Digest::new([who; 16]), server)
    }

    fn state_of(result: &Bytes) -> String {
        let result: serde_json::Value = serde_json::from_slice(result).unwrap();
        result[MEMBER].as_str().unwrap().to_owned()
    }

    fn with_state(state: &str) -> Params {
        Params::of(&serde_json::json!({ "name": "ask", MEMBER: state })).unwrap()
    }

    #[test]
    fn a_state_comes_back_byte_for_byte_and_to_nobody_else() {
        let (vault, other) = (Vault::ephemeral().unwrap(), Vault::ephemeral().unwrap());
        let mine = binding(&vault, 1, "one");
        let sealed = mine.seal_until(&vault, CALL, GIVEN.into(), 100).unwrap();
        let state = state_of(&sealed);
        let opened = |vault: &Vault, whose: Binding, now| {
            whose.open_at(vault, CALL, &with_state(&state), now)
        };
        let expected = br#""\u00e9t\/ \"1\"""#.to_vec();
        assert_eq!(opened(&vault, mine, 100), Ok(Some(expected)));
        assert_eq!(opened(&vault, mine, 101), Err(NotOurs), "too old");
        let somebody = binding(&vault, 2, "one");
        assert_eq!(opened(&vault, somebody, 1), Err(NotOurs), "somebody else");
        let elsewhere = binding(&vault, 1, "two");
        assert_eq!(opened(&vault, elsewhere, 1), Err(NotOurs), "another server");
        assert_eq!(opened(&other, mine, 1), Err(NotOurs), "another instance");
        for place in 0..state.len() {
            let mut forged = state.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            let forged = with_state(&String::from_utf8(forged).unwrap());
            let opened = mine.open_at(&vault, CALL, &forged, 1);
            assert_eq!(opened, Err(NotOurs), "{place}");
        }
    }

    #[test]
    fn only_a_state_that_the_server_gave_is_sealed() {
        let vault = Vault::ephemeral().unwrap();
        let mine = binding(&vault, 1, "one");
        let rows = [
            (CALL, r#"{"content":[]}"#),
            (
                CALL,
                r#"{"resultType":"input_required","inputRequests":{}}"#,
            ),
            (
                CALL,
                r#"{"resultType":"complete","requestState":"mine","x":"input_required"}"#,
            ),
            ("tasks/get", GIVEN),
        ];
        for (method, result) in rows {
            let same = mine.seal_until(&vault, method, result.into(), 1).unwrap();
            assert_eq!(same, result, "{method}");
        }
        let none = mine.open_at(&vault, CALL, &Params::empty(), 1);
        assert_eq!(none, Ok(None));
        let others = mine.open_at(&vault, "x/other", &with_state("whatever"), 1);
        assert_eq!(others, Ok(None));
        for (state, what) in [("", "empty"), ("état", "not ours")] {
            let opened = mine.open_at(&vault, CALL, &with_state(state), 1);
            assert_eq!(opened, Err(NotOurs), "{what}");
        }
    }
}
