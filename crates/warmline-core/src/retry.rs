//! Whether a call may run twice, is sent again, and how often.
//!
//! One function decides ([`decide_retry`]): a second one might send a payment twice. It never sends
//! again what may have run and is not known to be repeatable; attempts, the caller's deadline and the
//! server's budget bound the rest.

use std::time::Duration;

use crate::delivery::{Delivery, Idempotency};
use crate::error::code::Reason;
use crate::exchange::Diagnostic;
use crate::message::params::Params;
use crate::message::splice::{Edit, write_number, write_string};
use crate::policy::Policy;
use crate::protocol::methods;
use crate::protocol::session_gone::SessionGoneRemedy;
use crate::tool_names;

pub mod backoff;
pub mod budget;
#[cfg(test)]
mod tests;

/// What stood in the way of an answer, as far as sending again depends on it. See
/// [`classify_failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The server said that the session is gone: retried at once on a new one.
    SessionGone,
    /// The same in an ambiguous form: it counts once.
    SessionGoneOnce,
    /// The credential was not accepted: once more with a fresh one.
    Credential,
    /// This connection or process failed: another one, at once.
    ConnectionFailed,
    /// Too busy, or not there: after a pause.
    Busy,
    /// Too many requests: retried after the pause that the server names. Without one only if
    /// repeatable.
    Throttled,
    /// Another try differs from this one, but a third would not differ from the second.
    RetryOnce,
    /// The same request would fail in the same way, or no caller waits for it any more.
    Permanent,
}

/// An attempt that ended, and all that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub delivery: Delivery,
    /// Whether the call may run twice.
    pub idempotency: Idempotency,
    /// What stood in the way; of no interest where there was an answer.
    pub failure: FailureClass,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
    /// What the call used up before this attempt ended.
    pub history: AttemptHistory,
    /// How often one call may be sent again because its session was gone.
    pub max_session_replacements: u32,
    /// Whether the caller got a part of the reply, in this attempt or an earlier one: progress, a log
    /// line, a server request.
    pub has_streamed: bool,
    /// Whether the source of the credential can be asked for another.
    pub can_refresh_credential: bool,
    /// How long it is until the caller's deadline.
    pub time_left: Duration,
    /// The longest pause that is waited out where a server asks for one.
    pub max_retry_after: Duration,
    /// How long the server usually takes for an answer; zero where that is not known.
    pub typical_latency: Duration,
    /// Whether the server's retry budget has something left.
    pub has_budget: bool,
    /// Spread evenly over all numbers; it spreads pauses.
    pub random: u32,
}

/// What a call used up in its attempts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptHistory {
    retries: u32,
    session_replacements: u32,
    credential_refreshes: u32,
    unknown_deliveries: u32,
}

impl AttemptHistory {
    /// Notes how an attempt ended and that the call is sent again.
    pub const fn record_retry(&mut self, ended: Delivery, first: RetryPreparation) {
        self.retries = self.retries.saturating_add(1);
        match first {
            RetryPreparation::ReplaceSession => {
                self.session_replacements = self.session_replacements.saturating_add(1);
            },
            RetryPreparation::RefreshCredential => {
                self.credential_refreshes = self.credential_refreshes.saturating_add(1);
            },
            RetryPreparation::Nothing => {},
        }
        if matches!(ended, Delivery::Unknown) {
            self.unknown_deliveries = self.unknown_deliveries.saturating_add(1);
        }
    }

    /// How many attempts there were, the one under way included.
    pub const fn attempts(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    /// The delivery of the whole call, by that of its last attempt: an earlier attempt may have been
    /// executed although the last one was not.
    pub const fn overall_delivery(&self, last: Delivery) -> Delivery {
        match last {
            Delivery::Unsent | Delivery::Refused if self.unknown_deliveries > 0 => {
                Delivery::Unknown
            },
            Delivery::Unsent | Delivery::Refused | Delivery::Answered | Delivery::Unknown => last,
        }
    }
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    Done,
    /// Send the call again.
    Retry {
        /// What has to be done before.
        preparation: RetryPreparation,
        /// How long to wait before.
        delay: Duration,
        /// Whether the server's budget pays for it.
        costs_budget: bool,
    },
    Fail,
}

/// What has to be done before a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryPreparation {
    Nothing,
    ReplaceSession,
    RefreshCredential,
}

/// Most retries of one call, unless more heals are allowed.
const MAX_RETRIES: u32 = 2;
/// The first pause is at most this long; each further one may be twice as long.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
/// No pause of our own is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Decides whether a call is sent again after an attempt that ended.
pub fn decide_retry(attempt: &Attempt) -> RetryDecision {
    match (attempt.delivery, attempt.idempotency, attempt.has_streamed) {
        (Delivery::Answered, _, _) => RetryDecision::Done,
        // Certainly not executed: nothing of this attempt can have reached the caller either.
        (Delivery::Unsent | Delivery::Refused, _, _) => retry_if_allowed(attempt),
        (Delivery::Unknown, Idempotency::Idempotent, false) => retry_if_allowed(attempt),
        (Delivery::Unknown, Idempotency::Idempotent, true)
        | (Delivery::Unknown, Idempotency::NotIdempotent, _) => RetryDecision::Fail,
    }
}

