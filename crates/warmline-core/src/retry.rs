//! Whether a call is sent again, and how often.
//!
//! One function decides ([`decide_retry`]): a second one might send a payment twice. It never sends
//! again what may have run and is not known to be repeatable; attempts, the caller's deadline and the
//! server's budget bound the rest.

use std::time::Duration;

use crate::delivery::{Delivery, Idempotency};

pub mod backoff;
pub mod budget;
pub mod idempotency;
#[cfg(test)]
mod tests;

/// What stood in the way of an answer, as far as sending again depends on it.
///
/// See [`classify_failure`](idempotency::classify_failure).
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

/// Whether the caller got a part of the reply: progress, a log line, a server request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamedOutput {
    /// Nothing yet.
    #[default]
    None,
    /// Something, in this attempt or an earlier one.
    Partial,
}

/// Whether a fresh credential can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialRefresh {
    /// Its source can be asked again.
    Possible,
    /// There is none, or its source always gives the same.
    Impossible,
}

/// Whether the server's retry budget has something left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetState {
    /// One more can be paid.
    Available,
    /// Nothing is left at this moment.
    Exhausted,
}

/// An attempt that ended, and all that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What is known of this attempt.
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
    /// Whether the caller heard anything of the call.
    pub streamed_output: StreamedOutput,
    /// Whether a fresh credential can be had.
    pub credential_refresh: CredentialRefresh,
    /// How long it is until the caller's deadline.
    pub time_left: Duration,
    /// The longest pause that is waited out where a server asks for one.
    pub max_retry_after: Duration,
    /// How long the server usually takes for an answer; zero where that is not known.
    pub typical_latency: Duration,
    /// Whether the server's budget has something left.
    pub budget: BudgetState,
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
    /// There is an answer.
    Done,
    /// Send the call again.
    Retry {
        /// What has to be done before.
        preparation: RetryPreparation,
        /// How long to wait before.
        delay: Duration,
        /// Whether the server's budget pays for it.
        cost: RetryCost,
    },
    /// Fail the call.
    Fail,
}

/// What has to be done before a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryPreparation {
    /// Nothing.
    Nothing,
    /// Replace the session.
    ReplaceSession,
    /// Ask for a fresh credential.
    RefreshCredential,
}

/// Whether a retry counts against the server's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryCost {
    /// One repair serves any number of calls, and what certainly never arrived costs a server
    /// nothing.
    Free,
    /// One.
    One,
}

/// Most retries of one call, unless more heals are allowed.
const MAX_RETRIES: u32 = 2;
/// The first pause is at most this long; each further one may be twice as long.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
/// No pause of our own is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Decides whether a call is sent again after an attempt that ended.
pub fn decide_retry(attempt: &Attempt) -> RetryDecision {
    match (
        attempt.delivery,
        attempt.idempotency,
        attempt.streamed_output,
    ) {
        (Delivery::Answered, _, _) => RetryDecision::Done,
        // Certainly not executed: nothing of this attempt can have reached the caller either.
        (Delivery::Unsent | Delivery::Refused, _, _) => retry_if_allowed(attempt),
        (Delivery::Unknown, Idempotency::Idempotent, StreamedOutput::None) => {
            retry_if_allowed(attempt)
        },
        (Delivery::Unknown, Idempotency::Idempotent, StreamedOutput::Partial)
        | (Delivery::Unknown, Idempotency::NotIdempotent, _) => RetryDecision::Fail,
    }
}

/// Whether another try promises more than this one.
fn retry_if_allowed(attempt: &Attempt) -> RetryDecision {
    let Some((first, pause)) = plan_retry(attempt) else {
        return RetryDecision::Fail;
    };
    let cost = retry_cost(attempt, first);
    let fits = attempt.time_left > Duration::ZERO
        && pause <= attempt.max_retry_after.max(MAX_BACKOFF)
        && pause.saturating_add(attempt.typical_latency) <= attempt.time_left;
    let payable = cost == RetryCost::Free || attempt.budget == BudgetState::Available;
    if fits && payable && has_retries_left(attempt, first) {
        RetryDecision::Retry {
            preparation: first,
            delay: pause,
            cost,
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
            if attempt.credential_refresh == CredentialRefresh::Possible
                && so_far.credential_refreshes == 0 =>
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

const fn retry_cost(attempt: &Attempt, first: RetryPreparation) -> RetryCost {
    match (first, attempt.failure, attempt.delivery) {
        (RetryPreparation::ReplaceSession | RetryPreparation::RefreshCredential, _, _) => {
            RetryCost::Free
        },
        (RetryPreparation::Nothing, FailureClass::ConnectionFailed, Delivery::Unsent) => {
            RetryCost::Free
        },
        (RetryPreparation::Nothing, _, _) => RetryCost::One,
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
