//! The side towards clients: both eras of the protocol, over HTTP, HTTP+SSE and stdio.
//!
//! The era of each message is decided here, by its body.

pub(crate) mod admission;
pub(crate) mod aggregate;
pub(crate) mod http_sse;
pub(crate) mod legacy;
pub(crate) mod list_changes;
pub(crate) mod message;
pub(crate) mod modern;
pub(crate) mod request;
mod sink;
pub(crate) mod stdio;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use warmline_core::era::Era;
use warmline_core::message::envelope::MessageKind;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::pool_key::Digest;
use warmline_engine::Run;
use warmline_store::keyring::Purpose;

use self::message::{
    ClientTransport, InboundMessage, MISSING_ID, MessageHead, accepted_formats, is_missing_id,
    message_era,
};
use crate::GatewayState;
use crate::access::{self, RunSource};
use crate::auth::{Peer, Subject};
use crate::endpoint::RequestTarget;
use crate::limits::usage::IdentityReplyBudget;
use crate::limits::{EMPTY_PERMIT, RequestPermit};
use crate::metrics::RequestEra;
use crate::response::call_error::ErrorDetail;
use crate::response::event_queue::EventQueue;
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::stream::ResponseStream;
use crate::response::{self, ResponseBody};

/// An authenticated request.
pub(crate) struct RequestContext<'a> {
    pub(crate) shared: &'a Arc<GatewayState>,
    pub(crate) subject: Subject,
    /// Whose quota the request counts against; `None` without authentication.
    pub(crate) identity: Option<Digest>,
    pub(crate) target: RequestTarget<'a>,
    /// Whether the client uses the endpoint of all servers, whichever server its request goes to.
    pub(crate) is_aggregate: bool,
    pub(crate) head: MessageHead<'a>,
    pub(crate) peer: Peer,
    /// The share of the limits that the request holds, until its call takes it over.
    pub(crate) permit: &'a Mutex<RequestPermit>,
    /// Whether the request has its audit line; `None` without an audit.
    pub(crate) audited: Option<Arc<AtomicBool>>,
}

impl<'a> RequestContext<'a> {
    pub(crate) fn new(
        shared: &'a Arc<GatewayState>,
        (subject, peer): (Subject, Peer),
        target: RequestTarget<'a>,
        head: MessageHead<'a>,
        permit: &'a Mutex<RequestPermit>,
    ) -> Self {
        Self {
            audited: shared.audit.is_some().then(Arc::default),
            shared,
            identity: subject.quota_key(),
            subject,
            is_aggregate: target.server.is_none(),
            target,
            head,
            peer,
            permit,
        }
    }

    pub(crate) fn for_server<'b>(&'b self, server: &'b str) -> RequestContext<'b> {
        RequestContext {
            subject: self.subject.clone(),
            target: RequestTarget {
                server: Some(server),
                ..self.target
            },
            audited: self.audited.clone(),
            ..*self
        }
    }

    pub(crate) fn to_owned(&self) -> OwnedContext {
        OwnedContext {
            shared: Arc::clone(self.shared),
            subject: self.subject.clone(),
            peer: self.peer,
            run: self.target.run.map(str::to_owned),
            server: self.target.server.map(str::to_owned),
            transport: self.head.transport,
            headers: self.head.headers.clone(),
            path: self.head.path.to_owned(),
            session: self.head.session.cloned(),
        }
    }

    fn new_queue(&self) -> Arc<EventQueue> {
        let queue = || Arc::new(EventQueue::new(&self.shared.counters));
        self.head.queue.cloned().unwrap_or_else(queue)
    }

    pub(crate) fn take_permit(&self) -> RequestPermit {
        std::mem::take(&mut *self.permit.lock())
    }

    pub(crate) fn reply_budget(&self) -> IdentityReplyBudget {
        IdentityReplyBudget {
            limiter: Arc::clone(&self.shared.limiter),
            identity: self.identity,
        }
    }

