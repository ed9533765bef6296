//! The notifications and server requests of one call: for functions, or as a stream of events that
//! ends with the result; and the listener of one attempt, which passes them on.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use warmline_core::exchange::{Notification, ServerRequest, ServerRequestReply};
use warmline_core::pool_key::{Digest, Identity};

use super::builder::{CallBuilder, CallOutput, CallRequest};
use crate::error::Result;
use crate::session_factory::{SessionSetup, updated_resource_uri};
use warmline_upstream::{CallerId, CapacityFuture, Listener, ReplyFuture};

/// The number of events that wait for the caller; later notifications are dropped.
const EVENT_CAPACITY: usize = 1_024;

#[derive(Default)]
pub(crate) struct CallbackListener {
    on_notification: Option<Box<dyn Fn(Notification) + Send + Sync>>,
    on_request: Option<Box<ServerRequestHandler>>,
}

type ServerRequestHandler =
    dyn Fn(ServerRequest) -> Pin<Box<dyn Future<Output = ServerRequestReply> + Send>> + Send + Sync;

impl Listener for CallbackListener {
    fn on_notification(&self, notification: Notification) {
        if let Some(receive) = &self.on_notification {
            receive(notification);
        }
    }

    fn on_request(&self, request: ServerRequest) -> ReplyFuture<'_> {
        match &self.on_request {
            Some(reply) => reply(request),
            None => Box::pin(std::future::ready(ServerRequestReply::Declined)),
        }
    }
}

/// The events of one call, in order; the last is its result.
///
/// Dropping it cancels the call.
pub struct CallStream<T> {
    call: Option<Pin<Box<dyn Future<Output = Result<T>> + Send>>>,
    events: mpsc::Receiver<CallEvent<T>>,
    /// The result, until the caller has all earlier events.
    result: Option<Result<T>>,
}

/// One event of a call.
#[derive(Debug)]
pub enum CallEvent<T> {
    /// A notification of the server: progress, a log line, any other.
    Notification(Notification),
    /// A request of the server; the call goes on after the reply.
    ServerRequest(ServerRequest, Responder),
    /// The result; the stream ends with it.
    Done(Result<T>),
}

/// Replies to one server request. Dropping it declines.
#[derive(Debug)]
pub struct Responder(oneshot::Sender<ServerRequestReply>);

impl Responder {
    /// Sends the reply. A reply after the end of the call is ignored.
    pub fn reply(self, reply: ServerRequestReply) {
        drop(self.0.send(reply));
    }
}

impl<T> std::fmt::Debug for CallStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallStream").finish_non_exhaustive()
    }
}

struct CallEventSender<T>(mpsc::Sender<CallEvent<T>>);

impl<T: Send + 'static> Listener for CallEventSender<T> {
    fn on_notification(&self, notification: Notification) {
        // A caller who does not read loses notifications, never the result.
        self.0.try_send(CallEvent::Notification(notification)).ok();
    }

    fn on_request(&self, request: ServerRequest) -> ReplyFuture<'_> {
        let (responder, reply) = oneshot::channel();
        let event = CallEvent::ServerRequest(request, Responder(responder));
        Box::pin(async move {
            if self.0.send(event).await.is_err() {
                return ServerRequestReply::Declined;
            }
            reply.await.unwrap_or(ServerRequestReply::Declined)
        })
    }
}

impl<T: CallOutput> CallBuilder<T> {
    /// Sends the notifications of this call to a function.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// server.call("report", ()).on_notification(|told| println!("{told:?}")).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn on_notification(
        mut self,
        receive: impl Fn(Notification) + Send + Sync + 'static,
    ) -> Self {
        self.callbacks.get_or_insert_default().on_notification = Some(Box::new(receive));
        self
    }

    /// Replies to the server requests of this call with a function.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let decline = async |_| warmline::ServerRequestReply::Declined;
    /// server.call("report", ()).on_request(decline).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn on_request<F>(
        mut self,
        reply: impl Fn(ServerRequest) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ServerRequestReply> + Send + 'static,
    {
        let reply = move |request| -> ReplyFuture<'static> { Box::pin(reply(request)) };
        self.callbacks.get_or_insert_default().on_request = Some(Box::new(reply));
        self
    }

    /// Sends the call and returns its events: notifications, server requests and the result last.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let mut events = server.call("report", ()).events();
    /// while let Some(event) = events.next().await {
    ///     if let warmline::CallEvent::Done(result) = event {
    ///         println!("{}", result?.ok()?.text());
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(mut self) -> CallStream<T> {
        let (sender, events) = mpsc::channel(EVENT_CAPACITY);
        self.callbacks = None;
        self.request.listener = Some(Arc::new(CallEventSender(sender)));
        CallStream {
            call: Some(self.into_future()),
            events,
            result: None,
        }
    }
}

