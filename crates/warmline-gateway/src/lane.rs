//! Lanes: what comes down to a client on one stream, in order, until it is over.
//!
//! Told by: the listener of a call (news, questions), the end of the call, and whoever hears what
//! belongs to no call.  Asked by: the [`flow`](crate::flow) that writes it to the client, and by one
//! that takes a broken stream up.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use warmline::clock::{self, Instant};
use warmline::upstream::{Pace, Roomy};

use crate::metrics::Counts;

/// More is not held for a client that does not read, or may come back. What is too much is left
/// out, oldest first, but never a question nor the end of the call. What these weigh is bounded by
/// who holds the lane.
const MAX_BYTES: usize = 256 << 10;

/// For a client that reads nothing is left out: whoever tells waits for it. Where somebody does not,
/// more than this is not held.
const MAX_UNREAD: usize = 1 << 20;

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

/// Who holds lanes for clients that may come back. It is told whatever is put into one of them, and
/// lets lanes go where all of them are too heavy together.
pub(crate) trait Holder: fmt::Debug + Send + Sync {
    /// A lane grew by so many bytes. Asked under its lock.
    fn grew(&self, bytes: usize) -> Load;
    /// A lane lost so many bytes. Told under its lock.
    fn shrank(&self, bytes: usize);
    /// Lets lanes go. Asked under no lock.
    fn lighten(&self);
}

/// What all lanes of a holder weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Fine,
    TooHeavy,
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
    /// Bytes of those.
    unread_bytes: usize,
    /// How whoever reads keeps up.
    pace: Pace,
    hears: Hears,
    /// Who counts what is left out.
    counts: Option<Arc<Counts>>,
    phase: Phase,
    /// What the client said when it gave the call up.
    parting_words: Option<Bytes>,
    form: Form,
    /// The server wants its reader to leave, and to come back after so long.
    pause: Option<Duration>,
    /// Who reads it: whoever came last.
    reader: u64,
    presence: Presence,
    /// The servers that it comes from, where its place does not say so.
    servers: SmallVec<[Box<str>; 1]>,
    /// Who holds it for a client that may come back.
    holder: Option<Weak<dyn Holder>>,
    /// Since when nothing comes and nobody reads.
    resting: Option<Instant>,
    /// Who reads it, and who drives the call behind it.
    wakers: SmallVec<[Waker; 2]>,
}

/// Whether whoever came last to read is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Nobody came yet.
    Awaited,
    Reads,
    /// They left, and may come back while somebody holds the lane.
    Left,
    /// They left, and nobody can come back.
    Gone,
}

