//! What a server sends that belongs to no call, and who receives it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::AbortHandle;
use warmline_core::exchange::{ServerRequest, ServerRequestKind};
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::params::absent_params;
use warmline_core::pool_key::Digest;

use crate::attribution::CallerId;
use crate::listener::{
    self, CapacityFuture, IncomingRequest, ReplyFuture, ReplyPayload, SourceSession, reply_payload,
};
use warmline_platform::clock;
use warmline_platform::lock::Mutex;

/// How long the reply to a server request may take that no call waits for: as long as a call that
/// waits for a person, by default.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);
const MAX_OPEN: usize = 64;

/// Receives what a server sends outside of calls: a list changed, a resource was updated, a log
/// line between calls.
///
/// The reader of the server's messages calls it and waits meanwhile: it must be quick. A changed
/// list and an updated resource come here also in the middle of a call; the call's listener gets
/// them too, unless its caller gets them here.
pub trait UnsolicitedListener: Send + Sync + fmt::Debug {
    /// A notification; `params` is a raw JSON object.
    fn on_notification(&self, method: &str, params: &[u8]);

    /// A notification that concerns all clients, from session `by`. Returns the callers whose calls
    /// need not receive it again.
    fn on_broadcast(&self, method: &str, params: &[u8], by: SourceSession) -> Vec<CallerId> {
        let _ = by;
        self.on_notification(method, params);
        self.caller().into_iter().collect()
    }

    /// The caller that receives what comes here; none if that is nobody's.
    fn caller(&self) -> Option<CallerId> {
        None
    }

    /// Whether anybody but this caller receives what comes here.
    fn has_receivers_besides(&self, caller: CallerId) -> bool {
        self.caller() != Some(caller)
    }

    /// The name of the client session that it is for. Of clients that share a session only those
    /// receive a resource's updates that subscribed to it. None: it is for all of its identity.
    fn client_session(&self) -> Option<Digest> {
        None
    }

    /// How often the receiver asked for the list that a notification of this method says has
    /// changed: a change that several sessions report is told once to a receiver that has not asked
    /// since. None: that is not known, and every report is told.
    fn list_request_count(&self, method: &str) -> Option<u32> {
        let _ = method;
        None
    }

