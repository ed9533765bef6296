//! When a session expires, is checked or kept alive.
//!
//! Limits are spread, so that sessions opened together are not replaced together. The spread
//! follows from the key's seed and the session's number.

use std::time::Duration;

use super::session::{CheckNeed, Session, SessionState, SessionUsage};
use super::{EndCondition, EndReason, EntryPolicy, Generation, Sharing};
use crate::time::Tick;

/// In thousandths of the limit.
const AGE_JITTER: (u64, u64) = (900, 1_100);
/// Never longer than the limit.
const IDLE_JITTER: (u64, u64) = (975, 1_000);
const KEEP_ALIVE_JITTER: (u64, u64) = (900, 1_100);

/// Timed-out checks in a row that end the session of a run. The state of a run is worth a second
/// try.
pub(super) const MAX_TIMED_OUT_CHECKS: u8 = 3;

/// Why a session expired, if it did. During a call only the server's own limit counts, and the age
/// of sessions that calls share side by side: a busy one would never be replaced otherwise.
pub(super) fn expiry_reason(
    session: &Session,
    policy: &EntryPolicy,
    seed: u64,
    now: Tick,
) -> Option<EndReason> {
    let at_rest = matches!(session.state, SessionState::Idle);
    if !session.state.is_usable() {
        return None;
    }
    if session.expires_at <= now {
        return Some(EndReason::Expired);
    }
    // Its end costs nothing now, and would soon cost a failed call.
    let has_state = matches!(session.usage, SessionUsage::Stateful);
    if at_rest && !has_state && session.renew_at <= now {
        return Some(EndReason::Expired);
    }
    let aged = policy.max_age.is_some_and(|age| {
        session
            .opened_at
            .after(jittered(age, AGE_JITTER, seed, session.generation))
            <= now
    });
    let busy_may_age =
        policy.end_condition == EndCondition::AtLimits && policy.sharing == Sharing::SideBySide;
    if aged && (at_rest || busy_may_age) {
        return Some(EndReason::MaxAge);
    }
    let rested = at_rest
        && policy.end_condition == EndCondition::AtLimits
        && policy.max_idle.is_some_and(|rest| {
            session
                .last_used
                .after(jittered(rest, IDLE_JITTER, seed, session.generation))
                <= now
        });
    rested.then_some(EndReason::MaxIdle)
}

/// Whether an idle session has to be checked before its next use.
pub(super) fn needs_check(session: &Session, policy: &EntryPolicy, now: Tick) -> bool {
    match session.check_need {
        CheckNeed::BeforeNextUse => true,
        CheckNeed::SkipOnce => false,
        CheckNeed::AfterIdle => session.last_alive.after(policy.check_after) <= now,
    }
}

/// Whether a session on which nothing is sent has to be kept alive.
pub(super) fn needs_keep_alive(
    session: &Session,
    policy: &EntryPolicy,
    seed: u64,
    now: Tick,
) -> bool {
    let Some(rest) = policy.keep_alive else {
        return false;
    };
    let quiet_since = session.last_alive.max(session.last_keep_alive);
    session.state.is_quiet()
        && policy.end_condition == EndCondition::WithRunEnd
        && quiet_since.after(jittered(rest, KEEP_ALIVE_JITTER, seed, session.generation)) <= now
}

/// A duration between two thousandths of the base, always the same for the same session. Binary
/// fractions, because this runs for every lease.
fn jittered(
    base: Duration,
    (least, most): (u64, u64),
    seed: u64,
    generation: Generation,
) -> Duration {
    let share = splitmix64(seed ^ (u64::from(generation.number()) << 32)) >> 32;
    let thousandths = (least << 32) + (most - least) * share;
    let fraction = u128::from(thousandths / 1_000);
    let nanos = base.as_nanos().saturating_mul(fraction) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The finaliser of `SplitMix64`.
const fn splitmix64(seed: u64) -> u64 {
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
            let spread = jittered(base, AGE_JITTER, seed, Generation::FIRST);
            assert_eq!(spread, jittered(base, AGE_JITTER, seed, Generation::FIRST));
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
        let spread = jittered(Duration::MAX, AGE_JITTER, 7, Generation::FIRST);
        assert!(spread > Duration::from_secs(1 << 33), "{spread:?}");
    }
}
