//! Events: what happened, for people. One log line each, and whoever subscribed hears it.
//!
//! Asked by: subscribers (`warm.events()`), tests, the gateway's event stream.  Told by: the
//! engine, at the place where something became true, and nowhere else: so nothing is logged twice.
//!
//! Identities, runs and session ids stand in events as fingerprints; secrets,
//! arguments and results never do.

mod broadcast;
mod log;
mod often;
mod shortened;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use broadcast::{Events, Heard, Subscription};
pub use log::acquired;
use serde::{Serialize, Serializer};
pub use shortened::{Fingerprint, ShortId};
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::key::Key;
use warmline_core::pool::Why;

use crate::metrics::{
    BreakerScope, BreakerState, CheckResult, ChildEnd, ClosedSet, HealCause, MethodWord,
    OpenResult, RefreshResult, StoreOperation, closed_set,
};

/// Which session is meant, as far as it may be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Which {
    /// The server's name.
    pub server: Arc<str>,
    /// Whose it is; none for everybody's, and for spares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Fingerprint>,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Fingerprint>,
    /// Which session of its key it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The server's id for it, as a short digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<ShortId>,
}

impl Which {
    /// A session of a server, of which nothing else is known.
    pub const fn of(server: Arc<str>) -> Self {
        Self {
            server,
            identity: None,
            run: None,
            generation: None,
            session: None,
        }
    }

    /// A session of a key.
    pub fn of_key(key: &Key) -> Self {
        Self {
            server: Arc::clone(&key.place().server),
            identity: Fingerprint::of_owner(key.owner()),
            run: key.run().map(Fingerprint::from),
            generation: None,
            session: None,
        }
    }

    /// The same with the number of the session.
    #[must_use]
    pub const fn generation(mut self, generation: u32) -> Self {
        self.generation = Some(generation);
        self
    }

    /// The same with the server's id.
    #[must_use]
    pub fn session_id(mut self, session_id: Option<&str>) -> Self {
        self.session = session_id.map(ShortId::of);
        self
    }
}

