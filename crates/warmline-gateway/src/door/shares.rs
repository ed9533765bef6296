//! Shares: how much of what the door holds one identity may take, so that nobody takes all of it.
//!
//! Asked by: [`limits`](super::limits), once it is known whose a request is.  There is no fixed
//! share and nothing to set: each may hold some times as much as is still free. Who is alone gets
//! nearly all of it, several who want all of it get the same each, and there is always a rest for
//! whoever comes next. Counts are each identity's own; no call waits for another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use papaya::HashMap;
use warmline::core::key::Digest;

/// So many times of what is free somebody may hold: 8/9 of all where they are alone, 8/17 each
/// where they are two.
const TIMES_FREE: usize = 8;
/// After so many that were new it is looked who holds nothing.
const LOOK_AFTER: usize = 4_096;

/// What each identity holds.
#[derive(Debug, Default)]
pub(super) struct Shares {
    by_identity: HashMap<Digest, Arc<Share>>,
    /// How many were new so far.
    new: AtomicUsize,
}

/// What one identity holds.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(super) requests: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    pub(super) replies: AtomicUsize,
}

impl Shares {
    /// The share of an identity.
    pub(super) fn of(&self, whose: Digest) -> Arc<Share> {
        let shares = self.by_identity.pin();
        if let Some(share) = shares.get(&whose) {
            return Arc::clone(share);
        }
        if self.new.fetch_add(1, Ordering::Relaxed) % LOOK_AFTER == LOOK_AFTER - 1 {
            // Whoever comes at this very moment begins to count anew, which does no harm.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        Arc::clone(shares.get_or_insert_with(whose, Arc::default))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_identity.pin().len()
    }
}

/// Whether somebody may hold so much, where others hold so much and there is so much in all.
pub(super) const fn is_fair(theirs: usize, before: usize, most: usize) -> bool {
    let free = most.saturating_sub(before);
    theirs <= free.saturating_mul(TIMES_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one for each in turn until nobody gets more, and says what each has.
    fn filled(most: usize, how_many: usize) -> Vec<usize> {
        let mut held = vec![0; how_many];
        loop {
            let mut took_one = false;
            for one in 0..how_many {
                let all: usize = held.iter().sum();
                if all < most && is_fair(held[one] + 1, all, most) {
                    held[one] += 1;
                    took_one = true;
                }
            }
            if !took_one {
                return held;
            }
        }
    }

    /// reliability T16: who is alone gets nearly all, several get the same, and however many want
    /// all there is something left for whoever comes next.
    #[test]
    fn each_gets_the_same_and_there_is_always_something_left() {
        for most in [9, 100, 8_192] {
            for how_many in [1, 2, 3, 8, 50] {
                let held = filled(most, how_many);
                let all: usize = held.iter().sum();
                let (least, largest) = (held.iter().min().unwrap(), held.iter().max().unwrap());
                let what = format!("{how_many} of {most}: {held:?}");
                assert!(largest - least <= 1, "{what}");
                assert!(all >= most * 7 / 9, "{what}");
                // Where there are nearly as many as places, one each is all there is.
                if how_many * TIMES_FREE < most {
                    assert!(all < most && is_fair(1, all, most), "{what}");
                }
            }
        }
    }

    /// Small limits are met to the last place.
    #[test]
    fn one_alone_may_have_all_of_a_few() {
        for most in 1..=8 {
            assert_eq!(filled(most, 1), [most]);
        }
    }

    #[test]
    fn identities_that_hold_nothing_are_forgotten() {
        let shares = Shares::default();
        let digest = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Digest::new(bytes)
        };
        let held = shares.of(digest(0));
        for number in 1..LOOK_AFTER * 4 {
            shares.of(digest(number));
        }
        assert!(shares.len() <= LOOK_AFTER);
        assert!(Arc::ptr_eq(&held, &shares.of(digest(0))));
    }
}
