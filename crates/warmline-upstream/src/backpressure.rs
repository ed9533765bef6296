//! Receivers that fall behind: the others wait for them, but not for long. And how much one reader
//! reads before other tasks run.

use std::time::Duration;

use warmline_platform::clock::{self, Instant};

/// A receiver with more unread bytes is behind.
const LAG_THRESHOLD: usize = 128 << 10;
/// How long the others wait for a receiver that is behind. Then what exceeds its share is dropped.
const MAX_LAG_WAIT: Duration = Duration::from_secs(3);
/// How many bytes are delivered between two checks whether all receivers keep up.
pub(crate) const CHECK_EVERY_BYTES: usize = 16 << 10;
/// What a message takes up beside its bytes.
const MESSAGE_OVERHEAD: usize = 256;
/// No more waits for a receiver, whatever its pace.
const MAX_BACKLOG_BYTES: usize = 4 << 20;
/// How much one reader reads before other tasks run.
const MAX_BYTES_PER_TURN: usize = 64 << 10;

/// Whether a receiver keeps up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverPace {
    /// It does.
    #[default]
    KeepsUp,
    /// It does not; the others wait for it until then.
    Behind(Instant),
    /// The others waited long enough.
    Slow,
}

impl ReceiverPace {
    /// Sets the number of its unread bytes.
    pub fn update(&mut self, unread: usize) {
        match self {
            Self::KeepsUp if unread > LAG_THRESHOLD => {
                *self = Self::Behind(clock::after(MAX_LAG_WAIT));
            },
            // A receiver that always takes a little never catches up.
            Self::Behind(_) | Self::Slow if unread <= LAG_THRESHOLD / 2 => *self = Self::KeepsUp,
            Self::KeepsUp | Self::Behind(_) | Self::Slow => {},
        }
    }

    /// Until when the others wait for it, with so many unread bytes.
    pub fn wait_deadline(self, unread: usize) -> Option<Instant> {
        match self {
            Self::Behind(by) if unread > LAG_THRESHOLD => Some(by),
            Self::KeepsUp | Self::Behind(_) | Self::Slow => None,
        }
    }

    /// The others no longer wait for it, until it has caught up.
    pub fn stop_waiting(&mut self) {
        if let Self::Behind(_) = self {
            *self = Self::Slow;
        }
    }
}

/// The unread messages of one call on a shared stream.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: usize,
    pace: ReceiverPace,
    dropped: u64,
}

impl Backlog {
    /// Adds a message, if there is room for it; else counts it as dropped.
    pub(crate) fn push(&mut self, bytes: usize) -> bool {
        let is_full = match self.pace {
            ReceiverPace::KeepsUp | ReceiverPace::Behind(_) => self.bytes > MAX_BACKLOG_BYTES,
            ReceiverPace::Slow => self.bytes > LAG_THRESHOLD,
        };
        if is_full {
            self.dropped += 1;
            return false;
        }
        self.bytes += bytes + MESSAGE_OVERHEAD;
        self.pace.update(self.bytes);
        true
    }

    pub(crate) fn pop(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes + MESSAGE_OVERHEAD);
        self.pace.update(self.bytes);
    }

    pub(crate) fn wait_deadline(&self) -> Option<Instant> {
        self.pace.wait_deadline(self.bytes)
    }

    /// Reading goes on without it if its time is over. Reading waits for a call that is alone until
    /// it takes something or ends: its listener takes care of that, as the gateway does with clients
    /// that read nothing.
    pub(crate) fn stop_waiting(&mut self, now: Instant, is_alone: bool) {
        match (&mut self.pace, is_alone) {
            (ReceiverPace::Behind(by), true) if *by <= now => *by = clock::after(MAX_LAG_WAIT),
            (ReceiverPace::Behind(by), false) if *by <= now => self.pace.stop_waiting(),
            (ReceiverPace::KeepsUp | ReceiverPace::Behind(_) | ReceiverPace::Slow, _) => {},
        }
    }

    pub(crate) fn take_dropped(&mut self) -> Option<u64> {
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0).then_some(dropped)
    }
}

/// What one reader read since other tasks could run. A server that never pauses would else keep all
/// calls and timers of its thread waiting.
#[derive(Debug, Default)]
pub(crate) struct ReadBudget(usize);

impl ReadBudget {
    /// Counts a piece or a message, and yields after the last of a turn.
    pub(crate) async fn consume(&mut self, bytes: usize) {
        let cost = bytes.saturating_add(MESSAGE_OVERHEAD);
        self.0 = self.0.saturating_add(cost);
        if self.0 >= MAX_BYTES_PER_TURN {
            self.0 = 0;
            clock::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: usize = 1 << 10;

    fn filled() -> Backlog {
        let mut backlog = Backlog::default();
        while backlog.wait_deadline().is_none() {
            assert!(backlog.push(ONE));
        }
        backlog
    }

    /// reliability F79: who is behind is waited for, then misses what is too much until it has
    /// caught up; what it missed is known.
    #[tokio::test(start_paused = true)]
    async fn who_is_behind_is_waited_for_and_then_misses_what_is_too_much() {
        let mut backlog = filled();
        backlog.stop_waiting(clock::now(), false);
        assert!(backlog.push(ONE), "it is waited for");
        // It takes a little, which holds up the others all the same.
        clock::sleep(MAX_LAG_WAIT / 2).await;
        backlog.pop(ONE);
        clock::sleep(MAX_LAG_WAIT / 2).await;
        backlog.stop_waiting(clock::now(), false);
        assert_eq!(backlog.wait_deadline(), None);
        assert!(!backlog.push(ONE));
        assert_eq!(
            (backlog.take_dropped(), backlog.take_dropped()),
            (Some(1), None)
        );
        while backlog.pace == ReceiverPace::Slow {
            backlog.pop(ONE);
        }
        assert!(backlog.push(ONE), "it has caught up");
    }

    /// Nobody else waits, so nothing is lost; once somebody does, it is waited for a while longer.
    #[tokio::test(start_paused = true)]
    async fn who_is_alone_is_waited_for_however_long_it_takes() {
        let mut backlog = filled();
        for _ in 0..10 {
            clock::sleep(MAX_LAG_WAIT * 2).await;
            backlog.stop_waiting(clock::now(), true);
            assert!(backlog.push(ONE));
        }
        assert!(backlog.wait_deadline().is_some_and(|by| by > clock::now()));
        clock::sleep(MAX_LAG_WAIT).await;
        backlog.stop_waiting(clock::now(), false);
        assert_eq!(backlog.wait_deadline(), None);
    }
}
