//! Lanes: what comes down to a client on one stream, in order, until it is over.
//!
//! Told by: the listener of a call (news, questions), the end of the call, and whoever hears what
//! belongs to no call.  Asked by: the [`flow`](crate::flow) that writes it to the client, and by one
//! that takes a broken stream up.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use warmline::clock::{self, Instant};

/// More is not held for a client that does not read, or may come back. What is too much is left
/// out, oldest first, but never a question nor the end of the call.
const MAX_BYTES: usize = 256 << 10;

/// Whether what was written is held for a client that may ask for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is forgotten.
    Nothing,
    /// It is held, within the limit.
    Written,
}

/// Whether a reader leaves where the server wants it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pausing {
    /// It knows how to come back.
    Yes,
    /// It stays.
    No,
}

/// One stream of messages to a client.
#[derive(Debug)]
pub(crate) struct Lane(Mutex<State>);

#[derive(Debug)]
struct State {
    keep: Keep,
    /// The number of the first message that is held.
    first: u64,
    held: VecDeque<Held>,
    bytes: usize,
    /// The number of the first message that nobody has read.
    unread: u64,
    phase: Phase,
    form: Form,
    /// The server wants its reader to leave, and to come back after so long.
    pause: Option<Duration>,
    /// Who reads it: whoever came last.
    reader: u64,
    /// Since when nothing comes and nobody reads.
    resting: Option<Instant>,
    /// Who reads it, and who drives the call behind it.
    wakers: SmallVec<[Waker; 2]>,
}

#[derive(Debug)]
struct Held {
    message: Bytes,
    need: Need,
}

/// Whether a client can do without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Spare,
    Sure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing comes any more.
    Over,
    /// The client gave the call up.
    Cancelled,
}

/// How the answer of a server comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing is known of it yet, or it is no stream.
    Any,
    /// As a stream, whether or not it says more than its end.
    Stream,
}

/// What a reader of a lane finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The message of that number.
    Message(u64, Bytes),
    /// Nothing more for now: a reader who can come back does so after this long.
    Pause(Duration),
    /// There will be no more, or somebody else reads the rest.
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
            unread: 1,
            phase: Phase::Open,
            form: Form::Any,
            pause: None,
            reader: 0,
            resting: None,
            wakers: SmallVec::new(),
        }))
    }

    /// One more message, that a client who does not read can do without. Says whether anybody can
    /// still hear it.
    pub(crate) fn tell(&self, message: Bytes) -> bool {
        self.0.lock().push(message, Need::Spare)
    }

    /// The server answers with a stream.
    pub(crate) fn begin(&self) {
        let mut state = self.0.lock();
        state.form = Form::Stream;
        state.wake();
    }

    /// The server closed its stream, and wants the rest to be asked for after this long.
    pub(crate) fn pause(&self, come_back_after: Duration) {
        let mut state = self.0.lock();
        state.pause = Some(come_back_after);
        state.wake();
    }

    /// One more message, that no client can do without.
    pub(crate) fn ask(&self, message: Bytes) -> bool {
        self.0.lock().push(message, Need::Sure)
    }

    /// The last message, and the end. None: the end alone.
    pub(crate) fn end(&self, message: Option<Bytes>) {
        let mut state = self.0.lock();
        if let Some(message) = message {
            state.push(message, Need::Sure);
        }
        state.over(Phase::Over);
    }

    /// The client gave the call up.
    pub(crate) fn cancel(&self) {
        self.0.lock().over(Phase::Cancelled);
    }

    /// Somebody reads it from now on; whoever did before finds it over.
    pub(crate) fn attach(&self) -> u64 {
        let mut state = self.0.lock();
        state.reader += 1;
        // Whoever has just come does not leave at once.
        state.pause = None;
        if state.phase == Phase::Open {
            state.resting = None;
        }
        state.wake();
        state.reader
    }

    /// A reader left, and nothing drives it meanwhile.
    pub(crate) fn rest(&self) {
        let mut state = self.0.lock();
        state.resting.get_or_insert_with(clock::now);
    }

    /// How many bytes are held.
    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Whether something is held that nobody has read.
    pub(crate) fn has_unread(&self) -> bool {
        let state = self.0.lock();
        let held = u64::try_from(state.held.len()).unwrap_or(u64::MAX);
        state.unread < state.first.saturating_add(held)
    }

    /// Since when nothing comes and nobody reads.
    pub(crate) fn resting(&self) -> Option<Instant> {
        self.0.lock().resting
    }

    /// Whether the response is a stream by now: something waits to be written, or the server's
    /// own answer is one.
    pub(crate) fn has_begun(&self, number: u64, reader: u64, cx: &mut Context<'_>) -> bool {
        let mut state = self.0.lock();
        let told = state.next(number, reader, cx, Pausing::No).is_ready();
        told || state.form == Form::Stream
    }

    /// Whether the client gave the call up.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.lock().phase == Phase::Cancelled
    }

    /// The message of that number or, where it is forgotten, the first one that is held.
    pub(crate) fn next(
        &self,
        number: u64,
        reader: u64,
        cx: &mut Context<'_>,
        pausing: Pausing,
    ) -> Poll<Next> {
        self.0.lock().next(number, reader, cx, pausing)
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
        state.phase != Phase::Cancelled && state.first <= number.saturating_add(1) && number < next
    }
}

