//! Events: what happened, for people. Each is one log line, and goes to all subscribers.
//!
//! What needs attention is a warning; what heals itself is information; what belongs to normal
//! operation is for debugging.
//!
//! The engine emits an event where something becomes true, and nowhere else: so nothing is logged
//! twice. Identities, runs and session ids appear as fingerprints; secrets, arguments and results
//! never appear.

mod event_log;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use event_log::LogLine;
pub use event_log::{EventItem, EventSubscription, Events};
use serde::{Serialize, Serializer};
use tracing::Level;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::pool::EndReason;
use warmline_core::pool::breaker::BreakerState;
use warmline_core::pool_key::PoolKey;
use warmline_core::word_enum::word_enum;

pub use crate::identity::{Fingerprint, ShortId};
use crate::metrics::{
    BreakerScope, CheckResult, ChildEnd, HealCause, MethodLabel, OpenResult, RefreshResult,
    StoreOperation,
};

/// A session, as far as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionRef {
    /// The server's name.
    pub server: Arc<str>,
    /// Its identity; none for shared sessions and spares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Fingerprint>,
    /// Its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Fingerprint>,
    /// Its number within its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The short form of its session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<ShortId>,
}

impl SessionRef {
    /// Some session of a server.
    pub const fn for_server(server: Arc<str>) -> Self {
        Self {
            server,
            identity: None,
            run: None,
            generation: None,
            session: None,
        }
    }

    /// A session of a key.
    pub fn for_key(key: &PoolKey) -> Self {
        Self {
            server: Arc::clone(&key.target.server),
            identity: Fingerprint::from_owner(key.owner),
            run: key.run().map(Fingerprint::from),
            generation: None,
            session: None,
        }
    }

    /// Sets its number.
    #[must_use]
    pub const fn with_generation(mut self, generation: u32) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Sets its session id.
    #[must_use]
    pub fn with_session_id(mut self, session_id: Option<&str>) -> Self {
        self.session = session_id.map(ShortId::from_session_id);
        self
    }
}

word_enum! {
    /// Why a run ended.
    #[non_exhaustive]
    pub enum RunEnd {
        /// A caller ended it.
        Ended = "ended",
        /// The handle that began it was dropped.
        Dropped = "dropped",
        /// It was idle for too long.
        IdleTooLong = "idle-too-long",
        /// A server lost its state, and the policy ends the run.
        StateLost = "state-lost",
        /// The engine was closed.
        Closed = "closed",
        /// It was left to its record.
        Detached = "detached",
    }
}

