//! Batches: several messages in one body, which only 2025-03-26 allows. The answers go back together.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::{BoxFuture, join_all};
use http::Response;
use warmline_core::era::Version;
use warmline_core::message::envelope::{self, Message, MessageKind};
use warmline_core::message::params::Params;
use warmline_core::protocol::meta;

use super::client_session::ClientSession;
use super::{check_version, handle_notification, is_ping, pong_message, prepare_call};
use crate::downstream::message::{MISSING_ID, canonical_id, is_missing_id, raw_id};
use crate::downstream::{RequestContext, request};
use crate::response::event_queue::EventQueue;
use crate::response::rejection::RequestRejection;
use crate::response::stream::{CallFuture, FinalResponse};
use crate::response::{self, ResponseBody};

const MAX_MESSAGES: usize = 50;

pub(crate) async fn handle_batch(
    context: &RequestContext<'_>,
    body: Bytes,
) -> Result<Response<ResponseBody>, RequestRejection> {
    check_version(context.head)?;
    let session = ClientSession::from_request(context)?;
    let version = session.version();
    if !version.is_some_and(Version::supports_batches) {
        return Err(rejection(
            "Invalid Request: this version of the protocol does not allow batches",
        ));
    }
    let messages = split_batch(body, version).map_err(rejection)?;
    let mode = session.response_mode(context);
    let queue = context.new_queue();
    let (mut calls, mut rejected) = (Vec::new(), None);
    for (message, params) in messages {
        let method = message.method().unwrap_or_default();
        match message.kind() {
            MessageKind::Request => {
                calls.push(start_call(context, &session, &message, params, &queue).await);
            },
            MessageKind::Notification => {
                let notified = handle_notification(context, &session, method, &params).await;
                if let Err(rejection) = notified {
                    context.audit_rejection(Some((method, &params)), &rejection);
                    rejected = Some(rejection);
                }
            },
            MessageKind::Result | MessageKind::Error => session.server_requests.resolve(&message),
        }
    }
    if calls.is_empty() {
        // Beside calls, nothing says that a notification was rejected.
        return Ok(rejected.map_or_else(response::accepted, |rejection| {
            rejection.to_notification_response(context.subject.error_detail())
        }));
    }
    let call = join_calls(calls, Arc::clone(&queue));
    Ok(request::respond(context, Some(&session), call, queue, mode).await)
}

fn rejection(what: impl Into<std::borrow::Cow<'static, str>>) -> RequestRejection {
    RequestRejection::invalid(what).with_audit_reason("bad-batch")
}

/// All calls of a batch, as one. A call that the client cancelled has no answer.
fn join_calls(calls: Vec<CancellableCall>, queue: Arc<EventQueue>) -> CallFuture {
    Box::pin(async move {
        let answers: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
        if answers.is_empty() {
            queue.cancel(None);
            return std::future::pending().await;
        }
        let length: usize = answers.iter().map(|answer| answer.len() + 1).sum();
        let mut out = BytesMut::with_capacity(length + 1);
        for (index, answer) in answers.iter().enumerate() {
            out.put_u8(if index == 0 { b'[' } else { b',' });
            out.extend_from_slice(answer);
        }
        out.put_u8(b']');
        FinalResponse::ok(out.freeze())
    })
}

/// The answer to one request of a batch; `None` if it was cancelled.
type CancellableCall = BoxFuture<'static, Option<Bytes>>;

async fn start_call(
    context: &RequestContext<'_>,
    session: &Arc<ClientSession>,
    message: &Message,
    params: Params,
    queue: &Arc<EventQueue>,
) -> CancellableCall {
    let (id, method) = (raw_id(message), message.method().unwrap_or_default());
    let ready = |message| -> CancellableCall { Box::pin(std::future::ready(Some(message))) };
    if is_ping(context, session, (&id, method)) {
        return ready(pong_message(&id));
    }
    // Events go to the queue of the whole batch; a cancel concerns this call alone.
    let own = Arc::<EventQueue>::default();
    let said = params.clone();
    let call = match session.begin_call(context, id.clone(), &own) {
        Ok(in_flight) => {
            let request = (id.clone(), method, params);
            prepare_call(context, session, request, (queue, in_flight)).await
        },
        Err(rejection) => Err(rejection),
    };
    match call {
        Ok(call) => Box::pin(async move {
            tokio::select! {
                biased;
                () = std::future::poll_fn(|cx| own.poll_cancelled(cx)) => None,
                answer = call => Some(answer.message),
            }
        }),
        Err(rejection) => {
            context.audit_rejection(Some((method, &said)), &rejection);
            ready(rejection.to_message(Some(&id), context.subject.error_detail()))
        },
    }
}

/// The messages of a batch, or what is wrong with it.
fn split_batch(body: Bytes, version: Option<Version>) -> Result<Vec<(Message, Params)>, String> {
    let parts = envelope::split_batch(body, version);
    if parts.clone().take(MAX_MESSAGES + 1).count() > MAX_MESSAGES {
        return Err(format!(
            "Invalid Request: a batch has 1 to {MAX_MESSAGES} messages"
        ));
    }
    let messages: Vec<_> = parts.map(parse_message).collect::<Result<_, _>>()?;
    let requests = messages.iter().map(|(message, _)| message);
    let requests = requests.filter(|message| message.kind() == MessageKind::Request);
    let mut known = BTreeSet::new();
    let mut ids = requests.filter_map(Message::raw_id).map(canonical_id);
    // Their answers come together and could not be told apart.
    if ids.any(|id| !known.insert(id)) {
        return Err("Invalid Request: two requests of a batch have the same id".to_owned());
    }
    Ok(messages)
}

fn parse_message(text: Bytes) -> Result<(Message, Params), String> {
    let message = Message::parse(text).map_err(|error| format!("Invalid Request: {error}"))?;
    if is_missing_id(&message) {
        return Err(MISSING_ID.to_owned());
    }
    if message.method() == Some("initialize") {
        return Err("Invalid Request: `initialize` cannot be part of a batch".to_owned());
    }
    let params = message
        .params()
        .map_or_else(|| Ok(Params::empty()), Params::parse);
    let params = params.map_err(|error| format!("Invalid params: {error}"))?;
    if params.meta_member(meta::PROTOCOL_VERSION).is_some() {
        return Err("Invalid Request: a modern message cannot be part of a batch".to_owned());
    }
    Ok((message, params))
}
