//! Whose message is it? One line of a child's output in, its consequences out.
//!
//! Replies go by id. Notices go to the call they name; what names none and concerns everybody is
//! told to them first, and then to one call of each caller who did not hear it so; the rest goes to
//! the oldest call where all are one caller's, else to whoever hears what belongs to no call. Whose
//! question it is decides [`whose`]; one that is nobody's is refused at once.

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::{QuestionKind, Trouble};
use warmline_core::protocol::envelope::{Id, Kind, Message};

use super::desk::State;
use super::{PipeNews, Questions};
use crate::upstream::calls::is_unread;
use crate::upstream::listener::{Spoken, pong, refused};
use crate::upstream::notices::{Concerns, Stray, concerns};
use crate::upstream::stderr;
use crate::upstream::whose::{self, Belongs, Whose, named_call};

/// Why a child that says such things is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Too many lines in a row were no messages.
    UpWithGarbage,
    /// Too many replies belonged to nothing we asked.
    UpWithStrays,
}

/// What concerns others than the calls in flight.
#[derive(Debug)]
pub(super) enum Taken {
    /// A notice for everybody, and then for calls of the others.
    ForAll(Message),
    /// A notice with no call to hear it, or that concerns others as well.
    Aside(Message),
    /// A question with no call in flight.
    Stray(Stray),
    /// A question of one of several calls of this caller.
    OneCallers(Whose, Stray, Message),
    /// A question that may be of calls of several callers.
    Nobodys(QuestionKind, Message),
    /// The server takes the question of this raw id back.
    Withdrawn(Bytes),
}

/// Takes in one line. What comes back is for whoever hears what belongs to no call.
pub(super) fn take_in(state: &mut State, line: Bytes) -> Result<Option<Taken>, Fed> {
    let noise = line.clone();
    let message = if line.contains(&b'\r') {
        None
    } else {
        Message::split(line).ok()
    };
    let Some(message) = message else {
        skip(state, &noise)?;
        return Ok(None);
    };
    state.skipped.lines_in_a_row = 0;
    state.skipped.bytes_in_a_row = 0;
    match message.kind() {
        Kind::Result | Kind::Error => reply(state, message)?,
        Kind::Notification => return Ok(notice(state, message)),
        Kind::Request => return Ok(question(state, message)),
    }
    Ok(None)
}

/// Takes in a line that was over the limit and is gone.
pub(super) fn take_in_too_long(
    state: &mut State,
    (server, limit): (&str, usize),
    id: Option<u64>,
    bytes: usize,
) {
    state.skipped.lines += 1;
    let Some(id) = id.filter(|id| state.is_in_flight(*id)) else {
        return;
    };
    let what = format!("`{server}` sent a line of {bytes} bytes, the limit is {limit}");
    let trouble = Trouble::new(Reason::ReplyTooLarge, what);
    state.end_call(
        id,
        PipeNews::Lost {
            delivery: Delivery::Unknown,
            trouble,
        },
    );
}

fn skip(state: &mut State, noise: &Bytes) -> Result<(), Fed> {
    let skipped = &mut state.skipped;
    skipped.lines += 1;
    skipped.lines_in_a_row += 1;
    skipped.bytes_in_a_row += noise.len();
    let kept = String::from_utf8_lossy(noise.get(..KEPT_BYTES).unwrap_or(noise));
    skipped.last_line = stderr::sanitise(&kept);
    // What stands in it may be a secret of the child, which is struck out where it is shown.
    tracing::debug!(bytes = noise.len(), "line skipped");
    if skipped.lines_in_a_row >= GARBAGE_LINES || skipped.bytes_in_a_row >= GARBAGE_BYTES {
        return Err(Fed::UpWithGarbage);
    }
    Ok(())
}

fn reply(state: &mut State, message: Message) -> Result<(), Fed> {
    let id = match message.id() {
        Some(Id::Number(number)) => u64::try_from(number).ok(),
        Some(Id::Null) | None if message.kind() == Kind::Error => {
            let Some(only) = only_call(state).filter(|_| is_unread(&message)) else {
                state.skipped.unheard += 1;
                return Ok(());
            };
            Some(only)
        },
        Some(Id::Null | Id::Text(_) | Id::Other) | None => None,
    };
    if let Some(id) = id {
        if state.is_in_flight(id) {
            state.answer_call(id, message);
            return Ok(());
        }
        if state.late.remove(&id) {
            return Ok(());
        }
    }
    state.skipped.strays += 1;
    if state.skipped.strays >= STRAYS {
        Err(Fed::UpWithStrays)
    } else {
        Ok(())
    }
}

