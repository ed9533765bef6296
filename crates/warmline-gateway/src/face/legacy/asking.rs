//! What comes down to a client: news, and questions that it answers in a message of its own.
//!
//! Told by: the engine, on a call of the client or on no call at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use warmline::Listener;
use warmline::core::exchange::{Answer, News, Question, QuestionKind};
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::params::are_unsaid;
use warmline::core::protocol::splice::{self, Edit};
use warmline::upstream::{Asked, Notices, Roomy, Whose};

use super::accepts;
use super::client::{Client, Present};
use crate::door::replies::CallRoom;
use crate::face::Visit;
use crate::flow::Accepts;
use crate::lane::Lane;

/// More questions than these are not put to one client at a time.
const MAX_OPEN: usize = 64;

/// The questions that a client has not answered yet.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Asking>);

#[derive(Debug, Default)]
struct Asking {
    open: Vec<OneAsked>,
    /// Whether the client session is over: nobody answers any more.
    is_over: bool,
}

#[derive(Debug)]
struct OneAsked {
    number: u64,
    of: Of,
    answer: oneshot::Sender<Answer>,
}

/// What a question belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// A call, which waits for its answer.
    Call,
    /// No call that is known: any call of the client may wait for it.
    NoCall,
}

impl Questions {
    /// Notes a question; none where too many are open.
    fn open(&self, number: u64, of: Of) -> Option<oneshot::Receiver<Answer>> {
        let mut asking = self.0.lock();
        if asking.is_over || asking.open.len() >= MAX_OPEN {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        asking.open.push(OneAsked { number, of, answer });
        Some(answered)
    }

    /// The client session is over: whoever waits for an answer hears that none comes.
    pub(super) fn end(&self) {
        let mut asking = self.0.lock();
        asking.is_over = true;
        let left = std::mem::take(&mut asking.open);
        drop(asking);
        drop(left);
    }

    fn close(&self, number: u64) -> Option<oneshot::Sender<Answer>> {
        let open = &mut self.0.lock().open;
        let place = open.iter().position(|asked| asked.number == number)?;
        Some(open.swap_remove(place).answer)
    }

    /// Whether something is asked that any call may wait for.
    fn any_of_no_call(&self) -> bool {
        let asking = self.0.lock();
        asking.open.iter().any(|asked| asked.of == Of::NoCall)
    }

    /// The client answered. What nobody asked is nothing to anybody.
    pub(super) fn answered(&self, message: &Message) {
        let number = message.raw_id().map(serde_json::from_slice::<u64>);
        let Some(Ok(number)) = number else {
            return;
        };
        let Some(asked) = self.close(number) else {
            return;
        };
        let answer = match message.kind() {
            Kind::Result => message.result().map(Answer::Result),
            Kind::Error => message.error().map(Answer::Error),
            Kind::Request | Kind::Notification => None,
        };
        // The call may be over by now; then nobody wants to know.
        asked.send(answer.unwrap_or(Answer::Declined)).ok();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().open.is_empty()
    }
}

/// Puts a question to a client, on this lane.
fn ask(client: &Arc<Client>, question: &Question, of: Of, lane: &Arc<Lane>) -> Asked<'static> {
    let kind = question.kind;
    if !client.can_answer(kind) {
        return asked_nobody(kind);
    }
    let number = client.new_number();
    let Some(answered) = client.questions.open(number, of) else {
        return asked_nobody(kind);
    };
    let open = OpenQuestion {
        client: Arc::clone(client),
        lane: Arc::clone(lane),
        number,
    };
    if !lane.ask(request(number, &question.method, &question.params)) {
        // The client left, and cannot come back for it.
        return asked_nobody(kind);
    }
    // It waits also where the stream that it was asked on closes. In this era to leave is not to
    // give up: a client comes back for what it missed, or answers what it has read without a
    // stream, and one that polls leaves after each question. What ends it: the answer, a cancel, the
    // end of the client session, or the limit of the whole call, which runs while it waits.
    Box::pin(async move {
        let answer = answered.await.unwrap_or_else(|_| unanswered(kind));
        drop(open);
        answer
    })
}

/// A question that is put to nobody.
fn asked_nobody(kind: QuestionKind) -> Asked<'static> {
    Box::pin(std::future::ready(unanswered(kind)))
}

