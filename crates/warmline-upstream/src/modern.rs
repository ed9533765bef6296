//! The modern driver over Streamable HTTP (2026-07-28): nothing is opened, each request says
//! everything.
//!
//! Closing the response stream is the cancel of this era, so a dropped call sends nothing: its
//! connection closes with it. There is no resumption, and no session to lose.

use std::sync::Arc;

use crate::handshake::{self, HandshakeResponse};
use crate::http::call_reader::CallReader;
use crate::http::endpoint::{HttpResponse, RequestHeaders, SendFailure};
use crate::http::post::{self, encode_notification};
use crate::http::response;
use crate::listener::Listener;
use crate::listener::SourceSession;
use crate::lists::{self, ListKind};
use crate::session_state::{CallTimer, RequestIdGenerator, Retirement};
use crate::target::ClientProfile;
use crate::unsolicited::UnsolicitedDispatcher;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use papaya::HashMap;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{
    AttemptResult, DeliveryFailure, Diagnostic, Reply, Request, RequestOrigin,
};
use warmline_core::message::params::Params;
use warmline_core::message::splice::{self, Edit};
use warmline_core::message::sse::SseParser;
use warmline_core::protocol::headers::{self, METHOD, NAME, ParamHeaderError, ParamHeaders};
use warmline_core::protocol::meta::{self, ClientMeta};
use warmline_platform::clock::{self, Instant};

#[derive(Debug)]
pub(crate) struct ModernHttpSession {
    pub(crate) headers: RequestHeaders,
    client_meta: ClientMeta,
    pub(crate) unsolicited: UnsolicitedDispatcher,
    ids: RequestIdGenerator,
    param_headers: ParamHeaderCache,
    pub(crate) retirement: Retirement,
}

/// A modern request: with its sender and capabilities, and a progress token.
pub(crate) fn encode_modern_request(id: u64, request: &Request, said: &ClientMeta) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let [version, capabilities, client] = said.edits();
    let token = Edit::Set(meta::PROGRESS_TOKEN, digits.format(id).as_bytes());
    let meta: &[Edit<'_>] = match request.origin {
        RequestOrigin::Own => &[version, capabilities, client, token],
        RequestOrigin::Forwarded | RequestOrigin::ForwardedWithHeaders => &[version, token],
    };
    let mut body = Vec::with_capacity(512 + request.params.raw().len());
    splice::write_request(&mut body, id, &request.method, &request.params, &[], meta);
    body.into()
}

impl ModernHttpSession {
    pub(crate) fn new(
        head: RequestHeaders,
        (version, declared): (Version, &ClientProfile),
    ) -> Self {
        Self {
            headers: head.with_version(version),
            client_meta: declared.meta(version),
            unsolicited: UnsolicitedDispatcher::default(),
            ids: RequestIdGenerator::new(),
            param_headers: ParamHeaderCache::default(),
            retirement: Retirement::default(),
        }
    }

    /// Sends `server/discover`, the only request without side effects.
    pub(crate) async fn discover(&self) -> Result<HandshakeResponse, Diagnostic> {
        let id = self.ids.next();
        let request = Request::new("server/discover", Params::empty());
        let by = clock::after(self.headers.endpoint.timeouts.handshake);
        let body = encode_modern_request(id, &request, &self.client_meta);
        let sent = self.post(&request, &[], body, by).await;
        let arrival = sent.map_err(|lost| lost.diagnostic)?;
        Ok(handshake::read_response(self.sent_request(id), arrival, by).await)
    }

    pub(crate) async fn send(&self, request: Request, listener: &dyn Listener) -> AttemptResult {
        let mut limits = CallTimer::start(request.deadlines);
        let ending = self.send_once(request, limits, listener).await;
        // The tool changed its headers since we saw it. The server refused the request, so it may be
        // sent once more after the list is read again.
        let request = match &ending {
            AttemptResult::Failed(failure)
                if failure.diagnostic.reason == Reason::HeaderMismatch =>
            {
                match &failure.delivery_failure {
                    DeliveryFailure::Refused(request) => request.clone(),
                    DeliveryFailure::Unsent(_) | DeliveryFailure::Unknown => return ending,
                }
            },
            AttemptResult::Failed(_) | AttemptResult::Answered(_) => return ending,
        };
        match clock::timeout_at(limits.total_deadline, self.refresh_tools(&request)).await {
            Ok(true) => {
                limits.reset_idle();
                self.send_once(request, limits, listener).await
            },
            Ok(false) | Err(clock::Elapsed) => ending,
        }
    }

