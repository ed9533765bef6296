//! Calls in flight on a standing stream: who waits for what.
//!
//! Used by: [`legacy`](super::legacy) for the GET stream of a session, and by
//! [`two_endpoints`](super::two_endpoints), where that stream is the session.
//!
//! Responses go by id. Progress goes to the call whose token it names. What concerns everybody is
//! told to them first; of the callers who did not hear it so, each hears it by one call. Other
//! notices go to the oldest call where all are one caller's, else to whoever hears the rest. Whose
//! question it is decides [`whose`]; one that is nobody's is refused at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use warmline_core::exchange::{QuestionKind, Trouble};
use warmline_core::protocol::envelope::{Id, Kind, Message, RpcError};

use super::listener::{self, LARGE, Spoken};
use super::notices::{Concerns, Stray, concerns};
use super::pace::Backlog;
use super::stream::{MAX_STRAYS, token_of};
use super::whose::{self, Belongs, Whose};
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// So many calls that were given up are remembered.
const MAX_LATE: usize = 1024;

/// The calls in flight on one stream.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    /// Told when a large answer was taken, or when a call that was behind caught up.
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By id; ids count up, so the first is the oldest.
    open: BTreeMap<u64, Slot>,
    /// Calls that were given up: their answers may still come, and are no strays.
    late: BTreeSet<u64>,
    strays: u32,
    /// Bytes of large answers whose callers have not taken them, or have no room for them yet.
    untaken: usize,
    /// How many calls are behind, so that the reading waits for them.
    behind: usize,
    ended: Option<Trouble>,
    stream: Stream,
}

/// Which streams a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stream {
    /// This one stands beside those of the calls.
    #[default]
    Beside,
    /// This one carries everything.
    OnlyOne,
}

#[derive(Debug, Default)]
struct Slot {
    waiting: VecDeque<Message>,
    backlog: Backlog,
    answered: bool,
    /// Bytes of its answer, if that is large.
    untaken: usize,
    whose: Option<Whose>,
    wake: Arc<Notify>,
}

impl Slot {
    /// One more message, that is left out where too much waits already.
    fn push(&mut self, message: Message) -> bool {
        let has_room = self.backlog.push(message.raw().len());
        if has_room {
            self.push_surely(message);
        }
        has_room
    }

    fn push_surely(&mut self, message: Message) {
        self.waiting.push_back(message);
        self.wake.notify_one();
    }

    fn pop(&mut self) -> Option<Heard> {
        if let Some(missed) = self.backlog.missed() {
            return Some(Heard::Missed(missed));
        }
        let message = self.waiting.pop_front()?;
        self.backlog.pop(message.raw().len());
        Some(Heard::Message(message))
    }
}

/// What came for a call.
pub(crate) enum Heard {
    Message(Message),
    /// So many notices were left out.
    Missed(u64),
    /// Nothing more will come.
    Lost(Trouble),
}

/// What became of a message.
pub(crate) enum Routed {
    Done,
    /// A notice with no call to hear it, for whoever hears the rest.
    Unheard(Message),
    /// A notice for everybody, and then for calls of the others.
    ForAll(Message),
    /// Nobody here can take it: this goes back.
    Answer(Bytes, Spoken),
    /// A question with no call in flight.
    Stray(Stray),
    /// A question of one of several calls of this caller.
    OneCallers(Whose, Stray, Message),
    /// A question, by its raw id, that may be of calls of several callers.
    Nobodys(Bytes, QuestionKind),
    /// The server takes the question of this raw id back.
    TakenBack(Bytes),
    TooManyStrays,
}

/// A call in flight. Dropping it forgets it; its late answer is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    calls: Arc<Calls>,
    id: u64,
    wake: Arc<Notify>,
}

/// Whether an error says that its sender could not read the request: only then it has no id to
/// name. An error without an id about anything else answers a notification.
pub(crate) fn is_unread(message: &Message) -> bool {
    let code = message
        .error()
        .and_then(|raw| RpcError::parse(&raw).ok())
        .map(|error| error.code);
    matches!(code, Some(-32700 | -32600))
}

impl Calls {
    /// The calls of a session that has no other stream than this one.
    pub(crate) fn of_the_only_stream() -> Self {
        let calls = Self::default();
        calls.state.lock().stream = Stream::OnlyOne;
        calls
    }

    /// Notes a call, and whose it is.
    pub(crate) fn register(
        self: &Arc<Self>,
        id: u64,
        whose: Option<Whose>,
    ) -> Result<Call, Trouble> {
        let mut state = self.state.lock();
        if let Some(trouble) = &state.ended {
            return Err(trouble.clone());
        }
        let slot = state.open.entry(id).or_default();
        slot.whose = whose;
        Ok(Call {
            calls: Arc::clone(self),
            id,
            wake: Arc::clone(&slot.wake),
        })
    }

