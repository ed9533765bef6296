//! Places: an identity has so many runs at a time, because a name must not be a fork bomb.
//!
//! Asked by: whoever begins a run, and a run that got none, before it opens a session.  Told by:
//! whoever asks for the end of a run.

use std::sync::atomic::Ordering;

use papaya::{Compute, Operation};
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::Identity;
use warmline_core::run::{EndAsked, Phase};

use super::{RunLife, RunShared};

/// How many runs of each identity have a place. Counted without a lock, and without looking at
/// the runs: strangers who name many make nobody else wait.
#[derive(Default)]
pub(crate) struct RunPlaces {
    taken: papaya::HashMap<Identity, u32>,
}

impl RunPlaces {
    /// Takes one of so many; false where all are taken.
    pub(crate) fn take(&self, who: Identity, most: u32) -> bool {
        let taken = self.taken.pin();
        let took = taken.compute(who, |there| match there {
            Some((_, &taken)) if taken >= most => Operation::Abort(()),
            Some((_, &taken)) => Operation::Insert(taken + 1),
            None if most == 0 => Operation::Abort(()),
            None => Operation::Insert(1),
        });
        !matches!(took, Compute::Aborted(()))
    }

    pub(crate) fn give_back(&self, who: Identity) {
        let taken = self.taken.pin();
        taken.compute(who, |there| match there {
            Some((_, &taken)) if taken > 1 => Operation::Insert(taken - 1),
            Some(_) => Operation::Remove,
            None => Operation::Abort(()),
        });
    }
}

/// What somebody reads who has too many runs to begin another.
pub(crate) fn all_taken(most: u32) -> Trouble {
    let what = match most {
        1 => "a run of this identity is live, and no more may be".to_owned(),
        _ => format!("{most} runs of this identity are live, and no more may be"),
    };
    // When one of them ends nobody can say: they live as long as somebody uses them.
    Trouble::new(Reason::Overloaded, what)
        .hint("end runs that are over, or raise `limits.runs_per_identity`")
}

impl RunShared {
    /// Whether it may open sessions. One that began when all places were taken gets one as soon as
    /// one is free.
    pub(crate) fn check_place(&self, places: &RunPlaces, most: u32) -> Result<(), Trouble> {
        let life = self.life.lock();
        // What has ended is told by whoever lets calls in.
        if self.has_place.load(Ordering::Relaxed) || life.phase() != Phase::Live {
            return Ok(());
        }
        if !places.take(self.who.id, most) {
            return Err(all_taken(most));
        }
        self.has_place.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Asks for its end, which gives its place to another.
    pub(super) fn ask_end(
        &self,
        places: &RunPlaces,
        end: impl FnOnce(&mut RunLife) -> Option<EndAsked>,
    ) -> Option<EndAsked> {
        let mut life = self.life.lock();
        let asked = end(&mut life);
        if let Some(EndAsked::Yours { .. }) = asked
            && self.has_place.swap(false, Ordering::Relaxed)
        {
            places.give_back(self.who.id);
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use warmline_core::key::Digest;

    use super::*;

    #[test]
    fn an_identity_gets_so_many_and_what_it_gives_back() {
        let [alice, bob] = [1, 2].map(|who| Identity(Digest::new([who; 16])));
        let places = RunPlaces::default();
        assert!(!places.take(alice, 0));
        assert_eq!(
            [1, 2, 3].map(|_| places.take(alice, 2)),
            [true, true, false]
        );
        assert!(places.take(bob, 2));
        places.give_back(alice);
        assert_eq!([1, 2].map(|_| places.take(alice, 2)), [true, false]);
        for who in [alice, alice, bob, bob] {
            places.give_back(who);
        }
        assert!(places.taken.pin().is_empty());
    }
}
