//! The listener: who hears what a server tells in the middle of a call, and answers what it asks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use warmline_core::exchange::{Answer, News, Question, QuestionKind, Trouble};
use warmline_core::key::Digest;
use warmline_core::protocol::splice;

use super::letterhead::Own;
use super::whose::Whose;

/// A future on the heap, as questions need it.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Ends when there is room for a reply, or for more notices.
pub type Roomy<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Replies that are smaller need no room: there are no more of them than calls.
pub(crate) const LARGE: usize = 64 << 10;

/// Hears what a server tells while a call runs, and answers its questions.
///
/// `()` is a listener that hears nothing and declines everything.
pub trait Listener: Send + Sync {
    /// Something was told: progress, a log line, another notification.
    fn news(&self, news: News) {
        drop(news);
    }

    /// Something was asked. The call goes on when the answer is there; meanwhile only the call's
    /// total limit runs, because people take their time.
    fn question(&self, question: Question) -> Asked<'_> {
        drop(question);
        Box::pin(std::future::ready(Answer::Declined))
    }

    /// Whose call it is. A question that could be of calls of several is put to nobody. None:
    /// nobody listens.
    fn whose(&self) -> Option<Whose> {
        Some(Whose::of(self))
    }

    /// Whether whoever it is for thinks at this moment about a question that no call waits for and
    /// that may be of this call: then only the call's total limit runs.
    fn is_asked(&self) -> bool {
        false
    }

    /// The client session that it is for, by its name. Of clients that share a session each is
    /// counted for itself: what one takes back another may still want. None: it stands for all of
    /// its identity.
    fn client(&self) -> Option<Digest> {
        None
    }

    /// A reply of so many bytes is about to be read, or to be handed over, and will be held until the
    /// listener is gone. That waits for this; none where there is nothing to wait for. Asked for
    /// large ones only. What was given before is given back: all of it where none is asked for.
    fn room(&self, bytes: usize) -> Option<Roomy<'_>> {
        let _ = bytes;
        None
    }

    /// Something was told, and whoever listens has yet to read much of it: until this ends no more is
    /// read for it. None where it keeps up.
    fn behind(&self) -> Option<Roomy<'_>> {
        None
    }

    /// So many notices were dropped: they came on a stream that others share, and whoever listens did
    /// not keep up for a while.
    fn missed(&self, notices: u64) {
        let _ = notices;
    }

    /// The server answers with a stream of events. Told before anything that comes on it, and
    /// again where the call is sent again.
    fn stream_begun(&self) {}

    /// The server answers with another status of HTTP than 200. Told before the answer is read.
    fn answered_with(&self, status: u16) {
        let _ = status;
    }

    /// The words in which the caller gave the call up: the raw parameters of its own notice, which
    /// its server hears with the id that is known there. Asked where a call is cancelled. None: the
    /// caller said nothing.
    fn parting_words(&self) -> Option<Bytes> {
        None
    }

    /// The server closed that stream in the middle of the call, and wants the rest to be asked
    /// for after this long. The call goes on by itself.
    fn stream_paused(&self, come_back_after: Duration) {
        let _ = come_back_after;
    }
}

impl Listener for () {
    fn whose(&self) -> Option<Whose> {
        None
    }
}

/// More questions than this are not asked at a time: nobody could answer them, and they would
/// pile up.
const MAX_OPEN: usize = 32;

/// The questions of one call that are waiting for their answers.
#[derive(Default)]
pub(crate) struct Open<'a> {
    asked: Vec<OpenQuestion<'a>>,
    /// Answers on their way to the server; each says why where it does not arrive.
    sent: Vec<oneshot::Receiver<Trouble>>,
}

/// What became of a question.
pub(crate) enum Turn {
    /// It was answered; this goes back to the server.
    Answered(Bytes, QuestionKind, Answer),
    /// Its answer could not be brought to the server.
    Undelivered(Trouble),
}

/// Where a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// On the stream of the call itself: with that call its server is done with it.
    WithItsCall,
    /// Elsewhere: it may be of another call, and its server waits for what it gets.
    Elsewhere,
}

struct OpenQuestion<'a> {
    /// The raw id under which the server asked.
    id: Bytes,
    kind: QuestionKind,
    came: Came,
    answer: Asked<'a>,
}

