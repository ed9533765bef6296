//! The log line of each event: written here and nowhere else, so that nothing is logged twice.
//!
//! Told by: [`super::Events::tell`]. What somebody should look at is a warning, what heals itself
//! is information, what belongs to a normal day is for debugging.

use std::sync::Arc;
use std::time::Duration;

use tracing::Level;
use warmline_core::code::Code;
use warmline_core::delivery::Delivery;
use warmline_core::key::RunId;
use warmline_core::pool::Why;

use super::often::{Due, Often};
use super::{Event, Fingerprint, RunEnd, ShortId, Which};
use crate::metrics::{Acquired, BreakerState, ChildEnd, ClosedSet, HealCause, RefreshResult};

/// Writes the line of an event. What callers can cause as often as they like is told once in a
/// while; each single one stands among the lines for debugging.
pub(super) fn write(event: &Event, often: &Often) {
    let mut line = line_of(event);
    let about = if let Event::CallFailed {
        session,
        delivery,
        reason,
        ..
    } = event
    {
        Some((Arc::clone(&session.server), delivery.word(), reason.word()))
    } else if let Event::QuestionRefused { server, method } = event {
        Some((Arc::clone(server), event.kind(), *method))
    } else if let Event::OpeningFailed {
        session, reason, ..
    } = event
    {
        // Each caller and each list that asks for it meets the same fault.
        Some((Arc::clone(&session.server), event.kind(), reason.word()))
    } else if let Event::CheckFailed { session, found } = event {
        // Each session that is held meets it, at each look.
        Some((Arc::clone(&session.server), event.kind(), found.word()))
    } else if let Event::SessionGone { session, cause } = event {
        Some((Arc::clone(&session.server), event.kind(), cause.word()))
    } else if let Event::ChildExited { session, how, .. } = event {
        // A program that does not live long meets it at every start.
        Some((Arc::clone(&session.server), event.kind(), how.word()))
    } else if let Event::Healed {
        session,
        state_lost,
        ..
    } = event
    {
        let state = if *state_lost { "lost" } else { "none" };
        Some((Arc::clone(&session.server), event.kind(), state))
    } else {
        None
    };
    if let Some(about) = about
        && line.level < Level::DEBUG
    {
        match often.again(about) {
            Due::After(0) => {},
            Due::After(unsaid) => line.more = Some(unsaid),
            Due::Not => line.level = Level::DEBUG,
        }
    }
    line.write();
}

/// A call came by its session like this. For debugging, as it is one line per call (A53).
pub fn acquired(
    how: Acquired,
    server: &str,
    run: Option<RunId>,
    generation: u32,
    session_id: Option<&str>,
) {
    tracing::debug!(
        target: "warmline::events",
        server,
        run = run.map(Fingerprint::from).map(display),
        generation,
        session = session_id.map(ShortId::of).map(display),
        how = how.word(),
        "session acquired"
    );
}

/// All that a line may hold; what is none is not written.
#[derive(Clone, Copy)]
struct Line<'a> {
    level: Level,
    message: &'static str,
    server: Option<&'a str>,
    identity: Option<Fingerprint>,
    run: Option<Fingerprint>,
    generation: Option<u32>,
    session: Option<ShortId>,
    from: Option<u32>,
    state_lost: Option<bool>,
    how: Option<&'static str>,
    reason: Option<&'static str>,
    scope: Option<&'static str>,
    attempt: Option<u32>,
    sessions: Option<u32>,
    method: Option<&'a str>,
    took: Option<Duration>,
    /// How long nothing is tried from now on.
    retry_in: Option<Duration>,
    what: Option<&'a str>,
    delivery: Option<&'static str>,
    code: Option<&'static str>,
    /// How often the same happened since the last line of it.
    more: Option<u64>,
}

impl<'a> Line<'a> {
    const fn new(level: Level, message: &'static str) -> Self {
        Self {
            level,
            message,
            server: None,
            identity: None,
            run: None,
            generation: None,
            session: None,
            from: None,
            state_lost: None,
            how: None,
            reason: None,
            scope: None,
            attempt: None,
            sessions: None,
            method: None,
            took: None,
            retry_in: None,
            what: None,
            delivery: None,
            code: None,
            more: None,
        }
    }

