//! Notices: what a server tells that belongs to no call, and who hears it.
//!
//! Told by: whoever reads a server's words (a call's stream, a standing stream, a child's output),
//! never under a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use warmline_core::exchange::{Question, QuestionKind};
use warmline_core::key::Digest;
use warmline_core::protocol::envelope::{Kind, Message};
use warmline_core::protocol::params::unsaid;

use super::aside::Aside;
use super::listener::{self, Asked, Roomy, Spoken};
use super::whose::Whose;
use crate::clock;

/// So long somebody may take to answer a question that no call waits for: as long as a call may take
/// that is asked, where nobody says otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(3600);

/// Hears what a server tells that belongs to no call: a list changed, a resource was updated, a
/// log line between calls.
///
/// Called by whoever reads the server's words, which waits meanwhile: it must be quick. A list
/// that changed and a resource that was updated are told here also when they come in the middle
/// of a call; its listener hears them too, unless its caller hears them here.
pub trait Notices: Send + Sync + fmt::Debug {
    /// Something was told; `params` is a raw JSON object.
    fn notice(&self, method: &str, params: &[u8]);

    /// The same for what concerns everybody, by the session that says it. Says whose calls need not
    /// tell it again.
    fn for_all(&self, method: &str, params: &[u8], by: Speaker) -> Vec<Whose> {
        let _ = by;
        self.notice(method, params);
        self.whose().into_iter().collect()
    }

    /// Whose calls are those of the one who hears it here. None: nobody's.
    fn whose(&self) -> Option<Whose> {
        None
    }

    /// Whether anybody else than this caller hears it here.
    fn is_heard_beside(&self, caller: Whose) -> bool {
        self.whose() != Some(caller)
    }

    /// The client session that it is for, by its name. Of clients that share a session only those
    /// hear of a resource that asked for it. None: it stands for all of its identity.
    fn client(&self) -> Option<Digest> {
        None
    }

    /// How often whoever hears it asked for the list that a notice of this method says has changed:
    /// what several sessions tell of one change is told once to who has not asked since. None:
    /// that is not known, and all of it is told.
    fn asked_for_list(&self, method: &str) -> Option<u32> {
        let _ = method;
        None
    }

    /// Whoever hears it has yet to read much of it: until this ends no more is read for it, and it
    /// ends soon, as others wait too. None where it keeps up.
    fn behind(&self) -> Option<Roomy<'_>> {
        None
    }

    /// Something is asked that belongs to no call. None: nobody here can answer it.
    fn question(&self, question: Question) -> Option<Asked<'static>> {
        drop(question);
        None
    }

    /// Something is asked that is of one of several calls of this caller. None: they are not heard
    /// here, or cannot answer it.
    fn question_of(&self, whose: Whose, question: Question) -> Option<Asked<'static>> {
        let is_theirs = self.whose() == Some(whose);
        is_theirs.then(|| self.question(question)).flatten()
    }

    /// Something was asked that may be of calls of several callers: it was refused.
    fn nobodys(&self, kind: QuestionKind) {
        let _ = kind;
    }
}

/// Which session says something, for as long as it lives; by default none that anybody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speaker(usize);

impl Speaker {
    /// The session that this is of alone.
    pub fn of<T: ?Sized>(session: &T) -> Self {
        Self(std::ptr::from_ref(session).cast::<()>().addr())
    }
}

/// Whom a notice concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// Everybody, whatever it came with.
    Everybody,
    /// The call on whose own stream it came, else everybody: whoever knows nothing of it ignores it.
    Somebody,
    /// The call it came with, else whoever hears the rest.
    SomeCall,
    /// The call that it names, and nobody else.
    ItsCall,
}

/// Whom a message concerns, if it is a notice.
pub(crate) fn concerns(message: &Message) -> Option<Concerns> {
    if message.kind() != Kind::Notification {
        return None;
    }
    Some(concerns_of(message.method().unwrap_or_default()))
}

/// Whether a notice of this method can concern all who share a session, whoever they are.
pub(crate) fn concerns_all(method: &str) -> bool {
    match concerns_of(method) {
        Concerns::Everybody | Concerns::Somebody => true,
        Concerns::SomeCall | Concerns::ItsCall => false,
    }
}

/// Whom a notice of this method concerns.
fn concerns_of(method: &str) -> Concerns {
    match method {
        "notifications/tools/list_changed"
        | "notifications/resources/list_changed"
        | "notifications/prompts/list_changed"
        | "notifications/resources/updated" => Concerns::Everybody,
        "notifications/elicitation/complete" => Concerns::Somebody,
        "notifications/progress" | "notifications/cancelled" => Concerns::ItsCall,
        _ => Concerns::SomeCall,
    }
}

/// What became of a message on the stream of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Its caller has yet to hear it.
    ForItsCaller,
    /// Everybody whom it concerns was told.
    Told,
}

/// A question that belongs to no call: for whoever is there besides, else it is refused.
#[derive(Debug)]
pub(crate) struct Stray {
    /// Its raw id.
    pub(crate) id: Bytes,
    pub(crate) question: Question,
}

