//! A client on a pair of pipes. The era is that of each message.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, OptionFuture, join};
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use warmline_core::era::Era;
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::lines::{LineCodec, StdioLine};
use warmline_core::message::splice;
use warmline_core::pool_key::Digest;
use warmline_engine::{Run, Warmline};
use warmline_platform::clock;
use warmline_store::keyring::random_bytes;

use super::RequestContext;
use super::message::{ClientTransport, InboundMessage, MessageHead, canonical_id};
use super::sink::ClientSink;
use crate::access::audit::AuditLog;
use crate::auth::{LOCAL_IDENTITY, Peer, Subject};
use crate::downstream::{self, strip_run};
use crate::endpoint::RequestTarget;
use crate::limits::EMPTY_PERMIT;
use crate::metrics::RejectionReason;
use crate::response::event_queue::EventQueue;
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::{AuditOptions, GatewayOptions, GatewayState, StartError, flush_audit, response};

/// The most requests in flight; more are read when one has ended.
const MAX_IN_FLIGHT: usize = 1024;
/// The most lines queued for a client that reads slowly.
const MAX_QUEUED_LINES: usize = 64;
/// How long calls may go on after a client closed its end, by default.
const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(18);

/// How long cut calls may take until they are answered.
const END_CALLS_TIMEOUT: Duration = Duration::from_secs(5);

/// A client on a pair of pipes: the local user.
pub struct StdioClient {
    shared: Arc<GatewayState>,
    stop: watch::Sender<bool>,
    server: Option<String>,
    run: String,
    /// Whether the run ends with the client.
    is_own_run: bool,
    /// Stdio has no headers.
    headers: HeaderMap,
    /// How long calls may go on after the client closed its end.
    drain_timeout: Duration,
    /// Whether calls must end now.
    cut_calls: watch::Sender<bool>,
    /// Whether calls are overdue that only closing the engine ends.
    drain_expired: watch::Sender<bool>,
}

impl fmt::Debug for StdioClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioClient")
            .field("server", &self.server)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl StdioClient {
    /// A client of all servers of an engine, in its own run. Options about listeners do not apply.
    pub fn new(warm: Warmline, options: GatewayOptions) -> Self {
        let address = options.listen;
        let (stop, stopping) = watch::channel(false);
        Self {
            shared: Arc::new(GatewayState::new(warm, options, address, stopping)),
            stop,
            server: None,
            run: format!("pipe_{}", Digest::new(random_bytes()).to_hex()),
            is_own_run: true,
            headers: HeaderMap::new(),
            drain_timeout: DEFAULT_DRAIN_TIMEOUT,
            cut_calls: watch::Sender::new(false),
            drain_expired: watch::Sender::new(false),
        }
    }

    /// Writes an audit line for every call.
    ///
    /// # Errors
    /// The audit cannot be written.
    pub fn with_audit(mut self, audit: AuditOptions) -> Result<Self, StartError> {
        // Nothing shares it before it serves.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            let counts = Arc::clone(&shared.counters);
            shared.audit = Some(AuditLog::start(audit, counts)?);
        }
        Ok(self)
    }

    /// Serves one server alone.
    #[must_use]
    pub fn for_server(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }

    /// Joins the run of that name, which outlives this client.
    #[must_use]
    pub fn in_run(mut self, run: impl Into<String>) -> Self {
        self.run = run.into();
        self.is_own_run = false;
        self
    }

    /// How long calls may go on after the client closed its end.
    #[must_use]
    pub fn with_drain_timeout(mut self, time: Duration) -> Self {
        self.drain_timeout = time;
        self
    }

    /// Serves the client until it closes its end.
    ///
    /// # Errors
    /// A pipe broke.
    pub async fn serve(
        self,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (out, lines) = mpsc::channel(MAX_QUEUED_LINES);
        let mut connection = StdioConnection {
            client: &self,
            sink: ClientSink {
                messages: out,
                reply_budget: None,
            },
            session: None,
            is_initialized: false,
            get_stream: None,
            in_flight: HashMap::new(),
        };
        let reading = async {
            connection.read_messages(input).await?;
            connection.close().await;
            drop(connection);
            Ok(())
        };
        let result = tokio::try_join!(reading, write_lines(output, lines)).map(drop);
        flush_audit(&self.shared).await;
        result
    }

    fn request_context<'a>(
        &'a self,
        session: Option<&'a HeaderValue>,
        queue: Option<&'a Arc<EventQueue>>,
    ) -> RequestContext<'a> {
        let subject = (Subject::local_user(&self.shared.warmline), Peer::SameUser);
        let target = RequestTarget {
            run: Some(&self.run),
            server: self.server.as_deref(),
        };
        let head = MessageHead {
            queue,
            ..MessageHead::single_stream(ClientTransport::Stdio, &self.headers, "/", session)
        };
        RequestContext::new(&self.shared, subject, target, head, &EMPTY_PERMIT)
    }
}

