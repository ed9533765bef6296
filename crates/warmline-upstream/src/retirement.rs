//! Whether a session may still be used, and why not. One byte: there are very many sessions.

use std::sync::atomic::{AtomicU8, Ordering};

use warmline_core::error::code::Reason;

/// Set once, by the exchange that saw the reason. A session whose state is in doubt is not used again.
#[derive(Debug, Default)]
pub(crate) struct Retirement(AtomicU8);

impl Retirement {
    /// No new call may use the session. The first reason stays.
    pub(crate) fn set(&self, reason: Reason) {
        let place = Reason::ALL.iter().position(|known| *known == reason);
        let mark = u8::try_from(place.unwrap_or(0) + 1).unwrap_or(u8::MAX);
        // A lost race means that another exchange set it.
        let (relaxed, first) = (Ordering::Relaxed, 0);
        self.0.compare_exchange(first, mark, relaxed, relaxed).ok();
    }

    /// None while the session may be used.
    pub(crate) fn get(&self) -> Option<Reason> {
        let mark = usize::from(self.0.load(Ordering::Relaxed));
        Reason::ALL.get(mark.checked_sub(1)?).copied()
    }
}
