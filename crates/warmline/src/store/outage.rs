//! What is done about a store that is slow or down: calls go on, one warning is given, and nobody
//! waits for it again and again.
//!
//! Asked by: `records.rs`, before and after everything it asks of a store.

use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// How long a store that let somebody wait in vain is left alone.
const PAUSE: Duration = Duration::from_secs(5);

/// What is known of a store's health.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Standing>);

#[derive(Clone, Copy, Debug, Default)]
enum Standing {
    /// The last thing asked of it was done, or nothing was asked yet.
    #[default]
    Well,
    /// The last thing asked of it was not done; the moment before which nobody asks again.
    Down(Option<Instant>),
}

impl Outage {
    /// Whether the store may be asked now. After a pause one is let through, and the others wait
    /// for what it finds.
    pub(super) fn may_ask(&self, timeout: Duration) -> Result<(), Trouble> {
        let now = clock::now();
        let mut standing = self.0.lock();
        match *standing {
            Standing::Down(Some(until)) if now < until => {
                drop(standing);
                Err(unavailable("it did not answer a moment ago"))
            },
            Standing::Down(Some(_)) => {
                *standing = Standing::Down(Some(clock::after(timeout.saturating_add(PAUSE))));
                Ok(())
            },
            Standing::Down(None) | Standing::Well => Ok(()),
        }
    }

    /// It did what it was asked.
    pub(super) fn answered(&self) {
        let before = std::mem::replace(&mut *self.0.lock(), Standing::Well);
        if matches!(before, Standing::Down(_)) {
            tracing::info!("the store of session records works again");
        }
    }

    /// It said that it cannot; that cost nobody any time.
    pub(super) fn failed(&self, why: &str) -> Trouble {
        self.down(None, why)
    }

    /// It said nothing in time.
    pub(super) fn stayed_silent(&self, timeout: Duration) -> Trouble {
        let why = format!("it did not answer within {} ms", timeout.as_millis());
        self.down(Some(clock::after(PAUSE)), &why)
    }

    fn down(&self, until: Option<Instant>, why: &str) -> Trouble {
        let before = std::mem::replace(&mut *self.0.lock(), Standing::Down(until));
        match before {
            // Once per outage: a store that is down for an hour is one piece of news.
            Standing::Well => tracing::warn!(
                code = "store-unavailable",
                why,
                "session records cannot be kept; calls go on without them"
            ),
            Standing::Down(_) => tracing::debug!(why, "the store is still not available"),
        }
        unavailable(why)
    }

    /// Whether it is known to be down.
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.0.lock(), Standing::Down(_))
    }
}

fn unavailable(why: &str) -> Trouble {
    Trouble::new(
        Reason::StoreUnavailable,
        "the store of session records cannot be used",
    )
    .because(why)
}
