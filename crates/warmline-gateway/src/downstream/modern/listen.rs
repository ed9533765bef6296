//! `subscriptions/listen`: a stream of changes that stays open until the client leaves.
//!
//! A listen for lists alone shares one stream of the server ([`shared_listen`](super::shared_listen)),
//! any other has its own. When the server's stream breaks, the gateway opens it again and notifies the
//! client of everything that may have changed meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use warmline_core::error::code::Code;
use warmline_core::exchange::Notification;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::pool_key::Digest;
use warmline_core::protocol::meta;
use warmline_engine::relay::{RelayCall as _, RelayHandle as _};
use warmline_engine::{Error, ServerHandle};
use warmline_platform::clock;
use warmline_upstream::{CapacityFuture, Listener};

use super::server_call::{ModernCall, ModernCaller, failed_call_response};
use super::shared_listen::{ListKinds, SharedListens};
use super::tasks::TaskIds;
use crate::access::audit::AuditLine;
use crate::downstream::aggregate::merged_listen;
use crate::downstream::list_changes::LIST_CHANGES;
use crate::downstream::request::notification_message;
use crate::downstream::{RequestContext, strip_run};
use crate::response::event_queue::EventQueue;
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::stream::{AcceptedFormats, CallFuture, FinalResponse, ResponseStream};
use crate::response::{self, ResponseBody};
use crate::shutdown;

pub(crate) const METHOD: &str = "subscriptions/listen";
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The result of a listen that ends without an error.
const COMPLETE_RESULT: &[u8] = b"{\"resultType\":\"complete\"}";

/// Open listens at a time, in all and per caller.
const MAX_LISTENS: u32 = 1024;
const MAX_LISTENS_PER_CALLER: u32 = 64;
/// A server is silent on such a stream as long as nothing changes.
pub(super) const LISTEN_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The pause before a broken stream is opened again. It doubles each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// After a stream that stayed open this long, the pause starts over.
const STABLE_AFTER: Duration = Duration::from_secs(60);

pub(crate) struct ListenRequest {
    /// The client's own id, raw.
    pub(crate) id: Bytes,
    pub(crate) params: Params,
    pub(crate) queue: Arc<EventQueue>,
    pub(crate) caller: ModernCaller,
}

pub(crate) struct PreparedListen {
    pub(crate) sink: Arc<ListenSink>,
    /// Ends with the listen.
    pub(crate) running: BoxFuture<'static, FinalResponse>,
}

pub(super) async fn handle_listen(
    context: &RequestContext<'_>,
    request: ListenRequest,
) -> Result<Response<ResponseBody>, RequestRejection> {
    let shared = context.shared;
    let (queue, params) = (Arc::clone(&request.queue), request.params.clone());
    let (run, caller_key) = (request.caller.run.clone(), request.caller.key);
    let PreparedListen { sink, running } = match context.target.server {
        Some(_) => prepare(context, request)?,
        None => Box::pin(merged_listen::prepare(context, request)).await?,
    };
    if context.head.accepts == AcceptedFormats::Json {
        let what = "Not Acceptable: a listen is answered as text/event-stream";
        return Err(RequestRejection::not_acceptable(what));
    }
    let Some(permit) = shared.listen_streams.try_acquire(caller_key) else {
        let what = "Subscription limit reached";
        let rejection = RequestRejection::new(StatusCode::OK, RpcCode::Internal, what);
        return Err(rejection.with_audit_reason(Code::Overloaded.as_str()));
    };
    *sink.audit_line.lock() = context.target_audit_line(METHOD, &params);
    let mut stopping = shared.stopping.clone();
    let revoked = context.access_revoked(Vec::new());
    let call: CallFuture = Box::pin(async move {
        let ended = tokio::select! {
            // A shared stream goes on without the run, and a later request begins another run.
            ended = async {
                match &run {
                    Some(run) => run.while_live(running).await,
                    None => Some(running.await),
                }
            } => ended,
            () = shutdown::wait_for_stop(&mut stopping) => None,
            () = revoked => None,
        };
        drop(permit);
        ended.unwrap_or_else(|| sink.complete_response())
    });
    let permit = context.take_permit().into_bytes_only();
    let mode = super::response_mode(context);
    let stream = ResponseStream::for_call(call, queue, mode, permit, &shared.counters);
    let response = stream.respond(|stream| stream).await;
    Ok(response.unwrap_or_else(response::accepted))
}