    /// The name of the run that the request is for, if anything names one: the path, a header, `_meta`, or
    /// the operator's own sources. A name can only split the work of one identity; it never reaches the
    /// run of another.
    pub(crate) fn named_run(
        &self,
        params: Option<&Params>,
    ) -> Result<Option<Cow<'a, str>>, RequestRejection> {
        if let Some(name) = self.target.run {
            return check_run_name(Cow::Borrowed(name), "the path");
        }
        let headers = self.head.headers;
        let mut named = headers.get_all(RUN_HEADER).iter();
        if let Some(name) = named.next() {
            let place = "the header `Warmline-Run`";
            let name = name.to_str().ok().filter(|_| named.next().is_none());
            let name = name.ok_or_else(|| invalid_run_name(place))?;
            return check_run_name(Cow::Borrowed(name), place);
        }
        if let Some(raw) = params.and_then(|params| params.meta_member(RUN_META_KEY)) {
            let place = "`_meta[\"dev.warmline/run\"]`";
            let name = serde_json::from_slice::<String>(raw);
            let name = name.map_err(|_| invalid_run_name(place))?;
            return check_run_name(Cow::Owned(name), place);
        }
        let policy = self.shared.access.policy.load();
        let mut sources = policy.run_from.iter();
        let found = sources.find_map(|place| conversation_name(place, headers, params));
        // It may be any text, so the name is its keyed digest.
        Ok(found.map(|text| {
            let parts: [&[u8]; 2] = [b"found", text.as_bytes()];
            let digest = self.shared.warmline.vault().digest(Purpose::Run, &parts);
            Cow::Owned(format!("found_{}", digest.to_hex()))
        }))
    }

    fn log_rejection(&self, response: &Response<ResponseBody>) {
        let log = &self.shared.rejection_log;
        log.log_response(None, self.peer, response);
    }

    /// Ends the stream when the client's access is revoked. The single stream of a HTTP+SSE client
    /// checks that itself, and a client on a pipe is the local user.
    pub(crate) fn with_revocation(&self, flow: ResponseStream) -> ResponseStream {
        if self.head.is_single_stream() {
            return flow;
        }
        let sources = flow.queue.source_servers();
        flow.with_close_signal(self.access_revoked(sources))
    }

    /// Resolves when the client's access ends, or that to the server of the request or to one of `servers`.
    pub(crate) fn access_revoked(
        &self,
        mut servers: Vec<String>,
    ) -> impl Future<Output = ()> + Send + use<> {
        servers.extend(self.target.server.map(str::to_owned));
        access::access_revoked(Arc::clone(self.shared), self.subject.clone(), servers)
    }
}

const RUN_HEADER: HeaderName = HeaderName::from_static("warmline-run");
const RUN_META_KEY: &str = "dev.warmline/run";
/// The longest name of a conversation.
const MAX_CONVERSATION_NAME: usize = 1024;

/// The parameters without the name of the run, which is for the gateway alone.
fn strip_run(params: Params) -> Params {
    match params.meta_member(RUN_META_KEY) {
        Some(_) => params.edited(&[], &[Edit::Remove(RUN_META_KEY)]),
        None => params,
    }
}

fn check_run_name<'a>(
    name: Cow<'a, str>,
    place: &'static str,
) -> Result<Option<Cow<'a, str>>, RequestRejection> {
    match Run::check_name(&name) {
        Ok(()) => Ok(Some(name)),
        Err(_) => Err(invalid_run_name(place)),
    }
}

fn invalid_run_name(place: &str) -> RequestRejection {
    let what = format!(
        "{place} is not a name of a run: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`"
    );
    RequestRejection::bad_request(RpcCode::Params, what).with_audit_reason("bad-run")
}

fn conversation_name(
    place: &RunSource,
    headers: &HeaderMap,
    params: Option<&Params>,
) -> Option<String> {
    let text = match place {
        RunSource::Meta(key) => {
            let raw = params?.meta_member(key)?;
            serde_json::from_slice::<String>(raw).ok()?
        },
        RunSource::Header(name) => {
            let bytes = headers.get(name)?.as_bytes();
            // Bytes that are not UTF-8 are a name as well, each byte a letter.
            let letters = || bytes.iter().copied().map(char::from).collect();
            std::str::from_utf8(bytes).map_or_else(|_| letters(), str::to_owned)
        },
    };
    (1..=MAX_CONVERSATION_NAME)
        .contains(&text.len())
        .then_some(text)
}

/// A request context for work that outlives its request.
#[derive(Clone)]
pub(crate) struct OwnedContext {
    pub(crate) shared: Arc<GatewayState>,
    subject: Subject,
    peer: Peer,
    run: Option<String>,
    server: Option<String>,
    transport: ClientTransport,
    headers: HeaderMap,
    path: String,
    session: Option<HeaderValue>,
}

impl OwnedContext {
    pub(crate) fn context(&self) -> RequestContext<'_> {
        let session = self.session.as_ref();
        let head = MessageHead::single_stream(self.transport, &self.headers, &self.path, session);
        let target = RequestTarget {
            run: self.run.as_deref(),
            server: self.server.as_deref(),
        };
        let subject = (self.subject.clone(), self.peer);
        RequestContext::new(&self.shared, subject, target, head, &EMPTY_PERMIT)
    }
}

