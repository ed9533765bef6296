//! The queue of callers that wait for a session of a key, in order of arrival.

use std::collections::VecDeque;

use super::LeaseMode;

/// A queued caller. The shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// Where a caller is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePosition {
    /// Behind all others.
    Back,
    /// Before all who had no lease yet: its lease was dead.
    Front,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) mode: LeaseMode,
    pub(super) position: QueuePosition,
}

/// None while no caller waits, as in nearly all keys most of the time.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a key at rest keeps one word, not four"
)]
pub(super) struct WaitQueue(Option<Box<VecDeque<Waiter>>>);

impl WaitQueue {
    pub(super) fn enqueue(&mut self, waiter: Waiter) {
        let line = self.0.get_or_insert_default();
        match waiter.position {
            QueuePosition::Back => line.push_back(waiter),
            QueuePosition::Front => {
                let before = line
                    .iter()
                    .take_while(|one| one.position == QueuePosition::Front);
                let at = before.count();
                line.insert(at, waiter);
            },
        }
    }

    pub(super) fn front(&self) -> Option<Waiter> {
        self.0.as_ref()?.front().copied()
    }

    pub(super) fn pop_front(&mut self) -> Option<Waiter> {
        let served = self.0.as_mut()?.pop_front();
        self.free_if_empty();
        served
    }

    /// Removes a caller; false if it is not queued.
    pub(super) fn remove(&mut self, id: WaiterId) -> bool {
        let Some(line) = &mut self.0 else {
            return false;
        };
        let Some(at) = line.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        line.remove(at);
        self.free_if_empty();
        true
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        let line = self.0.take().map(|line| *line);
        line.unwrap_or_default().into_iter()
    }

    pub(super) fn len(&self) -> u32 {
        let line = self.0.as_ref().map_or(0, |line| line.len());
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    pub(super) const fn is_empty(&self) -> bool {
        // An empty queue is dropped.
        self.0.is_none()
    }

    fn free_if_empty(&mut self) {
        if self.0.as_ref().is_some_and(|line| line.is_empty()) {
            self.0 = None;
        }
    }
}
