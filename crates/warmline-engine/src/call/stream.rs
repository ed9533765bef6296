//! The notifications and server requests of one call: for functions, or as a stream of events that
//! ends with the result.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use warmline_core::exchange::{Notification, ServerRequest, ServerRequestReply};

use super::builder::CallBuilder;
use super::output::CallOutput;
use crate::error::Result;
use warmline_upstream::{Listener, ReplyFuture};

/// The number of events that wait for the caller; later notifications are dropped.
const EVENT_CAPACITY: usize = 1_024;

/// The functions that a caller set.
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
