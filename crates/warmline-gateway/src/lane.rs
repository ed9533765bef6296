//! Lanes: what comes down to a client while a call runs, in order, until it is over.
//!
//! Told by: the listener of a call (news, questions) and the end of the call.  Asked by: the
//! [`flow`](crate::flow) that writes it to the client, and by one that takes a broken stream up.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;

/// More is not held for a client that does not read. What is too much is left out, oldest first,
/// but never the end of the call.
const MAX_BYTES: usize = 256 << 10;

/// Whether what was written is held for a client that may ask for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is forgotten.
    Nothing,
    /// It is held, within the limit.
    Written,
}

/// One stream of messages to a client.
#[derive(Debug)]
pub(crate) struct Lane(Mutex<State>);

#[derive(Debug)]
struct State {
    keep: Keep,
    /// The number of the first message that is held.
    first: u64,
    held: VecDeque<Bytes>,
    bytes: usize,
    phase: Phase,
    /// Who reads it, and who drives the call behind it.
    wakers: SmallVec<[Waker; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing comes any more.
    Over,
    /// The client gave the call up.
    Cancelled,
}

/// What a reader of a lane finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The message of that number.
    Message(u64, Bytes),
    /// There will be no more.
    Over,
    /// The call was given up: nobody wants its end.
    Cancelled,
}

impl Lane {
    pub(crate) fn new(keep: Keep) -> Self {
        Self(Mutex::new(State {
            keep,
            first: 1,
            held: VecDeque::new(),
            bytes: 0,
            phase: Phase::Open,
            wakers: SmallVec::new(),
        }))
    }

    /// One more message. Says whether anybody can still hear it.
    pub(crate) fn tell(&self, message: Bytes) -> bool {
        let mut state = self.0.lock();
        if state.phase != Phase::Open {
            return false;
        }
        state.bytes += message.len();
        state.held.push_back(message);
        while state.bytes > MAX_BYTES && state.held.len() > 1 {
            state.forget_first();
        }
        state.wake();
        true
    }

    /// The last message, and the end. None: the end alone.
    pub(crate) fn end(&self, message: Option<Bytes>) {
        if let Some(message) = message {
            self.tell(message);
        }
        let mut state = self.0.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Over;
        }
        state.wake();
    }

    /// The client gave the call up.
    pub(crate) fn cancel(&self) {
        let mut state = self.0.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Cancelled;
        }
        state.wake();
    }

    /// Whether anything waits to be written.
    pub(crate) fn has(&self, number: u64, cx: &mut Context<'_>) -> bool {
        self.next(number, cx).is_ready()
    }

    /// The message of that number or, where it is forgotten, the first one that is held.
    pub(crate) fn next(&self, number: u64, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.0.lock();
        if state.phase == Phase::Cancelled {
            return Poll::Ready(Next::Cancelled);
        }
        if state.keep == Keep::Nothing {
            while state.first < number && state.forget_first() {}
        }
        let number = number.max(state.first);
        let place = usize::try_from(number - state.first).unwrap_or(usize::MAX);
        if let Some(message) = state.held.get(place) {
            return Poll::Ready(Next::Message(number, message.clone()));
        }
        if state.phase == Phase::Over {
            return Poll::Ready(Next::Over);
        }
        state.wait(cx.waker());
        Poll::Pending
    }

    /// Waits until the client gives the call up.
    pub(crate) fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.phase == Phase::Cancelled {
            return Poll::Ready(());
        }
        state.wait(cx.waker());
        Poll::Pending
    }

    /// Whether the message after that number is still held, or yet to come.
    pub(crate) fn can_go_on_after(&self, number: u64) -> bool {
        let state = self.0.lock();
        let held = u64::try_from(state.held.len()).unwrap_or(u64::MAX);
        let next = state.first.saturating_add(held);
        state.first <= number.saturating_add(1) && number < next
    }
}

impl State {
    fn forget_first(&mut self) -> bool {
        let Some(message) = self.held.pop_front() else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(message.len());
        self.first += 1;
        true
    }

    fn wait(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lane: &Lane, number: u64) -> Poll<Next> {
        lane.next(number, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn messages_come_in_order_and_then_it_is_over() {
        for keep in [Keep::Nothing, Keep::Written] {
            let lane = Lane::new(keep);
            assert!(read(&lane, 1).is_pending());
            assert!(lane.tell("a".into()));
            lane.end(Some("b".into()));
            assert!(!lane.tell("late".into()));
            assert_eq!(read(&lane, 1), Poll::Ready(Next::Message(1, "a".into())));
            assert_eq!(read(&lane, 2), Poll::Ready(Next::Message(2, "b".into())));
            assert_eq!(read(&lane, 3), Poll::Ready(Next::Over));
            let again = read(&lane, 1);
            let expected = match keep {
                Keep::Nothing => Next::Over,
                Keep::Written => Next::Message(1, "a".into()),
            };
            assert_eq!(again, Poll::Ready(expected), "{keep:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_left_out_but_never_the_end() {
        let lane = Lane::new(Keep::Written);
        for _ in 0..100 {
            lane.tell(Bytes::from(vec![b'x'; 10 << 10]));
        }
        lane.end(Some(Bytes::from(vec![b'y'; MAX_BYTES + 1])));
        let Poll::Ready(Next::Message(number, last)) = read(&lane, 1) else {
            panic!("nothing is held");
        };
        assert_eq!((number, last.len()), (101, MAX_BYTES + 1));
        assert!(lane.can_go_on_after(100));
        assert!(!lane.can_go_on_after(1));
        assert!(!lane.can_go_on_after(102));
    }

    #[test]
    fn a_call_that_was_given_up_has_no_end() {
        let lane = Lane::new(Keep::Nothing);
        lane.tell("a".into());
        lane.cancel();
        lane.end(Some("b".into()));
        assert_eq!(read(&lane, 1), Poll::Ready(Next::Cancelled));
    }
}