    async fn send_once(
        &self,
        request: Request,
        limits: CallTimer,
        listener: &dyn Listener,
    ) -> AttemptResult {
        let id = self.ids.next();
        let mirrored = match self.param_headers.headers_for(&request) {
            Ok(mirrored) => mirrored,
            Err(ParamHeaderRejection::Invalid(diagnostic)) => {
                return diagnostic.into_unsent(request);
            },
            Err(ParamHeaderRejection::Mismatch(error)) => {
                return AttemptResult::Answered(Reply::Error(error));
            },
        };
        let body = encode_modern_request(id, &request, &self.client_meta);
        let by = limits.next_deadline();
        let sent = self.post(&request, &mirrored, body, by).await;
        let is_list = request.method == "tools/list";
        let ending = match sent {
            Ok(arrival) => {
                let mut watch = CallReader::new(id, limits, listener);
                watch.unsolicited = Some(&self.unsolicited);
                watch.source = SourceSession::from_ref(self);
                self.read_response(arrival, request, watch).await
            },
            Err(lost) => response::ending_of_send_failure(lost, request),
        };
        if let (true, AttemptResult::Answered(Reply::Result(list))) = (is_list, &ending) {
            self.param_headers
                .record_tools(&self.headers.endpoint.server, list);
        }
        ending
    }

    async fn read_response(
        &self,
        arrival: HttpResponse,
        request: Request,
        mut watch: CallReader<'_>,
    ) -> AttemptResult {
        let sent = self.sent_request(watch.id);
        if arrival.is_event_stream() {
            watch.listener.on_stream_started();
            let mut parser = SseParser::new(self.headers.endpoint.size_limits.event);
            // On the heap, so that the usual call, which has no stream, stays small.
            let end = Box::pin(watch.read_stream(arrival, &mut parser)).await;
            return response::ending_of_stream(sent, end, request, &watch);
        }
        if arrival.status != StatusCode::OK {
            watch.listener.on_http_status(arrival.status.as_u16());
        }
        let by = watch.timer.next_deadline();
        let whole = response::CompleteResponse::read(sent, arrival, by, watch.listener).await;
        whole.into_ending(sent, request)
    }

