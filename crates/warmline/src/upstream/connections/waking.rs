//! Waking: a task that drives a connection is not woken by what it does itself.
//!
//! Asked by: [`line`](super::line).
//!
//! A request, its connection and the body of its response are made for tasks of their own, and
//! wake each other. Here one task drives all of them, so most of these wakes tell it to look at
//! what it is about to look at anyway. Each would cost a round through the runtime, several a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Stands between a connection and the task that drives it.
pub(super) struct Waking {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Default)]
struct Shared {
    task: AtomicWaker,
    /// The task waits, and looks again only if it is woken.
    asleep: AtomicBool,
    /// Something happened since the task last began to look.
    woken: AtomicBool,
}

impl Default for Waking {
    fn default() -> Self {
        let shared = Arc::<Shared>::default();
        let waker = Waker::from(Arc::clone(&shared));
        Self { shared, waker }
    }
}

impl Waking {
    /// The task is here and looks. What all that belongs to the connection is polled with.
    pub(super) fn up(&self, task: &Context<'_>) -> Context<'_> {
        self.shared.task.register(task.waker());
        self.shared.asleep.store(false, Ordering::SeqCst);
        Context::from_waker(&self.waker)
    }

    /// All that happened before this is seen by the look that begins.
    pub(super) fn begin_look(&self) {
        self.shared.asleep.store(false, Ordering::SeqCst);
        self.shared.woken.store(false, Ordering::SeqCst);
    }

    /// Whether nothing happened since the look began. What happens from now on wakes the task.
    pub(super) fn may_sleep(&self) -> bool {
        // In this order: what happens before the first line is seen by the second, and what
        // happens after it wakes the task.
        self.shared.asleep.store(true, Ordering::SeqCst);
        !self.shared.woken.load(Ordering::SeqCst)
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What happens while the task looks is told to it at the end of its look, and what happens
    /// while it sleeps wakes it.
    #[test]
    fn a_task_is_woken_only_while_it_sleeps_and_misses_nothing() {
        let counted = Arc::<Counting>::default();
        let task = Waker::from(Arc::clone(&counted));
        let wakes = || counted.0.load(Ordering::SeqCst);
        let waking = Waking::default();
        let ours = waking.up(&Context::from_waker(&task)).waker().clone();

        ours.wake_by_ref();
        waking.begin_look();
        assert!(waking.may_sleep(), "the look has seen what came before it");
        waking.begin_look();
        ours.wake_by_ref();
        assert!(!waking.may_sleep(), "something happened during the look");
        assert_eq!(wakes(), 0, "the task was looking all the time");
        waking.begin_look();
        assert!(waking.may_sleep());
        ours.wake_by_ref();
        assert_eq!(wakes(), 1, "it slept");
    }

    /// The same from another thread, at any moment: a task never sleeps on what has happened.
    #[test]
    fn a_wake_at_any_moment_is_seen_or_wakes_the_task() {
        for _ in 0..2000 {
            let counted = Arc::<Counting>::default();
            let waking = Waking::default();
            let task = Waker::from(Arc::clone(&counted));
            let ours = waking.up(&Context::from_waker(&task)).waker().clone();
            waking.begin_look();
            let other = std::thread::spawn(move || ours.wake());
            let slept = waking.may_sleep();
            other.join().unwrap();
            let woken = counted.0.load(Ordering::SeqCst) > 0;
            assert!(!slept || woken, "it slept, and nobody woke it");
        }
    }
}
