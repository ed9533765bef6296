//! What is sent to clients, and HTTP bodies: request bodies are read within limits, response bodies are
//! driven.
//!
//! A response that rejects something carries its [`RequestRejection`] for the log and the audit. Only
//! these functions make one, and its sender writes both lines.

pub(crate) mod call_error;
pub(crate) mod event_queue;
pub(crate) mod rejection;
pub(crate) mod replay_store;
pub(crate) mod stream;

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::json;
use warmline_core::error::code::Code;
use warmline_platform::clock;

use self::call_error::ErrorDetail;
use self::rejection::{LEGACY_ONLY_MESSAGE, RequestRejection, RpcCode, RpcRejection};
use self::stream::ResponseStream;
use crate::limits::usage::{IdentityReplyBudget, is_large_reply};

pub(crate) enum ResponseBody {
    Empty,
    /// The whole body: JSON, unless the headers say otherwise.
    Full(Option<Bytes>),
    /// Events, perhaps with the call behind them.
    Events(Arc<Mutex<ResponseStream>>),
    /// A stream that belongs to no request, such as that of admin events.
    Stream(BoxStream<'static, Bytes>),
}

impl ResponseBody {
    pub(crate) const fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes))
    }

    /// Charges the body to the budget until the client has read it.
    pub(crate) fn with_reply_budget(self, budget: impl FnOnce() -> IdentityReplyBudget) -> Self {
        match self {
            Self::Full(Some(bytes)) if is_large_reply(&bytes) => {
                Self::Full(Some(budget().track_reply(bytes)))
            },
            Self::Events(events) => {
                events.lock().reply_budget = Some(budget());
                Self::Events(events)
            },
            Self::Empty | Self::Full(_) | Self::Stream(_) => self,
        }
    }

    /// The next message, for a transport that frames messages itself; none at the end.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Events(events) => events.lock().poll_message(cx),
            Self::Stream(stream) => stream.as_mut().poll_next(cx),
        }
    }

    /// Drives the call behind it, whether or not its client reads.
    pub(crate) fn drive_call(&self, cx: &mut Context<'_>) {
        if let Self::Events(events) = self {
            events.lock().drive_call(cx);
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => events.lock().poll_events(cx).map(data_frame),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(data_frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_none(),
            Self::Events(_) | Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            },
            Self::Events(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A response body that keeps its request in flight until the client has read it.
pub(crate) struct TrackedBody<G> {
    pub(crate) body: ResponseBody,
    #[expect(dead_code, reason = "dropping it ends the request")]
    pub(crate) guard: G,
}

impl<G: Unpin> http_body::Body for TrackedBody<G> {
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

fn data_frame(data: Option<Bytes>) -> Option<Result<Frame<Bytes>, Infallible>> {
    data.map(|data| Ok(Frame::data(data)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBodyError {
    TooLarge,
    TooSlow,
    Broken,
}

/// An unwanted body is read up to this size, and for this long.
const MAX_DRAIN_BYTES: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Reads the rest of an unwanted body, if it is small and has arrived already. Returns whether that was
/// all, so that the next request may follow.
pub(crate) async fn drain_body(body: &mut Incoming) -> bool {
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > MAX_DRAIN_BYTES) {
        return false;
    }
    let draining = async {
        let mut taken = 0_usize;
        while taken <= MAX_DRAIN_BYTES {
            match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(frame)) => taken += frame.data_ref().map_or(0, Bytes::len),
            }
        }
        false
    };
    let drained = clock::timeout(DRAIN_TIMEOUT, draining).await;
    drained.unwrap_or_default()
}

/// A buffer holds at most this much beside its body.
const MAX_SPARE_CAPACITY: usize = 64 << 10;

/// Reads a whole body. A body of one frame is not copied; for any other the buffer is as large as
/// the body, or as the limit while its length is not known.
pub(crate) async fn read_body(
    body: &mut Incoming,
    limit: usize,
    within: Duration,
) -> Result<Bytes, ReadBodyError> {
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > limit) {
        return Err(ReadBodyError::TooLarge);
    }
    let stated = body.size_hint().exact();
    let stated = stated.and_then(|stated| usize::try_from(stated).ok());
    let reading = collect_body(body, stated, limit);
    let read = clock::timeout(within, reading).await;
    read.unwrap_or(Err(ReadBodyError::TooSlow))
}

async fn collect_body(
    body: &mut Incoming,
    stated: Option<usize>,
    limit: usize,
) -> Result<Bytes, ReadBodyError> {
    let mut first = Bytes::new();
    let mut more: Option<BytesMut> = None;
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let data = match frame {
            None => break,
            Some(Err(_)) => return Err(ReadBodyError::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
        };
        let so_far = more.as_ref().map_or(first.len(), BytesMut::len);
        if so_far.saturating_add(data.len()) > limit {
            return Err(ReadBodyError::TooLarge);
        }
        match &mut more {
            None if first.is_empty() => first = data,
            None => {
                let so_far = first.len() + data.len();
                let mut whole = BytesMut::with_capacity(stated.unwrap_or(so_far).max(so_far));
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&data);
                (more, first) = (Some(whole), Bytes::new());
            },
            Some(whole) => {
                let missing = (whole.len() + data.len()).saturating_sub(whole.capacity());
                if missing > 0 {
                    let double = whole.capacity().saturating_mul(2).min(limit);
                    whole.reserve(double.saturating_sub(whole.len()).max(data.len()));
                }
                whole.extend_from_slice(&data);
            },
        }
    }
    Ok(match more {
        None => first,
        // A body of unknown length may have grown its buffer far too much.
        Some(whole) if whole.capacity() - whole.len() > MAX_SPARE_CAPACITY => {
            Bytes::copy_from_slice(&whole)
        },
        Some(whole) => whole.freeze(),
    })
}

/// The message was accepted, and has no answer.
pub(crate) fn accepted() -> Response<ResponseBody> {
    empty_response(StatusCode::ACCEPTED)
}

pub(crate) fn no_content() -> Response<ResponseBody> {
    empty_response(StatusCode::NO_CONTENT)
}

pub(crate) fn ok_json(body: impl Into<Bytes>) -> Response<ResponseBody> {
    json_response(StatusCode::OK, body)
}

pub(crate) fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(body.into()));
    *response.status_mut() = status;
    response
}