/// What a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    All,
    /// It takes no stream, so that nothing but the end of its call reaches it.
    TheEnd,
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
            unread_bytes: 0,
            pace: Pace::KeepsUp,
            hears: Hears::All,
            counts: None,
            phase: Phase::Open,
            parting_words: None,
            form: Form::Any,
            pause: None,
            reader: 0,
            presence: Presence::Awaited,
            servers: SmallVec::new(),
            holder: None,
            resting: None,
            wakers: SmallVec::new(),
        }))
    }

    /// The same, with what is left out counted there.
    pub(crate) fn counted(mut self, counts: &Arc<Counts>) -> Self {
        self.0.get_mut().counts = Some(Arc::clone(counts));
        self
    }

    /// It comes from this server, which its place does not name: whoever may not use that one any
    /// more hears nothing more here.
    pub(crate) fn comes_from(&self, server: &str) {
        self.0.lock().servers.push(server.into());
    }

    /// The servers that were named so.
    pub(crate) fn servers(&self) -> SmallVec<[Box<str>; 1]> {
        self.0.lock().servers.clone()
    }

    /// So many messages were left out before they came here.
    pub(crate) fn missed(&self, messages: u64) {
        self.0.lock().left_out(messages);
    }

    /// Whoever reads it has yet to read much: ends when more may be told, also because nobody reads
    /// any more. None where that is so already. For who tells this lane alone: the door leaves
    /// clients that take nothing.
    pub(crate) fn behind(&self) -> Option<Roomy<'_>> {
        self.0.lock().waited_for()?;
        Some(Box::pin(self.caught_up()))
    }

    /// The same for who tells others as well, and waits for a while only.
    pub(crate) fn behind_for_a_while(&self) -> Option<Roomy<'_>> {
        let by = self.0.lock().waited_for()?;
        Some(Box::pin(async move {
            if clock::timeout_at(by, self.caught_up()).await.is_err() {
                self.0.lock().pace.give_up();
            }
        }))
    }

    async fn caught_up(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.waited_for().is_none() {
                return Poll::Ready(());
            }
            state.wait(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// One more message, that a client who does not read can do without. Says whether anybody can
    /// still hear it.
    pub(crate) fn tell(&self, message: Bytes) -> bool {
        self.put(message, Need::Spare)
    }

    fn put(&self, message: Bytes, need: Need) -> bool {
        let mut state = self.0.lock();
        let pushed = state.push(message, need);
        drop(state);
        pushed.settle()
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
        self.put(message, Need::Sure)
    }

    /// The last message, and the end. None: the end alone.
    pub(crate) fn end(&self, message: Option<Bytes>) {
        let mut state = self.0.lock();
        let pushed = message.map(|message| state.push(message, Need::Sure));
        state.over(Phase::Over);
        drop(state);
        pushed.map(Pushed::settle);
    }

    /// The client gave the call up.
    pub(crate) fn cancel(&self) {
        self.0.lock().over(Phase::Cancelled);
    }

    /// The same, in its own words: the raw parameters of its notice.
    pub(crate) fn cancel_saying(&self, words: Bytes) {
        let mut state = self.0.lock();
        state.parting_words = Some(words);
        state.over(Phase::Cancelled);
    }

    /// The words in which the client gave the call up, where it said any.
    pub(crate) fn parting_words(&self) -> Option<Bytes> {
        self.0.lock().parting_words.clone()
    }

    /// Somebody reads it from now on; whoever did before finds it over.
    pub(crate) fn attach(&self, hears: Hears) -> u64 {
        let mut state = self.0.lock();
        state.hears = hears;
        state.reader += 1;
        state.presence = Presence::Reads;
        // Whoever has just come does not leave at once.
        state.pause = None;
        if state.phase == Phase::Open {
            state.resting = None;
        }
        state.wake();
        state.reader
    }

    /// A reader left.
    pub(crate) fn leave(&self, reader: u64) {
        let mut state = self.0.lock();
        if state.reader == reader {
            state.presence = Presence::Left;
            state.forget_if_for_nobody();
            state.wake();
        }
    }

    /// Nothing drives it from now on, unless somebody reads it.
    pub(crate) fn rest(&self) {
        let mut state = self.0.lock();
        if state.presence != Presence::Reads {
            state.resting.get_or_insert_with(clock::now);
        }
    }

    /// Somebody holds it from now on, and is told what it weighs.
    pub(crate) fn held_by(&self, holder: Weak<dyn Holder>) {
        let mut state = self.0.lock();
        if let Some(holder) = holder.upgrade() {
            holder.grew(state.bytes);
        }
        state.holder = Some(holder);
    }

    /// Nobody holds it any more. Whoever reads it gets the rest.
    pub(crate) fn let_go(&self) {
        let mut state = self.0.lock();
        if let Some(holder) = state.holder.take().and_then(|holder| holder.upgrade()) {
            holder.shrank(state.bytes);
        }
        state.forget_what_was_read();
        state.forget_if_for_nobody();
    }

    /// What was read is not held any more, nor what will be.
    pub(crate) fn forget_what_was_read(&self) {
        self.0.lock().forget_what_was_read();
    }

    /// Whether nobody reads it, and nobody can come back to it.
    pub(crate) fn is_for_nobody(&self) -> bool {
        let state = self.0.lock();
        state.presence != Presence::Reads && state.holder.is_none()
    }

    /// How many bytes are held.
    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Whether something is held that nobody has read, and nobody reads at this moment.
    pub(crate) fn is_left_unread(&self) -> bool {
        let state = self.0.lock();
        if state.presence == Presence::Reads {
            return false;
        }
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

    /// Whether nothing more comes, other than what is held.
    pub(crate) fn is_over(&self) -> bool {
        self.0.lock().phase == Phase::Over
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
        self.read_up_to(number);
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

    fn push(&mut self, message: Bytes, need: Need) -> Pushed {
        if self.phase != Phase::Open || self.presence == Presence::Gone {
            return Pushed::Unheard;
        }
        if need == Need::Spare && self.hears == Hears::TheEnd {
            return Pushed::Heard;
        }
        let length = message.len();
        while self.bytes + length > MAX_BYTES && self.can_forget_first() {
            self.left_out(u64::from(self.first >= self.unread));
            self.forget_first();
        }
        let is_too_much = self.bytes + length > MAX_BYTES && !self.held.is_empty();
        if is_too_much && need == Need::Spare && !self.is_read() {
            self.left_out(1);
            return Pushed::Heard;
        }
        self.bytes += length;
        self.unread_bytes += length;
        self.pace.weigh(self.unread_bytes);
        self.held.push_back(Held { message, need });
        self.wake();
        match self.holder() {
            Some(holder) if holder.grew(length) == Load::TooHeavy => Pushed::TooMuchFor(holder),
            Some(_) | None => Pushed::Heard,
        }
    }

    fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.holder.as_ref()?.upgrade()
    }

    fn forget_what_was_read(&mut self) {
        self.keep = Keep::Nothing;
        while self.first < self.unread && self.forget_first() {}
    }

    fn forget_if_for_nobody(&mut self) {
        if self.presence == Presence::Left && self.holder.is_none() {
            self.presence = Presence::Gone;
            while self.forget_first() {}
        }
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
        let can_be_left_out = |held: &Held| held.need == Need::Spare && !self.is_read();
        first.is_some_and(|held| self.first < self.unread || can_be_left_out(held))
    }

    /// Whether somebody reads it and keeps up, or is waited for.
    fn is_read(&self) -> bool {
        let keeps_up = self.pace != Pace::Slow && self.unread_bytes <= MAX_UNREAD;
        self.presence == Presence::Reads && keeps_up
    }

    /// Until when whoever reads it is waited for, where it is behind.
    fn waited_for(&self) -> Option<Instant> {
        let is_read = self.phase == Phase::Open && self.presence == Presence::Reads;
        let by = self.pace.waited_for(self.unread_bytes);
        by.filter(|_| is_read)
    }

    /// All before that number was read.
    fn read_up_to(&mut self, number: u64) {
        if number <= self.unread {
            return;
        }
        let place = |number: u64| usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let to = place(number).min(self.held.len());
        let read = self.held.range(place(self.unread).min(to)..to);
        let bytes: usize = read.map(|held| held.message.len()).sum();
        self.unread = number;
        self.unread_bytes = self.unread_bytes.saturating_sub(bytes);
        if self.pace != Pace::KeepsUp {
            self.pace.weigh(self.unread_bytes);
            self.wake();
        }
    }

    fn left_out(&self, messages: u64) {
        if let Some(counts) = &self.counts {
            counts.unheard.more(messages);
        }
    }

    fn forget_first(&mut self) -> bool {
        let Some(held) = self.held.pop_front() else {
            return false;
        };
        let length = held.message.len();
        self.bytes = self.bytes.saturating_sub(length);
        if self.first >= self.unread {
            self.unread = self.first + 1;
            self.unread_bytes = self.unread_bytes.saturating_sub(length);
        }
        if let Some(holder) = self.holder() {
            holder.shrank(length);
        }
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

/// What became of a message.
enum Pushed {
    /// Somebody can hear it.
    Heard,
    /// The same, and now all lanes of that holder are too heavy.
    TooMuchFor(Arc<dyn Holder>),
    /// Nobody ever will.
    Unheard,
}

impl Pushed {
    /// Whether anybody can hear it. Asked under no lock.
    fn settle(self) -> bool {
        if let Self::TooMuchFor(holder) = &self {
            holder.lighten();
        }
        !matches!(self, Self::Unheard)
    }
}

#[cfg(test)]
mod tests;