/// What a question gets whose client is gone, or cannot be asked: nobody has decided anything.
fn unanswered(kind: QuestionKind) -> Answer {
    match kind {
        QuestionKind::Elicitation => Answer::Result(Bytes::from_static(br#"{"action":"cancel"}"#)),
        QuestionKind::Sampling | QuestionKind::Roots | QuestionKind::Other => Answer::Declined,
    }
}

/// A question that waits for its answer. Whoever does not want to know any more drops it, and the
/// client is told so.
struct OpenQuestion {
    client: Arc<Client>,
    lane: Arc<Lane>,
    number: u64,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if self.client.questions.close(self.number).is_some() {
            let params = format!("{{\"requestId\":{}}}", self.number);
            let notice = notification("notifications/cancelled", params.as_bytes());
            self.lane.tell(notice);
        }
    }
}

/// Hears what comes down during one call of a client.
pub(super) struct Ear {
    client: Arc<Client>,
    lane: Arc<Lane>,
    /// Where the client gives the call up: in a batch it has a lane of its own for that.
    given_up_on: Option<Arc<Lane>>,
    /// The client's own progress token, raw.
    token: Option<Bytes>,
    /// What the client reads of its response.
    accepts: Option<Accepts>,
    /// What the reply takes up while it is read.
    room: CallRoom,
}

impl Ear {
    pub(super) fn new(
        visit: &Visit<'_>,
        client: &Arc<Client>,
        lane: &Arc<Lane>,
        token: Option<Bytes>,
    ) -> Self {
        Self {
            client: Arc::clone(client),
            lane: Arc::clone(lane),
            given_up_on: None,
            token,
            accepts: accepts(visit.head),
            room: CallRoom::new(visit.reply_room()),
        }
    }

    /// The same for a call that its client can give up.
    pub(super) fn of(mut self, call: Option<&Present>) -> Self {
        self.given_up_on = call.map(|call| Arc::clone(call.lane()));
        self
    }

    /// Where the client can be asked: on the stream of its call or, where it reads no stream there,
    /// on the one that stands.
    fn asked_on(&self) -> Option<Arc<Lane>> {
        match self.accepts {
            Some(Accepts::Json) => self.client.standing_lane(),
            Some(Accepts::Both | Accepts::Events) | None => Some(Arc::clone(&self.lane)),
        }
    }
}

impl Listener for Ear {
    fn news(&self, news: News) {
        let message = match news {
            News::Progress(params) => {
                let Some(token) = &self.token else { return };
                let mut named = Vec::with_capacity(params.len() + token.len());
                let edits = [Edit::Set("progressToken", token)];
                if splice::edit_object(&params, &edits, &mut named).is_err() {
                    return;
                }
                notification("notifications/progress", &named)
            },
            News::Log(params) if !self.client.wants_line(&params) => return,
            News::Log(params) => notification("notifications/message", &params),
            News::Other(method, params) => notification(&method, &params),
        };
        self.lane.tell(message);
    }

    fn question(&self, question: Question) -> Asked<'_> {
        match self.asked_on() {
            Some(lane) => ask(&self.client, &question, Of::Call, &lane),
            None => asked_nobody(question.kind),
        }
    }

    fn whose(&self) -> Option<Whose> {
        Some(Whose::of(&*self.client))
    }

    fn is_asked(&self) -> bool {
        self.client.questions.any_of_no_call()
    }

    fn client(&self) -> Option<Digest> {
        self.client.name()
    }

    fn room(&self, bytes: usize) -> Option<Roomy<'_>> {
        self.room.wait(bytes)
    }

    fn parting_words(&self) -> Option<Bytes> {
        self.given_up_on.as_ref()?.parting_words()
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.lane.behind()
    }

    fn missed(&self, notices: u64) {
        self.lane.missed(notices);
    }

    fn stream_begun(&self) {
        self.lane.begin();
    }

    fn stream_paused(&self, come_back_after: Duration) {
        self.lane.pause(come_back_after);
    }
}

/// Hears what belongs to no call, for a client with a standing stream.
#[derive(Debug)]
pub(super) struct StandingEar {
    client: Arc<Client>,
    lane: Arc<Lane>,
}

impl StandingEar {
    pub(super) fn new(client: &Arc<Client>, lane: &Arc<Lane>) -> Self {
        Self {
            client: Arc::clone(client),
            lane: Arc::clone(lane),
        }
    }
}

impl Notices for StandingEar {
    fn client(&self) -> Option<Digest> {
        self.client.name()
    }

    fn notice(&self, method: &str, params: &[u8]) {
        if method == "notifications/message" && !self.client.wants_line(params) {
            return;
        }
        self.lane.tell(notification(method, params));
    }

    fn whose(&self) -> Option<Whose> {
        Some(Whose::of(&*self.client))
    }

    fn asked_for_list(&self, method: &str) -> Option<u32> {
        self.client.lists.asked(method)
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.lane.behind_for_a_while()
    }

    fn question(&self, question: Question) -> Option<Asked<'static>> {
        let can = self.client.can_answer(question.kind);
        can.then(|| ask(&self.client, &question, Of::NoCall, &self.lane))
    }
}

fn notification(method: &str, params: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(64 + params.len());
    splice::write_notification(&mut out, method, Some(params));
    out.into()
}

fn request(id: u64, method: &str, params: &[u8]) -> Bytes {
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"#).into_bytes();
    splice::write_text(&mut out, method);
    if !are_unsaid(params) {
        out.extend_from_slice(br#","params":"#);
        out.extend_from_slice(params);
    }
    out.push(b'}');
    out.into()
}
