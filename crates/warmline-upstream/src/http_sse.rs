//! The legacy driver over HTTP+SSE (2024-11-05): one stream down, a second endpoint up.
//!
//! The session is the stream: it ends with the stream, and nothing resumes it. One task reads it; the
//! callers post their requests. A POST is only acknowledged (202); its reply comes on the stream,
//! sometimes before the acknowledgement.

use std::convert::Infallible;
use std::future::pending;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::Method;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use url::Url;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Diagnostic, Request};
use warmline_core::message::sse::SseParser;

use crate::backpressure::ReadBudget;
use crate::http::call_reader::{CallEnd, CallReader};
use crate::http::endpoint::{Endpoint, HttpResponse, RequestHeaders, SendFailure};
use crate::http::post::{MessagePoster, encode_notification};
use crate::http::response;
use crate::legacy::session::{CancelGuard, StreamHoldOutcome, encode_legacy_request};
use crate::listener::SourceSession;
use crate::listener::{Listener, ReplySink as _};
use crate::pending::{PendingKind, PendingRequests, StreamLayout, TooManyStrayReplies};
use crate::session_state::{CallTimer, RequestIdGenerator, Retirement};
use crate::unsolicited::UnsolicitedDispatcher;
use warmline_platform::clock;

#[derive(Debug)]
pub(crate) struct HttpSseSession {
    pub(crate) shared: Arc<HttpSseShared>,
    pending: Arc<PendingRequests>,
    pub(crate) ids: RequestIdGenerator,
    reader: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct HttpSseShared {
    pub(crate) poster: MessagePoster,
    pub(crate) retirement: Retirement,
    pub(crate) version: OnceLock<Version>,
    stream_ended: Notify,
}

impl HttpSseSession {
    /// Opens the stream and waits for the `endpoint` event; none if there is no such stream.
    pub(crate) async fn connect(
        mut head: RequestHeaders,
        url: &Url,
        hearing: UnsolicitedDispatcher,
    ) -> Option<Result<Self, Diagnostic>> {
        let by = clock::after(head.endpoint.timeouts.handshake);
        let sent = head.send(Method::GET, &[], Bytes::new(), by, |_| {});
        let mut stream = sent.await.ok().filter(HttpResponse::is_event_stream)?;
        let mut parser = SseParser::new(head.endpoint.size_limits.event);
        let place = clock::timeout_at(by, read_endpoint_event(&mut stream, &mut parser))
            .await
            .ok()??;
        match resolve_post_endpoint(&head.endpoint, url, &place) {
            Ok(endpoint) => head.endpoint = Arc::new(endpoint),
            Err(diagnostic) => return Some(Err(diagnostic)),
        }
        let up = Arc::new(HttpSseShared {
            poster: MessagePoster::new(head),
            retirement: Retirement::default(),
            version: OnceLock::new(),
            stream_ended: Notify::new(),
        });
        let calls = Arc::new(PendingRequests::new(StreamLayout::SingleStream, hearing));
        let reading = read_stream(Arc::clone(&up), Arc::clone(&calls), stream, parser);
        let reader = clock::spawn("read an HTTP+SSE stream", reading);
        Some(Ok(Self {
            shared: up,
            pending: calls,
            ids: RequestIdGenerator::new(),
            reader,
        }))
    }

    pub(crate) async fn wait_until_ended(&self) -> StreamHoldOutcome {
        let mut over = pin!(self.shared.stream_ended.notified());
        over.as_mut().enable();
        if self.shared.retirement.get().is_none() {
            over.await;
        }
        StreamHoldOutcome::SessionEnded
    }

    pub(crate) async fn send(&self, request: Request, listener: &dyn Listener) -> AttemptResult {
        let id = self.ids.next();
        let cancel = CancelGuard::new(&self.shared.poster, id, &request, listener);
        let body = encode_legacy_request(id, &request);
        let (ending, was_reply_refused) = self
            .send_with_id((id, body), request, listener, &cancel.is_issued)
            .await;
        cancel.finish(&ending, was_reply_refused);
        ending
    }

