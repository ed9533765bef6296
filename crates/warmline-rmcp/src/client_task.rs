//! The task of one client: its calls in flight, and the messages on their way to it.
//!
//! Calls make progress while the SDK waits for the next message, so there is no task to count, and
//! dropping the client cancels its calls. Notifications and server requests of a call arrive before its
//! answer. Calls go first: a client that is slow to take notifications delays none of them.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonRpcMessage, RequestId};
use tokio::sync::mpsc;
use warmline_core::era::Era;
use warmline_core::exchange::ServerRequestReply;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::protocol::meta::LOG_LEVEL;
use warmline_engine::events::{Event, EventItem, EventSubscription};
use warmline_upstream::Listener;

use crate::backend::{ActiveSubscription, Backend, PendingNotification};
use crate::convert::{self, ClientMessage, MessageFromClient, MessageToClient};
use crate::error::SendError;
use crate::handlers::{CallHandler, ClientChannel, PendingServerRequests, UnsolicitedHandler};
use crate::initialize::InitializeParams;

#[derive(Debug)]
pub(crate) struct ClientTask<B> {
    backend: B,
    calls: FuturesUnordered<Abortable<PendingCall>>,
    abort_handles: HashMap<RequestId, AbortHandle>,
    /// Messages that go before all others.
    outgoing: VecDeque<MessageToClient>,
    channel: ClientChannel,
    notifications: mpsc::Receiver<MessageToClient>,
    /// Receives what the server sends outside calls.
    subscription: Option<Box<dyn ActiveSubscription>>,
    /// Where list changes are read while no session is held; none if nobody wants them.
    pub(crate) list_events: Option<EventSubscription>,
    /// The era of the server, once it is known.
    era: Option<Era>,
    /// The log level of a modern server, as raw JSON.
    log_level: Option<Bytes>,
    is_closed: bool,
}

type PendingCall = Pin<Box<dyn Future<Output = CompletedCall> + Send>>;

#[derive(Debug)]
struct CompletedCall {
    id: RequestId,
    message: MessageToClient,
    /// The era of the server, if it is known by now.
    era: Option<Era>,
}

impl<B: Backend> ClientTask<B> {
    pub(crate) fn new(backend: B) -> Self {
        let (sender, notifications) = mpsc::channel(NOTIFICATION_BUFFER);
        Self {
            backend,
            calls: FuturesUnordered::new(),
            abort_handles: HashMap::new(),
            outgoing: VecDeque::new(),
            channel: ClientChannel {
                sender,
                server_requests: Arc::new(PendingServerRequests::default()),
            },
            notifications,
            subscription: None,
            list_events: None,
            era: None,
            log_level: None,
            is_closed: false,
        }
    }

