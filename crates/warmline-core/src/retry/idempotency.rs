//! Which calls may run twice, and which failures another try can overcome.
//!
//! In this order decide: a round that carries answers never repeats; the caller; the operator's
//! line for the tool; a server that deduplicates calls; the tool's own hints, as far as the
//! operator trusts them and as long as the server does not change them.

use bytes::Bytes;

use super::FailureClass;
use crate::delivery::Idempotency;
use crate::error::code::Reason;
use crate::exchange::Diagnostic;
use crate::message::params::Params;
use crate::message::splice::{Edit, write_number, write_string};
use crate::policy::Policy;
use crate::protocol::methods;
use crate::protocol::session_gone::SessionGoneRemedy;
use crate::tool_names;

/// `_meta` of a request: the id of its call, the same for all attempts.
pub const CALL_ID: &str = "dev.warmline/callId";
/// `_meta` of a request: the number of the attempt, from 1.
pub const ATTEMPT: &str = "dev.warmline/attempt";

/// The hints of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToolHints {
    /// `readOnlyHint`.
    pub read_only: bool,
    /// `idempotentHint`.
    pub idempotent: bool,
    /// Whether they changed.
    pub consistency: HintConsistency,
}

/// Whether a server changed the hints of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HintConsistency {
    /// They are as when the tool was first listed.
    #[default]
    Unchanged,
    /// They changed: they are not trusted any more.
    Changed,
}

/// A call, as far as it matters whether it may run twice.
#[derive(Clone, Copy, Debug)]
pub struct IdempotencyQuery<'a> {
    /// The method.
    pub method: &'a str,
    /// Its parameters.
    pub params: &'a Params,
    /// The hints of the tool; none if no list was read, or it is not a tool call.
    pub hints: Option<ToolHints>,
    /// What the caller says.
    pub caller: Option<Idempotency>,
}

/// Whether a call may run twice.
pub fn call_idempotency(asked: &IdempotencyQuery<'_>, policy: &Policy) -> Idempotency {
    if has_input_responses(asked.params) {
        return Idempotency::NotIdempotent;
    }
    if let Some(said) = asked.caller {
        return said;
    }
    match asked.method {
        "tools/call" => tool_idempotency(asked, policy),
        "resources/read" | "prompts/get" if policy.reads_have_effects => Idempotency::NotIdempotent,
        method => methods::method_idempotency(method),
    }
}

/// Whether a request is a further round: what a person or a model answered is spent with it.
fn has_input_responses(params: &Params) -> bool {
    ["inputResponses", "requestState"]
        .into_iter()
        .any(|member| params.member(member).is_some())
}

fn tool_idempotency(asked: &IdempotencyQuery<'_>, policy: &Policy) -> Idempotency {
    let name = asked.params.name().unwrap_or_default();
    let decided = policy.tools.get(&*name).and_then(|tool| tool.repeatable);
    let is_safe = match decided {
        Some(said) => said,
        None => policy.dedupe_by_call_id || are_hints_trusted(asked.hints, &name, policy),
    };
    if is_safe {
        Idempotency::Idempotent
    } else {
        Idempotency::NotIdempotent
    }
}

fn are_hints_trusted(hints: Option<ToolHints>, name: &str, policy: &Policy) -> bool {
    let Some(hints) = hints.filter(|hints| hints.consistency == HintConsistency::Unchanged) else {
        return false;
    };
    (hints.read_only && policy.trust_read_only_hint)
        || (hints.idempotent
            && tool_names::matches_any_pattern(&policy.trust_idempotent_hint, name))
}

/// What a diagnostic means for another try. `retired` is why its session is not used
/// any more.
pub fn classify_failure(diagnostic: &Diagnostic, retired: Option<Reason>) -> FailureClass {
    if let Some(dialect) = diagnostic.session_gone {
        return match dialect.remedy() {
            SessionGoneRemedy::Reopen
            | SessionGoneRemedy::GoStateless
            | SessionGoneRemedy::Open => FailureClass::SessionGone,
            SessionGoneRemedy::ReopenOnce => FailureClass::SessionGoneOnce,
            SessionGoneRemedy::DropSession | SessionGoneRemedy::Wait => FailureClass::Permanent,
        };
    }
    match (class_of_reason(diagnostic.reason), retired) {
        // Another call ended the session before this one was sent: no loss for this one.
        (FailureClass::ConnectionFailed, Some(_)) if diagnostic.reason == Reason::Closed => {
            FailureClass::ConnectionFailed
        },
        // A stream or a child that ended is an answer of the server as well.
        (FailureClass::ConnectionFailed, Some(_)) => FailureClass::SessionGone,
        (hurdle, _) => hurdle,
    }
}

#[rustfmt::skip]
const fn class_of_reason(reason: Reason) -> FailureClass {
    match reason {
        Reason::SessionGone | Reason::ChildExit => FailureClass::SessionGone,
        Reason::Unauthorized => FailureClass::Credential,
        Reason::WriteFailed | Reason::Closed | Reason::ReplyLost | Reason::BadReply
        | Reason::NoReplyChannel => FailureClass::ConnectionFailed,
        Reason::Dns | Reason::ConnectRefused | Reason::ConnectTimeout | Reason::Unreachable
        | Reason::TlsClosed | Reason::LocalResources | Reason::Conflict | Reason::ServerError
        | Reason::GatewayError | Reason::Unavailable => FailureClass::Busy,
        Reason::RateLimited => FailureClass::Throttled,
        Reason::TooEarly | Reason::Version => FailureClass::RetryOnce,
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
        | Reason::Internal => FailureClass::Permanent,
    }
}

/// The parameters with the id and number of the attempt in `_meta`. An id from the caller stays.
pub fn with_attempt_meta(params: &Params, call_id: &str, attempt: u32) -> Params {
    let (mut id, mut number) = (Vec::new(), Vec::new());
    write_string(&mut id, call_id);
    write_number(&mut number, u64::from(attempt));
    let given = params.meta_member(CALL_ID).map(<[u8]>::to_vec);
    let edits = [
        Edit::Set(CALL_ID, given.as_deref().unwrap_or(&id)),
        Edit::Set(ATTEMPT, &number),
    ];
    let mut raw = Vec::with_capacity(params.raw().len() + 96);
    params.write_edited(&mut raw, &[], &edits);
    // Edits of a checked object make a checked object.
    Params::parse(Bytes::from(raw)).unwrap_or_else(|_| params.clone())
}

#[cfg(test)]
mod tests;
