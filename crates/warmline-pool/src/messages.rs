//! The errors of callers that get no session.

use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::limits::{PermitKind, SessionLimit};
use warmline_core::pool::{EndReason, EntryPolicy, SessionCounts, Sharing};

pub(super) fn pool_full(
    (server, took): (&str, Duration),
    policy: &EntryPolicy,
    counts: &SessionCounts,
    full: Option<&(SessionLimit, u32)>,
) -> Diagnostic {
    let waited = rounded_seconds(took);
    let in_use = counts.leased + counts.retiring;
    match policy.sharing {
        Sharing::OnePerCaller if in_use >= policy.max_sessions => {
            let max = policy.max_sessions;
            let what = format!(
                "no session free for `{server}` within {waited} s: {in_use} of {max} are in use"
            );
            Diagnostic::new(Reason::PoolFull, what).with_hint(format!(
                "raise `max_per_key` (now {max}), or call less at once"
            ))
        },
        Sharing::SideBySide | Sharing::Serial if in_use > 0 => {
            let what =
                format!("the session of `{server}` was not free within {waited} s: it is in use");
            Diagnostic::new(Reason::PoolFull, what)
                .with_hint("let those who hold it alone end sooner, or wait longer")
        },
        Sharing::OnePerCaller | Sharing::SideBySide | Sharing::Serial => {
            no_permit(server, took, full)
        },
    }
}

/// No permit became free in time; `full` is the limit that still blocks it.
pub(super) fn no_permit(
    server: &str,
    waited: Duration,
    full: Option<&(SessionLimit, u32)>,
) -> Diagnostic {
    let waited = rounded_seconds(waited);
    let none = format!("no room for a session of `{server}` within {waited} s");
    let Some((limit, most)) = full else {
        let what = format!("{none}: others were first");
        return Diagnostic::new(Reason::PoolFull, what)
            .with_hint("call less at once, or wait longer");
    };
    let (taken, setting) = match limit {
        SessionLimit::Server(_) => ("sessions of the server", "max_sessions"),
        SessionLimit::Identity(_, PermitKind::Session) => {
            ("sessions of one identity", "limits.sessions_per_identity")
        },
        SessionLimit::Identity(_, PermitKind::Process) => {
            ("programs of one identity", "limits.processes_per_identity")
        },
        SessionLimit::All(PermitKind::Session) => ("sessions", "limits.sessions"),
        SessionLimit::All(PermitKind::Process) => ("programs", "limits.processes"),
    };
    Diagnostic::new(
        Reason::PoolFull,
        format!("{none}: all {most} {taken} are taken"),
    )
    .with_hint(format!(
        "let runs end sooner, or raise `{setting}` (now {most})"
    ))
}

pub(super) fn open_timed_out(server: &str, waited: Duration) -> Diagnostic {
    let what = format!(
        "the session to `{server}` was not open within {} s; it is still being opened",
        rounded_seconds(waited)
    );
    Diagnostic::new(Reason::TimeoutUnsent, what)
}

pub(super) fn queue_full(server: &str, waiters: u32) -> Diagnostic {
    let what = format!("{waiters} callers already wait for a session of `{server}`");
    let mut diagnostic = Diagnostic::new(Reason::Overloaded, what);
    diagnostic.retry_after = Some(Duration::from_secs(1));
    diagnostic
}

pub(super) fn entry_ended(server: &str, why: EndReason) -> Diagnostic {
    if why == EndReason::RunEnded {
        let what = format!("the run ended before `{server}` was called");
        return Diagnostic::new(Reason::RunEnded, what);
    }
    if matches!(why, EndReason::Drained | EndReason::Retained) {
        let what = format!("`{server}` is not called any more: everything is going down");
        return Diagnostic::new(Reason::Draining, what);
    }
    let what = format!("the sessions of `{server}` were closed ({why})");
    Diagnostic::new(Reason::Closed, what)
}

pub(super) fn pool_closed(server: &str) -> Diagnostic {
    let what = format!("`{server}` was not called: the pool is closed");
    Diagnostic::new(Reason::Closed, what)
}

/// Every session ends as soon as it is open.
pub(super) fn dead_on_arrival(server: &str) -> Diagnostic {
    let what = format!("`{server}` ends every session as soon as it is open");
    Diagnostic::new(Reason::SessionGone, what)
        .with_hint("see what the server says in its log, or start its program by hand")
}

/// The task of the opening was stopped or panicked.
pub(super) fn opening_aborted(server: &str) -> Diagnostic {
    let what = format!("opening a session to `{server}` ended without a word");
    Diagnostic::new(Reason::Internal, what)
}

pub(super) fn rounded_seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}
