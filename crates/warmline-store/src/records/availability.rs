//! A store that is slow or down: calls go on, there is one warning per outage, and nobody waits for
//! it again and again.

use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

/// How long a store that did not answer in time is left alone.
const COOLDOWN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct StoreAvailability(Mutex<AvailabilityState>);

#[derive(Clone, Copy, Debug, Default)]
enum AvailabilityState {
    /// The last operation worked, or there was none yet.
    #[default]
    Up,
    /// The last operation failed. If it timed out, there is none before this moment.
    Down(Option<Instant>),
}

impl StoreAvailability {
    /// Whether the store may be used now. After a cooldown it lets one caller through; the others
    /// wait for the result of that one.
    pub(super) fn check_available(&self, timeout: Duration) -> Result<(), Diagnostic> {
        let mut state = self.0.lock();
        if let AvailabilityState::Down(Some(until)) = *state {
            if clock::now() < until {
                return Err(unavailable("it did not answer a moment ago"));
            }
            let until = clock::after(timeout.saturating_add(COOLDOWN));
            *state = AvailabilityState::Down(Some(until));
        }
        Ok(())
    }

    pub(super) fn mark_up(&self) {
        let before = std::mem::replace(&mut *self.0.lock(), AvailabilityState::Up);
        if matches!(before, AvailabilityState::Down(_)) {
            tracing::info!("the store of session records works again");
        }
    }

    /// An operation failed. One that timed out has the store left alone for a while.
    pub(super) fn mark_down(&self, why: &str, timed_out: bool) -> Diagnostic {
        let until = timed_out.then(|| clock::after(COOLDOWN));
        let before = std::mem::replace(&mut *self.0.lock(), AvailabilityState::Down(until));
        match before {
            AvailabilityState::Up => tracing::warn!(
                code = "store-unavailable",
                why,
                "session records cannot be kept; calls go on without them"
            ),
            AvailabilityState::Down(_) => tracing::debug!(why, "the store is still not available"),
        }
        unavailable(why)
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(*self.0.lock(), AvailabilityState::Down(_))
    }
}

fn unavailable(why: &str) -> Diagnostic {
    let what = "the store of session records cannot be used";
    Diagnostic::new(Reason::StoreUnavailable, what).with_cause(why)
}