/// Declares every kind of event, once: its name in JSON and in logs, the session or server it is
/// about, its further fields, and its line in the log: level, message and fields of a [`LogLine`].
macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $kind:ident = $word:literal
            $({
                $(of $session:ident,)?
                $(at $server:ident,)?
                $($(#[$meta:meta])+ $field:ident: $type:ty,)*
            })?
            => $level:expr, $message:expr $(, { $($key:ident: $value:expr),+ $(,)? })?;
    )+) => {
        /// Something that happened.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "kind", rename_all_fields = "snake_case")]
        #[non_exhaustive]
        pub enum Event {
            $(
                $(#[doc = $doc])+
                #[serde(rename = $word)]
                $kind $({
                    $(
                        /// The session.
                        #[serde(flatten)]
                        $session: SessionRef,
                    )?
                    $(
                        /// The server.
                        $server: Arc<str>,
                    )?
                    $($(#[$meta])+ $field: $type,)*
                })?,
            )+
        }

        impl Event {
            #[cfg(test)]
            const KINDS: usize = [$($word),+].len();

            #[expect(unused_variables, reason = "a line leaves some fields out")]
            fn log_line(&self) -> (Level, LogLine<'_>) {
                match self {
                    $(Self::$kind $({ $($session,)? $($server,)? $($field),* })? => ($level, LogLine {
                        kind: $word,
                        message: $message,
                        $($(session: Some($session),)? $(server: Some($server),)?)?
                        $($($key: Into::into($value),)+)?
                        ..LogLine::default()
                    }),)+
                }
            }
        }
    };
}

events! {
    /// A session is open and belongs to a key.
    SessionOpened = "session-opened" {
        of session,
        /// Where it came from.
        how: OpenResult,
        /// How long that took.
        #[serde(rename = "took_ms", serialize_with = "serialize_millis")]
        took: Duration,
    } => Level::DEBUG, "session opened", { how: how.as_str(), took: *took };
    /// A session could not be opened.
    OpenFailed = "opening-failed" {
        of session,
        /// The error code.
        code: Code,
        /// The detailed reason.
        reason: Reason,
        /// What happened.
        what: Arc<str>,
    } => Level::WARN, "opening failed",
        { reason: reason.as_str(), what: &**what, throttle: [reason.as_str(), ""] };
    /// A session is over, or left to its record where `why` is `kept`.
    SessionClosed = "session-closed" {
        of session,
        /// Why.
        why: EndReason,
    } => Level::DEBUG,
        if *why == EndReason::Retained { "session left to its record" } else { "session closed" },
        { reason: why.as_str() };
    /// A session is over here, and the server did not confirm that: it may still hold it.
    SessionNotEnded = "not-ended" {
        of session,
        /// What happened.
        what: Arc<str>,
    } => Level::WARN, "session not ended", { what: &**what };
    /// A server lost a session, or its process ended.
    SessionGone = "session-gone" {
        of session,
        /// What showed it.
        cause: HealCause,
    // The exit of a child has a line of its own.
    } => if *cause == HealCause::ChildExit { Level::DEBUG } else { Level::WARN }, "session gone",
        { reason: cause.as_str(), throttle: [cause.as_str(), ""] };
    /// A lost session was replaced: `session.generation` is the new one.
    SessionHealed = "healed" {
        of session,
        /// The number of the lost one.
        from: u32,
        /// The state of earlier calls is lost.
        state_lost: bool,
        /// How long that took.
        #[serde(rename = "took_ms", serialize_with = "serialize_millis")]
        took: Duration,
    } => Level::INFO, "healed", {
        from: *from,
        state_lost: *state_lost,
        took: *took,
        throttle: [if *state_lost { "lost" } else { "none" }, ""],
    };
    /// A health check failed; the session is not used again.
    CheckFailed = "check-failed" {
        of session,
        /// The result of the check.
        found: CheckResult,
    } => Level::INFO, "check failed",
        { reason: found.as_str(), throttle: [found.as_str(), ""] };
    /// A call was sent again.
    CallRetried = "sent-again" {
        of session,
        /// Why the attempt before failed.
        reason: Reason,
        /// The number of this attempt; the first has 1.
        attempt: u32,
    } => Level::INFO, "sent again", { reason: reason.as_str(), attempt: *attempt };
    /// A call ended with an error that is not the server's answer.
    CallFailed = "call-failed" {
        of session,
        /// The method.
        method: MethodLabel,
        /// Whether the server executed it.
        delivery: Delivery,
        /// The error code.
        code: Code,
        /// The detailed reason.
        reason: Reason,
        /// The number of attempts.
        attempts: u32,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "serialize_millis")]
        took: Duration,
    } => failure_level(*delivery, *code), "call failed", {
        method: method.as_str(),
        delivery: delivery.as_str(),
        code: code.as_str(),
        reason: reason.as_str(),
        attempt: *attempts,
        took: *took,
        throttle: [delivery.as_str(), reason.as_str()],
    };
    /// A breaker changed its state.
    BreakerChanged = "breaker-changed" {
        at server,
        /// Whose openings it covers.
        scope: BreakerScope,
        /// The identity, if it covers one.
        #[serde(skip_serializing_if = "Option::is_none")]
        identity: Option<Fingerprint>,
        /// The new state.
        state: BreakerState,
        /// What made it open.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// The time until one opening is tried again.
        #[serde(
            rename = "retry_in_ms",
            skip_serializing_if = "Option::is_none",
            serialize_with = "serialize_optional_millis"
        )]
        retry_in: Option<Duration>,
    } => breaker_level(*state), "breaker changed", {
        how: state.as_str(),
        identity: *identity,
        scope: scope.as_str(),
        reason: reason.map(Reason::as_str),
        retry_in: *retry_in,
    };
    /// A run began.
    RunStarted = "run-began" {
        /// Its identity.
        identity: Fingerprint,
        /// Which one.
        run: Fingerprint,
    } => Level::DEBUG, "run began", { identity: *identity, run: *run };
    /// A run ended.
    RunEnded = "run-ended" {
        /// Its identity.
        identity: Fingerprint,
        /// Which one.
        run: Fingerprint,
        /// Why.
        why: RunEnd,
        /// The number of its sessions.
        sessions: u32,
    } => run_end_level(*why), "run ended",
        { identity: *identity, run: *run, reason: why.as_str(), sessions: *sessions };
    /// A session was opened ahead.
    SpareOpened = "spare-opened" {
        at server,
        /// How long that took.
        #[serde(rename = "took_ms", serialize_with = "serialize_millis")]
        took: Duration,
    } => Level::DEBUG, "spare opened", { took: *took };
    /// A spare session was taken into use.
    SpareTaken = "spare-taken" { of session, } => Level::DEBUG, "spare taken";
    /// A credential was refreshed.
    CredentialRefreshed = "credential-refreshed" {
        at server,
        /// The identity, where each has its own credential.
        #[serde(skip_serializing_if = "Option::is_none")]
        identity: Option<Fingerprint>,
        /// The result.
        result: RefreshResult,
    } => match result {
            RefreshResult::Renewed | RefreshResult::Unchanged => Level::INFO,
            RefreshResult::Failed | RefreshResult::TimedOut => Level::WARN,
        }, "credential refreshed",
        { how: result.as_str(), identity: *identity };
    /// A store operation failed; sessions go on in memory.
    StoreFailed = "store-trouble" {
        at server,
        /// The operation.
        operation: StoreOperation,
        /// What happened.
        what: Arc<str>,
    } => Level::WARN, "store trouble", { how: operation.as_str(), what: &**what };
    /// A store works again.
    StoreRecovered = "store-works" { at server, } => Level::INFO, "store works again";
    /// A record cannot be used: foreign, broken, too new, or sealed with another key.
    RecordRefused = "record-refused" {
        at server,
        /// What is wrong with it.
        what: Arc<str>,
    } => Level::WARN, "record refused", { what: &**what };
    /// The store has records, and our secrets open none of them: the secrets were removed or replaced.
    /// Runs start again; the records are lost unless the old secrets come back.
    SecretsReplaced = "secrets-replaced" { at server, } => Level::WARN, "the secrets were replaced",
        { what: "session records were sealed with other secrets than ours; runs start over" };
    /// A call met a session of another identity. It was not sent, and the session is ended.
    IsolationViolation = "isolation-violation" {
        of session,
        /// The caller.
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Fingerprint>,
    } => Level::ERROR, "isolation violation";
    /// An invariant of the engine was broken; the smallest thing that depends on it was ended.
    InvariantViolated = "broken-promise" {
        /// The invariant.
        promise: &'static str,
        /// The server it concerns.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<Arc<str>>,
    } => Level::ERROR, "broken promise", { what: *promise, server: server.as_ref() };
    /// A lease is held for too long.
    LongLease = "lease-held-long" {
        of session,
        /// The method, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        method: Option<Arc<str>>,
        /// For how long.
        #[serde(rename = "held_ms", serialize_with = "serialize_millis")]
        held: Duration,
    } => Level::WARN, "lease held long", { method: method.as_deref(), took: *held };
    /// A child ended.
    ChildExited = "child-exited" {
        of session,
        /// How.
        how: ChildEnd,
        /// Its status and its last output.
        what: Arc<str>,
    } => if *how == ChildEnd::Closed { Level::DEBUG } else { Level::WARN }, "child exited",
        { how: how.as_str(), what: &**what, throttle: [how.as_str(), ""] };
    /// A server's list of tools, prompts or resources changed.
    ListChanged = "list-changed" {
        at server,
        /// `tools`, `prompts` or `resources`.
        list: &'static str,
    } => Level::DEBUG, "list changed", { what: *list };
    /// A server request that may belong to calls of several callers was refused; `serial = true` for
    /// the server lets one call in at a time.
    ServerRequestRefused = "question-refused" {
        at server,
        /// Its method; `other` where the protocol does not name it.
        method: &'static str,
    } => Level::WARN, "question refused", {
        method: *method,
        what: "it could be of calls of several callers; `serial = true` lets one call in at a time",
        throttle: [*method, ""],
    };
    /// No new call is accepted from now on.
    Draining = "draining" => Level::INFO, "draining";
}

