//! `requestState`: sealed for the caller that got it.
//!
//! A server may answer with `input_required` and a state that the client sends back. Two callers may
//! look alike to the server, because they share a credential. So the state is sealed for its caller,
//! its server and its request, and expires. The gateway stores nothing.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::pool_key::Digest;
use warmline_platform::clock;
use warmline_store::keyring::{Keyring, Purpose};

use super::tasks::{self, ClientExtensions};
use crate::downstream::message::edited;
use crate::response;
use crate::response::rejection::{RequestRejection, RpcCode};

/// The member that holds the state, in results and in parameters.
pub(super) const MEMBER: &str = "requestState";
/// The member that holds the kind of a result, with its quotes.
const RESULT_TYPE_KEY: &str = "\"resultType\"";
/// Seconds that a state is valid: as long as a call may take.
const STATE_TTL_SECS: u64 = 60 * 60;
/// The methods that a server may answer with `input_required`.
const INPUT_REQUIRED_METHODS: [&str; 3] = ["tools/call", READ_METHOD, "prompts/get"];
/// The only one of them that names its target by URI.
const READ_METHOD: &str = "resources/read";

/// Who a state or task is sealed for: caller, server and run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealBinding<'a> {
    pub(super) vault: &'a Keyring,
    pub(super) caller_key: Digest,
    pub(super) server: &'a str,
    pub(super) run: Option<&'a str>,
}

/// The request that a state was given for. Only the same request may send it back.
#[derive(Clone, Debug)]
pub(super) struct StateOrigin {
    method: &'static str,
    /// The name or URI at this endpoint.
    name: Bytes,
    is_aggregate: bool,
}

impl StateOrigin {
    /// `None` for a method that is never answered with a state.
    pub(super) fn from_request(method: &str, params: &Params, is_aggregate: bool) -> Option<Self> {
        let method = INPUT_REQUIRED_METHODS
            .into_iter()
            .find(|asking| *asking == method)?;
        let name = match method {
            READ_METHOD => params.uri(),
            _ => params.name(),
        };
        let name = match name {
            None => Bytes::new(),
            Some(Cow::Borrowed(plain)) => params.raw().slice_ref(plain.as_bytes()),
            Some(Cow::Owned(unescaped)) => unescaped.into(),
        };
        Some(Self {
            method,
            name,
            is_aggregate,
        })
    }

    fn parts(&self) -> [&[u8]; 3] {
        let came_at: &[u8] = if self.is_aggregate { b"all" } else { b"one" };
        [self.method.as_bytes(), &self.name, came_at]
    }
}

#[derive(Deserialize)]
pub(super) struct ResultMembers<'a> {
    #[serde(borrow, default, rename = "resultType")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestState")]
    state: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
}

/// Whether the bytes show that a result is complete: every `resultType` in it, at any depth, says so.
/// A member name can be written with escapes; a result that has any is parsed.
fn is_plainly_complete(result: &[u8]) -> bool {
    let mut kinds = memchr::memmem::find_iter(result, RESULT_TYPE_KEY.as_bytes());
    let says_complete = |place: usize| {
        let after = result
            .get(place + RESULT_TYPE_KEY.len()..)
            .unwrap_or_default();
        let value = after.trim_ascii_start().strip_prefix(b":");
        value.is_some_and(|value| value.trim_ascii_start().starts_with(b"\"complete\""))
    };
    memchr::memmem::find(result, b"\\u").is_none() && kinds.all(says_complete)
}

/// The kind of a result, if a client can understand it (mcp-spec 6.4); `None` where it is plainly complete.
pub(super) fn read_result_type<'r>(
    result: &'r [u8],
    extensions: &ClientExtensions,
) -> Result<Option<(Cow<'r, str>, ResultMembers<'r>)>, Diagnostic> {
    let is_object = result.trim_ascii_start().starts_with(b"{");
    if !is_object || is_plainly_complete(result) {
        return Ok(None);
    }
    // A result that cannot be parsed could leak a state.
    let asking =
        serde_json::from_slice::<ResultMembers<'_>>(result).map_err(|_| unreadable_result())?;
    let Some(raw) = asking.kind else {
        return Ok(None);
    };
    let kind = serde_json::from_str::<Cow<'_, str>>(raw.get()).map_err(|_| unreadable_result())?;
    let is_known = kind == "complete" || kind == "input_required";
    if is_known || extensions.allow_result_type(&kind) {
        return Ok(Some((kind, asking)));
    }
    let what = "the server's result has a type that the client did not declare";
    Err(Diagnostic::new(Reason::Internal, what))
}

