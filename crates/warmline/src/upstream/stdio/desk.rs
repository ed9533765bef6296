//! The desk between callers and the owner task: who waits for what, and what is still to be
//! written, down to the byte.
//!
//! One short lock. The write itself happens under it (the pipe never blocks), so that a caller who
//! gives up learns exactly how much of its line has left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::net::unix::pipe::Sender;
use tokio::sync::{Notify, watch};
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::Version;
use warmline_core::exchange::{QuestionKind, Trouble};
use warmline_core::protocol::envelope::Message;

use super::outbox::{Outbox, Withdrawn};
use super::{Abandoned, PipeNews, Questions, Waits};
use crate::clock::{self, Home, Instant};
use crate::sync::Mutex;
use crate::upstream::listener::{LARGE, Spoken, refused};
use crate::upstream::notices::Hearing;
use crate::upstream::pace::Backlog;
use crate::upstream::process::Exit;
use crate::upstream::whose::{self, Whose};

/// What callers and the owner task share.
#[derive(Debug)]
pub(super) struct Desk {
    server: String,
    state: Mutex<State>,
    /// The version that was agreed on, once it was.
    version: OnceLock<Version>,
    /// Wakes the owner.
    work: Notify,
    /// Told when a call that was behind caught up.
    taken: Notify,
    /// True once the child and its tree are gone.
    gone: watch::Sender<bool>,
    /// Where the owner runs.
    home: Option<Home>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// By id; ids count up, so the first is the oldest.
    pub(super) calls: BTreeMap<u64, Slot>,
    outbox: Outbox,
    /// Ids of calls that were given up after they were written: their replies may still come.
    pub(super) late: BTreeSet<u64>,
    pub(super) questions: Questions,
    pub(super) skipped: Skipped,
    /// Bytes of large replies whose callers have not taken them, or have no room for them yet.
    untaken: usize,
    /// How many calls are behind, so that the owner waits for them.
    behind: usize,
    wish: Option<Wish>,
    ended: Option<Trouble>,
    exit: Option<Exit>,
}

/// What was dropped on the way in.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    /// Lines that were no messages.
    pub(super) lines: u64,
    /// The last of them, as harmless text.
    pub(super) last_line: String,
    /// Lines and bytes of it since the last message.
    pub(super) lines_in_a_row: usize,
    pub(super) bytes_in_a_row: usize,
    /// Replies to nothing we asked, and second replies.
    pub(super) strays: usize,
    /// Notices and questions that nobody could take.
    pub(super) unheard: u64,
}

/// One call and what it has not heard yet.
#[derive(Debug)]
pub(super) struct Slot {
    waits: Waits,
    whose: Option<Whose>,
    written: Written,
    inbox: VecDeque<PipeNews>,
    backlog: Backlog,
    /// Bytes of its reply, if that is large.
    untaken: usize,
    over: Over,
    wake: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    NotYet,
    /// The pipe took the whole JSON text.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    No,
    /// Its reply or loss is in the inbox, or was taken from there.
    Yes,
}

/// What callers want of the owner, besides writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// End the child in an orderly way.
    Close,
    /// End it now: a part of a message is in its input.
    EndTorn,
}

/// Whether the owner reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Goes,
    /// Too much of what was read waits for callers who do not take it.
    Rests,
}

/// What the owner has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    Write,
    End(Wish),
}

impl Desk {
    pub(super) fn new(server: String) -> Self {
        Self {
            server,
            state: Mutex::default(),
            version: OnceLock::new(),
            work: Notify::new(),
            taken: Notify::new(),
            gone: watch::Sender::new(false),
            home: Home::here(),
        }
    }