impl<'a> Open<'a> {
    /// Asks the listener; `id` is the raw id under which the server asked. What is too much is
    /// declined without asking.
    pub(crate) fn ask(
        &mut self,
        (id, came): (Bytes, Came),
        question: Question,
        listener: &'a dyn Listener,
    ) {
        let kind = question.kind;
        let answer = if self.asked.len() < MAX_OPEN {
            listener.question(question)
        } else {
            ().question(question)
        };
        self.asked.push(OpenQuestion {
            id,
            kind,
            came,
            answer,
        });
    }

    /// The server no longer wants to know.
    pub(crate) fn withdraw(&mut self, id: &[u8]) {
        self.asked.retain(|asked| asked.id != id);
    }

    /// The server answered the call: what it asked with it is done with.
    pub(crate) fn replied(&mut self) {
        self.asked.retain(|asked| asked.came == Came::Elsewhere);
    }

    /// Whoever was asked hears that nobody waits any more; gives back what got no answer.
    pub(crate) fn leave(&mut self) -> impl Iterator<Item = (Bytes, QuestionKind)> {
        let left = std::mem::take(&mut self.asked).into_iter();
        left.map(|asked| (asked.id, asked.kind))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// An answer is on its way.
    pub(crate) fn sent(&mut self, undelivered: oneshot::Receiver<Trouble>) {
        self.sent.push(undelivered);
    }

    /// The next answer, or one that could not be delivered; never, while there is none.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn turn(&mut self) -> Turn {
        poll_fn(|cx| {
            for place in 0..self.asked.len() {
                let Some(asked) = self.asked.get_mut(place) else {
                    break;
                };
                if let Poll::Ready(answer) = asked.answer.as_mut().poll(cx) {
                    let OpenQuestion { id, kind, .. } = self.asked.swap_remove(place);
                    return Poll::Ready(Turn::Answered(id, kind, answer));
                }
            }
            let mut failed = None;
            self.sent.retain_mut(|sent| match Pin::new(sent).poll(cx) {
                Poll::Ready(outcome) => {
                    failed = failed.take().or(outcome.ok());
                    false
                },
                Poll::Pending => true,
            });
            if let Some(trouble) = failed {
                return Poll::Ready(Turn::Undelivered(trouble));
            }
            Poll::Pending
        })
        .await
    }
}

/// Who sends what a question got.
pub(crate) trait Back: Sync {
    /// Sends it, in the background, with the headers of the call that it belongs to.
    fn answer(&self, id: &[u8], spoken: Spoken, own: &Own);
}

/// The raw result or error that goes back for an answer.
pub(crate) enum Spoken {
    Result(Bytes),
    Error(i64, &'static str),
    /// The raw error of whoever was asked.
    Passed(Bytes),
}

impl Spoken {
    /// The message that goes back for the question with this raw id.
    pub(crate) fn message(self, id: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Result(raw) => splice::write_result(&mut out, id, &raw),
            Self::Error(code, message) => splice::write_error(&mut out, id, code, message),
            Self::Passed(raw) => splice::write_raw_error(&mut out, id, &raw),
        }
        out
    }
}

/// What a server gets that looks whether we are there.
pub(crate) fn pong() -> Spoken {
    Spoken::Result(Bytes::from_static(b"{}"))
}

/// What we say to a question that nobody can be asked.
pub(crate) const NOBODY_ANSWERS: &str = "nobody is there to answer this";

/// What a question gets that nobody can be asked.
pub(crate) fn refused(kind: QuestionKind) -> Spoken {
    match kind {
        QuestionKind::Elicitation => Spoken::Result(Bytes::from_static(br#"{"action":"cancel"}"#)),
        QuestionKind::Sampling | QuestionKind::Roots | QuestionKind::Other => {
            Spoken::Error(-32601, NOBODY_ANSWERS)
        },
    }
}

/// What a declined question gets: a person may decline, a missing feature is "method not found".
pub(crate) fn spoken(kind: QuestionKind, answer: Answer) -> Spoken {
    match (answer, kind) {
        (Answer::Result(raw), _) => Spoken::Result(raw),
        (Answer::Error(raw), _) => Spoken::Passed(raw),
        (Answer::Declined, QuestionKind::Elicitation) => {
            Spoken::Result(Bytes::from_static(br#"{"action":"decline"}"#))
        },
        (Answer::Declined, QuestionKind::Sampling | QuestionKind::Roots | QuestionKind::Other) => {
            Spoken::Error(-32601, "this client cannot answer that question")
        },
    }
}
