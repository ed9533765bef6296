//! Answers on their way: their calls are over, and their clients have yet to take all of them.
//!
//! Told by: [`door`](crate::door), for every connection that has more to write than its client
//! takes at once.  Asked by: whoever stops the gateway, which waits for them as for calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The answers of all connections.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    answers: AtomicU64,
    /// Whether calls were cut: what their clients are told from now on is no answer.
    are_cut: AtomicBool,
}

impl Leaving {
    /// How many are on their way.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Calls are cut from now on.
    pub(crate) fn cut_calls(&self) {
        self.are_cut.store(true, Ordering::Relaxed);
    }

    /// Whether a call that ends now was cut, as far as anybody knows.
    pub(super) fn calls_are_cut(&self) -> bool {
        self.are_cut.load(Ordering::Relaxed)
    }
}

/// The answer on one connection; none is on its way when this is dropped.
#[derive(Debug)]
pub(super) struct OnItsWay<'a> {
    all: &'a Leaving,
    is_counted: bool,
}

impl<'a> OnItsWay<'a> {
    pub(super) const fn of(all: &'a Leaving) -> Self {
        Self {
            all,
            is_counted: false,
        }
    }

    /// Whether there is one, as far as is known now.
    pub(super) fn is(&mut self, there: bool) {
        if there == self.is_counted {
            return;
        }
        self.is_counted = there;
        match there {
            true => self.all.answers.fetch_add(1, Ordering::Relaxed),
            false => self.all.answers.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.is(false);
    }
}