    /// Where the owner runs, if that is not here.
    pub(super) fn elsewhere(&self) -> Option<Home> {
        self.home.clone().filter(|home| !home.is_here())
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Registers a call and queues its line; the error says why it will never be sent.
    pub(super) fn register(
        &self,
        id: u64,
        line: Bytes,
        (waits, whose): (Waits, Option<Whose>),
    ) -> Result<Arc<Notify>, Trouble> {
        let mut state = self.state.lock();
        if let Some(trouble) = &state.ended {
            return Err(trouble.clone());
        }
        if state.wish.is_some() {
            return Err(Trouble::new(
                Reason::Closed,
                format!("`{}` is being closed", self.server),
            ));
        }
        if state.calls.contains_key(&id) || state.late.contains(&id) {
            let what = format!("the request id {id} of `{}` is in use", self.server);
            return Err(Trouble::new(Reason::Internal, what));
        }
        if !state.outbox.push(Some(id), line) {
            let what = format!(
                "`{}` does not read: {} messages wait already",
                self.server,
                state.outbox.len()
            );
            return Err(Trouble::new(Reason::LocalResources, what));
        }
        let slot = Slot::new(waits, whose);
        let wake = Arc::clone(&slot.wake);
        state.calls.insert(id, slot);
        self.work.notify_one();
        Ok(wake)
    }

    /// Queues a line that nobody waits for. A child that does not read loses it.
    pub(super) fn say(&self, line: Bytes) -> Result<(), Trouble> {
        let mut state = self.state.lock();
        if let Some(trouble) = &state.ended {
            return Err(trouble.clone());
        }
        if !state.say(line) {
            let what = format!("`{}` does not read, and its queue is full", self.server);
            return Err(Trouble::new(Reason::LocalResources, what));
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Queues what a question gets.
    pub(super) fn answer(&self, spoken: Spoken, id: &[u8]) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.answer(spoken, id);
        }
        drop(state);
        self.work.notify_one();
    }

    pub(super) fn set_questions(&self, questions: Questions) {
        self.state.lock().questions = questions;
    }

    pub(super) fn speak(&self, version: Version) {
        // There is one handshake in the life of a child.
        self.version.set(version).ok();
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.version.get().copied()
    }

    pub(super) fn take_news(&self, id: u64) -> Option<PipeNews> {
        let mut state = self.state.lock();
        let was_behind = state.behind;
        let taken = state.change(id, |slot| (slot.take(), slot.over));
        if state.behind < was_behind {
            self.taken.notify_waiters();
        }
        match taken {
            Some((None, Over::No)) => None,
            Some((Some(news), _)) => Some(news),
            Some((None, Over::Yes)) | None => Some(self.heard_all()),
        }
    }

    /// Nobody should ask again after the end; whoever does must not wait for ever.
    fn heard_all(&self) -> PipeNews {
        let what = format!("a call to `{}` was asked after its end", self.server);
        let trouble = Trouble::new(Reason::Internal, what);
        PipeNews::Lost {
            delivery: Delivery::Unknown,
            trouble,
        }
    }

    /// Gives a call up and says how much of its line has left.
    pub(super) fn abandon(&self, id: u64) -> Abandoned {
        let mut state = self.state.lock();
        let Some(slot) = self.leave(&mut state, id) else {
            return Abandoned::Unsent;
        };
        if slot.written == Written::Whole {
            state.expect_late_reply(id, &slot);
            return Abandoned::Written;
        }
        if state.outbox.withdraw(id) == Withdrawn::InPart {
            state.wish = Some(Wish::EndTorn);
            self.work.notify_one();
            return Abandoned::Torn;
        }
        Abandoned::Unsent
    }

    /// Forgets a call. A line that is half-way out is written to its end.
    pub(super) fn unregister(&self, id: u64) {
        let mut state = self.state.lock();
        let Some(slot) = self.leave(&mut state, id) else {
            return;
        };
        if slot.written == Written::Whole || state.outbox.withdraw(id) == Withdrawn::InPart {
            state.expect_late_reply(id, &slot);
        }
    }

    /// Takes a call off the desk. Where its reply was large, the owner may read on. What it was
    /// asked and has not heard is refused: nobody will answer it.
    fn leave(&self, state: &mut State, id: u64) -> Option<Slot> {
        let mut slot = state.calls.remove(&id)?;
        if slot.backlog.waited_for().is_some() {
            state.behind = state.behind.saturating_sub(1);
            self.taken.notify_waiters();
        }
        if slot.untaken > 0 {
            state.untaken = state.untaken.saturating_sub(slot.untaken);
            self.work.notify_one();
        }
        for news in slot.inbox.drain(..) {
            if let PipeNews::Question(question) = news {
                let kind = QuestionKind::of(question.method().unwrap_or_default());
                state.answer(refused(kind), question.raw_id().unwrap_or(b"null"));
                self.work.notify_one();
            }
        }
        Some(slot)
    }

    /// Whether something of a call has left and its end has not come.
    pub(super) fn is_under_way(&self, id: u64) -> bool {
        let state = self.state.lock();
        state.is_in_flight(id) || state.outbox.is_half_out(id)
    }

    pub(super) fn ask_to_close(&self) {
        let mut state = self.state.lock();
        state.wish.get_or_insert(Wish::Close);
        self.work.notify_one();
    }

    /// Waits until the child and its tree are gone.
    pub(super) async fn gone(&self) {
        let mut gone = self.gone.subscribe();
        // The sender lives in us, so this ends only when it is true.
        drop(gone.wait_for(|gone| *gone).await);
    }

    pub(super) fn exit(&self) -> Option<Exit> {
        self.state.lock().exit
    }

    /// Why no call can be answered any more, where nobody had asked for that, and its last words.
    pub(super) fn lost(&self) -> Option<String> {
        let state = self.state.lock();
        let trouble = state.ended.as_ref();
        let trouble = trouble.filter(|trouble| trouble.reason != Reason::Closed)?;
        Some(match &trouble.why {
            Some(last_words) => format!("{}: {last_words}", trouble.what),
            None => trouble.what.clone(),
        })
    }

    /// How many lines were no messages, and the last of them.
    pub(super) fn skipped(&self) -> (u64, String) {
        let state = self.state.lock();
        (state.skipped.lines, state.skipped.last_line.clone())
    }

    /// How much the pipe has taken in all.
    #[cfg(test)]
    pub(super) fn taken_in_all(&self) -> usize {
        self.state.lock().outbox.taken_in_all
    }

    /// How much of the line that is being written has left.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.state.lock().outbox.taken()
    }

