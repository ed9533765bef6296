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
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use warmline::core::code::Reason;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::Trouble;
use warmline::core::key::Digest;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::seal::Purpose;
use warmline::{Vault, clock};

use super::task::{self, Extensions};
use crate::face::CameAt;
use crate::reply::{self, RpcCode};

/// The member that holds it, in results and in parameters.
pub(super) const MEMBER: &str = "requestState";
/// The member that says of which kind a result is, with its quotes.
const KIND: &str = "\"resultType\"";
/// So long a state can be used, in seconds: as long as a call may take.
const LASTS: u64 = 60 * 60;
/// The methods that may be answered with a question.
const ASKING: [&str; 3] = ["tools/call", READ, "prompts/get"];
/// The one that names what it is about by a URI.
const READ: &str = "resources/read";

/// Whose a state is, for which server, and in which run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding<'a> {
    pub(super) vault: &'a Vault,
    pub(super) who: Digest,
    pub(super) server: &'a str,
    pub(super) run: Option<&'a str>,
}

/// What a state was given for, as its caller says it: only the same request comes back with it.
#[derive(Clone, Debug)]
pub(super) struct Occasion {
    method: &'static str,
    /// What is asked for, by its name or its URI at that place.
    name: Bytes,
    came_at: CameAt,
}

impl Occasion {
    /// That of a request; none where no question can be the answer, and so there is no state.
    pub(super) fn of(method: &str, params: &Params, came_at: CameAt) -> Option<Self> {
        let method = ASKING.into_iter().find(|asking| *asking == method)?;
        let name = match method {
            READ => params.uri(),
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
            came_at,
        })
    }

    fn parts(&self) -> [&[u8]; 3] {
        let came_at: &[u8] = match self.came_at {
            CameAt::OneServer => b"one",
            CameAt::AllServers => b"all",
        };
        [self.method.as_bytes(), &self.name, came_at]
    }
}

/// It is no state that was given to this caller for this request to this server in this run, or it
/// is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotOurs;

/// What of a result matters here.
#[derive(Deserialize)]
struct Asking<'a> {
    #[serde(borrow, default, rename = "resultType")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestState")]
    state: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
}

/// Whether a result is complete by a look at its bytes: whatever says its kind, here or deep inside,
/// says that. A name can be written with escapes; where there are any, the result is read.
fn is_plainly_complete(result: &[u8]) -> bool {
    let mut kinds = memchr::memmem::find_iter(result, KIND.as_bytes());
    let says_complete = |place: usize| {
        let after = result.get(place + KIND.len()..).unwrap_or_default();
        let value = after.trim_ascii_start().strip_prefix(b":");
        value.is_some_and(|value| value.trim_ascii_start().starts_with(b"\"complete\""))
    };
    memchr::memmem::find(result, b"\\u").is_none() && kinds.all(says_complete)
}

/// Checks that a result is of a kind that its caller can understand (mcp-spec 6.4).
pub(super) fn understood(result: &[u8], extensions: &Extensions) -> Result<(), Trouble> {
    kind_of(result, extensions).map(drop)
}

/// What a result says of its kind; none where it is plainly complete.
fn kind_of<'r>(
    result: &'r [u8],
    extensions: &Extensions,
) -> Result<Option<(Cow<'r, str>, Asking<'r>)>, Trouble> {
    let is_object = result.trim_ascii_start().starts_with(b"{");
    if !is_object || is_plainly_complete(result) {
        return Ok(None);
    }
    // What cannot be read could hold a state that anybody would see.
    let asking = serde_json::from_slice::<Asking<'_>>(result).map_err(|_| unreadable())?;
    let Some(raw) = asking.kind else {
        return Ok(None);
    };
    let kind = serde_json::from_str::<Cow<'_, str>>(raw.get()).map_err(|_| unreadable())?;
    let is_known = kind == "complete" || kind == "input_required";
    if is_known || extensions.cover(&kind) {
        return Ok(Some((kind, asking)));
    }
    let what = "the server's result is of a kind that was not declared";
    Err(Trouble::new(Reason::Internal, what))
}