impl<T> CallStream<T> {
    /// The next event; none after the result.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: the call pauses until the next poll.
    pub async fn next(&mut self) -> Option<CallEvent<T>> {
        if let Some(call) = &mut self.call {
            tokio::select! {
                biased;
                event = self.events.recv() => {
                    if event.is_some() {
                        return event;
                    }
                },
                result = call => self.result = Some(result),
            }
            self.call = None;
        }
        // Earlier events come before the result.
        if let Ok(event) = self.events.try_recv() {
            return Some(event);
        }
        self.result.take().map(CallEvent::Done)
    }
}

/// The listener of one attempt. It records whether output reached the caller, and passes resource
/// updates only to clients that subscribed.
pub(super) struct AttemptListener<'a> {
    listener: &'a dyn Listener,
    has_listener: bool,
    setup: &'a SessionSetup,
    identity: Identity,
    is_listen_call: bool,
    has_streamed: AtomicBool,
}

impl<'a> AttemptListener<'a> {
    pub(super) fn new(
        request: &'a CallRequest,
        identity: Identity,
        setup: &'a SessionSetup,
    ) -> Self {
        let listener = request.listener.as_deref();
        Self {
            listener: listener.unwrap_or(&()),
            has_listener: listener.is_some(),
            setup,
            identity,
            is_listen_call: request.method == "subscriptions/listen",
            has_streamed: AtomicBool::new(false),
        }
    }

    pub(super) fn has_streamed(&self) -> bool {
        self.has_streamed.load(Ordering::Relaxed)
    }

    fn is_for_caller(&self, notification: &Notification) -> bool {
        let Notification::Other(method, params) = notification else {
            return true;
        };
        let client = self.listener.client_session();
        self.is_listen_call
            || updated_resource_uri(method, params)
                .is_none_or(|uri| self.setup.is_recipient(client, self.identity, &uri))
    }
}

impl Listener for AttemptListener<'_> {
    fn on_notification(&self, notification: Notification) {
        if self.has_listener && self.is_for_caller(&notification) {
            self.has_streamed.store(true, Ordering::Relaxed);
            self.listener.on_notification(notification);
        }
    }

    fn on_request(&self, request: ServerRequest) -> ReplyFuture<'_> {
        if self.has_listener {
            self.has_streamed.store(true, Ordering::Relaxed);
        }
        self.listener.on_request(request)
    }

    fn is_answering_unsolicited(&self) -> bool {
        self.listener.is_answering_unsolicited()
    }

    fn client_session(&self) -> Option<Digest> {
        self.listener.client_session()
    }

    fn caller(&self) -> Option<CallerId> {
        self.listener.caller()
    }

    fn reserve_reply(&self, bytes: usize) -> Option<CapacityFuture<'_>> {
        self.listener.reserve_reply(bytes)
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.listener.catch_up()
    }

    fn on_notifications_dropped(&self, count: u64) {
        self.listener.on_notifications_dropped(count);
    }

    // A stream without events is no output yet.
    fn on_stream_started(&self) {
        self.listener.on_stream_started();
    }

    fn on_http_status(&self, status: u16) {
        self.listener.on_http_status(status);
    }

    fn cancel_params(&self) -> Option<Bytes> {
        self.listener.cancel_params()
    }

    fn on_stream_paused(&self, come_back_after: Duration) {
        self.listener.on_stream_paused(come_back_after);
    }
}