    /// Owner: waits for a change of [`Desk::work`].
    pub(super) async fn wait_for_work(&self) {
        self.work.notified().await;
    }

    /// Owner: what there is to do, and whether to read where so much may wait for callers.
    pub(super) fn work(&self, most_untaken: usize) -> (Work, Reading) {
        let state = self.state.lock();
        let work = match state.wish {
            Some(wish) => Work::End(wish),
            None if state.outbox.is_empty() => Work::Nothing,
            None => Work::Write,
        };
        match state.untaken > most_untaken {
            true => (work, Reading::Rests),
            false => (work, Reading::Goes),
        }
    }

    /// Owner: waits for calls that are behind with what was read for them: for a while where others
    /// hear what is read as well.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(super) async fn keep_pace(&self, hearing: &Hearing) {
        loop {
            let mut taken = pin!(self.taken.notified());
            // Before it is looked: what is taken in between is not missed.
            taken.as_mut().enable();
            let Some(by) = self.state.lock().waited_for() else {
                return;
            };
            if clock::timeout_at(by, taken).await.is_err() {
                let only = whose::only(self.state.lock().calls.values().map(|slot| slot.whose));
                // Those who listen are asked without our lock.
                let is_alone = hearing.is_alone(only);
                self.state.lock().give_up(is_alone);
            }
        }
    }

    /// Owner: writes what the pipe takes now.
    pub(super) fn write_some(&self, stdin: &Sender) -> io::Result<()> {
        let mut state = self.state.lock();
        // Whoever gave up in the meantime was told how much has left: not a byte more may.
        if state.wish.is_some() {
            return Ok(());
        }
        let Some(whole) = state.outbox.write_some(stdin)? else {
            return Ok(());
        };
        if let Some(slot) = state.calls.get_mut(&whole) {
            slot.written = Written::Whole;
        }
        Ok(())
    }

    /// Owner: what was said before the end is still written, as far as the pipe takes it now.
    pub(super) fn write_the_last(&self, stdin: &Sender) {
        let outbox = &mut self.state.lock().outbox;
        outbox.keep_said();
        while !outbox.is_empty() && outbox.write_some(stdin).is_ok() {}
    }

    /// Owner: gives the state to the routing of one line, and says whether to go on.
    pub(super) fn route<T>(&self, routing: impl FnOnce(&mut State) -> T) -> (T, Reading) {
        let mut state = self.state.lock();
        (routing(&mut state), state.reading())
    }

    /// Owner: passes on what concerns everybody, to one call of each caller who was not told yet.
    pub(super) fn tell_callers(&self, message: &Message, told: &[Whose]) -> Reading {
        let mut state = self.state.lock();
        for call in whose::to_tell(state.callers(), told) {
            state.tell(call, message.clone(), PipeNews::Notice);
        }
        state.reading()
    }

    /// Owner: puts a question to the oldest call of a caller; says whether there is one to hear it.
    pub(super) fn ask_oldest_of(&self, whose: Whose, question: Message) -> bool {
        let mut state = self.state.lock();
        let oldest = whose::oldest_of(whose, state.callers());
        oldest.is_some_and(|id| state.tell(id, question, PipeNews::Question))
    }

    /// Owner: no call can be answered any more. The first trouble counts.
    pub(super) fn end(&self, trouble: Trouble) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        for slot in state
            .calls
            .values_mut()
            .filter(|slot| slot.over == Over::No)
        {
            let delivery = match slot.written {
                Written::NotYet => Delivery::Unsent,
                Written::Whole => Delivery::Unknown,
            };
            slot.end(PipeNews::Lost {
                delivery,
                trouble: trouble.clone(),
            });
        }
        state.outbox.clear();
        state.ended = Some(trouble);
    }

    pub(super) fn set_exit(&self, exit: Exit) {
        self.state.lock().exit = Some(exit);
    }

    pub(super) fn set_gone(&self) {
        self.gone.send_replace(true);
    }
}