impl State {
    fn next(
        &mut self,
        number: u64,
        reader: u64,
        cx: &mut Context<'_>,
        pausing: Pausing,
    ) -> Poll<Next> {
        if self.phase == Phase::Cancelled {
            return Poll::Ready(Next::Cancelled);
        }
        if self.reader != reader {
            return Poll::Ready(Next::Over);
        }
        self.unread = self.unread.max(number);
        if self.keep == Keep::Nothing {
            while self.first < number && self.forget_first() {}
        }
        let number = number.max(self.first);
        let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        if let Some(held) = self.held.get(place) {
            return Poll::Ready(Next::Message(number, held.message.clone()));
        }
        if self.phase == Phase::Over {
            return Poll::Ready(Next::Over);
        }
        if let (Pausing::Yes, Some(pause)) = (pausing, self.pause) {
            return Poll::Ready(Next::Pause(pause));
        }
        self.wait(cx.waker());
        Poll::Pending
    }

    fn push(&mut self, message: Bytes, need: Need) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let length = message.len();
        while self.bytes + length > MAX_BYTES && self.can_forget_first() {
            self.forget_first();
        }
        let is_too_much = self.bytes + length > MAX_BYTES && !self.held.is_empty();
        if is_too_much && need == Need::Spare {
            return true;
        }
        self.bytes += length;
        self.held.push_back(Held { message, need });
        self.wake();
        true
    }

    fn over(&mut self, phase: Phase) {
        if self.phase == Phase::Open {
            self.phase = phase;
            self.resting = Some(clock::now());
        }
        self.wake();
    }

    fn can_forget_first(&self) -> bool {
        let first = self.held.front();
        first.is_some_and(|held| held.need == Need::Spare || self.first < self.unread)
    }

    fn forget_first(&mut self) -> bool {
        let Some(held) = self.held.pop_front() else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(held.message.len());
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
        let mut cx = Context::from_waker(Waker::noop());
        lane.next(number, 0, &mut cx, Pausing::No)
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
    fn a_reader_that_can_come_back_is_let_go_once() {
        let lane = Lane::new(Keep::Written);
        let mut cx = Context::from_waker(Waker::noop());
        let pause = Duration::from_millis(7);
        let first = lane.attach();
        lane.tell("a".into());
        lane.pause(pause);
        let mut next = |number, reader, pausing| lane.next(number, reader, &mut cx, pausing);
        let a = Next::Message(1, "a".into());
        assert_eq!(next(1, first, Pausing::Yes), Poll::Ready(a));
        assert!(next(2, first, Pausing::No).is_pending());
        assert_eq!(
            next(2, first, Pausing::Yes),
            Poll::Ready(Next::Pause(pause))
        );
        let second = lane.attach();
        assert!(next(2, second, Pausing::Yes).is_pending());
    }

    #[test]
    fn a_question_waits_for_a_client_that_does_not_read() {
        let lane = Lane::new(Keep::Written);
        lane.ask("?".into());
        for _ in 0..100 {
            lane.tell(Bytes::from(vec![b'x'; 10 << 10]));
        }
        assert_eq!(read(&lane, 1), Poll::Ready(Next::Message(1, "?".into())));
        let held: usize = lane
            .0
            .lock()
            .held
            .iter()
            .map(|held| held.message.len())
            .sum();
        assert!(held <= MAX_BYTES, "{held}");
    }

    #[test]
    fn a_call_that_was_given_up_has_no_end() {
        let lane = Lane::new(Keep::Nothing);
        lane.tell("a".into());
        lane.cancel();
        lane.end(Some("b".into()));
        assert_eq!(read(&lane, 1), Poll::Ready(Next::Cancelled));
    }

    #[test]
    fn whoever_comes_last_reads_the_rest() {
        let lane = Lane::new(Keep::Written);
        let first = lane.attach();
        lane.tell("a".into());
        let second = lane.attach();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(
            lane.next(1, first, &mut cx, Pausing::No),
            Poll::Ready(Next::Over)
        );
        let a = Next::Message(1, "a".into());
        assert_eq!(lane.next(1, second, &mut cx, Pausing::No), Poll::Ready(a));
    }
}
