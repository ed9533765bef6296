//! The budget: how much of a server's load may be resends of ours, and when it wants none at all.
//!
//! Asked by: the engine, before anything is sent again.  Told by: every call and every resend.
//!
//! Why it exists: a server in trouble must not get more requests because of it.
//! How much: one resend for five calls of the last 10 s, and 3 for each second besides, so that
//!   a quiet server still gets its second try.

use std::time::Duration;

use crate::delivery::{self, Attempt, Cost, Next, Purse};
use crate::tick::Tick;

/// The resend budget of one server.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    seconds: [Second; SECONDS],
    /// When calls were noted last.
    noted: Tick,
}

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    calls: u32,
    resends: u32,
}

/// Full seconds that count.
const WINDOW: u64 = 10;
/// One more for resends than for calls: the present second is not over yet.
const SECONDS: usize = 11;
/// Calls that pay for one resend.
const CALLS_FOR_ONE: u32 = 5;
/// Resends that are always there.
const FLOOR: u32 = 30;

impl Budget {
    /// Notes calls that were counted elsewhere since the last time. Of a long time only the share
    /// counts that falls into the window: an hour of calls must not pay for a storm of resends.
    pub fn calls(&mut self, now: Tick, number: u32) {
        let elapsed = now.since(self.noted).as_secs().max(WINDOW);
        self.noted = now;
        let share = (u64::from(number) * WINDOW).div_ceil(elapsed);
        let second = self.second(now);
        let share = u32::try_from(share).unwrap_or(number);
        second.calls = second.calls.saturating_add(share);
    }

    /// Whether one more resend can be paid.
    pub fn purse(&self, now: Tick) -> Purse {
        let number = now.since_start().as_secs();
        let (mut calls, mut resends) = (0_u32, 0_u32);
        for second in &self.seconds {
            let age = number.saturating_sub(second.number);
            if age < WINDOW {
                calls = calls.saturating_add(second.calls);
            }
            if age <= WINDOW {
                resends = resends.saturating_add(second.resends);
            }
        }
        if resends < (calls / CALLS_FOR_ONE).saturating_add(FLOOR) {
            Purse::Full
        } else {
            Purse::Empty
        }
    }

    /// Pays for a resend.
    pub fn pay(&mut self, now: Tick) {
        let second = self.second(now);
        second.resends = second.resends.saturating_add(1);
    }

    /// Decides about an attempt with what is left, and pays at once if it is sent again: two
    /// callers cannot spend the same.
    pub fn decide(&mut self, attempt: &Attempt, now: Tick) -> Next {
        let purse = self.purse(now);
        let next = delivery::decide(&Attempt { purse, ..*attempt });
        if let Next::SendAgain {
            cost: Cost::One, ..
        } = next
        {
            self.pay(now);
        }
        next
    }

    fn second(&mut self, now: Tick) -> &mut Second {
        let number = now.since_start().as_secs();
        let place = usize::try_from(number % SECONDS as u64).unwrap_or(0);
        let second = &mut self.seconds[place];
        if second.number != number {
            *second = Second {
                number,
                ..Second::default()
            };
        }
        second
    }
}

/// Until when a server wants nothing from an identity, because it said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooldown {
    until: Tick,
}

/// A server that names a longer pause than this is not believed.
const LONGEST: Duration = Duration::from_secs(3600);

impl Cooldown {
    /// Notes that the server asked for a pause.
    pub fn cool(&mut self, now: Tick, pause: Duration) {
        self.until = self.until.max(now.after(pause.min(LONGEST)));
    }

    /// How long it is until something may be sent; none where it may be now.
    pub fn left(&self, now: Tick) -> Option<Duration> {
        let left = self.until.since(now);
        (left > Duration::ZERO).then_some(left)
    }
}

#[cfg(test)]
mod tests;
