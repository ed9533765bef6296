//! Ages: when a session is ended, checked or kept alive because time went by.
//!
//! Asked by: the cell, whenever it is told anything.
//!
//! Limits are spread, so that sessions opened together are not replaced together. The spread is
//! no throw of dice: it follows from the key's seed and the session's number.

use std::time::Duration;

use super::session::{Past, Session, State, Trust};
use super::{CellPolicy, Ends, Generation, Sharing, Why};
use crate::tick::Tick;

/// How far the age limit is spread, in thousandths.
const AGE: (u64, u64) = (900, 1_100);
/// As [`AGE`], for rests. Nobody rests longer than was said.
const REST: (u64, u64) = (975, 1_000);
/// As [`AGE`], for keeping alive.
const KEEP_ALIVE: (u64, u64) = (900, 1_100);

/// Silent checks in a row that end the session of a run. One silence is no verdict: what a run
/// remembers is worth waiting for.
pub(super) const SILENCES: u8 = 3;

/// Whether time ended a session, and why.
///
/// Under a call only what the server said counts, and the age where calls share a session side by
/// side: a busy one would never be replaced otherwise, and those who send on it are not disturbed.
/// The session of a run is replaced between two calls.
pub(super) fn over(session: &Session, policy: &CellPolicy, seed: u64, now: Tick) -> Option<Why> {
    let at_rest = matches!(session.state, State::Idle);
    if !session.state.is_usable() {
        return None;
    }
    if session.expires <= now {
        return Some(Why::Expired);
    }
    // Nothing is lost by it, and it would be lost soon after: between two calls, never under one.
    let has_state = matches!(session.past, Past::LeftState);
    if at_rest && !has_state && session.renew <= now {
        return Some(Why::Expired);
    }
    let aged = policy.max_age.is_some_and(|age| {
        session
            .opened
            .after(spread(age, AGE, seed, session.generation))
            <= now
    });
    let busy_may_age = policy.ends == Ends::ByLimits && policy.sharing == Sharing::SideBySide;
    if aged && (at_rest || busy_may_age) {
        return Some(Why::Aged);
    }
    let rested = at_rest
        && policy.ends == Ends::ByLimits
        && policy.max_idle.is_some_and(|rest| {
            session
                .used
                .after(spread(rest, REST, seed, session.generation))
                <= now
        });
    rested.then_some(Why::IdleTooLong)
}

/// Whether a session at rest has to be checked before anybody gets it.
pub(super) fn needs_check(session: &Session, policy: &CellPolicy, now: Tick) -> bool {
    match session.trust {
        Trust::Doubted => true,
        Trust::Excused => false,
        Trust::Sure => session.heard.after(policy.check_after) <= now,
    }
}

/// Whether a session on which nothing is sent has to be kept alive.
pub(super) fn needs_keep_alive(
    session: &Session,
    policy: &CellPolicy,
    seed: u64,
    now: Tick,
) -> bool {
    let Some(rest) = policy.keep_alive else {
        return false;
    };
    let quiet_since = session.heard.max(session.pinged);
    session.state.is_quiet()
        && policy.ends == Ends::WithRun
        && quiet_since.after(spread(rest, KEEP_ALIVE, seed, session.generation)) <= now
}

/// A duration somewhere between two thousandths of it, always the same for the same session.
///
/// In binary fractions, because this is asked at every lease: shifts are cheap.
fn spread(
    base: Duration,
    (least, most): (u64, u64),
    seed: u64,
    generation: Generation,
) -> Duration {
    let share = mix(seed ^ (u64::from(generation.number()) << 32)) >> 32;
    let thousandths = (least << 32) + (most - least) * share;
    let fraction = u128::from(thousandths / 1_000);
    let nanos = base.as_nanos().saturating_mul(fraction) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Scatters a number over all numbers (the finaliser of `SplitMix64`).
const fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A80, reliability I30: limits are spread within their bounds, and not all alike.
    #[test]
    fn limits_are_spread_within_their_bounds() {
        let base = Duration::from_secs(300);
        let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
        for seed in 0..2_000 {
            let spread = spread(base, AGE, seed, Generation::FIRST);
            assert_eq!(spread, super::spread(base, AGE, seed, Generation::FIRST));
            shortest = shortest.min(spread);
            longest = longest.max(spread);
        }
        assert!(
            shortest >= base * 9 / 10 && shortest < base * 91 / 100,
            "{shortest:?}"
        );
        assert!(
            longest <= base * 11 / 10 && longest > base * 109 / 100,
            "{longest:?}"
        );
    }

    #[test]
    fn the_longest_limit_there_is_stays_one() {
        let spread = spread(Duration::MAX, AGE, 7, Generation::FIRST);
        assert!(spread > Duration::from_secs(1 << 33), "{spread:?}");
    }
}
