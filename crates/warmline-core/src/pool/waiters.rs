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
    /// Before all who had no turn yet: it had one, and what it got was dead.
    First,
}

/// One caller in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) want: Want,
    pub(super) turn: Turn,
}

/// All callers in line for one key. None: nobody, as in nearly all keys nearly always.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a key at rest keeps one word, not four"
)]
pub(super) struct Line(Option<Box<VecDeque<Waiter>>>);

impl Line {
    pub(super) fn join(&mut self, waiter: Waiter) {
        let line = self.0.get_or_insert_default();
        match waiter.turn {
            Turn::Last => line.push_back(waiter),
            Turn::First => {
                let before = line.iter().take_while(|one| one.turn == Turn::First);
                let at = before.count();
                line.insert(at, waiter);
            },
        }
    }

    pub(super) fn first(&self) -> Option<Waiter> {
        self.0.as_ref()?.front().copied()
    }

    pub(super) fn serve(&mut self) -> Option<Waiter> {
        let served = self.0.as_mut()?.pop_front();
        self.give_back();
        served
    }

    /// Takes a caller out of the line; false if it stood in none.
    pub(super) fn leave(&mut self, id: WaiterId) -> bool {
        let Some(line) = &mut self.0 else {
            return false;
        };
        let Some(at) = line.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        line.remove(at);
        self.give_back();
        true
    }

    pub(super) fn dissolve(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        let line = self.0.take().map(|line| *line);
        line.unwrap_or_default().into_iter()
    }

    pub(super) fn len(&self) -> u32 {
        let line = self.0.as_ref().map_or(0, |line| line.len());
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    pub(super) const fn is_empty(&self) -> bool {
        // What is empty was given back.
        self.0.is_none()
    }

    /// A rush is over: its memory goes back.
    fn give_back(&mut self) {
        if self.0.as_ref().is_some_and(|line| line.is_empty()) {
            self.0 = None;
        }
    }
}