    /// Handles a message of the client. Returns a notification that is still to be sent.
    pub(crate) fn handle_message(
        &mut self,
        message: MessageFromClient,
    ) -> Result<Option<PendingNotification>, SendError> {
        match &message {
            JsonRpcMessage::Request(request) => {
                let spoken = convert::parse_message(&message).map_err(SendError::malformed)?;
                self.handle_request(request.id.clone(), spoken);
            },
            JsonRpcMessage::Notification(_) => {
                let spoken = convert::parse_message(&message).map_err(SendError::malformed)?;
                return Ok(self.handle_notification(spoken));
            },
            JsonRpcMessage::Response(response) => {
                let result =
                    convert::to_raw_json(&response.result).map_err(SendError::malformed)?;
                let answer = ServerRequestReply::Result(result);
                self.channel.server_requests.resolve(&response.id, answer);
            },
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    let error = convert::to_raw_json(&error.error).map_err(SendError::malformed)?;
                    self.channel
                        .server_requests
                        .resolve(id, ServerRequestReply::Error(error));
                }
            },
        }
        Ok(None)
    }

    /// The next message for the client; none after it was closed.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: the calls stay where they are.
    pub(crate) async fn next_message(&mut self) -> Option<MessageToClient> {
        loop {
            if self.is_closed {
                return None;
            }
            if let Some(message) = self.outgoing.pop_front() {
                return Some(message);
            }
            tokio::select! {
                biased;
                Some(settled) = self.calls.next(), if !self.calls.is_empty() => {
                    if let Ok(settled) = settled {
                        self.complete_call(settled);
                    }
                },
                Some(message) = self.notifications.recv() => return Some(message),
                changed = next_list_changes(&mut self.list_events, self.backend.name()) => {
                    // A subscription reports it too.
                    if self.subscription.as_ref().is_none_or(|attended| attended.is_ended()) {
                        self.outgoing.extend(changed);
                    }
                },
            }
        }
    }

    /// Cancels all calls.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.subscription = None;
        self.calls.clear();
        self.abort_handles.clear();
    }

    fn complete_call(&mut self, settled: CompletedCall) {
        self.abort_handles.remove(&settled.id);
        self.era = settled.era.or(self.era);
        // Notifications of the call come first. Later ones may never end.
        for _ in 0..self.notifications.len() {
            self.outgoing.extend(self.notifications.try_recv().ok());
        }
        self.outgoing.push_back(settled.message);
    }

    fn handle_request(&mut self, id: RequestId, spoken: ClientMessage) {
        match (spoken.method.as_str(), self.era) {
            ("initialize", _) => self.initialize(id, &spoken.params),
            ("server/discover", _) => {
                let what = "this transport begins with `initialize`";
                let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None);
                self.outgoing.push_back(convert::error_message(&id, error));
            },
            ("ping", Some(Era::Modern)) => {
                self.outgoing.push_back(convert::result_message(&id, b"{}"));
            },
            ("logging/setLevel", Some(Era::Modern)) => {
                let level = spoken.params.member("level");
                self.log_level = level.map(Bytes::copy_from_slice);
                self.outgoing.push_back(convert::result_message(&id, b"{}"));
            },
            _ => self.start_call(id, spoken),
        }
    }

    fn initialize(&mut self, id: RequestId, params: &Params) {
        let hello = match serde_json::from_slice::<InitializeParams>(params.raw()) {
            Ok(hello) => hello,
            Err(error) => {
                let error = ErrorData::invalid_params(error.to_string(), None);
                return self.outgoing.push_back(convert::error_message(&id, error));
            },
        };
        self.backend = self.backend.with_client_profile(hello.client_profile());
        let name = self.backend.name().to_owned();
        let facts = self.backend.facts();
        self.track_call(id.clone(), async move {
            let (message, era) = match facts.await {
                Ok(facts) => (hello.response(&id, &name, &facts), Some(facts.era)),
                Err(error) => (convert::error_message(&id, error), None),
            };
            CompletedCall { id, message, era }
        });
    }

    fn start_call(&mut self, id: RequestId, spoken: ClientMessage) {
        let token = spoken.params.meta_member("progressToken");
        let listener: Arc<dyn Listener> = Arc::new(CallHandler {
            channel: self.channel.clone(),
            progress_token: token.map(Bytes::copy_from_slice),
        });
        let params = self.with_log_level(spoken.params);
        let call = self.backend.request(spoken.method, params, listener);
        self.track_call(id.clone(), async move {
            let message = match call.await {
                Ok(result) => convert::result_message(&id, &result),
                Err(error) => convert::error_message(&id, error),
            };
            CompletedCall {
                id,
                message,
                era: None,
            }
        });
    }

    /// Modern requests carry the log level.
    fn with_log_level(&self, params: Params) -> Params {
        let Some(level) = &self.log_level else {
            return params;
        };
        let mut raw = Vec::with_capacity(params.raw().len() + 64);
        params.write_edited(&mut raw, &[], &[Edit::Set(LOG_LEVEL, level)]);
        Params::parse(raw.into()).unwrap_or(params)
    }

    fn track_call(
        &mut self,
        id: RequestId,
        call: impl Future<Output = CompletedCall> + Send + 'static,
    ) {
        let (cancel, registration) = AbortHandle::new_pair();
        let call: PendingCall = Box::pin(call);
        self.calls.push(Abortable::new(call, registration));
        self.abort_handles.insert(id, cancel);
    }

    fn handle_notification(&mut self, spoken: ClientMessage) -> Option<PendingNotification> {
        match spoken.method.as_str() {
            // The session is initialized already. From now on the client receives notifications.
            "notifications/initialized" => {
                let listener = Arc::new(UnsolicitedHandler(self.channel.clone()));
                self.subscription = self.backend.subscribe(listener);
                None
            },
            "notifications/cancelled" => {
                let id = spoken.params.member("requestId");
                let id: Option<RequestId> = id.and_then(|raw| serde_json::from_slice(raw).ok());
                if let Some(cancel) = id.and_then(|id| self.abort_handles.remove(&id)) {
                    cancel.abort();
                }
                None
            },
            lacking
                if self.era == Some(Era::Modern)
                    && LEGACY_ONLY_NOTIFICATIONS.contains(&lacking) =>
            {
                tracing::debug!(
                    method = lacking,
                    "the server's era has no such notification"
                );
                None
            },
            _ => Some(self.backend.notify(spoken.method, spoken.params)),
        }
    }
}

/// The lists of a server that changed; waits for ever without events. Dropping it loses nothing.
async fn next_list_changes(
    events: &mut Option<EventSubscription>,
    server: &str,
) -> Vec<MessageToClient> {
    loop {
        let Some(subscription) = events else {
            return std::future::pending().await;
        };
        match subscription.next().await {
            Some(EventItem::Event(Event::ListChanged {
                server: whose,
                list,
            })) if *whose == *server => return list_changed_messages(&[list]),
            Some(EventItem::Event(_)) => {},
            // Any of them may have changed.
            Some(EventItem::Missed(_)) => {
                return list_changed_messages(&["tools", "prompts", "resources"]);
            },
            None => *events = None,
        }
    }
}

fn list_changed_messages(lists: &[&str]) -> Vec<MessageToClient> {
    let message = |list: &&str| {
        convert::notification_message(&format!("notifications/{list}/list_changed"), b"{}")
    };
    lists.iter().filter_map(message).collect()
}

/// More notifications are dropped.
const NOTIFICATION_BUFFER: usize = 1024;

/// Notifications of a client that the modern era does not have.
const LEGACY_ONLY_NOTIFICATIONS: [&str; 2] =
    ["notifications/roots/list_changed", "notifications/progress"];

#[cfg(test)]
mod tests;
