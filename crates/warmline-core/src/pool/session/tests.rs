//! When a session expires.

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
