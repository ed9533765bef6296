//! The legacy driver over Streamable HTTP: a session id, and streams that resume. Speaks 2025-03-26
//! to 2025-11-25, and 2024-11-05 with servers that serve it on one endpoint.
//!
//! A session costs an id, a version and a counter: no task, no socket. A disconnect is no cancel in
//! this era, so a call that is dropped or times out sends `notifications/cancelled`; a stream that
//! breaks after an event with an id is resumed there.

use std::convert::Infallible;
use std::future::pending;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Diagnostic, Request};
use warmline_core::message::splice::{self, Edit};
use warmline_core::pool_key::Transport;
use warmline_core::protocol::headers;
use warmline_core::protocol::{meta, session_gone};

use crate::http::call_reader::{CallEnd, CallReader};
use crate::http::endpoint::{HttpResponse, RequestHeaders, SendFailure};
use crate::http::post::{MessagePoster, encode_cancelled, encode_notification};
use crate::http::response;
pub use crate::legacy::get_stream::StreamHoldOutcome;
use crate::legacy::get_stream::{GetStream, GetStreamWait};
use crate::listener::Listener;
use crate::listener::SourceSession;
use crate::server_facts::{ResumableSession, not_resumable};
use crate::session_state::{CallTimer, RequestIdGenerator, Retirement};
use crate::target::ClientProfile;
use crate::unsolicited::UnsolicitedDispatcher;
use warmline_platform::clock;

/// A legacy session over HTTP. It is small: a server may have very many of them.
#[derive(Debug)]
pub(crate) struct LegacyHttpSession {
    pub(crate) poster: MessagePoster,
    ids: RequestIdGenerator,
    get_stream_wait: Option<GetStreamWait>,
    pub(super) unsolicited: UnsolicitedDispatcher,
    /// Created for the first call or subscriber that needs it.
    pub(super) get_stream: OnceLock<Arc<GetStream>>,
    pub(crate) retirement: Retirement,
}

impl LegacyHttpSession {
    /// Resumes a session that was opened before. Nothing is sent.
    pub(crate) fn resume(
        headers: RequestHeaders,
        profile: &ClientProfile,
        resumed: &ResumableSession,
        unsolicited: UnsolicitedDispatcher,
    ) -> Result<Arc<Self>, Diagnostic> {
        let (facts, server) = (&resumed.facts, &headers.endpoint.server);
        if (facts.era, facts.transport) != (Era::Legacy, Transport::Http) {
            let why = "only sessions over Streamable HTTP of the legacy era live in their id";
            return Err(not_resumable(server, why));
        }
        let id = HeaderValue::from_str(&resumed.session_id)
            .ok()
            .filter(|id| headers::is_valid_session_id(id.as_bytes()))
            .ok_or_else(|| not_resumable(server, "its session id cannot be sent"))?;
        let headers = headers.with_version(facts.version).with_session_id(&id);
        let wait = Self::get_stream_wait(&headers, profile, GetStreamWait::SHORTEST);
        let ids = RequestIdGenerator::new();
        Ok(Self::from_parts(headers, ids, wait, unsolicited))
    }

    pub(crate) fn from_parts(
        headers: RequestHeaders,
        ids: RequestIdGenerator,
        get_stream_wait: Option<GetStreamWait>,
        unsolicited: UnsolicitedDispatcher,
    ) -> Arc<Self> {
        Arc::new(Self {
            poster: MessagePoster::new(headers),
            ids,
            get_stream_wait,
            unsolicited,
            get_stream: OnceLock::new(),
            retirement: Retirement::default(),
        })
    }

