//! Lifetimes: the age at which a server ends its sessions, as far as that was seen.
//!
//! Asked by: openings, which have a session replaced before that age where nothing is lost by it.
//! Told by: calls that meet a session its server dropped, and calls that are answered on an old one.

use std::time::Duration;

use smallvec::SmallVec;

use crate::tick::Tick;

/// So many sessions must have ended at the same age, one after the other, before it is taken for a
/// rule.
const SEEN: usize = 3;

/// Sessions that end sooner than this teach nothing: to renew them costs as much as to heal them.
const SHORTEST: Duration = Duration::from_secs(60);

/// After so many lifetimes without a session that ended so, the rule is tried again.
const LIFETIMES: u32 = 10;

/// The ages at which a server dropped its last sessions.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    ages: SmallVec<[Duration; SEEN]>,
    /// When the last of them was seen.
    last: Tick,
}

impl Lifetimes {
    /// A session of this age is gone, by the server's word.
    pub fn ended(&mut self, age: Duration, now: Tick) {
        // What was there already when the last one ended may have ended with it: many sessions that
        // one restart takes are one sign, whenever it is noticed.
        let was_there = now.since_start().saturating_sub(age) < self.last.since_start();
        if was_there && !self.ages.is_empty() {
            return;
        }
        if self.ages.len() >= SEEN {
            self.ages.remove(0);
        }
        self.ages.push(age);
        self.last = now;
    }

    /// A session of this age lives. If none should, what was seen is no rule.
    pub fn lived(&mut self, age: Duration) {
        if self.outlived_from().is_some_and(|from| age >= from) {
            self.ages.clear();
        }
    }

    /// The age at which sessions end, if there is one.
    pub fn rule(&self, now: Tick) -> Option<Duration> {
        let seen = self.seen()?;
        let holds = now.since(self.last) <= seen.saturating_mul(LIFETIMES);
        holds.then_some(seen)
    }

    /// The age of a session that lives against the rule, if there is one.
    pub fn outlived_from(&self) -> Option<Duration> {
        self.seen().map(|seen| seen.saturating_add(seen / 4))
    }

    /// The age at which the last ones ended, if it was always about the same.
    fn seen(&self) -> Option<Duration> {
        let (youngest, oldest) = (*self.ages.iter().min()?, *self.ages.iter().max()?);
        let is_rule = self.ages.len() >= SEEN
            && youngest >= SHORTEST
            && oldest <= youngest.saturating_add(youngest / 10);
        is_rule.then_some(youngest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    const fn at(seconds: u64) -> Tick {
        Tick::at(secs(seconds))
    }

    /// Sessions that end one after the other, each opened as soon as the last one was seen gone.
    fn seen(ages: &[u64]) -> (Lifetimes, u64) {
        let (mut lifetimes, mut now) = (Lifetimes::default(), 0);
        for age in ages {
            now += age;
            lifetimes.ended(secs(*age), at(now));
        }
        (lifetimes, now)
    }

    /// P127: three that end at about the same age, one after the other, make a rule.
    #[test]
    fn three_sessions_that_end_at_one_age_make_a_rule() {
        #[rustfmt::skip]
        let table: [(&[u64], Option<u64>); 7] = [
            (&[300, 300],                None),
            (&[300, 310, 305],           Some(300)),
            (&[300, 310, 331],           None),
            (&[50, 300, 310, 305],       Some(300)),
            (&[300, 310, 305, 50],       None),
            (&[59, 59, 59],              None),
            (&[60, 60, 60],              Some(60)),
        ];
        for (ages, rule) in table {
            let (lifetimes, now) = seen(ages);
            assert_eq!(lifetimes.rule(at(now)), rule.map(secs), "{ages:?}");
        }
    }

    /// P127: any number of sessions that one restart takes are one sign, whenever it is noticed.
    #[test]
    fn one_restart_is_no_age() {
        let mut lifetimes = Lifetimes::default();
        for noticed in 0..20 {
            lifetimes.ended(secs(300 + noticed), at(1_000 + noticed));
        }
        assert_eq!(lifetimes.rule(at(1_020)), None);
    }

    /// P127: a session that lives clearly longer ends the rule.
    #[test]
    fn a_session_that_lives_longer_ends_the_rule() {
        let (mut lifetimes, now) = seen(&[300; 3]);
        lifetimes.lived(secs(374));
        assert_eq!(lifetimes.rule(at(now)), Some(secs(300)));
        lifetimes.lived(secs(375));
        assert_eq!(lifetimes.rule(at(now)), None);
    }

    /// P127: a rule that nothing shows any more is tried again, and one sign is enough for it then.
    #[test]
    fn a_rule_that_is_not_seen_any_more_is_tried_again() {
        let (mut lifetimes, now) = seen(&[300; 3]);
        assert_eq!(lifetimes.rule(at(now + 3_000)), Some(secs(300)));
        assert_eq!(lifetimes.rule(at(now + 3_001)), None);
        lifetimes.ended(secs(300), at(now + 3_400));
        assert_eq!(lifetimes.rule(at(now + 3_400)), Some(secs(300)));
    }
}