/// What a client hears in place of a result that cannot be passed on: the server did answer.
pub(super) fn not_passed_on(id: Option<&[u8]>, trouble: &Trouble) -> Bytes {
    let what = format!(
        "{}; it was answered, so it may have been executed",
        trouble.what
    );
    let delivery = Delivery::Answered.to_string();
    let data = json!({ "warmline": { "delivery": delivery } });
    reply::error_message(id, RpcCode::Internal.number(), &what, Some(&data))
}

fn unreadable() -> Trouble {
    let what = "the server's question cannot be read";
    Trouble::new(Reason::Internal, what)
}

impl Binding<'_> {
    /// Whose a thing of this kind is, and what it was given for where that matters.
    pub(super) fn digest(self, kind: &str, given_for: &[&[u8]]) -> Digest {
        let run = self.run.unwrap_or_default();
        let whose: [&[u8]; 4] = [
            kind.as_bytes(),
            self.who.bytes(),
            self.server.as_bytes(),
            // No run is called nothing.
            run.as_bytes(),
        ];
        let parts = [&whose, given_for].concat();
        self.vault.digest(Purpose::Route, &parts)
    }

    /// The result with the server's state sealed, or the task that it hands out; as it is where it
    /// has neither.
    pub(super) fn seal(
        self,
        result: Bytes,
        given_for: &Occasion,
        extensions: &Extensions,
    ) -> Result<Bytes, Trouble> {
        let until = clock::wall_seconds() + LASTS;
        self.seal_until(result, given_for, extensions, until)
    }

    fn seal_until(
        self,
        result: Bytes,
        given_for: &Occasion,
        extensions: &Extensions,
        until: u64,
    ) -> Result<Bytes, Trouble> {
        let Some((kind, asking)) = kind_of(&result, extensions)? else {
            return Ok(result);
        };
        let (member, sealed) = match (&*kind, asking.state, asking.task) {
            ("input_required", Some(state), _) => {
                (MEMBER, self.seal_state(state, given_for, until)?)
            },
            (task::KIND, _, Some(id)) => (task::MEMBER, self.seal_task(id.get())?),
            _ => return Ok(result),
        };
        let mut out = Vec::with_capacity(result.len() + sealed.len());
        let edits = [Edit::Set(member, sealed.as_bytes())];
        splice::edit_object(&result, &edits, &mut out).map_err(|_| unreadable())?;
        Ok(out.into())
    }

    /// The very bytes of the server, quotes and all, as its caller gets them.
    fn seal_state(
        self,
        state: &RawValue,
        given_for: &Occasion,
        until: u64,
    ) -> Result<String, Trouble> {
        let mut plain = until.to_le_bytes().to_vec();
        plain.extend_from_slice(state.get().as_bytes());
        let bound_to = self.digest("state", &given_for.parts());
        let sealed = self
            .vault
            .seal(Purpose::RequestState, bound_to.bytes(), &plain)?;
        Ok(format!("\"{}\"", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// The server's own state, raw, where the parameters hold one.
    pub(super) fn open(
        self,
        params: &Params,
        given_for: &Occasion,
    ) -> Result<Option<Vec<u8>>, NotOurs> {
        self.open_at(params, given_for, clock::wall_seconds())
    }

    fn open_at(
        self,
        params: &Params,
        given_for: &Occasion,
        now: u64,
    ) -> Result<Option<Vec<u8>>, NotOurs> {
        let Some(raw) = params.member(MEMBER) else {
            return Ok(None);
        };
        let text = serde_json::from_slice::<Cow<'_, str>>(raw).map_err(|_| NotOurs)?;
        let sealed = URL_SAFE_NO_PAD.decode(&*text).map_err(|_| NotOurs)?;
        let bound_to = self.digest("state", &given_for.parts());
        let plain = self
            .vault
            .unseal(Purpose::RequestState, bound_to.bytes(), &sealed)
            .map_err(|_| NotOurs)?;
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

    const GIVEN: &str = r#"{"resultType":"input_required","inputRequests":{"q":{}},"requestState":"\u00e9t\/ \"1\""}"#;

    fn none() -> Extensions {
        Extensions::of(&Params::empty())
    }

    fn binding<'a>(vault: &'a Vault, who: u8, server: &'a str) -> Binding<'a> {
        let who = Digest::new([who; 16]);
        Binding {
            vault,
            who,
            server,
            run: None,
        }
    }

    fn in_run<'a>(binding: Binding<'a>, run: &'a str) -> Binding<'a> {
        Binding {
            run: Some(run),
            ..binding
        }
    }

    fn state_of(result: &Bytes) -> String {
        let result: serde_json::Value = serde_json::from_slice(result).unwrap();
        result[MEMBER].as_str().unwrap().to_owned()
    }

    fn asking(method: &str, name: &str, came_at: CameAt) -> Occasion {
        let params = serde_json::json!({ "name": name, "uri": name });
        Occasion::of(method, &Params::of(&params).unwrap(), came_at).unwrap()
    }

    fn ask() -> Occasion {
        asking("tools/call", "ask", CameAt::OneServer)
    }

    fn with_state(state: &str) -> Params {
        Params::of(&serde_json::json!({ "name": "ask", MEMBER: state })).unwrap()
    }

    #[test]
    fn a_state_comes_back_byte_for_byte_and_to_nobody_else() {
        let (vault, other) = (Vault::ephemeral().unwrap(), Vault::ephemeral().unwrap());
        let mine = binding(&vault, 1, "one");
        let sealed = mine.seal_until(GIVEN.into(), &ask(), &none(), 100).unwrap();
        let state = state_of(&sealed);
        let opened = |whose: Binding<'_>, now| whose.open_at(&with_state(&state), &ask(), now);
        let expected = br#""\u00e9t\/ \"1\"""#.to_vec();
        assert_eq!(opened(mine, 100), Ok(Some(expected)));
        assert_eq!(opened(mine, 101), Err(NotOurs), "too old");
        for (whose, what) in [
            (binding(&vault, 2, "one"), "somebody else"),
            (binding(&vault, 1, "two"), "another server"),
            (binding(&other, 1, "one"), "another instance"),
            (in_run(mine, "r1"), "another run"),
        ] {
            assert_eq!(opened(whose, 1), Err(NotOurs), "{what}");
        }
        for other in [
            asking("tools/call", "pay", CameAt::OneServer),
            asking("tools/call", "ask", CameAt::AllServers),
            asking("prompts/get", "ask", CameAt::OneServer),
            asking("resources/read", "ask", CameAt::OneServer),
        ] {
            let opened = mine.open_at(&with_state(&state), &other, 1);
            assert_eq!(opened, Err(NotOurs), "{other:?}");
        }
        for place in 0..state.len() {
            let mut forged = state.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            let forged = with_state(&String::from_utf8(forged).unwrap());
            assert_eq!(mine.open_at(&forged, &ask(), 1), Err(NotOurs), "{place}");
        }
    }

    #[test]
    fn only_a_state_that_the_server_gave_is_sealed() {
        let vault = Vault::ephemeral().unwrap();
        let mine = binding(&vault, 1, "one");
        for result in [
            r#"{"content":[]}"#,
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            r#"{"resultType":"complete","requestState":"mine","x":"input_required"}"#,
            r#"{ "resultType" : "complete" , "x":{"resultType":"task"}}"#,
            r#"{"x":{"resultType":"task"},"text":"\"resultType\":\"task\""}"#,
        ] {
            let same = mine.seal_until(result.into(), &ask(), &none(), 1).unwrap();
            assert_eq!(same, result);
        }
        for hidden in [
            r#"{"resultType":"input\u005frequired","requestState":"a"}"#,
            r#"{"resultType":"input_required","request\u0053tate":"a"}"#,
            r#" {"request\u0053tate":"a","resultType":"\u0069nput_required"}"#,
        ] {
            let sealed = mine.seal_until(hidden.into(), &ask(), &none(), 1).unwrap();
            let state = state_of(&sealed);
            let opened = mine.open_at(&with_state(&state), &ask(), 1);
            assert_eq!(opened, Ok(Some(br#""a""#.to_vec())), "{hidden}");
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
            let sealed = mine.seal_until(unreadable.into(), &ask(), &none(), 1);
            assert!(sealed.is_err(), "{unreadable}");
        }
        assert_eq!(mine.open_at(&Params::empty(), &ask(), 1), Ok(None));
        for (state, what) in [("", "empty"), ("état", "not ours")] {
            let opened = mine.open_at(&with_state(state), &ask(), 1);
            assert_eq!(opened, Err(NotOurs), "{what}");
        }
        let of_task = Occasion::of("tasks/get", &Params::empty(), CameAt::OneServer);
        assert!(of_task.is_none());
    }
}