    fn sent_request(&self, id: u64) -> response::SentRequest<'_> {
        response::SentRequest {
            endpoint: &self.headers.endpoint,
            era: Era::Modern,
            has_session: false,
            id,
            retirement: &self.retirement,
        }
    }

    /// Sends a notification. Modern servers over HTTP drop it.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), SendFailure> {
        let notice = encode_notification(method, Some(params));
        let posted = post::post_message(&self.headers, &[], notice).await;
        posted.map_err(|lost| lost.failure)
    }

    /// Posts a request, with the headers that repeat parts of its body.
    async fn post(
        &self,
        request: &Request,
        mirrored: &[(HeaderName, HeaderValue)],
        body: Bytes,
        by: Instant,
    ) -> Result<HttpResponse, SendFailure> {
        let extra = |map: &mut HeaderMap| {
            if let Some(method) = headers::mcp_method(&request.method) {
                map.insert(METHOD, method);
            }
            if let Some(name) = headers::mcp_name(&request.method, &request.params) {
                map.insert(NAME, name);
            }
            for (name, value) in mirrored {
                map.insert(name.clone(), value.clone());
            }
        };
        let (kind, own) = (Method::POST, &request.headers);
        self.headers.send(kind, own, body, by, extra).await
    }

    /// Reads the list of tools again; false if it cannot be read.
    async fn refresh_tools(&self, called: &Request) -> bool {
        let mut params = Params::empty();
        for _ in 0..MAX_PAGES {
            // The headers of the call may hold the caller's credential.
            let request = Request::new("tools/list", params).with_deadlines(called.deadlines);
            let headers = called.headers.iter().cloned();
            let request = headers.fold(request, |request, (name, value)| {
                request.with_header(name, value)
            });
            let limits = CallTimer::start(request.deadlines);
            let page = Box::pin(self.send_once(request, limits, &())).await;
            let AttemptResult::Answered(Reply::Result(page)) = page else {
                return false;
            };
            match lists::parse_page(ListKind::Tools, &page).map(|page| page.next_cursor) {
                Ok(Some(next)) => params = lists::page_params(Some(&next)),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

/// The arguments of tools that travel in headers as well (`x-mcp-header`), as far as tool lists were
/// seen: the headers that each tool wants, by name. All calls read it; lists write it.
#[derive(Debug, Default)]
pub(crate) struct ParamHeaderCache(HashMap<String, CachedParamHeaders>);

/// The headers that a tool's schema wants; an error if it breaks the rules.
type CachedParamHeaders = Result<Arc<ParamHeaders>, ParamHeaderError>;

/// How many pages are read to learn the headers of one tool.
const MAX_PAGES: usize = 100;
/// With more tools the cache starts again.
const MAX_TOOLS: usize = 4096;
/// The code of headers that differ from the body.
const HEADER_MISMATCH: i64 = -32020;

impl ParamHeaderCache {
    /// The headers that a tool's schema wants, made from the arguments.
    pub(crate) fn headers_for(
        &self,
        request: &Request,
    ) -> Result<ParamHeaderValues, ParamHeaderRejection> {
        if request.method != "tools/call" || self.0.is_empty() {
            return Ok(Vec::new());
        }
        let Some(name) = request.params.name() else {
            return Ok(Vec::new());
        };
        let wanted = self.0.pin().get(&*name).cloned();
        let arguments = request.params.member("arguments").unwrap_or(b"{}");
        let not_valid = |rule: ParamHeaderError| {
            let what = format!(
                "`{name}` cannot be called: a header that its schema asks for is not valid"
            );
            let diagnostic =
                Diagnostic::new(Reason::InvalidRequest, what).with_cause(rule.to_string());
            ParamHeaderRejection::Invalid(diagnostic)
        };
        let Some(wanted) = wanted else {
            return Ok(Vec::new());
        };
        let wanted = wanted.map_err(not_valid)?;
        let made = match wanted.headers_for(arguments) {
            Ok(made) => made,
            // The client wrote both arguments and headers.
            Err(rule) if request.origin == RequestOrigin::ForwardedWithHeaders => {
                let why = format!("an argument cannot stand in its header: {rule}");
                return Err(ParamHeaderRejection::Mismatch(mismatch_error(&why)));
            },
            Err(rule) => return Err(not_valid(rule)),
        };
        match find_mismatch(request, &wanted, &made) {
            Some(error) => Err(ParamHeaderRejection::Mismatch(error)),
            None => Ok(made),
        }
    }

    pub(crate) fn record_tools(&self, server: &str, page: &[u8]) {
        let Ok(page) = lists::parse_page(ListKind::Tools, page) else {
            return;
        };
        let tools = self.0.pin();
        if tools.len() > MAX_TOOLS {
            tools.clear();
        }
        for item in page.items {
            let Ok(tool) = serde_json::from_slice::<lists::ListedTool<'_>>(&item) else {
                continue;
            };
            match ParamHeaders::from_schema(tool.input_schema.get().as_bytes()) {
                Ok(wanted) if wanted.is_empty() => {
                    tools.remove(&tool.name);
                },
                Ok(wanted) => {
                    tools.insert(tool.name, Ok(Arc::new(wanted)));
                },
                Err(rule) => {
                    tracing::warn!(%server, tool = tool.name, %rule, "tool with bad x-mcp-header");
                    tools.insert(tool.name, Err(rule));
                },
            }
        }
    }
}

pub(crate) enum ParamHeaderRejection {
    /// The schema or the arguments allow none.
    Invalid(Diagnostic),
    /// The client's headers differ from its arguments: the error that it gets.
    Mismatch(Bytes),
}

/// The error if a client's headers differ from its arguments. Headers that the schema does not name
/// are not compared.
fn find_mismatch(
    request: &Request,
    wanted: &ParamHeaders,
    made: &[(HeaderName, HeaderValue)],
) -> Option<Bytes> {
    if request.origin != RequestOrigin::ForwardedWithHeaders {
        return None;
    }
    let value = |all: &[(HeaderName, HeaderValue)], name: &HeaderName| {
        let found = all.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    let differs = |name: &&HeaderName| match (value(&request.headers, name), value(made, name)) {
        (None, None) => false,
        (Some(sent), Some(made)) => !is_same_value(&sent, &made),
        (Some(_), None) | (None, Some(_)) => true,
    };
    let name = wanted.names().find(differs)?;
    Some(mismatch_error(&format!(
        "`{name}` is not what the arguments say"
    )))
}

fn mismatch_error(why: &str) -> Bytes {
    let what = format!("Header mismatch: {why}");
    let error = serde_json::json!({ "code": HEADER_MISMATCH, "message": what });
    error.to_string().into()
}

/// Compares decoded values; numbers by their value.
fn is_same_value(sent: &HeaderValue, made: &HeaderValue) -> bool {
    let (Some(sent), Some(made)) = (headers::decode_value(sent), headers::decode_value(made))
    else {
        return false;
    };
    let number = |text: &str| text.parse::<f64>().ok().map(f64::to_bits);
    sent == made || number(&made).is_some_and(|made| number(&sent) == Some(made))
}

pub(crate) type ParamHeaderValues = Vec<(HeaderName, HeaderValue)>;