/// The listen that a notice ends: over a pipe a server may say so by a cancel, in place of a result or
/// before it.
fn ended_listen(state: &State, message: &Message) -> Option<u64> {
    let id = serde_json::from_slice(&whose::taken_back(message)?).ok()?;
    state.is_listen(id).then_some(id)
}

/// The result of a listen that ended in good order.
fn complete(id: u64) -> Option<Message> {
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#);
    Message::split(line.into()).ok()
}

/// Gives a notice to its call; what it gives back concerns others, too or alone.
fn notice(state: &mut State, message: Message) -> Option<Taken> {
    if let Some(id) = ended_listen(state, &message)
        && let Some(result) = complete(id)
    {
        state.answer_call(id, result);
        state.note_late(id);
        return None;
    }
    let names_a_call = named_call(&message).is_some_and(|call| state.is_in_flight(call));
    if let (Some(id), false) = (whose::taken_back(&message), names_a_call) {
        // Whoever was asked knows it by its id.
        for call in state.waiting() {
            state.tell(call, message.clone(), PipeNews::Notice);
        }
        return Some(Taken::Withdrawn(id));
    }
    let concerns = concerns(&message);
    let whose = match (named_call(&message), concerns) {
        (Some(id), _) => Some(id).filter(|id| state.is_in_flight(*id)),
        (None, Some(Concerns::Everybody | Concerns::Somebody)) => {
            return Some(Taken::ForAll(message));
        },
        (None, Some(Concerns::SomeCall | Concerns::ItsCall) | None) => {
            whose::notice(state.callers())
        },
    };
    let told = whose.is_some_and(|id| state.tell(id, message.clone(), PipeNews::Notice));
    state.skipped.unheard += u64::from(!told);
    match concerns {
        Some(Concerns::Everybody) => Some(Taken::Aside(message)),
        Some(Concerns::Somebody | Concerns::SomeCall) if whose.is_none() => {
            Some(Taken::Aside(message))
        },
        Some(Concerns::Somebody | Concerns::SomeCall | Concerns::ItsCall) | None => None,
    }
}

fn question(state: &mut State, message: Message) -> Option<Taken> {
    if state.questions == Questions::Ignored {
        state.skipped.unheard += 1;
        return None;
    }
    let id = message.raw_id().unwrap_or(b"null");
    if message.method() == Some("ping") {
        state.answer(pong(), id);
        return None;
    }
    let kind = QuestionKind::of(message.method().unwrap_or_default());
    let is_given_up = |id| state.late.contains(&id);
    match whose::question(&message, is_given_up, state.callers()) {
        Belongs::To(call) => {
            if state.tell(call, message.clone(), PipeNews::Question) {
                return None;
            }
        },
        Belongs::ToCaller(whose) => {
            let stray = Stray::of(&message);
            return Some(Taken::OneCallers(whose, stray, message));
        },
        Belongs::ToNoCall => return Some(Taken::Stray(Stray::of(&message))),
        Belongs::ToSomebody => return Some(Taken::Nobodys(kind, message)),
    }
    state.skipped.unheard += 1;
    state.answer(refused(kind), id);
    None
}

impl State {
    /// Queues what a question gets. A child that asks without end and never reads loses it.
    pub(super) fn answer(&mut self, spoken: Spoken, id: &[u8]) {
        if !self.say(spoken.message(id).into()) {
            self.skipped.unheard += 1;
        }
    }
}

/// The call an error without an id can only be meant for: the one that is alone, also among those
/// that were given up.
fn only_call(state: &State) -> Option<u64> {
    if !state.late.is_empty() {
        return None;
    }
    let mut running = state.in_flight();
    let first = running.next()?;
    running.next().is_none().then_some(first)
}

pub(super) const GARBAGE_LINES: usize = 100;
pub(super) const GARBAGE_BYTES: usize = 1 << 20;
pub(super) const STRAYS: usize = 16;
/// Of a line that is shown as an example.
const KEPT_BYTES: usize = 2 << 10;