fn prepare(
    context: &RequestContext<'_>,
    request: ListenRequest,
) -> Result<PreparedListen, RequestRejection> {
    let (call, params) = ModernCall::new(context, request.caller, METHOD, request.params)?;
    let (server, params) = (call.server, strip_run(params));
    let sink = ListenSink {
        task_ids: call.task_ids,
        ..ListenSink::new(&request.queue, request.id)
    };
    let sink = Arc::new(sink);
    let (shared, detail) = (Arc::clone(context.shared), context.subject.error_detail());
    let listening = Arc::clone(&sink);
    let running = async move {
        let listener = Arc::<ListenSink>::clone(&listening);
        let ended = keep_listening(
            &shared.shared_listens,
            &server,
            &params,
            listener,
            |outcome| match outcome {
                Ok(result) => Some(Ok(result)),
                // The next request that names the run begins another one.
                Err(error) if error.code() == Code::RunEnded => {
                    Some(Ok(Bytes::from_static(COMPLETE_RESULT)))
                },
                Err(error) => {
                    let is_gone = matches!(error.code(), Code::ServerUnknown | Code::Closed);
                    let is_final = is_gone || error.server_error().is_some();
                    (is_final || !listening.acknowledged.load(Ordering::Acquire))
                        .then_some(Err(error))
                },
            },
        );
        match ended.await {
            Ok(result) => listening.final_response(&result),
            Err(error) => {
                listening.record_audit(Err(error.clone()));
                failed_call_response(&server, &listening.id, (&error, 0), detail).await
            },
        }
    };
    Ok(PreparedListen {
        sink,
        running: Box::pin(running),
    })
}

/// Listens to a server again and again, with pauses that double, until `ended` says that it is over.
pub(crate) async fn keep_listening<T>(
    shared: &SharedListens,
    server: &ServerHandle,
    params: &Params,
    sink: Arc<dyn Listener>,
    mut ended: impl FnMut(Result<Bytes, Error>) -> Option<T>,
) -> T {
    let mut pause = FIRST_RETRY_DELAY;
    loop {
        let began = clock::now();
        let outcome = listen_once(shared, server, params, Arc::clone(&sink)).await;
        if let Some(end) = ended(outcome) {
            return end;
        }
        if began.elapsed() >= STABLE_AFTER {
            pause = FIRST_RETRY_DELAY;
        }
        clock::sleep(pause).await;
        pause = MAX_RETRY_DELAY.min(pause * 2);
    }
}

/// Listens until the stream of the server ends. Listens for lists alone share one stream.
async fn listen_once(
    shared: &SharedListens,
    server: &ServerHandle,
    params: &Params,
    sink: Arc<dyn Listener>,
) -> Result<Bytes, Error> {
    if let (Some(lists), Some(scope)) = (ListKinds::parse_lists_only(params), server.list_scope()) {
        return shared.listen(scope, lists, sink).await;
    }
    server
        .request_raw(METHOD, params.clone())
        .relayed()
        .timeout(LISTEN_TIMEOUT)
        .idle_timeout(LISTEN_TIMEOUT)
        .shared_listener(sink)
        .await
}

pub(crate) struct ListenSink {
    queue: Arc<EventQueue>,
    /// The client's own id, raw.
    id: Bytes,
    task_ids: TaskIds,
    acknowledged: AtomicBool,
    /// Written once it is known how the listen began.
    audit_line: Mutex<AuditLine>,
}

pub(crate) const RESOURCES_MEMBER: &str = "resourceSubscriptions";

pub(crate) fn acked_notifications(params: &[u8]) -> Map<String, Value> {
    let mut params: Value = serde_json::from_slice(params).unwrap_or_default();
    match params.get_mut("notifications").map(Value::take) {
        Some(Value::Object(agreed)) => agreed,
        Some(_) | None => Map::new(),
    }
}

/// The URIs of the resources in a listen or an acknowledgement.
pub(crate) fn subscribed_uris(listen: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let uris = listen.get(RESOURCES_MEMBER).and_then(Value::as_array);
    uris.into_iter().flatten().filter_map(Value::as_str)
}

impl Listener for ListenSink {
    fn on_notification(&self, news: Notification) {
        // Nothing else belongs on this stream.
        let Notification::Other(method, params) = news else {
            return;
        };
        if method == ACKNOWLEDGED {
            if self.acknowledged.swap(true, Ordering::AcqRel) {
                return self.notify_possible_changes(&acked_notifications(&params));
            }
            self.record_audit(Ok(Bytes::new()));
        }
        self.notify(&method, &params);
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.queue.backpressure()
    }

