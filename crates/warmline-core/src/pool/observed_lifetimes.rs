//! The age at which a server ends its sessions, as far as it was observed. A session without state
//! is replaced before that age.

use std::time::Duration;

use smallvec::SmallVec;

use crate::time::Tick;

/// Sessions in a row that must have ended at the same age.
const MIN_SAMPLES: usize = 3;

/// A shorter lifetime is ignored: renewing costs as much as healing.
const MIN_LIFETIME: Duration = Duration::from_secs(60);

/// After so many lifetimes without a session that ended so, the rule is tried again.
const VALID_FOR_LIFETIMES: u32 = 10;

/// The ages at which a server dropped its last sessions.
#[derive(Clone, Debug, Default)]
pub struct ObservedLifetimes {
    ages: SmallVec<[Duration; MIN_SAMPLES]>,
    last_end: Tick,
}

impl ObservedLifetimes {
    /// The server dropped a session of this age.
    pub fn record_end(&mut self, age: Duration, now: Tick) {
        // A session that was open when the last one ended may have ended with it: sessions lost in
        // one restart are one sample.
        let was_there = now.since_start().saturating_sub(age) < self.last_end.since_start();
        if was_there && !self.ages.is_empty() {
            return;
        }
        if self.ages.len() >= MIN_SAMPLES {
            self.ages.remove(0);
        }
        self.ages.push(age);
        self.last_end = now;
    }

    /// A session of this age is alive. If the rule contradicts that, it is dropped.
    pub fn record_survival(&mut self, age: Duration) {
        if self.survival_threshold().is_some_and(|from| age >= from) {
            self.ages.clear();
        }
    }

    /// The age at which sessions end, if there is one.
    pub fn expected_lifetime(&self, now: Tick) -> Option<Duration> {
        let seen = self.common_age()?;
        let holds = now.duration_since(self.last_end) <= seen.saturating_mul(VALID_FOR_LIFETIMES);
        holds.then_some(seen)
    }

    /// The age from which a live session contradicts the rule.
    pub fn survival_threshold(&self) -> Option<Duration> {
        self.common_age().map(|seen| seen.saturating_add(seen / 4))
    }

    /// The age at which the last ones ended, if it was about the same.
    fn common_age(&self) -> Option<Duration> {
        let (youngest, oldest) = (*self.ages.iter().min()?, *self.ages.iter().max()?);
        let is_rule = self.ages.len() >= MIN_SAMPLES
            && youngest >= MIN_LIFETIME
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
        Tick::from_start(secs(seconds))
    }

    /// Sessions that end one after the other, each opened as soon as the last one was seen gone.
    fn seen(ages: &[u64]) -> (ObservedLifetimes, u64) {
        let (mut lifetimes, mut now) = (ObservedLifetimes::default(), 0);
        for age in ages {
            now += age;
            lifetimes.record_end(secs(*age), at(now));
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
            assert_eq!(
                lifetimes.expected_lifetime(at(now)),
                rule.map(secs),
                "{ages:?}"
            );
        }
    }

    /// P127: any number of sessions that one restart takes are one sign, whenever it is noticed.
    #[test]
    fn one_restart_is_no_age() {
        let mut lifetimes = ObservedLifetimes::default();
        for noticed in 0..20 {
            lifetimes.record_end(secs(300 + noticed), at(1_000 + noticed));
        }
        assert_eq!(lifetimes.expected_lifetime(at(1_020)), None);
    }

    /// P127: a session that lives clearly longer ends the rule.
    #[test]
    fn a_session_that_lives_longer_ends_the_rule() {
        let (mut lifetimes, now) = seen(&[300; 3]);
        lifetimes.record_survival(secs(374));
        assert_eq!(lifetimes.expected_lifetime(at(now)), Some(secs(300)));
        lifetimes.record_survival(secs(375));
        assert_eq!(lifetimes.expected_lifetime(at(now)), None);
    }

    /// P127: a rule that nothing shows any more is tried again, and one sign is enough for it then.
    #[test]
    fn a_rule_that_is_not_seen_any_more_is_tried_again() {
        let (mut lifetimes, now) = seen(&[300; 3]);
        assert_eq!(
            lifetimes.expected_lifetime(at(now + 3_000)),
            Some(secs(300))
        );
        assert_eq!(lifetimes.expected_lifetime(at(now + 3_001)), None);
        lifetimes.record_end(secs(300), at(now + 3_400));
        assert_eq!(
            lifetimes.expected_lifetime(at(now + 3_400)),
            Some(secs(300))
        );
    }
}
