//! The life of a run: live, ending, ended.
//!
//! An ending run admits no new call; calls in flight get a grace, then they are cut. Ended is
//! final: the same name starts another run.

use std::time::Duration;

use crate::time::Tick;

/// The state of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLifecycle {
    pub phase: RunPhase,
    pub calls: u32,
    pub leases: u32,
    /// When a call began or ended last.
    pub last_used: Tick,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    Live,
    /// It admits no new call; those in flight may end.
    Ending,
    Ended,
}

impl RunLifecycle {
    pub const fn new(now: Tick) -> Self {
        Self {
            phase: RunPhase::Live,
            calls: 0,
            leases: 0,
            last_used: now,
        }
    }

    /// Admits a call, until [`RunLifecycle::finish_call`]; false if the run is ending or over.
    #[must_use]
    pub fn admit_call(&mut self, now: Tick) -> bool {
        if self.phase != RunPhase::Live {
            return false;
        }
        self.calls = self.calls.saturating_add(1);
        self.last_used = now;
        true
    }

    /// An admitted call ended. True for the last call of an ending run.
    pub fn finish_call(&mut self, now: Tick) -> bool {
        self.calls = self.calls.saturating_sub(1);
        self.last_used = now;
        self.calls == 0 && self.phase != RunPhase::Live
    }

    /// A session of the run is leased until [`RunLifecycle::release_lease`], and keeps it from
    /// being idle. The end of the run does not wait for it.
    #[must_use]
    pub fn add_lease(&mut self) -> bool {
        if self.phase != RunPhase::Live {
            return false;
        }
        self.leases = self.leases.saturating_add(1);
        true
    }

    pub fn release_lease(&mut self, now: Tick) {
        self.leases = self.leases.saturating_sub(1);
        self.last_used = now;
    }

    /// Begins the end of the run, which the caller carries out; false if it began before.
    pub fn begin_end(&mut self) -> bool {
        let is_live = self.phase == RunPhase::Live;
        if is_live {
            self.phase = RunPhase::Ending;
        }
        is_live
    }

    /// The same, if it was idle for that long.
    pub fn begin_end_if_idle(&mut self, now: Tick, limit: Duration) -> bool {
        self.is_idle(now, limit) && self.begin_end()
    }

    /// Everything of the run is closed.
    pub fn mark_ended(&mut self) {
        self.phase = RunPhase::Ended;
    }

    /// Whether it was idle for that long. A run with a call or a lease is not idle.
    pub fn is_idle(&self, now: Tick, limit: Duration) -> bool {
        let in_use = self.calls > 0 || self.leases > 0;
        self.phase == RunPhase::Live && !in_use && now.duration_since(self.last_used) >= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Tick {
        Tick::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn a_run_that_ends_lets_no_new_call_in_and_tells_its_last_call() {
        let mut life = RunLifecycle::new(at(0));
        assert!(life.admit_call(at(1)));
        assert!(life.admit_call(at(1)));
        assert!(life.begin_end());
        assert!(!life.begin_end());
        assert!(!life.admit_call(at(2)));
        assert!(!life.finish_call(at(3)));
        assert!(life.finish_call(at(4)));
        life.mark_ended();
        assert_eq!(life.phase, RunPhase::Ended);
        assert!(!life.begin_end());
    }

    #[test]
    fn a_run_rests_from_its_last_call_on_and_not_while_one_is_under_way() {
        let hour = Duration::from_secs(3600);
        let mut life = RunLifecycle::new(at(0));
        assert!(!life.is_idle(at(3599), hour));
        assert!(life.is_idle(at(3600), hour));
        assert!(life.admit_call(at(3000)));
        assert!(!life.is_idle(at(99_999), hour));
        assert!(!life.finish_call(at(99_999)), "a live run has no last call");
        assert!(!life.is_idle(at(100_000), hour));
        assert!(life.is_idle(at(103_599), hour));
    }

    #[test]
    fn a_run_whose_session_somebody_holds_does_not_rest_and_ends_all_the_same() {
        let hour = Duration::from_secs(3600);
        let mut life = RunLifecycle::new(at(0));
        assert!(life.add_lease());
        assert!(!life.is_idle(at(99_999), hour));
        life.release_lease(at(100_000));
        assert!(!life.is_idle(at(103_599), hour));
        assert!(life.is_idle(at(103_600), hour));
        assert!(life.add_lease());
        assert!(life.begin_end());
        assert!(!life.add_lease());
    }
}