    fn session(level: Level, message: &'static str, which: &'a Which) -> Self {
        Self {
            server: Some(&which.server),
            identity: which.identity,
            run: which.run,
            generation: which.generation,
            session: which.session,
            ..Self::new(level, message)
        }
    }

    fn server(level: Level, message: &'static str, server: &'a str) -> Self {
        Self {
            server: Some(server),
            ..Self::new(level, message)
        }
    }

    fn how(self, word: impl ClosedSet) -> Self {
        Self {
            how: Some(word.word()),
            ..self
        }
    }

    fn reason(self, word: impl ClosedSet) -> Self {
        Self {
            reason: Some(word.word()),
            ..self
        }
    }

    fn took(self, time: Duration) -> Self {
        Self {
            took: Some(time),
            ..self
        }
    }

    fn what(self, what: &'a str) -> Self {
        Self {
            what: Some(what),
            ..self
        }
    }

    fn write(self) {
        macro_rules! at {
            ($level:expr) => {
                tracing::event!(
                    target: "warmline::events",
                    $level,
                    server = self.server,
                    identity = self.identity.map(display),
                    run = self.run.map(display),
                    generation = self.generation,
                    session = self.session.map(display),
                    from = self.from,
                    state_lost = self.state_lost,
                    how = self.how,
                    reason = self.reason,
                    scope = self.scope,
                    attempt = self.attempt,
                    sessions = self.sessions,
                    method = self.method,
                    took_ms = self.took.map(millis),
                    retry_in_ms = self.retry_in.map(millis),
                    delivery = self.delivery,
                    code = self.code,
                    more = self.more,
                    what = self.what,
                    "{}",
                    self.message
                )
            };
        }
        match self.level {
            Level::ERROR => at!(Level::ERROR),
            Level::WARN => at!(Level::WARN),
            Level::INFO => at!(Level::INFO),
            _ => at!(Level::DEBUG),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of event")]
fn line_of(event: &Event) -> Line<'_> {
    use Level as L;
    match event {
        Event::SessionOpened { session, how, took } => {
            Line::session(L::DEBUG, "session opened", session)
                .how(*how)
                .took(*took)
        },
        Event::OpeningFailed {
            session,
            reason,
            what,
            ..
        } => Line::session(L::WARN, "opening failed", session)
            .reason(*reason)
            .what(what),
        Event::SessionClosed { session, why } => {
            let what = if *why == Why::Kept {
                "session left to its record"
            } else {
                "session closed"
            };
            Line::session(L::DEBUG, what, session).reason(*why)
        },
        Event::NotEnded { session, what } => {
            Line::session(L::WARN, "session not ended", session).what(what)
        },
        Event::SessionGone { session, cause } => {
            Line::session(level_of_loss(*cause), "session gone", session).reason(*cause)
        },
        Event::Healed {
            session,
            from,
            state_lost,
            took,
        } => Line {
            from: Some(*from),
            state_lost: Some(*state_lost),
            ..Line::session(L::INFO, "healed", session).took(*took)
        },
        Event::CheckFailed { session, found } => {
            Line::session(L::INFO, "check failed", session).reason(*found)
        },
        Event::SentAgain {
            session,
            reason,
            attempt,
        } => Line {
            attempt: Some(*attempt),
            ..Line::session(L::INFO, "sent again", session).reason(*reason)
        },
        Event::CallFailed {
            session,
            method,
            delivery,
            code,
            reason,
            attempts,
            took,
        } => Line {
            method: Some(method.word()),
            delivery: Some(delivery.word()),
            code: Some(code.word()),
            attempt: Some(*attempts),
            ..Line::session(level_of_failure(*delivery, *code), "call failed", session)
                .reason(*reason)
                .took(*took)
        },
        Event::BreakerChanged {
            server,
            scope,
            identity,
            state,
            reason,
            retry_in,
        } => Line {
            identity: *identity,
            scope: Some(scope.word()),
            reason: reason.map(ClosedSet::word),
            retry_in: *retry_in,
            ..Line::server(level_of_breaker(*state), "breaker changed", server).how(*state)
        },
        Event::QuestionRefused { server, method } => Line {
            method: Some(method),
            ..Line::server(L::WARN, "question refused", server).what(
                "it could be of calls of several callers; `serial = true` lets one call in at a time",
            )
        },
        Event::RunBegan { identity, run } => Line {
            identity: Some(*identity),
            run: Some(*run),
            ..Line::new(L::DEBUG, "run began")
        },
        Event::RunEnded {
            identity,
            run,
            why,
            sessions,
        } => Line {
            identity: Some(*identity),
            run: Some(*run),
            sessions: Some(*sessions),
            ..Line::new(level_of_run(*why), "run ended").reason(*why)
        },
        Event::SpareOpened { server, took } => {
            Line::server(L::DEBUG, "spare opened", server).took(*took)
        },
        Event::SpareTaken { session } => Line::session(L::DEBUG, "spare taken", session),
        Event::CredentialRefreshed {
            server,
            identity,
            result,
        } => Line {
            identity: *identity,
            ..Line::server(level_of_refresh(*result), "credential refreshed", server).how(*result)
        },
        Event::StoreTrouble {
            server,
            operation,
            what,
        } => Line::server(L::WARN, "store trouble", server)
            .how(*operation)
            .what(what),
        Event::StoreWorks { server } => Line::server(L::INFO, "store works again", server),
        Event::RecordRefused { server, what } => {
            Line::server(L::WARN, "record refused", server).what(what)
        },
        Event::SecretsReplaced { server } => {
            Line::server(L::WARN, "the secrets were replaced", server)
                .what("session records were sealed with other secrets than ours; runs begin anew")
        },
        Event::IsolationViolation { session, .. } => {
            Line::session(L::ERROR, "isolation violation", session)
        },
        Event::BrokenPromise { promise, server } => Line {
            server: server.as_deref(),
            ..Line::new(L::ERROR, "broken promise").what(promise)
        },
        Event::LeaseHeldLong {
            session,
            method,
            held,
        } => Line {
            method: method.as_deref(),
            ..Line::session(L::WARN, "lease held long", session).took(*held)
        },
        Event::ChildExited { session, how, what } => {
            Line::session(level_of_child(*how), "child exited", session)
                .how(*how)
                .what(what)
        },
        Event::ListChanged { server, list } => {
            Line::server(L::DEBUG, "list changed", server).what(list)
        },
        Event::Draining => Line::new(L::INFO, "draining"),
    }
}

/// What may have been executed is worth knowing, and so is where there was no room. What has a line
/// of its own where it happened (an opening, a breaker, a lost session, our own end) is not told
/// again.
const fn level_of_failure(delivery: Delivery, code: Code) -> Level {
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

/// Of a session that went with its program, the program's end is the line.
fn level_of_loss(cause: HealCause) -> Level {
    match cause == HealCause::ChildExit {
        true => Level::DEBUG,
        false => Level::WARN,
    }
}

const fn level_of_breaker(state: BreakerState) -> Level {
    match state {
        BreakerState::Tripped => Level::WARN,
        BreakerState::Passing => Level::INFO,
        BreakerState::Probing => Level::DEBUG,
    }
}

const fn level_of_run(why: RunEnd) -> Level {
    match why {
        RunEnd::StateLost => Level::WARN,
        RunEnd::IdleTooLong => Level::INFO,
        RunEnd::Ended | RunEnd::Dropped | RunEnd::Closed | RunEnd::Detached => Level::DEBUG,
    }
}

const fn level_of_refresh(result: RefreshResult) -> Level {
    match result {
        RefreshResult::Renewed | RefreshResult::Unchanged => Level::INFO,
        RefreshResult::Failed | RefreshResult::TimedOut => Level::WARN,
    }
}

const fn level_of_child(how: ChildEnd) -> Level {
    match how {
        ChildEnd::Closed => Level::DEBUG,
        ChildEnd::Finished | ChildEnd::Failed | ChildEnd::Killed | ChildEnd::NotStarted => {
            Level::WARN
        },
    }
}