/// Rejects an HTTP request by its head: method, type of the body, and the formats that the client
/// accepts (mcp-spec 3.4.6, steps 2 and 3).
pub(crate) fn reject_by_head(head: &Parts) -> Option<Response<ResponseBody>> {
    let message_head = MessageHead::http(head);
    if head.method != http::Method::POST {
        let is_modern = message_head.claimed_era() == Some(Era::Modern);
        return is_modern.then(|| response::method_not_allowed("POST"));
    }
    reject_content_type(&head.headers).or_else(|| {
        let is_readable = accepted_formats(&head.headers).is_some();
        (!is_readable)
            .then(|| RequestRejection::no_format().to_response(None, ErrorDetail::Limited))
    })
}

fn reject_content_type(headers: &HeaderMap) -> Option<Response<ResponseBody>> {
    let stated = headers.get(CONTENT_TYPE);
    let kind = stated.map(|stated| stated.to_str().unwrap_or_default());
    let kind = kind.and_then(|kind| kind.split(';').next())?;
    let is_json = kind.trim().eq_ignore_ascii_case("application/json");
    let what = "Unsupported Media Type: a message is application/json";
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    (!is_json).then(|| response::rpc_error(status, None, RpcCode::Invalid, what))
}

/// Answers a request without a message: `GET` opens or resumes the stream of a legacy client for what
/// belongs to no call, and `DELETE` ends its session.
pub(crate) async fn handle_without_body(
    context: &RequestContext<'_>,
    method: &http::Method,
) -> Response<ResponseBody> {
    let outcome = match *method {
        http::Method::GET => legacy::handle_get(context).await,
        http::Method::DELETE => legacy::end_session(context).await,
        _ => Ok(response::method_not_allowed("GET, POST, DELETE")),
    };
    let detail = context.subject.error_detail();
    let response = outcome.unwrap_or_else(|rejection| rejection.to_response(None, detail));
    context.audit_rejection_once(None, &response);
    response
}

/// Answers a message. Every rejection gets a line in the audit.
pub(crate) async fn handle_message(
    context: &RequestContext<'_>,
    inbound: InboundMessage,
) -> (RequestEra, Response<ResponseBody>) {
    let mut audited = None;
    if let (Some(_), Some(method)) = (&context.audited, inbound.method()) {
        let params = inbound.params().cloned().unwrap_or_else(Params::empty);
        audited = Some((method.to_owned(), params));
    }
    let (era, response) = dispatch_message(context, inbound).await;
    let audited = audited.as_ref();
    let audited = audited.map(|(method, params)| (&**method, params));
    context.audit_rejection_once(audited, &response);
    (era, response)
}

async fn dispatch_message(
    context: &RequestContext<'_>,
    inbound: InboundMessage,
) -> (RequestEra, Response<ResponseBody>) {
    let detail = || context.subject.error_detail();
    let reject = |id: Option<&[u8]>, code, what: String| {
        let rejection = RequestRejection::bad_request(code, what);
        (RequestEra::None, rejection.to_response(id, detail()))
    };
    let is_batch = inbound.is_batch();
    let (message, params) = match inbound {
        InboundMessage::Single { message, params } => (message, params),
        InboundMessage::Unparsed { body, .. }
            if is_batch && context.head.claimed_era() != Some(Era::Modern) =>
        {
            let outcome = Box::pin(legacy::batch::handle_batch(context, body)).await;
            let response =
                outcome.unwrap_or_else(|rejection| rejection.to_response(None, detail()));
            return (RequestEra::Legacy, response);
        },
        InboundMessage::Unparsed { error, .. } if error.is_json() => {
            return reject(None, RpcCode::Invalid, format!("Invalid Request: {error}"));
        },
        InboundMessage::Unparsed { error, .. } => {
            return reject(None, RpcCode::Parse, format!("Parse error: {error}"));
        },
    };
    let params = match params {
        Ok(params) => params,
        Err(error) => {
            let what = format!("Invalid params: {error}");
            return reject(message.raw_id(), RpcCode::Params, what);
        },
    };
    if is_missing_id(&message) {
        return reject(None, RpcCode::Invalid, MISSING_ID.to_owned());
    }
    let (era, outcome) = match message_era(context.head.claimed_era(), &message, &params) {
        Era::Modern => {
            let outcome = modern::handle_message(context, &message, params).await;
            (RequestEra::Modern, outcome)
        },
        Era::Legacy => {
            let outcome = legacy::handle_message(context, &message, params).await;
            (RequestEra::Legacy, outcome)
        },
    };
    let response = outcome.unwrap_or_else(|rejection| match message.kind() {
        MessageKind::Request => rejection.to_response(message.raw_id(), detail()),
        MessageKind::Notification => rejection.to_notification_response(detail()),
        // It carries the id of a server request, not one of the client's own.
        MessageKind::Result | MessageKind::Error => rejection.to_response(None, detail()),
    });
    if response.status() == StatusCode::BAD_REQUEST {
        return (era, response::mark_if_legacy_only(response));
    }
    (era, response)
}