closed_set! {
    /// Why a run ended.
    RunEnd {
        /// Somebody ended it.
        Ended = "ended",
        /// What began it was dropped.
        Dropped = "dropped",
        /// Nobody used it for long.
        IdleTooLong = "idle-too-long",
        /// A server lost its state, and the policy ends the run then.
        StateLost = "state-lost",
        /// The engine was closed.
        Closed = "closed",
        /// It was left to its record.
        Detached = "detached",
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "snake_case"
)]
#[non_exhaustive]
pub enum Event {
    /// A session is open and belongs to a key.
    SessionOpened {
        /// Which one.
        #[serde(flatten)]
        session: Which,
        /// Where it came from.
        how: OpenResult,
        /// How long that took.
        #[serde(rename = "took_ms", serialize_with = "as_millis")]
        took: Duration,
    },
    /// A session could not be opened.
    OpeningFailed {
        /// For whom.
        #[serde(flatten)]
        session: Which,
        /// The stable name of the error.
        #[serde(serialize_with = "as_word")]
        code: Code,
        /// The finer word beside it.
        #[serde(serialize_with = "as_word")]
        reason: Reason,
        /// What happened, with names and numbers.
        what: Arc<str>,
    },
    /// A session is over, or left to its record where `why` is `kept`.
    SessionClosed {
        /// Which one.
        #[serde(flatten)]
        session: Which,
        /// Why.
        #[serde(serialize_with = "as_word")]
        why: Why,
    },
    /// A session is over here, and its server did not end it: it may hold it still.
    NotEnded {
        /// Which one.
        #[serde(flatten)]
        session: Which,
        /// What happened, with names and numbers.
        what: Arc<str>,
    },
    /// A server does not know a session any more, or what carried it is gone.
    SessionGone {
        /// Which one.
        #[serde(flatten)]
        session: Which,
        /// What showed it.
        cause: HealCause,
    },
    /// A lost session was replaced: `session.generation` is the new one.
    Healed {
        /// The new one.
        #[serde(flatten)]
        session: Which,
        /// The number of the lost one.
        from: u32,
        /// What the server remembered of earlier calls is gone.
        state_lost: bool,
        /// How long that took.
        #[serde(rename = "took_ms", serialize_with = "as_millis")]
        took: Duration,
    },
    /// A check before reuse failed; the session is not used again.
    CheckFailed {
        /// Which one.
        #[serde(flatten)]
        session: Which,
        /// What was found.
        found: CheckResult,
    },
    /// A call was sent again.
    SentAgain {
        /// On which session.
        #[serde(flatten)]
        session: Which,
        /// What became of the attempt before.
        #[serde(serialize_with = "as_word")]
        reason: Reason,
        /// The number of this attempt; the first has 1.
        attempt: u32,
    },
    /// A call ended with an error that is not the server's answer.
    CallFailed {
        /// On which session, as far as it had one.
        #[serde(flatten)]
        session: Which,
        /// What was asked for.
        method: MethodWord,
        /// What is known of it.
        #[serde(serialize_with = "as_word")]
        delivery: Delivery,
        /// The stable name of the error.
        #[serde(serialize_with = "as_word")]
        code: Code,
        /// The finer word beside it.
        #[serde(serialize_with = "as_word")]
        reason: Reason,
        /// How often it was handed to a session.
        attempts: u32,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "as_millis")]
        took: Duration,
    },
    /// A breaker went to another state.
    BreakerChanged {
        /// Whose server it is.
        server: Arc<str>,
        /// Whom it speaks for.
        scope: BreakerScope,
        /// Whose openings it stops, if it speaks for one identity.
        #[serde(skip_serializing_if = "Option::is_none")]
        identity: Option<Fingerprint>,
        /// What it does now.
        state: BreakerState,
        /// What made it trip.
        #[serde(
            skip_serializing_if = "Option::is_none",
            serialize_with = "as_word_if_any"
        )]
        reason: Option<Reason>,
        /// When one opening is tried again.
        #[serde(
            rename = "retry_in_ms",
            skip_serializing_if = "Option::is_none",
            serialize_with = "as_millis_if_any"
        )]
        retry_in: Option<Duration>,
    },
    /// A run began.
    RunBegan {
        /// Whose it is.
        identity: Fingerprint,
        /// Which one.
        run: Fingerprint,
    },
    /// A run ended.
    RunEnded {
        /// Whose it was.
        identity: Fingerprint,
        /// Which one.
        run: Fingerprint,
        /// Why.
        why: RunEnd,
        /// Sessions it had.
        sessions: u32,
    },
    /// A session was opened ahead.
    SpareOpened {
        /// To which server.
        server: Arc<str>,
        /// How long that took.
        #[serde(rename = "took_ms", serialize_with = "as_millis")]
        took: Duration,
    },
    /// A spare was given to somebody: from now on it belongs to a key.
    SpareTaken {
        /// Which one.
        #[serde(flatten)]
        session: Which,
    },
    /// A credential was asked for again.
    CredentialRefreshed {
        /// For which server.
        server: Arc<str>,
        /// Whose it is, where each identity has its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        identity: Option<Fingerprint>,
        /// What came of it.
        result: RefreshResult,
    },
    /// A store did not do what it was asked; sessions go on in memory.
    StoreTrouble {
        /// Whose record it was.
        server: Arc<str>,
        /// What it was asked.
        operation: StoreOperation,
        /// What happened, with names and numbers.
        what: Arc<str>,
    },
    /// A store works again.
    StoreWorks {
        /// Whose records it keeps.
        server: Arc<str>,
    },
    /// A record cannot be used: foreign, broken, too new, or sealed with another key.
    RecordRefused {
        /// Whose record it was.
        server: Arc<str>,
        /// What is wrong with it.
        what: Arc<str>,
    },
    /// There are records in the store, and none of them can be opened with our secrets: these were
    /// removed or replaced since, and what was kept there is lost unless the old ones come back.
    /// Runs begin anew.
    SecretsReplaced {
        /// Whose record was looked for.
        server: Arc<str>,
    },
    /// A call met a session of another identity. It was not sent, and the session is ended.
    IsolationViolation {
        /// The session.
        #[serde(flatten)]
        session: Which,
        /// Whose call it was.
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Fingerprint>,
    },
    /// A promise of ours was broken; the smallest thing that holds it was ended.
    BrokenPromise {
        /// Which one.
        promise: &'static str,
        /// The server it concerns.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<Arc<str>>,
    },
    /// A lease is held longer than anybody should.
    LeaseHeldLong {
        /// Of which session.
        #[serde(flatten)]
        session: Which,
        /// What it is used for, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        method: Option<Arc<str>>,
        /// For how long.
        #[serde(rename = "held_ms", serialize_with = "as_millis")]
        held: Duration,
    },
    /// A child ended.
    ChildExited {
        /// Whose process it was.
        #[serde(flatten)]
        session: Which,
        /// How.
        how: ChildEnd,
        /// Its status and its last words.
        what: Arc<str>,
    },
    /// A server's list of tools, prompts or resources changed.
    ListChanged {
        /// Whose.
        server: Arc<str>,
        /// `tools`, `prompts` or `resources`.
        list: &'static str,
    },
    /// A server asked something that could be of calls of several callers. It was refused, because
    /// nobody can know whose it is; `serial = true` for the server lets one call in at a time.
    QuestionRefused {
        /// Which server.
        server: Arc<str>,
        /// The method that asks; `other` where the protocol does not name it.
        method: &'static str,
    },
    /// Nothing new is taken from now on.
    Draining,
}