impl Stray {
    pub(crate) fn of(message: &Message) -> Self {
        let params = message.params().unwrap_or_else(unsaid);
        Self {
            id: Bytes::copy_from_slice(message.raw_id().unwrap_or(b"null")),
            question: Question::new(message.method().unwrap_or_default(), params),
        }
    }

    /// What it gets that nobody can be asked.
    fn refused(&self) -> Spoken {
        listener::refused(self.question.kind)
    }

    /// Waits for its answer, in the background. What the server takes back gets nothing.
    fn wait_for(
        self,
        asked: Asked<'static>,
        aside: &Arc<Aside>,
        answer: impl FnOnce(&[u8], Spoken) + Send + 'static,
    ) {
        let Some(open) = aside.open(self.id.clone()) else {
            return answer(&self.id, self.refused());
        };
        clock::spawn_if_running("ask aside", async move {
            let given = tokio::select! {
                given = clock::timeout(ANSWER_WITHIN, asked) => given,
                () = open.taken_back() => return,
            };
            let spoken = match given {
                Ok(given) => listener::spoken(self.question.kind, given),
                Err(_) => self.refused(),
            };
            answer(&self.id, spoken);
        });
    }
}

/// Who hears the notices of a session; mostly nobody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hearing(Option<Arc<dyn Notices>>);

impl Hearing {
    pub(crate) fn new(notices: Option<Arc<dyn Notices>>) -> Self {
        Self(notices)
    }

    /// Tells a notice.
    pub(crate) fn tell(&self, message: &Message) {
        let (Some(notices), Some(method)) = (&self.0, message.method()) else {
            return;
        };
        let params = message.params().unwrap_or_else(unsaid);
        notices.notice(method, &params);
    }

    /// Tells what concerns everybody, and says whose calls need not tell it again.
    pub(crate) fn tell_all(&self, message: &Message, by: Speaker) -> Vec<Whose> {
        let (Some(notices), Some(method)) = (&self.0, message.method()) else {
            return Vec::new();
        };
        let params = message.params().unwrap_or_else(unsaid);
        notices.for_all(method, &params, by)
    }

    /// Whether the caller of the only call is the only one who hears what is read. Who waits for
    /// that call holds up nobody then.
    pub(crate) fn is_alone(&self, caller: Option<Whose>) -> bool {
        let others = |caller| self.0.as_ref().is_some_and(|it| it.is_heard_beside(caller));
        caller.is_some_and(|caller| !others(caller))
    }

    /// Waits for those who hear it where they are behind, for a while.
    pub(crate) async fn keep_pace(&self) {
        if let Some(behind) = self.behind() {
            behind.await;
        }
    }

    /// Ends when those who hear it keep up; none where they do.
    pub(crate) fn behind(&self) -> Option<Roomy<'_>> {
        self.0.as_ref()?.behind()
    }

    /// Tells what came on the stream of a call to those others whom it concerns.
    pub(crate) fn tell_beside(
        &self,
        message: &Message,
        by: Speaker,
        caller: Option<Whose>,
    ) -> Beside {
        let is_for_others = match concerns(message) {
            Some(Concerns::Everybody) => true,
            // Nobody listens to the call.
            Some(Concerns::Somebody | Concerns::SomeCall) => caller.is_none(),
            Some(Concerns::ItsCall) | None => false,
        };
        if !is_for_others {
            return Beside::ForItsCaller;
        }
        let told = self.tell_all(message, by);
        match caller {
            Some(caller) if !told.contains(&caller) => Beside::ForItsCaller,
            Some(_) | None => Beside::Told,
        }
    }

    /// Tells that a question was refused because it is nobody's, and gives what it gets.
    pub(crate) fn refuse(&self, kind: QuestionKind) -> Spoken {
        if let Some(notices) = &self.0 {
            notices.nobodys(kind);
        }
        listener::refused(kind)
    }

    /// Puts a question that belongs to no call to whoever is there, and gives what it gets to
    /// `answer`: at once where nobody is, else when they have answered. What the server takes back
    /// gets nothing.
    pub(crate) fn ask(
        &self,
        aside: &Arc<Aside>,
        stray: Stray,
        answer: impl FnOnce(&[u8], Spoken) + Send + 'static,
    ) {
        let notices = self.0.as_ref();
        match notices.and_then(|it| it.question(stray.question.clone())) {
            Some(asked) => stray.wait_for(asked, aside, answer),
            None => answer(&stray.id, stray.refused()),
        }
    }

    /// Puts a question of one of several calls of a caller to that caller: where they are heard
    /// besides their calls, so that it does not end with a call that it may not be of, else by one
    /// of them, which says whether it can.
    pub(crate) fn ask_caller(
        &self,
        whose: Whose,
        aside: &Arc<Aside>,
        stray: Stray,
        by_a_call: impl FnOnce() -> bool,
        answer: impl FnOnce(&[u8], Spoken) + Send + 'static,
    ) {
        let notices = self.0.as_ref();
        match notices.and_then(|it| it.question_of(whose, stray.question.clone())) {
            Some(asked) => stray.wait_for(asked, aside, answer),
            None if by_a_call() => {},
            None => answer(&stray.id, stray.refused()),
        }
    }
}
