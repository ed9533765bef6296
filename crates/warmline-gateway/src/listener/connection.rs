//! Accepts client connections. Each is hyper around [`ConnectionIo`], and the requests that it carries.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use warmline_platform::clock;

use super::rejection::{late_head_response, record_unparsed_head, reject_ambiguous_framing};
use super::serve_request;
use super::slow_clients::{ConnectionIo, ConnectionTimeouts, LateClient};
use crate::auth::Peer;
use crate::limits::ConnectionPermit;
use crate::listener::ListenerRole;
use crate::listener::local_socket::LocalListener;
use crate::listener::rejection::record_rejected_connection;
use crate::listener::tls::ReloadingTlsAcceptor;
use crate::metrics::{RejectionReason, UndeliveredReason};
use crate::response::stream::ResponseStream;
use crate::response::{ResponseBody, TrackedBody};
use crate::shutdown::wait_for_stop;
use crate::{GatewayOptions, GatewayState, StartError};

pub(super) async fn serve_connection<I>(
    shared: Arc<GatewayState>,
    socket: I,
    (peer, role): (Peer, ListenerRole),
    mut stopping: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // A client that connects while the gateway stops may send one request.
    let is_late = *stopping.borrow();
    let limits = shared.limiter.limits();
    let requests = Arc::new(ConnectionRequests::default());
    let timeouts = ConnectionTimeouts {
        head: limits.head_timeout,
        idle: limits.idle_timeout,
        write: limits.stall_timeout,
    };
    let reporting = Arc::clone(&shared);
    let socket = ConnectionIo::new(socket, Arc::clone(&requests), timeouts, move |late| {
        report_late_client(&reporting, peer, late)
    });
    let (serving, in_flight) = (Arc::clone(&shared), Arc::clone(&requests));
    let service = service_fn(move |request| {
        let (shared, requests) = (Arc::clone(&serving), Arc::clone(&in_flight));
        let guard = requests.begin_request();
        async move {
            let rejection = reject_ambiguous_framing(&shared, &request, guard.is_ambiguous, peer);
            let response = match rejection {
                Some(rejection) => rejection,
                None => serve_request(&shared, request, (peer, role)).await,
            };
            let responses = &shared.unfinished_responses;
            Ok::<_, Infallible>(
                response.map(|body| requests.track_response(body, guard, responses)),
            )
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).keep_alive(!is_late);
    // The buffer limit alone lets large heads pass that arrive in large pieces.
    builder
        .max_buf_size(limits.max_head)
        .max_header_size(limits.max_head);
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    let responses = &shared.unfinished_responses;
    let mut unfinished = UnfinishedResponseGuard::new(responses);
    let ended = tokio::select! {
        ended = drive_connection(connection.as_mut(), &requests, (responses, &mut unfinished)) => ended,
        () = wait_for_stop(&mut stopping), if !is_late => {
            connection.as_mut().graceful_shutdown();
            drive_connection(connection.as_mut(), &requests, (responses, &mut unfinished)).await
        },
    };
    if let Err(error) = ended {
        if error.is_parse() {
            record_unparsed_head(&shared, peer, &error);
        }
        tracing::debug!(?peer, %error, "connection ended with an error");
    }
}

fn report_late_client(shared: &GatewayState, peer: Peer, late: LateClient) -> Bytes {
    match late {
        LateClient::SendingHead => late_head_response(shared, peer),
        LateClient::ReadingResponse => {
            let stalled = UndeliveredReason::Stalled;
            shared.counters.undelivered.increment(stalled);
            shared.rejection_log.log_stalled(peer);
            Bytes::new()
        },
    }
}

/// Drives a connection, and the call that is answered on it.
async fn drive_connection<C: Future>(
    mut connection: Pin<&mut C>,
    requests: &ConnectionRequests,
    (responses, unfinished): (&UnfinishedResponses, &mut UnfinishedResponseGuard<'_>),
) -> C::Output {
    std::future::poll_fn(|cx| {
        requests.drive_response(cx, responses);
        let ended = connection.as_mut().poll(cx);
        unfinished.set_unfinished(requests.has_unfinished_response());
        ended
    })
    .await
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionRequests {
    pub(super) started: AtomicUsize,
    pub(super) in_flight: AtomicUsize,
    /// Number of the first request with ambiguous framing; 0 for none.
    pub(super) first_ambiguous: AtomicUsize,
    /// The event stream that is the current response.
    response_stream: Mutex<Option<Weak<Mutex<ResponseStream>>>>,
    pub(super) has_unsent_bytes: AtomicBool,
    /// Whether what is written answers no call: a stream of notifications, or the error of a call
    /// that a stop cut.
    is_not_a_response: AtomicBool,
}

impl ConnectionRequests {
    /// Counts a request whose head has arrived, until its response ends.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlightRequestGuard {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let first = self.first_ambiguous.load(Ordering::Relaxed);
        InFlightRequestGuard {
            requests: Arc::clone(self),
            is_ambiguous: first > 0 && number >= first,
        }
    }

    /// Ties the request to its response.
    fn track_response(
        &self,
        body: ResponseBody,
        guard: InFlightRequestGuard,
        responses: &UnfinishedResponses,
    ) -> TrackedBody<InFlightRequestGuard> {
        let answers_no_call = match &body {
            ResponseBody::Events(events) => {
                *self.response_stream.lock() = Some(Arc::downgrade(events));
                !events.lock().answers_call
            },
            ResponseBody::Stream(_) => true,
            ResponseBody::Empty | ResponseBody::Full(_) => false,
        };
        let is_not_a_response = answers_no_call || responses.calls_cut.load(Ordering::Relaxed);
        self.is_not_a_response
            .store(is_not_a_response, Ordering::Relaxed);
        TrackedBody { body, guard }
    }

    /// Drives the call behind the response. Hyper does not poll the body while the client reads
    /// nothing.
    fn drive_response(&self, cx: &mut Context<'_>, responses: &UnfinishedResponses) {
        if let Some(events) = self.response_stream()
            && events.lock().drive_call(cx)
            && responses.calls_cut.load(Ordering::Relaxed)
        {
            self.is_not_a_response.store(true, Ordering::Relaxed);
        }
    }

    fn response_stream(&self) -> Option<Arc<Mutex<ResponseStream>>> {
        self.response_stream.lock().as_ref()?.upgrade()
    }

    /// Whether the client has yet to read a response whose call is over.
    fn has_unfinished_response(&self) -> bool {
        if !self.has_unsent_bytes.load(Ordering::Relaxed)
            || self.is_not_a_response.load(Ordering::Relaxed)
        {
            return false;
        }
        let events = self.response_stream();
        events.is_none_or(|events| events.lock().queue.is_finished())
    }
}

#[derive(Debug)]
pub(crate) struct InFlightRequestGuard {
    requests: Arc<ConnectionRequests>,
    /// Whether two readers could disagree on where this request, or one before it, ends.
    is_ambiguous: bool,
}

impl Drop for InFlightRequestGuard {
    fn drop(&mut self) {
        self.requests.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Responses whose calls are over and whose clients have yet to read all of them.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedResponses {
    pub(crate) count: AtomicU64,
    /// Once calls are cut, what their clients are sent is no response to wait for.
    pub(crate) calls_cut: AtomicBool,
}

#[derive(Debug)]
struct UnfinishedResponseGuard<'a> {
    responses: &'a UnfinishedResponses,
    is_counted: bool,
}

impl<'a> UnfinishedResponseGuard<'a> {
    const fn new(responses: &'a UnfinishedResponses) -> Self {
        Self {
            responses,
            is_counted: false,
        }
    }

    fn set_unfinished(&mut self, is_unfinished: bool) {
        if is_unfinished == self.is_counted {
            return;
        }
        self.is_counted = is_unfinished;
        match is_unfinished {
            true => self.responses.count.fetch_add(1, Ordering::Relaxed),
            false => self.responses.count.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl Drop for UnfinishedResponseGuard<'_> {
    fn drop(&mut self) {
        self.set_unfinished(false);
    }
}

pub(crate) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Response to a connection over the limit. It fits into any socket buffer.
const OVERLOADED_RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// Accepts connections of the network until `closing`. During a drain it goes on, so that new
/// requests are rejected with a reason, and cancellations and replies to server requests arrive.
pub(crate) async fn accept_connections(
    shared: Arc<GatewayState>,
    listener: TcpListener,
    acceptor: Option<Arc<ReloadingTlsAcceptor>>,
    mut closing: watch::Receiver<bool>,
) {
    while let Some((socket, from)) = accept(|| listener.accept(), &mut closing).await {
        let Some(permit) = acquire_permit(&shared, Peer::Address(from.ip())) else {
            socket.try_write(OVERLOADED_RESPONSE).ok();
            continue;
        };
        let (shared, stopping) = (Arc::clone(&shared), shared.stopping.clone());
        let serving = serve_tcp(shared, socket, from, acceptor.clone(), stopping);
        spawn_connection(permit, serving);
    }
}

pub(crate) fn bind_local_sockets(
    options: &GatewayOptions,
) -> Result<Vec<(LocalListener, ListenerRole)>, StartError> {
    let is_one = options.socket == options.admin_socket;
    let mcp_role = match is_one {
        true => ListenerRole::Both,
        false => ListenerRole::Mcp,
    };
    let mcp = options.socket.iter().map(|path| (path, mcp_role));
    let admin = options.admin_socket.iter().filter(|_| !is_one);
    let wanted = mcp.chain(admin.map(|path| (path, ListenerRole::Admin)));
    let bound = wanted.map(|(path, role)| {
        let listener = LocalListener::bind(path);
        let listener = listener.map_err(|error| StartError::Socket(path.clone(), error))?;
        Ok((listener, role))
    });
    bound.collect()
}

/// Accepts connections of the user who runs the gateway, until `closing`.
pub(crate) async fn accept_local_connections(
    shared: Arc<GatewayState>,
    listener: LocalListener,
    role: ListenerRole,
    mut closing: watch::Receiver<bool>,
) {
    while let Some(socket) = accept(|| listener.accept(), &mut closing).await {
        if let Some(permit) = acquire_permit(&shared, Peer::SameUser) {
            let (shared, stopping) = (Arc::clone(&shared), shared.stopping.clone());
            let peer = (Peer::SameUser, role);
            spawn_connection(permit, serve_connection(shared, socket, peer, stopping));
        }
    }
}

/// The next connection; `None` once no more are accepted.
async fn accept<F: Future<Output = io::Result<T>>, T>(
    accept: impl Fn() -> F,
    closing: &mut watch::Receiver<bool>,
) -> Option<T> {
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            () = wait_for_stop(closing) => return None,
        };
        match accepted {
            Ok(connection) => return Some(connection),
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                clock::sleep(ACCEPT_RETRY_DELAY).await;
            },
        }
    }
}

fn acquire_permit(shared: &Arc<GatewayState>, peer: Peer) -> Option<ConnectionPermit> {
    let permit = shared.limiter.try_acquire_connection(peer.address());
    if permit.is_none() {
        let rejected = (RejectionReason::Connections, "too many connections");
        record_rejected_connection(shared, peer, 0, rejected);
    }
    permit
}

fn spawn_connection(permit: ConnectionPermit, serving: impl Future<Output = ()> + Send + 'static) {
    drop(clock::spawn("connection", async move {
        serving.await;
        drop(permit);
    }));
}

async fn serve_tcp(
    shared: Arc<GatewayState>,
    socket: TcpStream,
    from: SocketAddr,
    acceptor: Option<Arc<ReloadingTlsAcceptor>>,
    stopping: watch::Receiver<bool>,
) {
    let peer = (Peer::Address(from.ip()), ListenerRole::Mcp);
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%from, %error, "connection is not usable");
        return;
    }
    let Some(acceptor) = acceptor else {
        return serve_connection(shared, socket, peer, stopping).await;
    };
    match acceptor.accept(socket).await {
        Ok(socket) => serve_connection(shared, socket, peer, stopping).await,
        Err(error) => {
            let reason = RejectionReason::TlsHandshake;
            shared.counters.rejected.increment(reason);
            let what = format!("TLS handshake failed: {error}");
            shared
                .rejection_log
                .log_connection(reason, peer.0, 0, &what);
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::event_queue::EventQueue;
    use crate::response::stream::{AcceptedFormats, DisconnectPolicy, PrimingEvent, ResponseMode};

    /// reliability O1: a stop does not wait for a stream of notifications that nobody reads.
    #[tokio::test]
    async fn an_unread_notification_stream_is_no_unfinished_response() {
        let requests = Arc::new(ConnectionRequests::default());
        let responses = UnfinishedResponses::default();
        requests.has_unsent_bytes.store(true, Ordering::Relaxed);
        let mode = ResponseMode {
            accepts: AcceptedFormats::Events,
            on_disconnect: DisconnectPolicy::Cancel,
            stream_id: None,
            priming: PrimingEvent::Disabled,
        };
        let queue = Arc::<EventQueue>::default();
        queue.finish(None);
        let stream = ResponseStream::after_event(0, queue, mode)
            .into_response()
            .into_body();
        let stream = requests.track_response(stream, requests.begin_request(), &responses);
        assert!(!requests.has_unfinished_response());
        drop(stream);
        let whole = ResponseBody::Full(Some(Bytes::from_static(b"{}")));
        let response = requests.track_response(whole, requests.begin_request(), &responses);
        assert!(requests.has_unfinished_response());
        drop(response);
    }
}
