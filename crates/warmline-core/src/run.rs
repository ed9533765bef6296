//! The life of a run: live, ending, ended.
//!
//! Asked by: every call of a run before it is sent, and the keeper.  Told by: whoever ends it.
//!
//! A run that ends lets no new call in; those under way get a grace, then they are cut. Ended is
//! final: the same name begins another run.

use std::time::Duration;

use crate::tick::Tick;

/// What is known of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLife {
    phase: Phase,
    calls: u32,
    leases: u32,
    used: Tick,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Calls are let in.
    Live,
    /// No new call is let in; those under way still may end.
    Ending,
    /// Over.
    Ended,
}

/// Whether a call is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// It is, and has to be given back with [`RunLife::leave`].
    Admitted,
    /// The run is ending or over.
    TurnedAway,
}

/// Who was asked to end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum EndAsked {
    /// Whoever asked: it is theirs to carry out.
    Yours {
        /// Calls that are under way.
        calls: u32,
    },
    /// Somebody else asked before.
    Others,
}

impl RunLife {
    /// A run that begins now.
    pub const fn begin(now: Tick) -> Self {
        Self {
            phase: Phase::Live,
            calls: 0,
            leases: 0,
            used: now,
        }
    }

    /// A call wants to be sent.
    pub fn admit(&mut self, now: Tick) -> Admission {
        if self.phase != Phase::Live {
            return Admission::TurnedAway;
        }
        self.calls = self.calls.saturating_add(1);
        self.used = now;
        Admission::Admitted
    }

    /// A call that was let in is over. True for the last one of a run that ends.
    pub fn leave(&mut self, now: Tick) -> bool {
        self.calls = self.calls.saturating_sub(1);
        self.used = now;
        self.calls == 0 && self.phase != Phase::Live
    }

    /// Somebody holds a session of the run from now on, to be given back with [`RunLife::let_go`].
    /// It keeps the run from resting. An end does not wait for it: without calls it is of no use.
    pub fn hold(&mut self) -> Admission {
        if self.phase != Phase::Live {
            return Admission::TurnedAway;
        }
        self.leases = self.leases.saturating_add(1);
        Admission::Admitted
    }

    /// Whoever held a session does not any more.
    pub fn let_go(&mut self, now: Tick) {
        self.leases = self.leases.saturating_sub(1);
        self.used = now;
    }

    /// Somebody wants the run to end.
    pub fn end(&mut self) -> EndAsked {
        match self.phase {
            Phase::Live => {
                self.phase = Phase::Ending;
                EndAsked::Yours { calls: self.calls }
            },
            Phase::Ending | Phase::Ended => EndAsked::Others,
        }
    }

    /// The same, if it rested that long; none if it did not.
    pub fn end_if_idle(&mut self, now: Tick, limit: Duration) -> Option<EndAsked> {
        self.is_idle(now, limit).then(|| self.end())
    }

    /// Everything of the run is closed.
    pub fn closed(&mut self) {
        self.phase = Phase::Ended;
    }

    /// How far it is.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Calls that are under way.
    pub const fn calls(&self) -> u32 {
        self.calls
    }

    /// Sessions that are held by somebody.
    pub const fn leases(&self) -> u32 {
        self.leases
    }

    /// When a call began or ended last.
    pub const fn used(&self) -> Tick {
        self.used
    }

    /// Whether it rested that long. A call that runs for hours is no rest, nor is a session that
    /// somebody holds.
    pub fn is_idle(&self, now: Tick, limit: Duration) -> bool {
        let in_use = self.calls > 0 || self.leases > 0;
        self.phase == Phase::Live && !in_use && now.since(self.used) >= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Tick {
        Tick::at(Duration::from_secs(secs))
    }

    #[test]
    fn a_run_that_ends_lets_no_new_call_in_and_tells_its_last_call() {
        let mut life = RunLife::begin(at(0));
        assert_eq!(life.admit(at(1)), Admission::Admitted);
        assert_eq!(life.admit(at(1)), Admission::Admitted);
        assert_eq!(life.end(), EndAsked::Yours { calls: 2 });
        assert_eq!(life.end(), EndAsked::Others);
        assert_eq!(life.admit(at(2)), Admission::TurnedAway);
        assert!(!life.leave(at(3)));
        assert!(life.leave(at(4)));
        life.closed();
        assert_eq!(life.phase(), Phase::Ended);
        assert_eq!(life.end(), EndAsked::Others);
    }

    #[test]
    fn a_run_rests_from_its_last_call_on_and_not_while_one_is_under_way() {
        let hour = Duration::from_secs(3600);
        let mut life = RunLife::begin(at(0));
        assert!(!life.is_idle(at(3599), hour));
        assert!(life.is_idle(at(3600), hour));
        assert_eq!(life.admit(at(3000)), Admission::Admitted);
        assert!(!life.is_idle(at(99_999), hour));
        assert!(!life.leave(at(99_999)), "a live run has no last call");
        assert!(!life.is_idle(at(100_000), hour));
        assert!(life.is_idle(at(103_599), hour));
    }

    #[test]
    fn a_run_whose_session_somebody_holds_does_not_rest_and_ends_all_the_same() {
        let hour = Duration::from_secs(3600);
        let mut life = RunLife::begin(at(0));
        assert_eq!(life.hold(), Admission::Admitted);
        assert!(!life.is_idle(at(99_999), hour));
        life.let_go(at(100_000));
        assert!(!life.is_idle(at(103_599), hour));
        assert!(life.is_idle(at(103_600), hour));
        assert_eq!(life.hold(), Admission::Admitted);
        assert_eq!(life.end(), EndAsked::Yours { calls: 0 });
        assert_eq!(life.hold(), Admission::TurnedAway);
    }
}
