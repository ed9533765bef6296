//! The pauses between attempts that keep failing.

use std::time::Duration;

/// Pauses that double up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Begins with `first` and never exceeds `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            next: first,
        }
    }

    /// Returns the pause before the next attempt, and doubles the one after it.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = self.max.min(pause.saturating_mul(2));
        pause
    }

    /// Returns the pause after something worked for `uptime` and then failed. The pauses begin
    /// again if it worked for longer than the pause lasts.
    pub fn next_pause_after(&mut self, uptime: Duration) -> Duration {
        if uptime > self.next {
            self.reset();
        }
        self.next_pause()
    }

    /// Begins again with the first pause.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_begin_again() {
        let [one, two, five] = [1, 2, 5].map(Duration::from_secs);
        let mut pauses = Backoff::new(one, five);
        let first: Vec<_> = (0..4).map(|_| pauses.next_pause().as_secs()).collect();
        assert_eq!(first, [1, 2, 4, 5]);
        assert_eq!(pauses.next_pause_after(five), five);
        assert_eq!(pauses.next_pause_after(five + one), one);
        assert_eq!(pauses.next_pause(), two);
        pauses.reset();
        assert_eq!(pauses.next_pause(), one);
    }
}
