//! Calls in flight on a standing stream: who waits for what.
//!
//! Used by: [`legacy`](super::legacy) for the GET stream of a session, and by
//! [`two_endpoints`](super::two_endpoints), where that stream is the session.
//!
//! Responses go by id. Progress goes to the call whose token it names; other notices and questions
//! go to the oldest call (mcp-spec 4.4.5); a question with no call in flight is refused at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use warmline_core::exchange::{QuestionKind, Trouble};
use warmline_core::protocol::envelope::{Id, Kind, Message};

use super::listener::Spoken;
use super::stream::{MAX_STRAYS, token_of};
use crate::sync::Mutex;

/// So many messages wait for a slow caller; more notices are dropped, answers never.
const MAX_WAITING: usize = 256;

/// The calls in flight on one stream.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By id; ids count up, so the first is the oldest.
    open: BTreeMap<u64, Slot>,
    strays: u32,
    ended: Option<Trouble>,
}

#[derive(Debug, Default)]
struct Slot {
    waiting: VecDeque<Message>,
    wake: Arc<Notify>,
}

/// What came for a call.
pub(crate) enum Heard {
    Message(Message),
    /// Nothing more will come.
    Lost(Trouble),
}

/// What became of a message.
pub(crate) enum Routed {
    Done,
    /// Nobody here can take it: this goes back.
    Answer(Bytes, Spoken),
    TooManyStrays,
}

/// A call in flight. Dropping it forgets it; its late answer is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    calls: Arc<Calls>,
    id: u64,
    wake: Arc<Notify>,
}

impl Calls {
    pub(crate) fn register(self: &Arc<Self>, id: u64) -> Result<Call, Trouble> {
        let mut state = self.0.lock();
        if let Some(trouble) = &state.ended {
            return Err(trouble.clone());
        }
        let slot = state.open.entry(id).or_default();
        Ok(Call {
            calls: Arc::clone(self),
            id,
            wake: Arc::clone(&slot.wake),
        })
    }

    /// Passes a message to the call it belongs to.
    pub(crate) fn route(&self, message: Message) -> Routed {
        let mut state = self.0.lock();
        match message.kind() {
            Kind::Result | Kind::Error => state.reply(message),
            Kind::Notification => {
                state.notice(message);
                Routed::Done
            },
            Kind::Request => state.question(message),
        }
    }

    /// Whether nobody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().open.is_empty()
    }

    /// Nothing more will come for anybody.
    pub(crate) fn end(&self, trouble: &Trouble) {
        let mut state = self.0.lock();
        state.ended.get_or_insert_with(|| trouble.clone());
        for slot in state.open.values() {
            slot.wake.notify_one();
        }
    }
}

impl State {
    fn reply(&mut self, message: Message) -> Routed {
        let id = match message.id() {
            Some(Id::Number(number)) => u64::try_from(number).ok(),
            // An error that names no request belongs to the only one there is.
            None | Some(Id::Null) if self.open.len() == 1 => self.open.keys().next().copied(),
            _ => None,
        };
        match id.and_then(|id| self.open.get_mut(&id)) {
            Some(slot) => {
                slot.waiting.push_back(message);
                slot.wake.notify_one();
                Routed::Done
            },
            None => {
                self.strays += 1;
                if self.strays > MAX_STRAYS {
                    Routed::TooManyStrays
                } else {
                    Routed::Done
                }
            },
        }
    }

    fn notice(&mut self, message: Message) {
        let named = message.params().and_then(|params| token_of(&params));
        let id = named.or_else(|| self.open.keys().next().copied());
        let Some(slot) = id.and_then(|id| self.open.get_mut(&id)) else {
            return;
        };
        if slot.waiting.len() < MAX_WAITING {
            slot.waiting.push_back(message);
            slot.wake.notify_one();
        }
    }

    fn question(&mut self, message: Message) -> Routed {
        let id = Bytes::copy_from_slice(message.raw_id().unwrap_or(b"null"));
        let method = message.method().unwrap_or_default();
        if method == "ping" {
            return Routed::Answer(id, Spoken::Result(Bytes::from_static(b"{}")));
        }
        let refusal = match QuestionKind::of(method) {
            Some(QuestionKind::Elicitation) => {
                Spoken::Result(Bytes::from_static(br#"{"action":"cancel"}"#))
            },
            Some(QuestionKind::Sampling | QuestionKind::Roots) | None => {
                Spoken::Error(-32601, "nobody here can answer that now")
            },
        };
        match self.open.values_mut().next() {
            Some(slot) if slot.waiting.len() < MAX_WAITING => {
                slot.waiting.push_back(message);
                slot.wake.notify_one();
                Routed::Done
            },
            Some(_) | None => Routed::Answer(id, refusal),
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
                let mut state = self.calls.0.lock();
                let waiting = state
                    .open
                    .get_mut(&self.id)
                    .and_then(|s| s.waiting.pop_front());
                if let Some(message) = waiting {
                    return Heard::Message(message);
                }
                if let Some(trouble) = &state.ended {
                    return Heard::Lost(trouble.clone());
                }
            }
            self.wake.notified().await;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.0.lock().open.remove(&self.id);
    }
}