/// The error in place of a result that cannot be passed on. The server did answer.
pub(super) fn undeliverable_message(id: &[u8], diagnostic: &Diagnostic) -> Bytes {
    let what = format!(
        "{}; it was answered, so it may have been executed",
        diagnostic.message
    );
    let delivery = Delivery::Answered.to_string();
    let data = json!({ "warmline": { "delivery": delivery } });
    response::error_message(Some(id), RpcCode::Internal.number(), &what, Some(&data))
}

fn unreadable_result() -> Diagnostic {
    let what = "the server's result cannot be read";
    Diagnostic::new(Reason::Internal, what)
}

impl SealBinding<'_> {
    /// The digest that a thing of this kind is bound to.
    fn digest(self, kind: &str, given_for: &[&[u8]]) -> Digest {
        let run = self.run.unwrap_or_default();
        let whose: [&[u8]; 4] = [
            kind.as_bytes(),
            self.caller_key.as_bytes(),
            self.server.as_bytes(),
            // No run has an empty name.
            run.as_bytes(),
        ];
        let parts = [&whose, given_for].concat();
        self.vault.digest(Purpose::Route, &parts)
    }

    /// The result with the server's state, or the task that it creates, sealed.
    pub(super) fn seal_result(
        self,
        result: Bytes,
        given_for: &StateOrigin,
        extensions: &ClientExtensions,
    ) -> Result<Bytes, Diagnostic> {
        let Some((kind, asking)) = read_result_type(&result, extensions)? else {
            return Ok(result);
        };
        let (member, sealed) = match (&*kind, asking.state, asking.task) {
            ("input_required", Some(state), _) => {
                // The server's own bytes, quotes included.
                let until = clock::wall_seconds() + STATE_TTL_SECS;
                let mut plain = until.to_le_bytes().to_vec();
                plain.extend_from_slice(state.get().as_bytes());
                (MEMBER, self.seal("state", &given_for.parts(), &plain)?)
            },
            (tasks::RESULT_TYPE, _, Some(id)) => {
                let sealed = self.seal(tasks::RESULT_TYPE, &[], id.get().as_bytes())?;
                (tasks::MEMBER, sealed)
            },
            _ => return Ok(result),
        };
        let edits = [Edit::Set(member, sealed.as_bytes())];
        edited(&result, &edits).ok_or_else(unreadable_result)
    }

    pub(super) fn seal(
        self,
        kind: &str,
        given_for: &[&[u8]],
        plain: &[u8],
    ) -> Result<String, Diagnostic> {
        let bound_to = self.digest(kind, given_for);
        let vault = self.vault;
        let sealed = vault.seal(Purpose::RequestState, bound_to.as_bytes(), plain)?;
        Ok(format!("\"{}\"", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// Opens bytes that were sealed for this caller, from a raw JSON string.
    pub(super) fn open(self, kind: &str, given_for: &[&[u8]], raw: &[u8]) -> Option<Vec<u8>> {
        let text = serde_json::from_slice::<Cow<'_, str>>(raw).ok()?;
        let sealed = URL_SAFE_NO_PAD.decode(&*text).ok()?;
        let bound_to = self.digest(kind, given_for);
        let vault = self.vault;
        let plain = vault.unseal(Purpose::RequestState, bound_to.as_bytes(), &sealed);
        Some(plain.ok()?.to_vec())
    }

    /// The server's own state, raw, if the parameters hold one.
    pub(super) fn open_state(
        self,
        params: &Params,
        given_for: &StateOrigin,
    ) -> Result<Option<Vec<u8>>, RequestRejection> {
        let Some(raw) = params.member(MEMBER) else {
            return Ok(None);
        };
        let plain = self.open("state", &given_for.parts(), raw);
        let state = plain.as_ref().and_then(|plain| {
            let (until, state) = plain.split_first_chunk::<8>()?;
            let is_valid = u64::from_le_bytes(*until) >= clock::wall_seconds();
            is_valid.then(|| state.to_vec())
        });
        let what = "Invalid params: this requestState was not given to you, or is too old";
        let foreign =
            || RequestRejection::bad_request(RpcCode::Params, what).with_audit_reason("bad-state");
        state.ok_or_else(foreign).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = r#"{"resultType":"input_required","inputRequests":{"q":{}},"requestState":"\u00e9t\/ \"1\""}"#;

    fn none() -> ClientExtensions {
        ClientExtensions::from_params(&Params::empty())
    }

    fn binding<'a>(vault: &'a Keyring, who: u8, server: &'a str) -> SealBinding<'a> {
        let who = Digest::new([who; 16]);
        SealBinding {
            vault,
            caller_key: who,
            server,
            run: None,
        }
    }

    fn in_run<'a>(binding: SealBinding<'a>, run: &'a str) -> SealBinding<'a> {
        SealBinding {
            run: Some(run),
            ..binding
        }
    }

    fn state_of(result: &Bytes) -> String {
        let result: serde_json::Value = serde_json::from_slice(result).unwrap();
        result[MEMBER].as_str().unwrap().to_owned()
    }

    fn asking(method: &str, name: &str, is_aggregate: bool) -> StateOrigin {
        let params = serde_json::json!({ "name": name, "uri": name });
        StateOrigin::from_request(
            method,
            &Params::from_serialize(&params).unwrap(),
            is_aggregate,
        )
        .unwrap()
    }

    fn ask() -> StateOrigin {
        asking("tools/call", "ask", false)
    }

    fn with_state(state: &str) -> Params {
        Params::from_serialize(&serde_json::json!({ "name": "ask", MEMBER: state })).unwrap()
    }

    #[test]
    fn a_state_comes_back_byte_for_byte_and_to_nobody_else() {
        let (vault, other) = (Keyring::ephemeral().unwrap(), Keyring::ephemeral().unwrap());
        let mine = binding(&vault, 1, "one");
        let sealed = mine.seal_result(GIVEN.into(), &ask(), &none()).unwrap();
        let state = state_of(&sealed);
        let open = |whose: SealBinding<'_>, state: &str, origin: &StateOrigin| {
            whose.open_state(&with_state(state), origin).ok()
        };
        let expected = br#""\u00e9t\/ \"1\"""#.to_vec();
        assert_eq!(open(mine, &state, &ask()), Some(Some(expected)));
        let seal_at = |until: u64| {
            let plain = [&until.to_le_bytes()[..], b"\"s\""].concat();
            let sealed = mine.seal("state", &ask().parts(), &plain).unwrap();
            serde_json::from_str::<String>(&sealed).unwrap()
        };
        let now = clock::wall_seconds();
        assert!(open(mine, &seal_at(now + 60), &ask()).is_some());
        assert_eq!(open(mine, &seal_at(now - 1), &ask()), None, "too old");
        for (whose, what) in [
            (binding(&vault, 2, "one"), "somebody else"),
            (binding(&vault, 1, "two"), "another server"),
            (binding(&other, 1, "one"), "another instance"),
            (in_run(mine, "r1"), "another run"),
        ] {
            assert_eq!(open(whose, &state, &ask()), None, "{what}");
        }
        for other in [
            asking("tools/call", "pay", false),
            asking("tools/call", "ask", true),
            asking("prompts/get", "ask", false),
            asking("resources/read", "ask", false),
        ] {
            assert_eq!(open(mine, &state, &other), None, "{other:?}");
        }
        for place in 0..state.len() {
            let mut forged = state.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(open(mine, &forged, &ask()), None, "{place}");
        }
    }

    #[test]
    fn only_a_state_that_the_server_gave_is_sealed() {
        let vault = Keyring::ephemeral().unwrap();
        let mine = binding(&vault, 1, "one");
        for result in [
            r#"{"content":[]}"#,
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            r#"{"resultType":"complete","requestState":"mine","x":"input_required"}"#,
            r#"{ "resultType" : "complete" , "x":{"resultType":"task"}}"#,
            r#"{"x":{"resultType":"task"},"text":"\"resultType\":\"task\""}"#,
        ] {
            let same = mine.seal_result(result.into(), &ask(), &none()).unwrap();
            assert_eq!(same, result);
        }
        for hidden in [
            r#"{"resultType":"input\u005frequired","requestState":"a"}"#,
            r#"{"resultType":"input_required","request\u0053tate":"a"}"#,
            r#" {"request\u0053tate":"a","resultType":"\u0069nput_required"}"#,
        ] {
            let sealed = mine.seal_result(hidden.into(), &ask(), &none()).unwrap();
            let state = state_of(&sealed);
            let opened = mine.open_state(&with_state(&state), &ask()).unwrap();
            assert_eq!(opened, Some(br#""a""#.to_vec()), "{hidden}");
            assert!(!sealed.ends_with(b"\"a\"}"), "{hidden}");
        }
        for unreadable in [
            r#"{"resultType":"input_required","requestState":"a","requestState":"b"}"#,
            r#"{"resultType":"input_required","requestState":"a","resultType":"complete"}"#,
            r#"{"resultType":["input_required"],"requestState":"a"}"#,
            r#"{"resultType":"task","taskId":"a"}"#,
            r#"{"resultType":"banana"}"#,
            r#"{"resultType":"complete","resultType":"task"}"#,
        ] {
            let sealed = mine.seal_result(unreadable.into(), &ask(), &none());
            assert!(sealed.is_err(), "{unreadable}");
        }
        assert_eq!(mine.open_state(&Params::empty(), &ask()).unwrap(), None);
        for (state, what) in [("", "empty"), ("état", "not ours")] {
            assert!(
                mine.open_state(&with_state(state), &ask()).is_err(),
                "{what}"
            );
        }
        let of_task = StateOrigin::from_request("tasks/get", &Params::empty(), false);
        assert!(of_task.is_none());
    }
}