/// A stream that belongs to no request.
pub(crate) fn stream_response(
    stream: BoxStream<'static, Bytes>,
    kind: &'static str,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Stream(stream));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn empty_response(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Empty);
    *response.status_mut() = status;
    response
}

/// A rejection with its own body: `why` is for the audit, `what` for the log.
pub(crate) fn rejection(
    status: StatusCode,
    why: (&'static str, &str),
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    with_rejection(json_response(status, body), why)
}

fn with_rejection(
    mut response: Response<ResponseBody>,
    (audit_reason, what): (&'static str, &str),
) -> Response<ResponseBody> {
    let what = Cow::Owned(what.to_owned());
    let rejection = RpcRejection::new(response.status(), None, what, audit_reason);
    response
        .extensions_mut()
        .insert(RequestRejection::Rpc(rejection));
    response
}

/// The error of the gateway that a response carries.
pub(crate) fn rejection_details(response: &Response<ResponseBody>) -> Option<&RpcRejection> {
    match response.extensions().get()? {
        RequestRejection::Rpc(rejection) => Some(rejection),
        RequestRejection::Failed(error) if error.code() == Code::ServerUnknown => {
            Some(&UNKNOWN_SERVER)
        },
        RequestRejection::Failed(_) => None,
    }
}

/// Sets the content type, and reuses the header map of the request, so that a call needs one map for both.
pub(crate) fn reuse_header_map(
    mut response: Response<ResponseBody>,
    mut map: HeaderMap,
) -> Response<ResponseBody> {
    if map.capacity() <= MAX_REUSED_HEADERS {
        map.clear();
        map.extend(response.headers_mut().drain());
        *response.headers_mut() = map;
    }
    if matches!(response.body(), ResponseBody::Full(_)) {
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().entry(CONTENT_TYPE).or_insert(kind);
    }
    response
}

/// A larger map is not kept with a connection.
const MAX_REUSED_HEADERS: usize = 48;

/// A JSON-RPC error; `id` is raw JSON, `None` for `null`.
pub(crate) fn rpc_error(
    status: StatusCode,
    id: Option<&[u8]>,
    code: RpcCode,
    message: &str,
) -> Response<ResponseBody> {
    let rejection = RequestRejection::new(status, code, message.to_owned());
    rejection.to_response(id, ErrorDetail::Limited)
}

pub(crate) fn error_message(
    id: Option<&[u8]>,
    code: i64,
    message: &str,
    data: Option<&serde_json::Value>,
) -> Bytes {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data.clone();
    }
    response_message(id, "error", error.to_string().as_bytes())
}

/// The bytes of a JSON-RPC response: `id` and `value` are raw JSON, `member` is `result` or `error`.
pub(crate) fn response_message(id: Option<&[u8]>, member: &str, value: &[u8]) -> Bytes {
    let id = id.unwrap_or(b"null");
    let parts: [&[u8]; 7] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":",
        id,
        b",\"",
        member.as_bytes(),
        b"\":",
        value,
        b"}",
    ];
    // A vector without spare capacity becomes `Bytes` without a copy.
    parts.concat().into()
}