/// Whether another try promises more than this one.
fn retry_if_allowed(attempt: &Attempt) -> RetryDecision {
    let Some((first, pause)) = plan_retry(attempt) else {
        return RetryDecision::Fail;
    };
    let costs_budget = costs_budget(attempt, first);
    let fits = attempt.time_left > Duration::ZERO
        && pause <= attempt.max_retry_after.max(MAX_BACKOFF)
        && pause.saturating_add(attempt.typical_latency) <= attempt.time_left;
    let payable = !costs_budget || attempt.has_budget;
    if fits && payable && has_retries_left(attempt, first) {
        RetryDecision::Retry {
            preparation: first,
            delay: pause,
            costs_budget,
        }
    } else {
        RetryDecision::Fail
    }
}

/// What to do first and how long to wait, by what stood in the way.
fn plan_retry(attempt: &Attempt) -> Option<(RetryPreparation, Duration)> {
    let so_far = &attempt.history;
    let pause = || {
        attempt
            .retry_after
            .unwrap_or_default()
            .max(backoff_delay(attempt))
    };
    match attempt.failure {
        FailureClass::SessionGone
            if so_far.session_replacements < attempt.max_session_replacements =>
        {
            Some((RetryPreparation::ReplaceSession, Duration::ZERO))
        },
        FailureClass::SessionGoneOnce
            if so_far.session_replacements < attempt.max_session_replacements.min(1) =>
        {
            Some((RetryPreparation::ReplaceSession, Duration::ZERO))
        },
        FailureClass::Credential
            if attempt.can_refresh_credential && so_far.credential_refreshes == 0 =>
        {
            Some((RetryPreparation::RefreshCredential, Duration::ZERO))
        },
        FailureClass::ConnectionFailed => Some((RetryPreparation::Nothing, Duration::ZERO)),
        FailureClass::Busy => Some((RetryPreparation::Nothing, pause())),
        // To say "too many" is a refusal by custom, not by the letter of the standard. A server
        // that names a pause means it.
        FailureClass::Throttled
            if attempt.retry_after.is_some() || attempt.idempotency == Idempotency::Idempotent =>
        {
            Some((RetryPreparation::Nothing, pause()))
        },
        FailureClass::RetryOnce if so_far.retries == 0 => {
            Some((RetryPreparation::Nothing, Duration::ZERO))
        },
        FailureClass::SessionGone
        | FailureClass::SessionGoneOnce
        | FailureClass::Credential
        | FailureClass::Throttled
        | FailureClass::RetryOnce
        | FailureClass::Permanent => None,
    }
}

/// Whether the call has attempts left. After one that may have been executed there is one more;
/// if that one was not even looked at because the session was gone, it may go to the new one.
const fn has_retries_left(attempt: &Attempt, first: RetryPreparation) -> bool {
    let so_far = &attempt.history;
    let most = if attempt.max_session_replacements > MAX_RETRIES {
        attempt.max_session_replacements
    } else {
        MAX_RETRIES
    };
    let is_repair =
        matches!(first, RetryPreparation::ReplaceSession) && attempt.delivery.is_safe_to_retry();
    so_far.retries < most && (so_far.unknown_deliveries == 0 || is_repair)
}

/// One repair serves any number of calls, and what certainly never arrived costs a server nothing.
const fn costs_budget(attempt: &Attempt, first: RetryPreparation) -> bool {
    match (first, attempt.failure, attempt.delivery) {
        (RetryPreparation::ReplaceSession | RetryPreparation::RefreshCredential, ..) => false,
        (_, FailureClass::ConnectionFailed, Delivery::Unsent) => false,
        (RetryPreparation::Nothing, ..) => true,
    }
}

/// Full jitter below a limit that doubles with each retry: callers that failed together do not come
/// back together.
fn backoff_delay(attempt: &Attempt) -> Duration {
    let doubled = 1_u32
        .checked_shl(attempt.history.retries)
        .unwrap_or(u32::MAX);
    let longest = INITIAL_BACKOFF.saturating_mul(doubled).min(MAX_BACKOFF);
    let nanos = longest.as_nanos() * u128::from(attempt.random) / u128::from(u32::MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// `_meta` of a request: the id of its call, the same for all attempts.
pub const CALL_ID: &str = "dev.warmline/callId";
/// `_meta` of a request: the number of the attempt, from 1.
pub const ATTEMPT: &str = "dev.warmline/attempt";

/// The hints of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToolHints {
    pub read_only: bool,
    pub idempotent: bool,
    /// Whether they changed since the tool was first listed: then they are not trusted any more.
    pub have_changed: bool,
}

/// A call, as far as it matters whether it may run twice.
#[derive(Clone, Copy, Debug)]
pub struct IdempotencyQuery<'a> {
    pub method: &'a str,
    pub params: &'a Params,
    /// The hints of the tool; none if no list was read, or it is not a tool call.
    pub hints: Option<ToolHints>,
    pub caller: Option<Idempotency>,
}

/// Whether a call may run twice. In this order decide: a round that carries answers never repeats;
/// the caller; the operator's line for the tool; a server that deduplicates calls; the tool's own
/// hints, as far as the operator trusts them and as long as the server does not change them.
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
    let Some(hints) = hints.filter(|hints| !hints.have_changed) else {
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
        // what ran out of time has none left. Drivers list tools again for a header that does not
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
    params.edited(&[], &edits)
}