/// Shuts a stdio client down while it is served.
#[derive(Debug)]
pub struct StdioShutdownHandle {
    disconnected: watch::Receiver<bool>,
    cut_calls: watch::Sender<bool>,
    drain_expired: watch::Receiver<bool>,
}

impl StdioShutdownHandle {
    /// Resolves when the client has closed its end, or the pipe broke.
    pub async fn client_disconnected(&mut self) {
        self.disconnected.wait_for(|left| *left).await.ok();
    }

    /// Stops reading, and cuts and answers the calls of the client's own run.
    pub fn cut_calls(&self) {
        self.cut_calls.send_replace(true);
    }

    /// Resolves when the client is done, or when the calls of a named run are overdue: closing the engine
    /// ends those.
    pub async fn finished(&mut self) {
        self.drain_expired.wait_for(|late| *late).await.ok();
    }
}

impl StdioClient {
    /// The handle that shuts it down.
    pub fn shutdown_handle(&self) -> StdioShutdownHandle {
        StdioShutdownHandle {
            disconnected: self.stop.subscribe(),
            cut_calls: self.cut_calls.clone(),
            drain_expired: self.drain_expired.subscribe(),
        }
    }

    /// Waits for the calls in flight, then cuts them.
    async fn drain_calls(&self, mut under_way: InFlightMessages<'_>) {
        let rest = async { while under_way.next().await.is_some() {} };
        let mut rest = pin!(rest);
        tokio::select! {
            biased;
            () = &mut rest => return,
            () = self.calls_cut() => {},
            () = clock::sleep(self.drain_timeout) => {},
        }
        let ending = join(self.end_calls(), rest);
        clock::timeout(END_CALLS_TIMEOUT, ending).await.ok();
    }

    async fn calls_cut(&self) {
        // `self` holds the sender, so this resolves only when it is true.
        drop(self.cut_calls.subscribe().wait_for(|cut| *cut).await);
    }

    /// Ends the calls in flight. Those of a named run go on.
    async fn end_calls(&self) {
        match self.own_run() {
            Some(run) => run.end_now().await,
            None => {
                self.drain_expired.send_replace(true);
            },
        }
    }

    fn own_run(&self) -> Option<Run> {
        let identity = self.shared.warmline.identity(LOCAL_IDENTITY);
        let is_own = self.is_own_run;
        is_own.then(|| identity.join_run(&self.run).ok()).flatten()
    }
}

#[derive(Default)]
struct StdioMessageOutcome {
    /// The id of the request, if it is free again.
    id: Option<Bytes>,
    session: Option<HeaderValue>,
}

struct StdioConnection<'p> {
    client: &'p StdioClient,
    sink: ClientSink,
    session: Option<HeaderValue>,
    /// Whether the client sent `notifications/initialized` before it had a session.
    is_initialized: bool,
    /// The stream of that session.
    get_stream: Option<BoxFuture<'p, ()>>,
    /// Requests in flight, by id. Modern ones have a queue, as a message cancels them.
    in_flight: HashMap<Bytes, Option<Arc<EventQueue>>>,
}

type InFlightMessages<'p> = FuturesUnordered<BoxFuture<'p, StdioMessageOutcome>>;

impl<'p> StdioConnection<'p> {
    async fn read_messages(&mut self, input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = LineReader {
            input,
            codec: LineCodec::new(self.client.shared.access.policy.load().max_request),
            at_eof: false,
        };
        let mut in_flight: InFlightMessages<'p> = FuturesUnordered::new();
        let mut cut = pin!(self.client.calls_cut());
        loop {
            // An answer may open the session that the next message belongs to, so it comes first.
            tokio::select! {
                biased;
                Some(outcome) = in_flight.next() => self.on_message_answered(outcome),
                Some(()) = OptionFuture::from(self.get_stream.as_mut()) => self.get_stream = None,
                () = &mut cut => break,
                line = lines.next_line(), if in_flight.len() < MAX_IN_FLIGHT => match line? {
                    Some(StdioLine::Complete(text)) => {
                        let inbound = InboundMessage::parse(text);
                        if inbound.method() == Some("notifications/initialized") {
                            self.is_initialized = true;
                            self.open_get_stream();
                        }
                        in_flight.extend(self.on_message(inbound));
                    },
                    Some(StdioLine::TooLong { .. }) => self.reject_too_long().await,
                    None => break,
                },
            }
        }
        // Ends streams that would never end.
        self.client.stop.send_replace(true);
        drop(lines);
        self.client.drain_calls(in_flight).await;
        self.get_stream = None;
        Ok(())
    }

    /// A message was answered. If that opened the session of a client that is initialized already,
    /// its stream begins.
    fn on_message_answered(&mut self, outcome: StdioMessageOutcome) {
        if let Some(id) = outcome.id {
            self.in_flight.remove(&id);
        }
        if let Some(session) = outcome.session {
            // A second `initialize` leaves the session before.
            (self.session, self.get_stream) = (Some(session), None);
            self.open_get_stream();
        }
    }

