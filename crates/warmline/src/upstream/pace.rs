//! The pace of somebody who is told things: who falls behind is waited for, and others wait with
//! it, but not for long.
//!
//! Asked by: whoever reads one stream for several callers ([`calls`](super::calls), a child's
//! output), and the gateway for clients that share what they listen to.

use std::time::Duration;

use crate::clock::{self, Instant};

/// Whoever has more than this before it is behind.
const FULL: usize = 128 << 10;
/// So long others wait for one who is behind. After that what is too much for it is dropped.
const WAITED_FOR: Duration = Duration::from_secs(3);
/// Whether everybody keeps up is asked each time that so many bytes were told.
pub(crate) const ASK_AFTER: usize = 16 << 10;

/// How somebody keeps up with what it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// It does.
    #[default]
    KeepsUp,
    /// It does not, and is waited for until then.
    Behind(Instant),
    /// It was waited for long enough.
    Slow,
}

impl Pace {
    /// So many bytes wait for it now.
    pub fn weigh(&mut self, waiting: usize) {
        match self {
            Self::KeepsUp if waiting > FULL => *self = Self::Behind(clock::after(WAITED_FOR)),
            // Who always takes a little never catches up.
            Self::Behind(_) | Self::Slow if waiting <= FULL / 2 => *self = Self::KeepsUp,
            Self::KeepsUp | Self::Behind(_) | Self::Slow => {},
        }
    }

    /// Until when it is waited for, where so many bytes wait for it.
    pub fn waited_for(self, waiting: usize) -> Option<Instant> {
        match self {
            Self::Behind(by) if waiting > FULL => Some(by),
            Self::KeepsUp | Self::Behind(_) | Self::Slow => None,
        }
    }

    /// It is waited for no longer, until it has caught up.
    pub fn give_up(&mut self) {
        if let Self::Behind(_) = self {
            *self = Self::Slow;
        }
    }
}

/// What waits for one call on a stream that is read for several.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: usize,
    pace: Pace,
    missed: u64,
}

/// What a message takes up beside its bytes.
const EACH: usize = 256;
/// More does not wait for anybody, whatever its pace.
const MOST: usize = 4 << 20;

impl Backlog {
    /// One more message of so many bytes waits. Says whether there is room for it; if not it is
    /// noted as missed.
    pub(crate) fn push(&mut self, bytes: usize) -> bool {
        let is_too_much = match self.pace {
            Pace::KeepsUp | Pace::Behind(_) => self.bytes > MOST,
            Pace::Slow => self.bytes > FULL,
        };
        if is_too_much {
            self.missed += 1;
            return false;
        }
        self.bytes += bytes + EACH;
        self.pace.weigh(self.bytes);
        true
    }

    /// A message of so many bytes was taken.
    pub(crate) fn pop(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes + EACH);
        self.pace.weigh(self.bytes);
    }

    /// Until when the reading waits for it.
    pub(crate) fn waited_for(&self) -> Option<Instant> {
        self.pace.waited_for(self.bytes)
    }

    /// The reading goes on without it if it was waited for until now. A call that is alone is waited
    /// for until it takes something or is given up: whoever is told of it sees to that, as the gateway
    /// does with clients that take nothing.
    pub(crate) fn give_up(&mut self, now: Instant, is_alone: bool) {
        match (&mut self.pace, is_alone) {
            (Pace::Behind(by), true) if *by <= now => *by = clock::after(WAITED_FOR),
            (Pace::Behind(by), false) if *by <= now => self.pace.give_up(),
            (Pace::KeepsUp | Pace::Behind(_) | Pace::Slow, _) => {},
        }
    }

    /// How many messages it missed since this was last asked.
    pub(crate) fn missed(&mut self) -> Option<u64> {
        let missed = std::mem::take(&mut self.missed);
        (missed > 0).then_some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: usize = 1 << 10;

    fn filled() -> Backlog {
        let mut backlog = Backlog::default();
        while backlog.waited_for().is_none() {
            assert!(backlog.push(ONE));
        }
        backlog
    }

    /// reliability F79: who is behind is waited for, then misses what is too much until it has
    /// caught up; what it missed is known.
    #[tokio::test(start_paused = true)]
    async fn who_is_behind_is_waited_for_and_then_misses_what_is_too_much() {
        let mut backlog = filled();
        backlog.give_up(clock::now(), false);
        assert!(backlog.push(ONE), "it is waited for");
        // It takes a little, which holds up the others all the same.
        clock::sleep(WAITED_FOR / 2).await;
        backlog.pop(ONE);
        clock::sleep(WAITED_FOR / 2).await;
        backlog.give_up(clock::now(), false);
        assert_eq!(backlog.waited_for(), None);
        assert!(!backlog.push(ONE));
        assert_eq!((backlog.missed(), backlog.missed()), (Some(1), None));
        while backlog.pace == Pace::Slow {
            backlog.pop(ONE);
        }
        assert!(backlog.push(ONE), "it has caught up");
    }

    /// Nobody else waits, so nothing is lost; once somebody does, it is waited for a while longer.
    #[tokio::test(start_paused = true)]
    async fn who_is_alone_is_waited_for_however_long_it_takes() {
        let mut backlog = filled();
        for _ in 0..10 {
            clock::sleep(WAITED_FOR * 2).await;
            backlog.give_up(clock::now(), true);
            assert!(backlog.push(ONE));
        }
        assert!(backlog.waited_for().is_some_and(|by| by > clock::now()));
        clock::sleep(WAITED_FOR).await;
        backlog.give_up(clock::now(), false);
        assert_eq!(backlog.waited_for(), None);
    }
}