    fn on_notifications_dropped(&self, notices: u64) {
        self.queue.count_dropped(notices);
    }
}

impl ListenSink {
    pub(crate) fn new(queue: &Arc<EventQueue>, id: Bytes) -> Self {
        Self {
            queue: Arc::clone(queue),
            id,
            task_ids: TaskIds::default(),
            acknowledged: AtomicBool::new(false),
            audit_line: Mutex::default(),
        }
    }

    pub(crate) fn record_audit(&self, outcome: Result<Bytes, Error>) {
        let line = std::mem::take(&mut *self.audit_line.lock());
        line.finish(&outcome);
    }

    pub(crate) fn notify(&self, method: &str, params: &Bytes) {
        let Some(told) = self.task_ids.rewrite_notification(method, params) else {
            return;
        };
        let named = self.with_subscription_id(&told);
        self.queue
            .push_droppable(notification_message(method, &named));
    }

    /// Notifies the client of everything in an acknowledgement: the stream was opened again, and changes in
    /// between were lost.
    pub(crate) fn notify_possible_changes(&self, agreed: &Map<String, Value>) {
        for list in &LIST_CHANGES {
            if agreed.get(list.subscription) == Some(&Value::Bool(true)) {
                self.notify(list.notification, &Bytes::from_static(b"{}"));
            }
        }
        for uri in subscribed_uris(agreed) {
            let params = json!({ "uri": uri }).to_string();
            self.notify("notifications/resources/updated", &params.into());
        }
    }

    pub(crate) fn complete_response(&self) -> FinalResponse {
        self.final_response(COMPLETE_RESULT)
    }

    /// The end of the listen, with the server's result.
    fn final_response(&self, result: &[u8]) -> FinalResponse {
        let named = self.with_subscription_id(&Bytes::copy_from_slice(result));
        FinalResponse::ok(response::response_message(Some(&self.id), "result", &named))
    }

    /// The same object with the id of the client's listen in `_meta`.
    fn with_subscription_id(&self, object: &Bytes) -> Bytes {
        let edits = [Edit::Set(meta::SUBSCRIPTION_ID, &self.id)];
        Params::parse(object.clone()).map_or_else(
            |_| object.clone(),
            |params| params.edited(&[], &edits).raw().clone(),
        )
    }
}

/// Counts the open listens of each caller.
#[derive(Default)]
pub(crate) struct OpenListens(Arc<Mutex<HashMap<Digest, u32>>>);

impl OpenListens {
    /// A permit for one more listen, within the limits.
    pub(crate) fn try_acquire(&self, caller_key: Digest) -> Option<ListenPermit> {
        let mut open = self.0.lock();
        let of_caller = open.get(&caller_key).copied().unwrap_or_default();
        if of_caller >= MAX_LISTENS_PER_CALLER || open.values().sum::<u32>() >= MAX_LISTENS {
            return None;
        }
        open.insert(caller_key, of_caller + 1);
        Some(ListenPermit {
            open: Arc::clone(&self.0),
            caller_key,
        })
    }
}

pub(crate) struct ListenPermit {
    open: Arc<Mutex<HashMap<Digest, u32>>>,
    caller_key: Digest,
}

impl Drop for ListenPermit {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        match open.get_mut(&self.caller_key) {
            Some(of_caller) if *of_caller > 1 => *of_caller -= 1,
            Some(_) | None => drop(open.remove(&self.caller_key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_take_all_places_and_each_is_free_again() {
        let listens = OpenListens::default();
        let (greedy, other) = (Digest::new([1; 16]), Digest::new([2; 16]));
        let mut held: Vec<ListenPermit> =
            std::iter::from_fn(|| listens.try_acquire(greedy)).collect();
        assert_eq!(held.len(), usize::try_from(MAX_LISTENS_PER_CALLER).unwrap());
        assert!(listens.try_acquire(other).is_some());
        held.pop();
        held.extend(listens.try_acquire(greedy));
        assert!(listens.try_acquire(greedy).is_none());
        held.clear();
        assert!(listens.0.lock().is_empty());
        for number in 0..=u8::MAX {
            let who = Digest::new([number; 16]);
            held.extend((0..8).filter_map(|_| listens.try_acquire(who)));
        }
        assert_eq!(held.len(), usize::try_from(MAX_LISTENS).unwrap());
    }
}