impl State {
    /// Changes what waits for a call, and counts who is behind.
    fn change<T>(&mut self, id: u64, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let slot = self.calls.get_mut(&id)?;
        let before = slot.backlog.waited_for().is_some();
        let changed = change(slot);
        let after = slot.backlog.waited_for().is_some();
        self.behind = self.behind + usize::from(after) - usize::from(before);
        Some(changed)
    }

    /// Whether calls are behind.
    fn reading(&self) -> Reading {
        match self.behind {
            0 => Reading::Goes,
            _ => Reading::Rests,
        }
    }

    /// Until when those who are behind are waited for.
    fn waited_for(&self) -> Option<Instant> {
        let slots = self.calls.values().filter(|_| self.behind > 0);
        slots.filter_map(|slot| slot.backlog.waited_for()).min()
    }

    /// Those who were waited for long enough are waited for no longer, unless one is alone.
    fn give_up(&mut self, is_alone: bool) {
        let now = clock::now();
        let slots = self.calls.values_mut();
        self.behind = slots
            .map(|slot| {
                slot.backlog.give_up(now, is_alone);
                usize::from(slot.backlog.waited_for().is_some())
            })
            .sum();
    }

    /// Queues a line that nobody waits for, if there is room.
    pub(super) fn say(&mut self, line: Bytes) -> bool {
        self.outbox.push(None, line)
    }