    /// Whether calls hold the GET stream as well, and wait so long for it: if we declared that we can
    /// answer server requests, and there is a session for them to come in.
    pub(crate) fn get_stream_wait(
        headers: &RequestHeaders,
        profile: &ClientProfile,
        wait: GetStreamWait,
    ) -> Option<GetStreamWait> {
        (headers.session_id().is_some() && profile.has_capabilities()).then_some(wait)
    }

    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request,
        listener: &dyn Listener,
    ) -> AttemptResult {
        let id = self.ids.next();
        let timer = CallTimer::start(request.deadlines);
        let body = encode_legacy_request(id, &request);
        let cancel = CancelGuard::new(&self.poster, id, &request, listener);
        // Headers are written once there is a connection.
        let mark_issued = |_: &mut _| cancel.is_issued.store(true, Ordering::Relaxed);
        let mut call = CallReader::new(id, timer, listener);
        call.extra_headers = request.headers.to_vec();
        call.unsolicited = Some(&self.unsolicited);
        call.source = SourceSession::from_ref(&**self);
        call.version = self.poster.headers.version;
        call.reply_sink = Some(self);
        let (headers, kind) = (&self.poster.headers, Method::POST);
        let sent = if let Some(wait) = self.get_stream_wait {
            let registering = self.register_on_get_stream(id, listener, wait);
            let Ok(pending) = clock::timeout_at(timer.next_deadline(), registering).await else {
                return self.unsent_timeout(request);
            };
            call.pending = Some(pending);
            // The reader keeps the deadlines: it knows the open server requests.
            let by = timer.total_deadline;
            let sent = headers.send(kind, &request.headers, body, by, mark_issued);
            Box::pin(call.next_in_order(sent, true)).await
        } else {
            let by = timer.next_deadline();
            let sent = headers.send(kind, &request.headers, body, by, mark_issued);
            ControlFlow::Continue(sent.await)
        };
        let ending = match sent {
            ControlFlow::Continue(Ok(response)) => {
                self.read_response(response, request, &mut call).await
            },
            ControlFlow::Continue(Err(lost)) => response::ending_of_send_failure(lost, request),
            // The wait for the GET stream ended before there was a connection.
            ControlFlow::Break(CallEnd::TimedOut) if !cancel.is_issued.load(Ordering::Relaxed) => {
                self.unsent_timeout(request)
            },
            ControlFlow::Break(end) => {
                response::ending_of_call(self.sent_request(id), end, request, &call)
            },
        };
        cancel.finish(&ending, call.was_reply_refused);
        ending
    }

    async fn read_response(
        self: &Arc<Self>,
        arrival: HttpResponse,
        request: Request,
        call: &mut CallReader<'_>,
    ) -> AttemptResult {
        if arrival.is_event_stream() {
            // On the heap, so that the usual call, which has no stream, stays small.
            return Box::pin(self.follow_stream(arrival, request, call)).await;
        }
        let sent = self.sent_request(call.id);
        let has_get_stream = || self.get_stream.get().is_some_and(|stream| stream.is_open());
        if arrival.status == StatusCode::ACCEPTED && has_get_stream() {
            arrival.drain();
            // The reply can only come on the GET stream.
            let ControlFlow::Break(end) = Box::pin(call.next(pending::<Infallible>())).await;
            return response::ending_of_call(sent, end, request, call);
        }
        let by = call.timer.next_deadline();
        let whole = response::CompleteResponse::read(sent, arrival, by, call.listener).await;
        let Some(batch) = whole.batch(call.version) else {
            return whole.into_ending(sent, request);
        };
        // Read as if its messages had come on a stream.
        match call.handle_text(batch) {
            Some(reply) => response::ending_of_streamed_reply(sent, &reply, request, call),
            None => {
                let server = &self.poster.headers.endpoint.server;
                let what = format!("the batch of `{server}` has no answer");
                Diagnostic::new(Reason::BadReply, what).into_unknown()
            },
        }
    }

    fn unsent_timeout(&self, request: Request) -> AttemptResult {
        let lost = self.poster.headers.endpoint.timeout_failure(false);
        response::ending_of_send_failure(lost, request)
    }

    pub(super) fn sent_request(&self, id: u64) -> response::SentRequest<'_> {
        response::SentRequest {
            endpoint: &self.poster.headers.endpoint,
            era: Era::Legacy,
            has_session: self.poster.headers.session_id().is_some(),
            id,
            retirement: &self.retirement,
        }
    }

    /// Sends a notification; `params` is a raw JSON object.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), SendFailure> {
        let notice = encode_notification(method, Some(params));
        self.poster.post_message(notice).await
    }

    /// Ends the session at the server. The error says why the server may still hold it.
    pub(crate) async fn try_close(&self) -> Result<(), Diagnostic> {
        // Retired first, so that no holder opens another GET stream.
        self.retirement.set(Reason::Closed);
        if let Some(stream) = self.get_stream.get() {
            stream.wait_until_settled().await;
            stream.close();
        }
        self.poster.shutdown();
        self.poster.flush_cancels().await;
        if self.poster.headers.session_id().is_none() {
            return Ok(());
        }
        let by = clock::after(Duration::from_secs(2));
        let (headers, kind) = (&self.poster.headers, Method::DELETE);
        let arrival = headers.send(kind, &[], Bytes::new(), by, |_| {}).await;
        let arrival = arrival.map_err(|lost| lost.diagnostic)?;
        let status = arrival.status.as_u16();
        arrival.read_body(64 << 10, by, &()).await.ok();
        if session_gone::is_session_deleted(status) {
            return Ok(());
        }
        let server = &headers.endpoint.server;
        let what = format!("`{server}` answered {status} when it was asked to end a session");
        Err(Diagnostic::new(Reason::ServerError, what))
    }
}

impl Drop for LegacyHttpSession {
    fn drop(&mut self) {
        if let Some(stream) = self.get_stream.get() {
            stream.close();
        }
    }
}

/// Cancels a call when dropped, if anything of it may have left.
pub(crate) struct CancelGuard<'a> {
    poster: &'a MessagePoster,
    id: u64,
    listener: &'a dyn Listener,
    extra_headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether anything of the request may have left; else there is nothing to cancel.
    pub(crate) is_issued: AtomicBool,
}

impl<'a> CancelGuard<'a> {
    pub(crate) fn new(
        poster: &'a MessagePoster,
        id: u64,
        request: &Request,
        listener: &'a dyn Listener,
    ) -> Self {
        Self {
            poster,
            id,
            listener,
            extra_headers: request.headers.to_vec(),
            is_issued: AtomicBool::new(false),
        }
    }

    /// The call has ended. The server may still run one that timed out, or wait for a reply that it
    /// did not take.
    pub(crate) fn finish(self, ending: &AttemptResult, was_reply_refused: bool) {
        let is_timeout = matches!(ending, AttemptResult::Failed(failure) if failure.diagnostic.reason == Reason::Timeout);
        let is_over = !is_timeout && !was_reply_refused;
        self.is_issued.fetch_and(!is_over, Ordering::Relaxed);
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if self.is_issued.load(Ordering::Relaxed) {
            let notice = encode_cancelled(self.id, self.listener);
            let headers = std::mem::take(&mut self.extra_headers);
            self.poster.spawn_cancel(notice, headers);
        }
    }
}

/// A legacy request. It has a progress token, so that long tools can report.
pub(crate) fn encode_legacy_request(id: u64, request: &Request) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let mut body = Vec::with_capacity(128 + request.params.raw().len());
    let meta = [Edit::Set(
        meta::PROGRESS_TOKEN,
        digits.format(id).as_bytes(),
    )];
    splice::write_request(&mut body, id, &request.method, &request.params, &[], &meta);
    body.into()
}