    /// Posts a request, and waits for its reply on the stream. Sets `issued` once anything of it may
    /// have left. Returns also whether the server did not take a reply of ours.
    pub(crate) async fn send_with_id(
        &self,
        (id, body): (u64, Bytes),
        request: Request,
        listener: &dyn Listener,
        issued: &AtomicBool,
    ) -> (AttemptResult, bool) {
        let headers = &self.shared.poster.headers;
        let mut call = CallReader::new(id, CallTimer::start(request.deadlines), listener);
        call.extra_headers = request.headers.to_vec();
        call.reply_sink = Some(&self.shared.poster);
        let caller = listener.caller();
        call.pending = Some(self.pending.register(id, PendingKind::Call, caller));
        // The reader keeps the deadlines: it knows the open server requests.
        let by = call.timer.total_deadline;
        let mark_issued = |_: &mut _| issued.store(true, Ordering::Relaxed);
        let (kind, own) = (Method::POST, &request.headers);
        let posting = Box::pin(headers.send(kind, own, body, by, mark_issued));
        let sent = response::SentRequest {
            endpoint: &headers.endpoint,
            era: Era::Legacy,
            has_session: true,
            id,
            retirement: &self.shared.retirement,
        };
        let end = match call.next(posting).await {
            ControlFlow::Continue(Ok(response)) if response.status.is_success() => {
                response.drain();
                let ControlFlow::Break(end) = call.next(pending::<Infallible>()).await;
                end
            },
            ControlFlow::Continue(Ok(refusal)) => {
                let by = call.wait_deadline();
                let whole = response::CompleteResponse::read(sent, refusal, by, &()).await;
                return (whole.into_ending(sent, request), false);
            },
            ControlFlow::Continue(Err(lost)) => CallEnd::Lost(lost),
            ControlFlow::Break(CallEnd::TimedOut) => {
                let was_issued = issued.load(Ordering::Relaxed);
                CallEnd::Lost(headers.endpoint.timeout_failure(was_issued))
            },
            ControlFlow::Break(end) => end,
        };
        let ending = response::ending_of_call(sent, end, request, &call);
        (ending, call.was_reply_refused)
    }

    pub(crate) async fn notify(
        &self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Result<(), SendFailure> {
        self.shared
            .poster
            .post_message(encode_notification(method, params))
            .await
    }

    pub(crate) fn close(&self) {
        self.reader.abort();
        let poster = &self.shared.poster;
        poster.shutdown();
        let what = format!(
            "the session with `{}` was closed",
            poster.headers.endpoint.server
        );
        self.pending.end_all(&Diagnostic::new(Reason::Closed, what));
        self.shared.retirement.set(Reason::Closed);
    }
}

impl Drop for HttpSseSession {
    fn drop(&mut self) {
        self.reader.abort();
        self.pending.cancel_server_requests();
    }
}

async fn read_stream(
    up: Arc<HttpSseShared>,
    calls: Arc<PendingRequests>,
    mut stream: HttpResponse,
    mut parser: SseParser,
) {
    let mut budget = ReadBudget::default();
    let weak = Arc::downgrade(&up);
    let send_reply = move |id: &[u8], payload| {
        if let Some(up) = weak.upgrade() {
            drop(up.poster.send_reply(id, payload, &[]));
        }
    };
    let source = SourceSession::from_ref(&*up);
    let why = loop {
        calls.wait_for_capacity(parser.max_event_bytes()).await;
        match parser.next() {
            Some(Ok(event)) => {
                budget.consume(event.data.len()).await;
                let version = up.version.get().copied();
                let routed = calls.dispatch_text(event.data, version, source, &send_reply);
                match routed {
                    Ok(()) => continue,
                    Err(TooManyStrayReplies) => break "it answers requests nobody sent".to_owned(),
                }
            },
            Some(Err(large)) => {
                break format!("an event is larger than {} bytes", large.max_event_bytes);
            },
            None => {},
        }
        match stream.next_chunk().await {
            Some(Ok(bytes)) => {
                parser.push(&bytes);
                budget.consume(bytes.len()).await;
            },
            Some(Err(why)) => break why,
            None => break "the server ended the stream".to_owned(),
        }
    };
    up.retirement.set(Reason::ReplyLost);
    let server = &up.poster.headers.endpoint.server;
    let what = format!("the stream of `{server}` ended, and the session with it");
    calls.end_all(&Diagnostic::new(Reason::ReplyLost, what).with_cause(why));
    up.stream_ended.notify_waiters();
}

/// The data of the first event, if it is the `endpoint` event.
async fn read_endpoint_event(stream: &mut HttpResponse, parser: &mut SseParser) -> Option<String> {
    loop {
        if let Some(event) = parser.next() {
            let event = event.ok()?;
            let named = event.event.as_deref() == Some("endpoint");
            return named.then(|| String::from_utf8_lossy(&event.data).into_owned());
        }
        parser.push(&stream.next_chunk().await?.ok()?);
    }
}

/// The target of the endpoint that the stream named, which must have the same origin.
fn resolve_post_endpoint(first: &Endpoint, url: &Url, place: &str) -> Result<Endpoint, Diagnostic> {
    let bad = |why: String| {
        let what = format!("`{}` names an endpoint that cannot be used", first.server);
        Diagnostic::new(Reason::NotMcp, what).with_cause(why)
    };
    let second = url
        .join(place.trim())
        .map_err(|error| bad(error.to_string()))?;
    if second.origin() != url.origin() {
        return Err(bad("it is of another origin than the stream".to_owned()));
    }
    let uri = second[url::Position::BeforePath..url::Position::AfterQuery]
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
    Ok(Endpoint {
        uri,
        ..first.clone()
    })
}