    /// Resolves when the receivers have caught up; until then nothing more is read for them. It ends
    /// soon, as others wait too. None while they keep up.
    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        None
    }

    /// A server request that belongs to no call. None: nobody here can answer it.
    fn on_request(&self, request: ServerRequest) -> Option<ReplyFuture<'static>> {
        drop(request);
        None
    }

    /// A server request that belongs to one of several calls of this caller. None: the caller does
    /// not receive it here, or cannot answer it.
    fn on_request_of_caller(
        &self,
        caller: CallerId,
        request: ServerRequest,
    ) -> Option<ReplyFuture<'static>> {
        let is_theirs = self.caller() == Some(caller);
        is_theirs.then(|| self.on_request(request)).flatten()
    }

    /// A server request that may belong to calls of several callers was refused.
    fn on_ambiguous_request(&self, kind: ServerRequestKind) {
        let _ = kind;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotificationScope {
    /// All clients, on whatever stream it came.
    AllClients,
    /// The call on whose own stream it came, else all clients: those it does not concern ignore it.
    CallElseAllClients,
    /// The call it came with, else the session's listener.
    CallElseUnsolicited,
    NamedCall,
}

/// Whether a notification of this method can concern all clients that share a session.
pub fn is_broadcast_method(method: &str) -> bool {
    match scope_of_method(method) {
        NotificationScope::AllClients | NotificationScope::CallElseAllClients => true,
        NotificationScope::CallElseUnsolicited | NotificationScope::NamedCall => false,
    }
}

pub(crate) fn scope_of_method(method: &str) -> NotificationScope {
    match method {
        "notifications/tools/list_changed"
        | "notifications/resources/list_changed"
        | "notifications/prompts/list_changed"
        | "notifications/resources/updated" => NotificationScope::AllClients,
        "notifications/elicitation/complete" => NotificationScope::CallElseAllClients,
        "notifications/progress" | "notifications/cancelled" => NotificationScope::NamedCall,
        _ => NotificationScope::CallElseUnsolicited,
    }
}

/// The server requests of one session that belong to no call and have no reply yet, by raw id.
#[derive(Debug, Default)]
pub(crate) struct UnsolicitedRequests(Mutex<Vec<(Bytes, AbortHandle)>>);

impl UnsolicitedRequests {
    /// Waits for the reply in the background. A cancelled request gets none.
    fn spawn_reply(
        &self,
        request: IncomingRequest,
        reply: ReplyFuture<'static>,
        send_reply: impl FnOnce(&[u8], ReplyPayload) + Send + 'static,
    ) {
        let mut open = self.0.lock();
        open.retain(|(_, task)| !task.is_finished());
        if open.len() >= MAX_OPEN || clock::current_runtime_id().is_none() {
            drop(open);
            return send_reply(&request.id, request.refused_reply());
        }
        let id = request.id.clone();
        let task = clock::spawn("answer a server request", async move {
            let payload = match clock::timeout(REPLY_TIMEOUT, reply).await {
                Ok(reply) => reply_payload(request.request.kind, reply),
                Err(clock::Elapsed) => request.refused_reply(),
            };
            send_reply(&request.id, payload);
        });
        open.push((id, task.abort_handle()));
    }

    /// The server cancels a request. It may have its reply already.
    pub(crate) fn cancel(&self, id: &[u8]) {
        for (_, task) in self.0.lock().iter().filter(|(open, _)| open == id) {
            task.abort();
        }
    }

    /// The session is over: no reply is wanted any more.
    pub(crate) fn cancel_all(&self) {
        for (_, task) in self.0.lock().drain(..) {
            task.abort();
        }
    }
}

/// Calls the listener of a session; most sessions have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnsolicitedDispatcher(Option<Arc<dyn UnsolicitedListener>>);

impl UnsolicitedDispatcher {
    pub(crate) fn new(listener: Option<Arc<dyn UnsolicitedListener>>) -> Self {
        Self(listener)
    }

    pub(crate) fn notify(&self, message: &Message) {
        if let (Some(listener), Some(method)) = (&self.0, message.method()) {
            let params = message.params().unwrap_or_else(absent_params);
            listener.on_notification(method, &params);
        }
    }

    /// Tells all clients, and returns the callers whose calls need not receive it again.
    pub(crate) fn broadcast(&self, message: &Message, by: SourceSession) -> Vec<CallerId> {
        let (Some(listener), Some(method)) = (&self.0, message.method()) else {
            return Vec::new();
        };
        let params = message.params().unwrap_or_else(absent_params);
        listener.on_broadcast(method, &params, by)
    }

    /// Whether the caller of the only call is the only receiver of what is read: then waiting for
    /// that call holds up nobody.
    pub(crate) fn is_only_receiver(&self, caller: Option<CallerId>) -> bool {
        let has_others = |caller| {
            let listener = self.0.as_ref();
            listener.is_some_and(|listener| listener.has_receivers_besides(caller))
        };
        caller.is_some_and(|caller| !has_others(caller))
    }

    /// Resolves when the receivers have caught up; none while they keep up.
    pub(crate) fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.0.as_ref()?.catch_up()
    }

    /// Passes a message on the stream of a call to the others whom it concerns. Returns whether its
    /// caller need not receive it any more.
    pub(crate) fn broadcast_from_call(
        &self,
        message: &Message,
        by: SourceSession,
        caller: Option<CallerId>,
    ) -> bool {
        if message.kind() != MessageKind::Notification {
            return false;
        }
        let is_for_others = match scope_of_method(message.method().unwrap_or_default()) {
            NotificationScope::AllClients => true,
            // The call has no listener.
            NotificationScope::CallElseAllClients | NotificationScope::CallElseUnsolicited => {
                caller.is_none()
            },
            NotificationScope::NamedCall => false,
        };
        is_for_others && {
            let told = self.broadcast(message, by);
            caller.is_none_or(|caller| told.contains(&caller))
        }
    }

    /// The reply to a server request that may belong to calls of several callers.
    pub(crate) fn refuse_ambiguous(&self, kind: ServerRequestKind) -> ReplyPayload {
        if let Some(listener) = &self.0 {
            listener.on_ambiguous_request(kind);
        }
        listener::refused_reply(kind)
    }

    /// Asks the listener what belongs to no call; refuses it where nobody can answer.
    pub(crate) fn ask_unsolicited(
        &self,
        open: &UnsolicitedRequests,
        request: IncomingRequest,
        send_reply: impl FnOnce(&[u8], ReplyPayload) + Send + 'static,
    ) {
        let listener = self.0.as_ref();
        match listener.and_then(|it| it.on_request(request.request.clone())) {
            Some(reply) => open.spawn_reply(request, reply, send_reply),
            None => send_reply(&request.id, request.refused_reply()),
        }
    }

    /// Asks a caller what belongs to one of several of its calls: outside of its calls if it can be
    /// reached there, so that the request does not end with a call that it may not belong to; else by
    /// `ask_call`, which returns whether it could.
    pub(crate) fn ask_caller(
        &self,
        caller: CallerId,
        open: &UnsolicitedRequests,
        request: IncomingRequest,
        ask_call: impl FnOnce() -> bool,
        send_reply: impl FnOnce(&[u8], ReplyPayload) + Send + 'static,
    ) {
        let listener = self.0.as_ref();
        match listener.and_then(|it| it.on_request_of_caller(caller, request.request.clone())) {
            Some(reply) => open.spawn_reply(request, reply, send_reply),
            None if ask_call() => {},
            None => send_reply(&request.id, request.refused_reply()),
        }
    }
}
