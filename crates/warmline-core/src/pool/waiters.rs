//! The line: who waits for a session of a key, in order of arrival.
//!
//! Asked by: the cell, whenever a session comes free.  A caller waits only if somebody is before
//! it, or if no session of the key can be had right now.

use std::collections::VecDeque;

use super::Want;

/// A caller in line. The shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// Where in line a caller goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Behind all others.
    Last,
    /// Before all others: it had its turn, and what it got was dead.
    First,
}

/// One caller in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) want: Want,
}

/// All callers in line for one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(VecDeque<Waiter>);

impl Line {
    pub(super) fn join(&mut self, waiter: Waiter, turn: Turn) {
        match turn {
            Turn::Last => self.0.push_back(waiter),
            Turn::First => self.0.push_front(waiter),
        }
    }

    pub(super) fn first(&self) -> Option<Waiter> {
        self.0.front().copied()
    }

    pub(super) fn serve(&mut self) -> Option<Waiter> {
        let served = self.0.pop_front();
        if self.0.is_empty() {
            // A rush is over: its memory goes back.
            self.0 = VecDeque::new();
        }
        served
    }

    /// Takes a caller out of the line; false if it stood in none.
    pub(super) fn leave(&mut self, id: WaiterId) -> bool {
        let Some(at) = self.0.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        self.0.remove(at);
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        true
    }

    pub(super) fn dissolve(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
