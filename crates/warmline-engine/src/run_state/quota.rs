//! The number of live runs that each identity may have, because a name must not be a fork bomb.

use std::sync::atomic::Ordering;

use papaya::{Compute, Operation};
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Identity;
use warmline_core::run::RunPhase;

use super::{RunLifecycle, RunState};

/// The live runs of each identity. Counted without a lock and without visiting the runs: a caller that
/// names many makes nobody else wait.
#[derive(Default)]
pub(crate) struct RunQuota {
    counts: papaya::HashMap<Identity, u32>,
}

impl RunQuota {
    /// Counts one more run; false if there are as many as allowed.
    pub(crate) fn try_acquire(&self, identity: Identity, most: u32) -> bool {
        let counts = self.counts.pin();
        let counted = counts.compute(identity, |known| {
            match known.map_or(0, |(_, count)| *count) {
                count if count >= most => Operation::Abort(()),
                count => Operation::Insert(count + 1),
            }
        });
        !matches!(counted, Compute::Aborted(()))
    }

    pub(crate) fn release(&self, identity: Identity) {
        let counts = self.counts.pin();
        counts.compute(identity, |known| match known {
            Some((_, &count)) if count > 1 => Operation::Insert(count - 1),
            Some(_) => Operation::Remove,
            None => Operation::Abort(()),
        });
    }
}

/// The error of a caller that has too many runs to begin another.
pub(crate) fn quota_exceeded(most: u32) -> Diagnostic {
    let what = match most {
        1 => "a run of this identity is live, and no more may be".to_owned(),
        _ => format!("{most} runs of this identity are live, and no more may be"),
    };
    // Without a time to retry after: a run lives as long as it is used.
    Diagnostic::new(Reason::Overloaded, what)
        .with_hint("end runs that are over, or raise `limits.runs_per_identity`")
}

impl RunState {
    /// Checks that the run may open sessions. A run that began above the limit is counted as soon as
    /// another has ended.
    pub(crate) fn check_quota(&self, quota: &RunQuota, most: u32) -> Result<(), Diagnostic> {
        let life = self.life.lock();
        // The admission of calls reports a run that has ended.
        if self.has_quota.load(Ordering::Relaxed) || life.phase != RunPhase::Live {
            return Ok(());
        }
        if !quota.try_acquire(self.identity.id, most) {
            return Err(quota_exceeded(most));
        }
        self.has_quota.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Begins the end of the run, which lets another begin; false if it does not begin now.
    pub(crate) fn request_end(
        &self,
        quota: &RunQuota,
        end: impl FnOnce(&mut RunLifecycle) -> bool,
    ) -> bool {
        let mut life = self.life.lock();
        let has_begun = end(&mut life);
        if has_begun && self.has_quota.swap(false, Ordering::Relaxed) {
            quota.release(self.identity.id);
        }
        has_begun
    }
}

#[cfg(test)]
mod tests {
    use warmline_core::pool_key::Digest;

    use super::*;

    #[test]
    fn an_identity_gets_so_many_and_what_it_gives_back() {
        let [alice, bob] = [1, 2].map(|who| Identity(Digest::new([who; 16])));
        let quota = RunQuota::default();
        assert!(!quota.try_acquire(alice, 0));
        assert_eq!(
            [1, 2, 3].map(|_| quota.try_acquire(alice, 2)),
            [true, true, false]
        );
        assert!(quota.try_acquire(bob, 2));
        quota.release(alice);
        assert_eq!([1, 2].map(|_| quota.try_acquire(alice, 2)), [true, false]);
        for who in [alice, alice, bob, bob] {
            quota.release(who);
        }
        assert!(quota.counts.pin().is_empty());
    }
}