    /// Starts to answer a message; `None` if nothing is left to do.
    fn on_message(
        &mut self,
        inbound: InboundMessage,
    ) -> Option<BoxFuture<'p, StdioMessageOutcome>> {
        if self.try_cancel(&inbound) {
            return None;
        }
        // A modern message belongs to no session, and a message cancels it.
        let is_modern = inbound.era(None) == Some(Era::Modern);
        let session = self.session.clone().filter(|_| !is_modern);
        let counters = &self.client.shared.counters;
        let queue = is_modern.then(|| Arc::new(EventQueue::new(counters)));
        let message = inbound.message();
        let request = message.filter(|message| message.kind() == MessageKind::Request);
        let mut id = request.and_then(Message::raw_id).map(canonical_id);
        let mut rejection = None;
        if let Some(used) = &id {
            match self.in_flight.entry(used.clone()) {
                Entry::Occupied(_) => {
                    rejection = Some(RequestRejection::id_in_flight());
                    id = None;
                },
                Entry::Vacant(entry) => drop(entry.insert(queue.clone())),
            }
        }
        let (client, sink) = (self.client, self.sink.clone());
        Some(Box::pin(async move {
            let context = client.request_context(session.as_ref(), queue.as_ref());
            let answering = async {
                let (response, opened) = ClientSink::answer(&context, inbound, rejection).await;
                sink.send_response(response).await;
                opened
            };
            let cancelled = std::future::poll_fn(|cx| match &queue {
                Some(queue) => queue.poll_cancelled(cx),
                None => Poll::Pending,
            });
            tokio::select! {
                biased;
                // The cancel freed its id, which may be in use again. Dropping the call cancels it.
                () = cancelled => StdioMessageOutcome::default(),
                session = answering => StdioMessageOutcome { id, session },
            }
        }))
    }

    /// Cancels a modern call if that is what a message does. Legacy calls are cancelled by their
    /// client session.
    fn try_cancel(&mut self, inbound: &InboundMessage) -> bool {
        let params = inbound.params();
        let params = params.filter(|_| inbound.method() == Some("notifications/cancelled"));
        let id = params.and_then(|params| params.member("requestId"));
        let (Some(params), Some(id)) = (params, id) else {
            return false;
        };
        let Entry::Occupied(call) = self.in_flight.entry(canonical_id(id)) else {
            return false;
        };
        if call.get().is_none() {
            return false;
        }
        if let Some(queue) = call.remove() {
            let params = strip_run(params.clone());
            queue.cancel(Some(params.raw().clone()));
        }
        true
    }

    /// Opens the stream of a legacy client that has a session and is initialized.
    fn open_get_stream(&mut self) {
        if self.session.is_none() || !std::mem::take(&mut self.is_initialized) {
            return;
        }
        if self.get_stream.is_some() {
            return;
        }
        let (client, sink) = (self.client, self.sink.clone());
        let session = self.session.clone();
        self.get_stream = Some(Box::pin(async move {
            let context = client.request_context(session.as_ref(), None);
            sink.send_get_stream(&context).await;
        }));
    }

    /// The client has left: ends its session and its own run.
    async fn close(&mut self) {
        if let Some(session) = &self.session {
            let context = self.client.request_context(Some(session), None);
            drop(downstream::handle_without_body(&context, &Method::DELETE).await);
        }
        if let Some(run) = self.client.own_run() {
            run.end().await;
        }
    }

    async fn reject_too_long(&mut self) {
        let what = "Invalid Request: the message is too large";
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        let response = response::rpc_error(status, None, RpcCode::Invalid, what);
        let (shared, why) = (&self.client.shared, RejectionReason::TooLarge);
        shared
            .rejection_log
            .log_response(Some(why), Peer::SameUser, &response);
        let context = self.client.request_context(self.session.as_ref(), None);
        context.audit_rejected_head(why.as_str());
        self.sink.send_response(response).await;
    }
}

/// Reads lines. Dropping [`LineReader::next_line`] loses nothing.
struct LineReader<R> {
    input: R,
    codec: LineCodec,
    at_eof: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// The next line that is not blank; `None` at the end of input.
    async fn next_line(&mut self) -> io::Result<Option<StdioLine>> {
        loop {
            if let Some(line) = self.codec.next() {
                return Ok(Some(line));
            }
            if self.at_eof {
                return Ok(None);
            }
            let buffer = self.codec.buffer();
            buffer.reserve(8 << 10);
            if self.input.read_buf(buffer).await? == 0 {
                self.at_eof = true;
                // A last line may have no end.
                return Ok(self.codec.finish());
            }
        }
    }
}

/// Writes lines as they come, and flushes when none waits.
async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        let mut next = Some(line);
        while let Some(line) = next {
            output.write_all(&splice::to_single_line(line)).await?;
            output.write_all(b"\n").await?;
            next = lines.try_recv().ok();
        }
        output.flush().await?;
    }
    output.shutdown().await
}
