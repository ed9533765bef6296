//! The voice of a legacy session over HTTP: what is posted and only acknowledged.
//!
//! Used by: [`legacy`](super::legacy) and [`two_endpoints`](super::two_endpoints).  Answers to the
//! server's questions, notifications, and the notice that nobody waits for a call any more. Each
//! is a request of its own, and carries the headers of the call it belongs to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::sync::oneshot;
use warmline_core::exchange::{Request, Trouble};

use super::answer;
use super::answers::{Answers, Posting};
use super::http::Lost;
use super::letterhead::{Letterhead, Own};
use super::listener::{self, Back, Listener, Spoken, Turn};
use super::stream::{Asking, Watch};
use super::way::Way;
use crate::clock;

/// What a session says besides its calls.
#[derive(Debug)]
pub(crate) struct Voice {
    pub(crate) head: Letterhead,
    /// Made when the first answer is sent: most sessions are never asked.
    answers: OnceLock<Box<Answers>>,
}

impl Voice {
    pub(crate) fn new(head: Letterhead) -> Self {
        Self {
            head,
            answers: OnceLock::new(),
        }
    }

    /// The way to the server.
    pub(crate) fn way(&self) -> &Way {
        &self.head.way
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &Arc<str> {
        self.head.way.server()
    }

    /// Posts a message and waits until it is acknowledged.
    pub(crate) async fn tell(&self, body: Bytes) -> Result<(), Lost> {
        answer::deliver(self.head.clone(), Vec::new(), body).await
    }

    /// Passes a question on to the call's listener, or answers what needs nobody.
    pub(crate) fn hear_question(&self, watch: &mut Watch<'_>, asking: Asking) {
        if asking.method != "ping" {
            return watch.ask(asking);
        }
        self.answer(&asking.id, listener::pong(), &watch.own);
    }

    /// Sends what a question got, in the background.
    pub(crate) fn answer(&self, id: &[u8], spoken: Spoken, own: &Own) {
        drop(self.send(id, spoken, own));
    }

    /// The same for a call, which hears of it where the server does not take it: then this is its
    /// trouble, because the server would wait for ever.
    pub(crate) fn heed(&self, watch: &mut Watch<'_>, turn: Turn) -> Option<Trouble> {
        match turn {
            Turn::Answered(id, kind, answer) => {
                watch.limits.sign_of_life();
                let undelivered = self.send(&id, listener::spoken(kind, answer), &watch.own);
                watch.open.sent(undelivered);
                None
            },
            Turn::Undelivered(trouble) => {
                let notice = answer::cancelled(watch.id, watch.listener);
                self.cancel(notice, watch.own.clone());
                Some(answer::unanswered(self.server(), trouble))
            },
        }
    }

    fn send(&self, id: &[u8], spoken: Spoken, own: &Own) -> oneshot::Receiver<Trouble> {
        self.answers.get_or_init(Box::default).send(Posting {
            head: self.head.clone(),
            own: own.to_vec(),
            body: spoken.message(id).into(),
        })
    }

    /// Tells the server that nobody waits for a call any more, in the background.
    fn cancel(&self, notice: Bytes, own: Vec<(HeaderName, HeaderValue)>) {
        let server = Arc::clone(self.server());
        let post = answer::post(self.head.clone(), own, notice);
        let on_its_way = self.answers.get_or_init(Box::default).cancel();
        clock::spawn_if_running("cancel a call", async move {
            if let Err(trouble) = post.await {
                tracing::debug!(%server, %trouble, "cancel not heard");
            }
            drop(on_its_way);
        });
    }

    /// A notice for a call, to be dropped when nobody waits for it any more.
    pub(crate) fn cancel_notice<'a>(
        &'a self,
        id: u64,
        request: &Request,
        listener: &'a dyn Listener,
    ) -> CancelNotice<'a> {
        CancelNotice {
            voice: Some(self),
            id,
            listener,
            own: request.headers().to_vec(),
            issued: AtomicBool::new(false),
        }
    }

    /// Waits until the server has heard of every call that was cancelled, for a short time.
    pub(crate) async fn cancels_heard(&self) {
        if let Some(answers) = self.answers.get() {
            answers.cancels_heard().await;
        }
    }

    /// Ends the answers that are still on their way; from now on there are none.
    pub(crate) fn end(&self) {
        self.answers.get_or_init(Box::default).end();
    }
}

impl Back for Voice {
    fn answer(&self, id: &[u8], spoken: Spoken, own: &Own) {
        Self::answer(self, id, spoken, own);
    }
}

/// Tells the server that nobody waits for a call any more, when dropped armed.
pub(crate) struct CancelNotice<'a> {
    voice: Option<&'a Voice>,
    id: u64,
    /// Who may know the words of whoever gave it up.
    listener: &'a dyn Listener,
    own: Vec<(HeaderName, HeaderValue)>,
    /// Whether anything of the request may have left us; else there is nothing to cancel.
    pub(crate) issued: AtomicBool,
}

impl CancelNotice<'_> {
    /// The call came to its end: there is nothing to tell.
    pub(crate) fn disarm(&mut self) {
        self.voice = None;
    }
}

impl Drop for CancelNotice<'_> {
    fn drop(&mut self) {
        let Some(voice) = self.voice else { return };
        if !self.issued.load(Ordering::Relaxed) {
            return;
        }
        let notice = answer::cancelled(self.id, self.listener);
        voice.cancel(notice, std::mem::take(&mut self.own));
    }
}
