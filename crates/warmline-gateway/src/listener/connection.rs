//! One client connection: hyper around [`ConnectionIo`], and the requests that it carries.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::connection_timeouts::{ConnectionIo, ConnectionTimeouts, LateClient};
use super::rejection::{late_head_response, record_unparsed_head, reject_ambiguous_framing};
use super::{ListenerRole, serve_request};
use crate::GatewayState;
use crate::auth::Peer;
use crate::metrics::UndeliveredReason;
use crate::response::body::ResponseBody;
use crate::response::stream::ResponseStream;
use crate::shutdown::{UnfinishedResponseGuard, UnfinishedResponses, wait_for_stop};

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
    started: AtomicUsize,
    in_flight: AtomicUsize,
    /// Number of the first request with ambiguous framing; 0 for none.
    first_ambiguous: AtomicUsize,
    /// The event stream that is the current response.
    response_stream: Mutex<Option<Weak<Mutex<ResponseStream>>>>,
    has_unsent_bytes: AtomicBool,
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

    pub(super) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    pub(super) fn mark_ambiguous_from(&self, number: usize) {
        self.first_ambiguous.store(number, Ordering::Relaxed);
    }

    pub(super) fn set_unsent_bytes(&self, has_unsent_bytes: bool) {
        self.has_unsent_bytes
            .store(has_unsent_bytes, Ordering::Relaxed);
    }

    /// Ties the request to its response.
    fn track_response(
        &self,
        body: ResponseBody,
        guard: InFlightRequestGuard,
        responses: &UnfinishedResponses,
    ) -> TrackedBody {
        let answers_no_call = match &body {
            ResponseBody::Events(events) => {
                *self.response_stream.lock() = Some(Arc::downgrade(events));
                !events.lock().answers_call
            },
            ResponseBody::Stream(_) => true,
            ResponseBody::Empty | ResponseBody::Full(_) => false,
        };
        let is_not_a_response = answers_no_call || responses.are_calls_cut();
        self.is_not_a_response
            .store(is_not_a_response, Ordering::Relaxed);
        TrackedBody {
            body,
            _guard: guard,
        }
    }

    /// Drives the call behind the response. Hyper does not poll the body while the client reads
    /// nothing.
    fn drive_response(&self, cx: &mut Context<'_>, responses: &UnfinishedResponses) {
        if let Some(events) = self.response_stream()
            && events.lock().drive_call(cx)
            && responses.are_calls_cut()
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
        events.is_none_or(|events| events.lock().is_finished())
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

/// A response body that keeps its request in flight until the client has read it.
struct TrackedBody {
    body: ResponseBody,
    _guard: InFlightRequestGuard,
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
        requests.set_unsent_bytes(true);
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
