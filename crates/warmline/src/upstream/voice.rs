//! The voice of a legacy session over HTTP: what is posted and only acknowledged.
//!
//! Used by: [`legacy`](super::legacy) and [`two_endpoints`](super::two_endpoints).  Answers to the
//! server's questions, notifications, and the notice that nobody waits for a call any more. Each
//! is a request of its own, and carries the headers of the call it belongs to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use warmline_core::exchange::{QuestionKind, Request, Trouble};
use warmline_core::protocol::splice;

use super::answer;
use super::answers::Answers;
use super::http::{Endpoint, with_headers};
use super::listener::Spoken;
use super::pipes::notification;
use super::stream::{Asking, Watch};
use crate::clock;

/// Headers of one call alone.
type Own = [(HeaderName, HeaderValue)];

/// Where a session's messages are posted, and what all of them carry.
#[derive(Debug)]
pub(crate) struct Voice {
    pub(crate) endpoint: Endpoint,
    /// Host, accept, the server's headers, session id, version.
    pub(crate) base: HeaderMap,
    /// How long the server may take to acknowledge.
    limit: Duration,
    answers: Answers,
}

impl Voice {
    pub(crate) fn new(endpoint: Endpoint, base: HeaderMap, limit: Duration) -> Self {
        Self {
            endpoint,
            base,
            limit,
            answers: Answers::default(),
        }
    }

    /// The headers of a call.
    pub(crate) fn headers(&self, own: &Own) -> HeaderMap {
        with_headers(self.base.clone(), own)
    }

    /// Posts a message and waits until it is acknowledged.
    pub(crate) async fn tell(&self, body: Bytes, own: &Own) -> Result<(), Trouble> {
        answer::post(self.endpoint.clone(), self.headers(own), body, self.limit).await
    }

    /// Passes a question on to the call's listener, or answers what needs nobody.
    pub(crate) fn hear_question(&self, watch: &mut Watch<'_>, asking: Asking) {
        let spoken = match QuestionKind::of(&asking.method) {
            Some(kind) => return watch.ask(kind, asking),
            None if asking.method == "ping" => Spoken::Result(Bytes::from_static(b"{}")),
            None => Spoken::Error(-32601, "method not found"),
        };
        self.answer(&asking.id, spoken, &watch.own);
    }

    /// Sends what a question got, in the background.
    pub(crate) fn answer(&self, id: &[u8], spoken: Spoken, own: &Own) {
        let mut body = Vec::new();
        match spoken {
            Spoken::Result(raw) => splice::write_result(&mut body, id, &raw),
            Spoken::Error(code, message) => splice::write_error(&mut body, id, code, message),
        }
        let post = answer::post(
            self.endpoint.clone(),
            self.headers(own),
            body.into(),
            self.limit,
        );
        self.answers.send(Arc::clone(&self.endpoint.server), post);
    }

    /// A notice for a call, to be dropped when nobody waits for it any more.
    pub(crate) fn cancel_notice(&self, id: u64, request: &Request) -> CancelNotice<'_> {
        CancelNotice {
            voice: Some(self),
            id,
            own: request.headers().to_vec(),
            issued: AtomicBool::new(false),
        }
    }

    /// Ends the answers that are still on their way.
    pub(crate) fn end(&self) {
        self.answers.end();
    }
}

/// Tells the server that nobody waits for a call any more, when dropped armed.
pub(crate) struct CancelNotice<'a> {
    voice: Option<&'a Voice>,
    id: u64,
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
        let server = Arc::clone(&voice.endpoint.server);
        let params = answer::cancelled(self.id);
        let notice = notification("notifications/cancelled", Some(params.as_bytes()));
        let headers = voice.headers(&self.own);
        let post = answer::post(voice.endpoint.clone(), headers, notice, voice.limit);
        clock::spawn_if_running("cancel a call", async move {
            if let Err(trouble) = post.await {
                tracing::debug!(%server, %trouble, "cancel not heard");
            }
        });
    }
}
