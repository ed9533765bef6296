//! The retry budget: how much of a server's load may be retries, and when the server wants a pause.
//!
//! A server in trouble must not get more requests because of it. It gets one retry for five calls
//! of the last 10 s, and 3 per second besides, so that a quiet server still gets its second try.

use std::time::Duration;

use super::{Attempt, RetryDecision};
use crate::time::Tick;

/// The retry budget of one server.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    buckets: [SecondBucket; BUCKETS],
    /// When calls were noted last.
    last_recorded: Tick,
}

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default)]
struct SecondBucket {
    second: u64,
    calls: u32,
    retries: u32,
}

/// Full seconds that count.
const WINDOW_SECONDS: u64 = 10;
/// One more second counts for retries than for calls: the present second is not over yet.
const BUCKETS: usize = 11;
/// Calls that pay for one resend.
const CALLS_PER_RETRY: u32 = 5;
/// Retries that are always allowed.
const MIN_RETRIES: u32 = 30;

impl RetryBudget {
    /// Notes calls that were counted elsewhere since the last time. Of a long time only the share
    /// counts that falls into the window: an hour of calls must not pay for a storm of retries.
    pub fn record_calls(&mut self, now: Tick, number: u32) {
        let elapsed = now
            .duration_since(self.last_recorded)
            .as_secs()
            .max(WINDOW_SECONDS);
        self.last_recorded = now;
        let share = (u64::from(number) * WINDOW_SECONDS).div_ceil(elapsed);
        let second = self.bucket_at(now);
        let share = u32::try_from(share).unwrap_or(number);
        second.calls = second.calls.saturating_add(share);
    }

    /// Whether one more retry is allowed.
    pub fn allows_retry(&self, now: Tick) -> bool {
        let number = now.since_start().as_secs();
        let (mut calls, mut resends) = (0_u32, 0_u32);
        for second in &self.buckets {
            let age = number.saturating_sub(second.second);
            if age < WINDOW_SECONDS {
                calls = calls.saturating_add(second.calls);
            }
            if age <= WINDOW_SECONDS {
                resends = resends.saturating_add(second.retries);
            }
        }
        resends < (calls / CALLS_PER_RETRY).saturating_add(MIN_RETRIES)
    }

    pub fn record_retry(&mut self, now: Tick) {
        let second = self.bucket_at(now);
        second.retries = second.retries.saturating_add(1);
    }

    /// Decides about an attempt, and counts the retry at once: two callers cannot use the same
    /// budget.
    pub fn decide_retry(&mut self, attempt: &Attempt, now: Tick) -> RetryDecision {
        let next = super::decide_retry(&Attempt {
            has_budget: self.allows_retry(now),
            ..*attempt
        });
        if let RetryDecision::Retry {
            costs_budget: true, ..
        } = next
        {
            self.record_retry(now);
        }
        next
    }

    fn bucket_at(&mut self, now: Tick) -> &mut SecondBucket {
        let number = now.since_start().as_secs();
        let place = usize::try_from(number % BUCKETS as u64).unwrap_or(0);
        let second = &mut self.buckets[place];
        if second.second != number {
            *second = SecondBucket {
                second: number,
                ..SecondBucket::default()
            };
        }
        second
    }
}

/// A pause that a server asked an identity for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooldown {
    until: Tick,
}

/// A server that names a longer pause than this is not believed.
const MAX_COOLDOWN: Duration = Duration::from_secs(3600);

impl Cooldown {
    /// The server asked for a pause.
    pub fn extend(&mut self, now: Tick, pause: Duration) {
        self.until = self.until.max(now.after(pause.min(MAX_COOLDOWN)));
    }

    /// How long it is until something may be sent; none where it may be now.
    pub fn remaining(&self, now: Tick) -> Option<Duration> {
        let left = self.until.duration_since(now);
        (left > Duration::ZERO).then_some(left)
    }
}

#[cfg(test)]
mod tests;
