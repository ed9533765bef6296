//! Repeat: which calls may run twice, and which troubles another try can overcome.
//!
//! Asked by: the engine, once for each call ([`of`]) and after each failed attempt ([`hurdle`]).
//! Told by: the table of methods, a tool's own hints, the operator's policy, the caller.
//!
//! Whose word counts, first to last: a round that carries answers never repeats; the caller; the
//! operator's line for the tool; a server that tells repeats apart; the tool's own hints, as far
//! as the operator trusts them and as long as the server does not change them.

use bytes::Bytes;

use crate::code::Reason;
use crate::delivery::{Hurdle, Repeat};
use crate::exchange::Trouble;
use crate::names;
use crate::policy::Policy;
use crate::protocol::gone::Remedy;
use crate::protocol::methods;
use crate::protocol::params::Params;
use crate::protocol::splice::{Edit, write_number, write_text};

/// `_meta` of a request: which call it belongs to, the same over all attempts.
pub const CALL_ID: &str = "dev.warmline/callId";
/// `_meta` of a request: the number of the attempt, from 1.
pub const ATTEMPT: &str = "dev.warmline/attempt";

/// What a tool says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints {
    /// `readOnlyHint`.
    pub read_only: bool,
    /// `idempotentHint`.
    pub idempotent: bool,
    /// Whether it always said so.
    pub steady: Steadiness,
}

/// Whether a server changed what a tool says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Steadiness {
    /// It says what it said when it was first listed.
    #[default]
    Steady,
    /// It said something else before: nothing is built on it any more.
    Changed,
}

/// What a caller says of its own call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// It may run twice.
    Repeatable,
    /// It must not.
    Once,
}

/// A call, as far as it matters whether it may run twice.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a str,
    /// Its parameters.
    pub params: &'a Params,
    /// What the tool says of itself; none where no list was read, or it is no tool's call.
    pub hints: Option<Hints>,
    /// What the caller says.
    pub said: Option<Said>,
}

/// Whether a call may run twice.
pub fn of(asked: &Asked<'_>, policy: &Policy) -> Repeat {
    if has_answers(asked.params) {
        return Repeat::Unsafe;
    }
    match asked.said {
        Some(Said::Repeatable) => return Repeat::Safe,
        Some(Said::Once) => return Repeat::Unsafe,
        None => {},
    }
    match asked.method {
        "tools/call" => tool(asked, policy),
        "resources/read" | "prompts/get" if policy.reads_have_effects => Repeat::Unsafe,
        method => methods::repeat_of(method),
    }
}

/// Whether a request is a further round: what a person or a model answered is spent with it.
fn has_answers(params: &Params) -> bool {
    ["inputResponses", "requestState"]
        .into_iter()
        .any(|member| params.member(member).is_some())
}

fn tool(asked: &Asked<'_>, policy: &Policy) -> Repeat {
    let name = asked.params.name().unwrap_or_default();
    let decided = policy.tools.get(&*name).and_then(|tool| tool.repeatable);
    let is_safe = match decided {
        Some(said) => said,
        None => policy.dedupe_by_call_id || is_trusted(asked.hints, &name, policy),
    };
    if is_safe {
        Repeat::Safe
    } else {
        Repeat::Unsafe
    }
}

fn is_trusted(hints: Option<Hints>, name: &str, policy: &Policy) -> bool {
    let Some(hints) = hints.filter(|hints| hints.steady == Steadiness::Steady) else {
        return false;
    };
    (hints.read_only && policy.trust_read_only_hint)
        || (hints.idempotent && names::is_any(&policy.trust_idempotent_hint, name))
}

/// What a trouble means for another try. `retired` is why the session it happened on is not used
/// any more.
pub fn hurdle(trouble: &Trouble, retired: Option<Reason>) -> Hurdle {
    if let Some(dialect) = trouble.gone {
        return match dialect.remedy() {
            Remedy::Reopen | Remedy::GoStateless | Remedy::Open => Hurdle::SessionGone,
            Remedy::ReopenOnce => Hurdle::SessionGoneOnce,
            Remedy::DropSession | Remedy::Wait => Hurdle::Final,
        };
    }
    match (by_reason(trouble.reason), retired) {
        // Between lease and sending somebody else's call ended the session: its loss is not ours.
        (Hurdle::Broken, Some(_)) if trouble.reason == Reason::Closed => Hurdle::Broken,
        // A stream or a child that ended is the server's word as well.
        (Hurdle::Broken, Some(_)) => Hurdle::SessionGone,
        (hurdle, _) => hurdle,
    }
}

#[rustfmt::skip]
const fn by_reason(reason: Reason) -> Hurdle {
    match reason {
        Reason::SessionGone | Reason::ChildExit => Hurdle::SessionGone,
        Reason::Unauthorized => Hurdle::Credential,
        Reason::WriteFailed | Reason::Closed | Reason::ReplyLost | Reason::BadReply
        | Reason::NoReplyChannel => Hurdle::Broken,
        Reason::Dns | Reason::ConnectRefused | Reason::ConnectTimeout | Reason::Unreachable
        | Reason::TlsClosed | Reason::LocalResources | Reason::Conflict | Reason::ServerError
        | Reason::GatewayError | Reason::Unavailable => Hurdle::Busy,
        Reason::RateLimited => Hurdle::Throttled,
        Reason::TooEarly | Reason::Version => Hurdle::Once,
        // A third of a reply would not be smaller, a forbidden thing not allowed the next time;
        // what ran out of time has none left. Drivers list tools anew for a header that does not
        // fit, and a program that is not there does not appear.
        Reason::Tls | Reason::Proxy | Reason::ReplyTooLarge | Reason::Timeout
        | Reason::TimeoutUnsent | Reason::Redirect | Reason::Rejected | Reason::RejectedUnclear
        | Reason::Forbidden | Reason::NotFound | Reason::TooLarge | Reason::HeaderMismatch
        | Reason::SessionMismatch | Reason::BadSessionId | Reason::InvalidRequest | Reason::Spawn
        | Reason::ProgramMissing | Reason::Handshake | Reason::SilentServer | Reason::NotMcp
        | Reason::SingleSession | Reason::Cancelled | Reason::TooManyRounds | Reason::RunUnknown
        | Reason::RunEnded | Reason::NotAllowed | Reason::IdentityMissing
        | Reason::CredentialUnavailable | Reason::CredentialNotSent | Reason::ResolveFailed | Reason::BreakerOpen
        | Reason::PoolFull | Reason::Overloaded | Reason::StoreUnavailable | Reason::RecordRefused
        | Reason::Draining | Reason::ServerUnknown | Reason::ToolUnknown | Reason::StateLost
        | Reason::Internal => Hurdle::Final,
    }
}

/// The same parameters with the mark of a repeat in `_meta`. A call id that the caller gave stays.
pub fn marked(params: &Params, call_id: &str, attempt: u32) -> Params {
    let (mut id, mut number) = (Vec::new(), Vec::new());
    write_text(&mut id, call_id);
    write_number(&mut number, u64::from(attempt));
    let given = params.meta_member(CALL_ID).map(<[u8]>::to_vec);
    let edits = [
        Edit::Set(CALL_ID, given.as_deref().unwrap_or(&id)),
        Edit::Set(ATTEMPT, &number),
    ];
    let mut raw = Vec::with_capacity(params.raw().len() + 96);
    params.write_with(&mut raw, &[], &edits);
    // Edits of a checked object make a checked object.
    Params::parse(Bytes::from(raw)).unwrap_or_else(|_| params.clone())
}

#[cfg(test)]
mod tests;