/// Marks a response with status 400 that carries [`RequestRejection::legacy_only`] as an answer, for the log and the audit.
pub(crate) fn mark_if_legacy_only(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let is_said =
        |said: &Bytes| memchr::memmem::find(said, LEGACY_ONLY_MESSAGE.as_bytes()).is_some();
    if matches!(response.body(), ResponseBody::Full(Some(said)) if is_said(said)) {
        let rejection = RequestRejection::legacy_only();
        response.extensions_mut().insert(rejection);
    }
    response
}

/// Too many requests in all. It is answered early, while that is cheap.
pub(crate) fn overloaded() -> Response<ResponseBody> {
    let what = "Service Unavailable: too many requests are in flight; not executed, safe to call \
                again";
    retry_later(StatusCode::SERVICE_UNAVAILABLE, what)
}

pub(crate) fn quota_exceeded() -> Response<ResponseBody> {
    let what = "Too Many Requests: too many of your requests are in flight; not executed, safe to call \
                again";
    retry_later(StatusCode::TOO_MANY_REQUESTS, what)
}

fn retry_later(status: StatusCode, what: &'static str) -> Response<ResponseBody> {
    let rejection = RequestRejection::new(status, RpcCode::Invalid, what);
    let rejection = rejection.with_audit_reason(Code::Overloaded.as_str());
    let mut response = rejection.to_response(None, ErrorDetail::Limited);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    // The rest of the request is not read.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

static UNKNOWN_PATH: RpcRejection = not_found("there is nothing at this path");
static UNKNOWN_SERVER: RpcRejection =
    not_found("Not Found: no server has this name; check the path");

const fn not_found(what: &'static str) -> RpcRejection {
    let code = Some(RpcCode::Invalid);
    RpcRejection::new(StatusCode::NOT_FOUND, code, Cow::Borrowed(what), "path")
}

pub(crate) fn unknown_path() -> Response<ResponseBody> {
    RequestRejection::Rpc(UNKNOWN_PATH.clone()).to_response(None, ErrorDetail::Limited)
}

/// The server in the path does not exist, or is hidden from this caller.
pub(crate) fn unknown_server() -> Response<ResponseBody> {
    RequestRejection::Rpc(UNKNOWN_SERVER.clone()).to_response(None, ErrorDetail::Limited)
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<ResponseBody> {
    let what = format!("Method Not Allowed: use {allowed}");
    let response = empty_response(StatusCode::METHOD_NOT_ALLOWED);
    let mut response = with_rejection(response, ("wrong-method", &what));
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}