impl Event {
    /// The name of its kind, as it stands in JSON and in the log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SessionOpened { .. } => "session-opened",
            Self::OpeningFailed { .. } => "opening-failed",
            Self::SessionClosed { .. } => "session-closed",
            Self::NotEnded { .. } => "not-ended",
            Self::SessionGone { .. } => "session-gone",
            Self::Healed { .. } => "healed",
            Self::CheckFailed { .. } => "check-failed",
            Self::SentAgain { .. } => "sent-again",
            Self::CallFailed { .. } => "call-failed",
            Self::BreakerChanged { .. } => "breaker-changed",
            Self::RunBegan { .. } => "run-began",
            Self::RunEnded { .. } => "run-ended",
            Self::SpareOpened { .. } => "spare-opened",
            Self::SpareTaken { .. } => "spare-taken",
            Self::CredentialRefreshed { .. } => "credential-refreshed",
            Self::StoreTrouble { .. } => "store-trouble",
            Self::StoreWorks { .. } => "store-works",
            Self::RecordRefused { .. } => "record-refused",
            Self::SecretsReplaced { .. } => "secrets-replaced",
            Self::IsolationViolation { .. } => "isolation-violation",
            Self::BrokenPromise { .. } => "broken-promise",
            Self::LeaseHeldLong { .. } => "lease-held-long",
            Self::ChildExited { .. } => "child-exited",
            Self::ListChanged { .. } => "list-changed",
            Self::QuestionRefused { .. } => "question-refused",
            Self::Draining => "draining",
        }
    }

    /// The server it concerns, if it concerns one.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::SessionOpened { session, .. }
            | Self::OpeningFailed { session, .. }
            | Self::SessionClosed { session, .. }
            | Self::NotEnded { session, .. }
            | Self::SessionGone { session, .. }
            | Self::Healed { session, .. }
            | Self::CheckFailed { session, .. }
            | Self::SentAgain { session, .. }
            | Self::CallFailed { session, .. }
            | Self::SpareTaken { session }
            | Self::IsolationViolation { session, .. }
            | Self::LeaseHeldLong { session, .. }
            | Self::ChildExited { session, .. } => Some(&session.server),
            Self::BreakerChanged { server, .. }
            | Self::SpareOpened { server, .. }
            | Self::CredentialRefreshed { server, .. }
            | Self::StoreTrouble { server, .. }
            | Self::StoreWorks { server }
            | Self::SecretsReplaced { server }
            | Self::RecordRefused { server, .. }
            | Self::QuestionRefused { server, .. }
            | Self::ListChanged { server, .. } => Some(server),
            Self::BrokenPromise { server, .. } => server.as_deref(),
            Self::RunBegan { .. } | Self::RunEnded { .. } | Self::Draining => None,
        }
    }
}

fn as_word<W: ClosedSet, S: Serializer>(word: &W, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(word.word())
}

fn as_word_if_any<W: ClosedSet, S: Serializer>(
    word: &Option<W>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match word {
        Some(word) => as_word(word, serializer),
        None => serializer.serialize_none(),
    }
}

fn as_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn as_millis_if_any<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => as_millis(time, serializer),
        None => serializer.serialize_none(),
    }
}