    /// Passes a message to the call it belongs to.
    pub(crate) fn route(&self, message: Message) -> Routed {
        let mut state = self.state.lock();
        match message.kind() {
            Kind::Result | Kind::Error => state.reply(message),
            Kind::Notification => state.notice(message),
            Kind::Request => state.question(message),
        }
    }

    /// Passes on what concerns everybody: to one call of each caller who was not told yet.
    pub(crate) fn tell_callers(&self, message: &Message, told: &[Whose]) {
        let mut state = self.state.lock();
        for call in whose::to_tell(state.in_flight(), told) {
            state.push(call, message.clone());
        }
    }

    /// Waits until not more than this of large answers waits for callers who do not take it: a server
    /// whose callers do not read waits, and so do all who call it. One who is behind with its notices
    /// is waited for as well: for a while, unless `is_alone` says of the caller of the only call that
    /// nobody else hears what is read.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn room(&self, most_untaken: usize, is_alone: impl Fn(Option<Whose>) -> bool) {
        loop {
            let mut taken = pin!(self.taken.notified());
            // Before it is looked: what is taken in between is not missed.
            taken.as_mut().enable();
            let by = {
                let state = self.state.lock();
                match (state.untaken > most_untaken, state.behind > 0) {
                    (_, true) => state.waited_for(),
                    (true, false) => None,
                    (false, false) => return,
                }
            };
            match by {
                None => taken.await,
                Some(by) => {
                    if clock::timeout_at(by, taken).await.is_err() {
                        let only = self.only_caller();
                        // Those who listen are asked without our lock.
                        let is_alone = is_alone(only);
                        self.state.lock().give_up(is_alone);
                    }
                },
            }
        }
    }

    fn only_caller(&self) -> Option<Whose> {
        whose::only(self.state.lock().open.values().map(|slot| slot.whose))
    }

    /// Puts a question to the oldest call of a caller; says whether there is one to hear it.
    pub(crate) fn ask_oldest_of(&self, whose: Whose, question: Message) -> bool {
        let mut state = self.state.lock();
        let oldest = whose::oldest_of(whose, state.in_flight());
        oldest.is_some_and(|id| state.push(id, question))
    }

    /// Whether nobody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().open.is_empty()
    }

    /// Nothing more will come for anybody.
    pub(crate) fn end(&self, trouble: &Trouble) {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| trouble.clone());
        for slot in state.open.values() {
            slot.wake.notify_one();
        }
    }
}

impl State {
    /// Changes what waits for a call, and counts who is behind.
    fn change<T>(&mut self, id: u64, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let slot = self.open.get_mut(&id)?;
        let before = slot.backlog.waited_for().is_some();
        let changed = change(slot);
        let after = slot.backlog.waited_for().is_some();
        self.behind = self.behind + usize::from(after) - usize::from(before);
        Some(changed)
    }

    /// One more message for a call; says whether it is there and has room for it.
    fn push(&mut self, id: u64, message: Message) -> bool {
        self.change(id, |slot| slot.push(message)) == Some(true)
    }

    /// Until when those who are behind are waited for.
    fn waited_for(&self) -> Option<Instant> {
        let slots = self.open.values();
        slots.filter_map(|slot| slot.backlog.waited_for()).min()
    }

    /// Those who were waited for long enough are waited for no longer, unless one is alone.
    fn give_up(&mut self, is_alone: bool) {
        let now = clock::now();
        let slots = self.open.values_mut();
        self.behind = slots
            .map(|slot| {
                slot.backlog.give_up(now, is_alone);
                usize::from(slot.backlog.waited_for().is_some())
            })
            .sum();
    }

    fn reply(&mut self, message: Message) -> Routed {
        let id = match message.id() {
            Some(Id::Number(number)) => u64::try_from(number).ok(),
            None | Some(Id::Null) => self.only_call().filter(|_| is_unread(&message)),
            Some(Id::Text(_) | Id::Other) => None,
        };
        match id.and_then(|id| self.open.get_mut(&id)) {
            // The first answer counts.
            Some(slot) if !slot.answered => {
                slot.answered = true;
                let bytes = message.raw().len();
                if bytes > LARGE {
                    slot.untaken = bytes;
                    self.untaken += bytes;
                }
                slot.push_surely(message);
                Routed::Done
            },
            None if id.is_some_and(|id| self.late.remove(&id)) => Routed::Done,
            Some(_) | None => {
                self.strays += 1;
                if self.strays > MAX_STRAYS {
                    Routed::TooManyStrays
                } else {
                    Routed::Done
                }
            },
        }
    }

    /// The call an error without an id can only be meant for. Where calls have streams of their
    /// own, such an error would come there.
    fn only_call(&self) -> Option<u64> {
        let alone = self.stream == Stream::OnlyOne && self.late.is_empty() && self.open.len() == 1;
        self.open.keys().next().copied().filter(|_| alone)
    }