    /// Calls that were written and not answered yet, oldest first.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        self.calls
            .iter()
            .filter(|(_, slot)| slot.is_in_flight())
            .map(|(id, _)| *id)
    }

    /// The calls in flight that wait for their answers, oldest first, and whose they are.
    pub(super) fn callers(&self) -> impl Iterator<Item = (u64, Option<Whose>)> + Clone + '_ {
        let calls = self.calls.iter();
        let waiting = calls.filter(|(_, s)| s.is_in_flight() && s.waits == Waits::ForAnswer);
        waiting.map(|(id, slot)| (*id, slot.whose))
    }

    /// The same by their ids alone.
    pub(super) fn waiting(&self) -> Vec<u64> {
        self.callers().map(|(id, _)| id).collect()
    }

    pub(super) fn is_in_flight(&self, id: u64) -> bool {
        self.calls.get(&id).is_some_and(Slot::is_in_flight)
    }

    /// Whether it stays open to hear news.
    pub(super) fn is_listen(&self, id: u64) -> bool {
        let slot = self.calls.get(&id).filter(|slot| slot.is_in_flight());
        slot.is_some_and(|slot| slot.waits == Waits::ForNews)
    }

    /// Ends a call that is in flight.
    pub(super) fn end_call(&mut self, id: u64, news: PipeNews) {
        if let Some(slot) = self.calls.get_mut(&id) {
            slot.end(news);
        }
    }

    /// Ends a call that is in flight with its reply. A large one counts until the call is gone.
    pub(super) fn answer_call(&mut self, id: u64, reply: Message) {
        if let Some(slot) = self.calls.get_mut(&id) {
            let bytes = reply.raw().len();
            if bytes > LARGE {
                slot.untaken = bytes;
                self.untaken += bytes;
            }
            slot.end(PipeNews::Reply(reply));
        }
    }

    /// Gives news to a call, if its inbox has room.
    pub(super) fn tell(
        &mut self,
        id: u64,
        message: Message,
        as_news: fn(Message) -> PipeNews,
    ) -> bool {
        self.change(id, |slot| slot.tell(message, as_news)) == Some(true)
    }

    fn expect_late_reply(&mut self, id: u64, slot: &Slot) {
        if slot.over == Over::Yes {
            return;
        }
        self.note_late(id);
    }

    /// What answers this is not taken for a reply to nothing.
    pub(super) fn note_late(&mut self, id: u64) {
        self.late.insert(id);
        if self.late.len() > LATE_IDS {
            self.late.pop_first();
        }
    }
}

impl Slot {
    fn new(waits: Waits, whose: Option<Whose>) -> Self {
        Self {
            waits,
            whose,
            written: Written::NotYet,
            inbox: VecDeque::new(),
            backlog: Backlog::default(),
            untaken: 0,
            over: Over::No,
            wake: Arc::default(),
        }
    }

    fn is_in_flight(&self) -> bool {
        self.written == Written::Whole && self.over == Over::No
    }

    fn tell(&mut self, message: Message, as_news: fn(Message) -> PipeNews) -> bool {
        if !self.backlog.push(message.raw().len()) {
            return false;
        }
        self.inbox.push_back(as_news(message));
        self.wake.notify_one();
        true
    }

    /// The last news always has room.
    fn end(&mut self, news: PipeNews) {
        self.over = Over::Yes;
        self.inbox.push_back(news);
        self.wake.notify_one();
    }

    fn take(&mut self) -> Option<PipeNews> {
        if let Some(missed) = self.backlog.missed() {
            return Some(PipeNews::Missed(missed));
        }
        let news = self.inbox.pop_front();
        if let Some(PipeNews::Notice(message) | PipeNews::Question(message)) = &news {
            self.backlog.pop(message.raw().len());
        }
        news
    }
}

/// Calls that were given up and whose replies are still expected.
const LATE_IDS: usize = 1024;