impl Event {
    /// The name of its kind in JSON and in logs.
    pub fn kind(&self) -> &'static str {
        self.log_line().1.kind
    }

    /// The server it concerns, if any.
    pub fn server(&self) -> Option<&str> {
        self.log_line().1.server().map(|server| &**server)
    }
}

const fn breaker_level(state: BreakerState) -> Level {
    match state {
        BreakerState::Open => Level::WARN,
        BreakerState::Closed => Level::INFO,
        BreakerState::HalfOpen => Level::DEBUG,
    }
}

const fn run_end_level(why: RunEnd) -> Level {
    match why {
        RunEnd::StateLost => Level::WARN,
        RunEnd::IdleTooLong => Level::INFO,
        RunEnd::Ended | RunEnd::Dropped | RunEnd::Closed | RunEnd::Detached => Level::DEBUG,
    }
}

/// A call that may have been executed is worth a warning, and so is a full queue. A failure that has
/// a line of its own (an opening, a breaker, a lost session, our own end) is not repeated.
const fn failure_level(delivery: Delivery, code: Code) -> Level {
    match (delivery, code) {
        (Delivery::Unknown | Delivery::Answered, _)
        | (_, Code::Overloaded | Code::PoolFull | Code::Bug) => Level::WARN,
        (
            _,
            Code::CannotReach
            | Code::OpenFailed
            | Code::EraUnknown
            | Code::CredentialRefused
            | Code::CredentialUnavailable
            | Code::ResolveFailed
            | Code::BreakerOpen
            | Code::SessionLost
            | Code::Draining
            | Code::Closed,
        ) => Level::DEBUG,
        _ => Level::INFO,
    }
}

fn serialize_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(event_log::millis(*time))
}

fn serialize_optional_millis<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(event_log::millis).serialize(serializer)
}