    fn notice(&mut self, message: Message) -> Routed {
        if let Some(id) = whose::taken_back(&message) {
            // Whoever was asked knows it by its id.
            let all: Vec<u64> = self.open.keys().copied().collect();
            for call in all {
                self.push(call, message.clone());
            }
            return Routed::TakenBack(id);
        }
        let named = message.params().and_then(|params| token_of(&params));
        let its_call = match concerns(&message) {
            Some(Concerns::Everybody | Concerns::Somebody) => return Routed::ForAll(message),
            Some(Concerns::SomeCall) => named.or_else(|| whose::notice(self.in_flight())),
            Some(Concerns::ItsCall) | None => named,
        };
        match its_call.filter(|id| self.open.contains_key(id)) {
            Some(call) => drop(self.push(call, message)),
            None if concerns(&message) == Some(Concerns::SomeCall) => {
                return Routed::Unheard(message);
            },
            None => {},
        }
        Routed::Done
    }

    /// The calls that wait for their answers, oldest first, and whose they are.
    fn in_flight(&self) -> impl Iterator<Item = (u64, Option<Whose>)> + Clone + '_ {
        let in_flight = self.open.iter().filter(|(_, slot)| !slot.answered);
        in_flight.map(|(id, slot)| (*id, slot.whose))
    }

    fn question(&mut self, message: Message) -> Routed {
        let id = Bytes::copy_from_slice(message.raw_id().unwrap_or(b"null"));
        let method = message.method().unwrap_or_default();
        if method == "ping" {
            return Routed::Answer(id, listener::pong());
        }
        let kind = QuestionKind::of(method);
        let is_given_up = |id| self.late.contains(&id);
        match whose::question(&message, is_given_up, self.in_flight()) {
            Belongs::To(call) => match self.push(call, message) {
                true => Routed::Done,
                false => Routed::Answer(id, listener::refused(kind)),
            },
            Belongs::ToCaller(whose) => Routed::OneCallers(whose, Stray::of(&message), message),
            Belongs::ToSomebody => Routed::Nobodys(id, kind),
            Belongs::ToNoCall => Routed::Stray(Stray::of(&message)),
        }
    }
}

impl Call {
    /// The next message for this call.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            {
                let mut state = self.calls.state.lock();
                let was_behind = state.behind;
                let waiting = state.change(self.id, Slot::pop).flatten();
                if state.behind < was_behind {
                    self.calls.taken.notify_waiters();
                }
                if let Some(heard) = waiting {
                    return heard;
                }
                if let Some(trouble) = &state.ended {
                    return Heard::Lost(trouble.clone());
                }
            }
            self.wake.notified().await;
        }
    }

    /// Nothing more is heard; gives back what was asked and not heard.
    pub(crate) fn leave(&self) -> Vec<Message> {
        let mut state = self.calls.state.lock();
        let Some(slot) = state.open.remove(&self.id) else {
            return Vec::new();
        };
        if !slot.answered {
            state.late.insert(self.id);
        }
        let was_behind = usize::from(slot.backlog.waited_for().is_some());
        state.behind = state.behind.saturating_sub(was_behind);
        if slot.untaken > 0 || was_behind > 0 {
            state.untaken = state.untaken.saturating_sub(slot.untaken);
            self.calls.taken.notify_waiters();
        }
        if state.late.len() > MAX_LATE {
            state.late.pop_first();
        }
        let unheard = slot.waiting.into_iter();
        unheard
            .filter(|message| message.kind() == Kind::Request)
            .collect()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::super::notices::{Hearing, Notices};
    use super::*;

    /// One who has a standing stream beside its calls, and others besides.
    #[derive(Debug, Default)]
    struct Ears {
        others: AtomicBool,
    }

    impl Notices for Ears {
        fn notice(&self, _method: &str, _params: &[u8]) {}

        fn is_heard_beside(&self, caller: Whose) -> bool {
            caller != Whose::of(self) || self.others.load(Ordering::Relaxed)
        }
    }

    /// Who waits for a call that nobody reads holds up whoever listens, though nobody else calls.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_alone_is_waited_for_until_another_listens() {
        let ears = Arc::new(Ears::default());
        let hearing = Hearing::new(Some(Arc::<Ears>::clone(&ears)));
        let calls = Arc::new(Calls::of_the_only_stream());
        let unread = calls.register(7, Some(Whose::of(&*ears))).unwrap();
        let room = || calls.room(usize::MAX, |only| hearing.is_alone(only));
        let minute = Duration::from_secs(60);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
            "x".repeat(200 << 10)
        );
        calls.route(Message::split(text.into()).unwrap());
        assert!(clock::timeout(minute, room()).await.is_err());
        ears.others.store(true, Ordering::Relaxed);
        assert!(clock::timeout(minute, room()).await.is_ok());
        drop(unread);
    }
}
