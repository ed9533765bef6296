//! What a caller who gets no session reads: what happened, with numbers, and what to do.

use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::pool::limits::{Kind, Limit};
use warmline_core::pool::{CellPolicy, Counts, Sharing, Why};

use super::breakers::Cause;

/// Opening pauses. What went wrong last is said by its word, which everybody may read; the words
/// that whoever opened was told are the cause.
pub(super) fn breaker_open(server: &str, pause: Duration, last: Option<&Cause>) -> Trouble {
    let last_word = last.map(|last| format!(" ({})", last.reason.word()));
    let what = format!(
        "`{server}` is not tried for another {} s: its last openings failed, or did not last{}",
        seconds(pause),
        last_word.unwrap_or_default()
    );
    let mut trouble = Trouble::new(Reason::BreakerOpen, what);
    trouble.why = last.map(|last| format!("the last time: {}", last.words));
    trouble.retry_after = Some(pause);
    trouble
}

/// A session was of no use to whoever opened it.
pub(super) fn in_vain(server: &str) -> Trouble {
    let what = format!("a session of `{server}` ended before it had answered anything");
    Trouble::new(Reason::SessionGone, what)
}

/// No session came free in time.
pub(super) fn pool_full(
    (server, took): (&str, Duration),
    policy: &CellPolicy,
    counts: &Counts,
    full: Option<&(Limit, u32)>,
) -> Trouble {
    let waited = seconds(took);
    let in_use = counts.leased + counts.retiring;
    match policy.sharing {
        Sharing::OneEach if in_use >= policy.max => {
            let max = policy.max;
            let what = format!(
                "no session free for `{server}` within {waited} s: {in_use} of {max} are in use"
            );
            Trouble::new(Reason::PoolFull, what).hint(format!(
                "raise `max_per_key` (now {max}), or call less at once"
            ))
        },
        Sharing::SideBySide | Sharing::Serial if in_use > 0 => {
            let what =
                format!("the session of `{server}` was not free within {waited} s: it is in use");
            Trouble::new(Reason::PoolFull, what)
                .hint("let those who hold it alone end sooner, or wait longer")
        },
        Sharing::OneEach | Sharing::SideBySide | Sharing::Serial => no_room(server, took, full),
    }
}

/// No room came free in time: the limit that is full, where one still is.
pub(super) fn no_room(server: &str, waited: Duration, full: Option<&(Limit, u32)>) -> Trouble {
    let waited = seconds(waited);
    let none = format!("no room for a session of `{server}` within {waited} s");
    let Some((limit, most)) = full else {
        let what = format!("{none}: others were first");
        return Trouble::new(Reason::PoolFull, what).hint("call less at once, or wait longer");
    };
    let (taken, setting) = match limit {
        Limit::Server(_) => ("sessions of the server", "max_sessions"),
        Limit::Identity(_, Kind::Session) => {
            ("sessions of one identity", "limits.sessions_per_identity")
        },
        Limit::Identity(_, Kind::Process) => {
            ("programs of one identity", "limits.processes_per_identity")
        },
        Limit::All(Kind::Session) => ("sessions", "limits.sessions"),
        Limit::All(Kind::Process) => ("programs", "limits.processes"),
    };
    Trouble::new(
        Reason::PoolFull,
        format!("{none}: all {most} {taken} are taken"),
    )
    .hint(format!(
        "let runs end sooner, or raise `{setting}` (now {most})"
    ))
}

/// The opening was not done in time.
pub(super) fn too_slow(server: &str, waited: Duration) -> Trouble {
    let what = format!(
        "the session to `{server}` was not open within {} s; it is still being opened",
        seconds(waited)
    );
    Trouble::new(Reason::TimeoutUnsent, what)
}

/// Too many are in line.
pub(super) fn line_full(server: &str, waiters: u32) -> Trouble {
    let what = format!("{waiters} callers already wait for a session of `{server}`");
    let mut trouble = Trouble::new(Reason::Overloaded, what);
    trouble.retry_after = Some(Duration::from_secs(1));
    trouble
}

/// The key is over.
pub(super) fn ended(server: &str, why: Why) -> Trouble {
    let (reason, what) = match why {
        Why::RunEnded => (
            Reason::RunEnded,
            format!("the run ended before `{server}` was called"),
        ),
        Why::Drained | Why::Kept => (
            Reason::Draining,
            format!("`{server}` is not called any more: everything is going down"),
        ),
        Why::Aged
        | Why::IdleTooLong
        | Why::Evicted
        | Why::Reloaded
        | Why::ByOperator
        | Why::OpenFailed
        | Why::CheckFailed
        | Why::Gone
        | Why::CredentialRefused
        | Why::Expired
        | Why::Bug => (
            Reason::Closed,
            format!("the sessions of `{server}` were closed ({why})"),
        ),
    };
    Trouble::new(reason, what)
}

/// Nothing new is taken.
pub(super) fn draining(server: &str) -> Trouble {
    ended(server, Why::Drained)
}

/// Everything was closed.
pub(super) fn closed(server: &str) -> Trouble {
    let what = format!("`{server}` was not called: the pool is closed");
    Trouble::new(Reason::Closed, what)
}

/// Sessions die as soon as they are open.
pub(super) fn dead_on_arrival(server: &str) -> Trouble {
    let what = format!("`{server}` ends every session as soon as it is open");
    Trouble::new(Reason::SessionGone, what)
        .hint("see what the server says in its log, or start its program by hand")
}

/// An opening ended without a word: its task was stopped or panicked.
pub(super) fn no_word(server: &str) -> Trouble {
    let what = format!("opening a session to `{server}` ended without a word");
    Trouble::new(Reason::Internal, what)
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}
