//! One HTTP request from its bytes to the bytes of its reply.
//!
//! Order: read, written to the ledger, fault before executing, rules of the era, execution,
//! fault after executing, reply.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::Notify;

use super::reply::HttpReply;
use super::{HttpConnection, HttpRequest, control_endpoint};
use crate::faults::dialects;
use crate::faults::dialects::{DialectEffect, DialectReply};
use crate::faults::fault::{ConnectionEnd, CutPoint, ExecuteFirst, Fault, FaultTiming};
use crate::faults::personality::ModernSupport;
use crate::ledger::{ExecutionPhase, MessageInfo, recorded_arguments};
use crate::server::call::{Call, Era, ReplyOverrides};
use crate::server::http::reply_writer::{ReplyOptions, write_reply, write_stream};
use crate::server::message_stream::MessageStream;
use crate::server::state::LedgerServerState;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    /// It takes the next request.
    NextRequest,
    /// FIN.
    Close,
    /// RST.
    Reset,
    /// It stays open and silent until the client leaves.
    Hold,
}

/// What the rules of an era say to a request.
pub(crate) enum EraDecision {
    /// This reply.
    Reply(HttpReply),
    /// It is executed; these headers come with its reply.
    Execute(Box<Call>, Vec<(String, String)>),
    /// A stream is read from this place on.
    FollowStream(Arc<MessageStream>, usize),
}

impl From<HttpReply> for EraDecision {
    fn from(reply: HttpReply) -> Self {
        Self::Reply(reply)
    }
}

/// One request and what is known of it.
pub(crate) struct HttpExchange<'a> {
    pub(crate) state: &'a Arc<LedgerServerState>,
    pub(crate) request: &'a HttpRequest,
    pub(crate) message: &'a Value,
    pub(crate) info: MessageInfo,
    pub(crate) overrides: ReplyOverrides,
}

/// Serves a connection to its end.
pub(crate) async fn serve_connection(
    state: Arc<LedgerServerState>,
    mut connection: HttpConnection,
) {
    loop {
        let idle = state.personality.idle_close;
        let read = match idle {
            None => connection.next_request().await,
            Some(limit) => match tokio::time::timeout(limit, connection.next_request()).await {
                Ok(read) => read,
                Err(_) => return connection.close().await,
            },
        };
        let request = match read {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                state
                    .counters
                    .incomplete_requests
                    .fetch_add(1, Ordering::Relaxed);
                if error.kind() == std::io::ErrorKind::Other {
                    state.record_violation(error.to_string());
                }
                return;
            },
        };
        let is_last = request
            .header("connection")
            .is_some_and(|word| word.eq_ignore_ascii_case("close"));
        match serve_request(&state, &mut connection, &request).await {
            ConnectionAction::NextRequest if is_last => return connection.close().await,
            ConnectionAction::NextRequest => {},
            ConnectionAction::Close => return connection.close().await,
            ConnectionAction::Reset => return connection.reset(),
            ConnectionAction::Hold => return connection.wait_for_close().await,
        }
    }
}

async fn serve_request(
    state: &Arc<LedgerServerState>,
    connection: &mut HttpConnection,
    request: &HttpRequest,
) -> ConnectionAction {
    if let Some(reply) = control_endpoint::handle_control_request(state, request) {
        return write_reply(connection, &reply).await;
    }
    state.counters.requests.fetch_add(1, Ordering::Relaxed);
    if let Some(reply) = reject_request(state, request) {
        return write_reply(connection, &reply).await;
    }
    let parsed: Result<Value, _> = serde_json::from_slice(&request.body);
    match parsed {
        Ok(message) => handle_message(state, connection, request, message).await,
        Err(_) if request.method != "POST" => {
            handle_message(state, connection, request, Value::Null).await
        },
        Err(_) => {
            state.record_violation("the body is not JSON");
            let reply = HttpReply::error(400, &Value::Null, -32700, "Parse error");
            write_reply(connection, &reply).await
        },
    }
}

async fn handle_message(
    state: &Arc<LedgerServerState>,
    connection: &mut HttpConnection,
    request: &HttpRequest,
    message: Value,
) -> ConnectionAction {
    let facts = message_info(state, connection.number, request, &message);
    state.ledger.record(ExecutionPhase::Received, &facts);
    let fault = state.take_fault(&facts, &message);
    let quirk = fault
        .as_ref()
        .map(ReplyOverrides::from_fault)
        .unwrap_or_default();
    let mut exchange = HttpExchange {
        state,
        request,
        message: &message,
        info: facts,
        overrides: quirk,
    };
    match exchange.apply_early_fault(fault.as_ref()) {
        EarlyFaultOutcome::Continue => {},
        EarlyFaultOutcome::Reply(reply) => return write_reply(connection, &reply).await,
        EarlyFaultOutcome::EndConnection(next) => return next,
    }
    match exchange.apply_era_rules() {
        EraDecision::Reply(reply) => {
            // What is not executed is late all the same.
            tokio::time::sleep(exchange.overrides.delay).await;
            write_reply(connection, &reply).await
        },
        EraDecision::FollowStream(stream, place) => {
            let carried = ReplyOptions {
                headers: Vec::new(),
                fault,
                first_message: place,
                call: None,
            };
            write_stream(&exchange, connection, &stream, carried).await
        },
        EraDecision::Execute(call, headers) => {
            let stream = Arc::clone(&call.stream);
            let cancelled = Arc::clone(&call.cancel_signal);
            let era = call.era;
            let task = tokio::spawn(call.run());
            let carried = ReplyOptions {
                headers,
                fault,
                first_message: 0,
                call: Some((era, cancelled)),
            };
            let next = write_stream(&exchange, connection, &stream, carried).await;
            drop(task);
            next
        },
    }
}

/// Wrong path, wrong credential: said before anything is read.
fn reject_request(state: &LedgerServerState, request: &HttpRequest) -> Option<HttpReply> {
    if request.header_count("host") != 1 {
        state.record_violation("not exactly one Host header");
    }
    let single = [
        "content-length",
        "content-type",
        "accept",
        "authorization",
        "mcp-session-id",
    ];
    for name in single
        .into_iter()
        .filter(|name| request.header_count(name) > 1)
    {
        state.record_violation(format!("{name} comes twice"));
    }
    let path = request.path.split('?').next().unwrap_or_default();
    if path != state.personality.path {
        return Some(HttpReply::text(404, "Not Found"));
    }
    let token = state.memory().token.clone()?;
    let shown = request.header("authorization").unwrap_or_default();
    (shown != format!("Bearer {token}")).then(|| {
        let challenge = if shown.is_empty() {
            "Bearer"
        } else {
            r#"Bearer error="invalid_token""#
        };
        HttpReply::text(401, "Unauthorized").with_header("WWW-Authenticate", challenge)
    })
}

fn message_info(
    state: &LedgerServerState,
    connection: u64,
    request: &HttpRequest,
    message: &Value,
) -> MessageInfo {
    let params = &message["params"];
    let method = match (request.method.as_str(), message["method"].as_str()) {
        ("POST", Some(method)) => method.to_owned(),
        ("POST", None) => "(response)".to_owned(),
        (verb, _) => verb.to_owned(),
    };
    let tool = (method == "tools/call").then(|| params["name"].as_str().unwrap_or_default());
    let era = if state.is_modern_request(request, message) {
        Era::Modern
    } else {
        Era::Legacy
    };
    MessageInfo {
        era: era.as_str(),
        connection,
        session: request.header("mcp-session-id").map(str::to_owned),
        arguments: recorded_arguments(message),
        tool: tool.map(str::to_owned),
        method,
        meta: params["_meta"].clone(),
        id: message["id"].clone(),
        credential: request.header("authorization").map(str::to_owned),
        extra_headers: extra_headers(request),
    }
}

/// Headers that are neither of HTTP nor of the protocol.
fn extra_headers(request: &HttpRequest) -> BTreeMap<String, String> {
    let traces = ["traceparent", "tracestate", "baggage"];
    let is_extra = |name: &str| name.starts_with("x-") || traces.contains(&name);
    let extra = request.headers.iter().filter(|(name, _)| is_extra(name));
    extra.cloned().collect()
}

impl LedgerServerState {
    /// Whether a message is one of the modern era, to a server that knows it. The body decides;
    /// without a claim in it a header that names a version we know to be modern does.
    fn is_modern_request(&self, request: &HttpRequest, message: &Value) -> bool {
        if self.personality.modern == ModernSupport::Unknown {
            return false;
        }
        let header = request.header("mcp-protocol-version").unwrap_or_default();
        let is_legacy = crate::faults::personality::LEGACY_VERSIONS.contains(&header);
        names_modern_version(message) || !(header.is_empty() || is_legacy)
    }
}

fn names_modern_version(message: &Value) -> bool {
    message["params"]["_meta"]
        .get("io.modelcontextprotocol/protocolVersion")
        .is_some()
}

/// What happens before the rules of the era are asked.
enum EarlyFaultOutcome {
    Continue,
    Reply(HttpReply),
    EndConnection(ConnectionAction),
}

impl HttpExchange<'_> {
    fn apply_early_fault(&self, fault: Option<&Fault>) -> EarlyFaultOutcome {
        let session = self.info.session.as_deref();
        let id = &self.info.id;
        match fault {
            Some(Fault::ForgetSessions) => self.state.forget_sessions(),
            Some(Fault::Dialect(name)) => {
                let words = dialects::by_name(name).map(|dialect| dialect.post);
                if words.is_none() {
                    self.state
                        .record_violation(format!("the test names no dialect: {name}"));
                }
                if let Some(words) =
                    words.filter(|words| words.effect == DialectEffect::NotExecuted)
                {
                    return EarlyFaultOutcome::Reply(self.dialect_reply(&words));
                }
            },
            Some(Fault::Reply(canned)) if canned.execute_first == ExecuteFirst::No => {
                return EarlyFaultOutcome::Reply(HttpReply::from_canned(canned, id, session));
            },
            Some(Fault::Error {
                code,
                message,
                data,
            }) => {
                let mut error = crate::server::message::RpcError::new(*code, message.as_str());
                error.data = (!data.is_null()).then(|| data.clone());
                let body = crate::server::message::response(id, &Err(error));
                return EarlyFaultOutcome::Reply(HttpReply::json(200, &body));
            },
            Some(Fault::Result(result)) => {
                let body = crate::server::message::response(id, &Ok(result.clone()));
                return EarlyFaultOutcome::Reply(HttpReply::json(200, &body));
            },
            Some(Fault::Cut(CutPoint::BeforeExecuting, end)) => {
                return EarlyFaultOutcome::EndConnection(ConnectionAction::from_end(*end));
            },
            Some(Fault::Silence(FaultTiming::BeforeExecuting)) => {
                return EarlyFaultOutcome::EndConnection(ConnectionAction::Hold);
            },
            Some(Fault::Crash(FaultTiming::BeforeExecuting)) => {
                self.state.crash_signal.notify_one();
                return EarlyFaultOutcome::EndConnection(ConnectionAction::Hold);
            },
            _ => {},
        }
        EarlyFaultOutcome::Continue
    }

    /// Which era's rules apply, and what they say.
    fn apply_era_rules(&mut self) -> EraDecision {
        let is_modern = self.info.era == Era::Modern.as_str();
        match (
            self.request.method.as_str(),
            is_modern,
            self.state.personality.modern,
        ) {
            ("POST", true, ModernSupport::RefusedByVersion) => {
                self.unsupported_version_reply().into()
            },
            ("POST", true, _) => self.modern_post(),
            ("POST", false, _) => self.legacy_post(),
            ("GET" | "DELETE", true, _) => HttpReply::text(405, "Method Not Allowed")
                .with_header("Allow", "POST")
                .into(),
            ("GET", false, _) => self.legacy_get(),
            ("DELETE", false, _) => self.legacy_delete(),
            _ => HttpReply::text(405, "Method Not Allowed")
                .with_header("Allow", "GET, POST, DELETE")
                .into(),
        }
    }

    /// Whether it is the question of a client that does not know the era yet.
    pub(crate) fn is_era_probe(&self) -> bool {
        self.info.method == "server/discover" && names_modern_version(self.message)
    }

    pub(crate) fn dialect_reply(&self, words: &DialectReply) -> HttpReply {
        HttpReply::from_dialect(words, &self.info.id, self.info.session.as_deref())
    }

    /// `Accept` and `Content-Type`, the same in both eras.
    pub(crate) fn check_content_headers(&self) -> Option<HttpReply> {
        let content_type = self.request.header("content-type").unwrap_or_default();
        if content_type.split(';').next().unwrap_or_default().trim() != "application/json" {
            self.state
                .record_violation(format!("Content-Type is {content_type:?}"));
            return Some(HttpReply::text(415, "Unsupported Media Type"));
        }
        let both = ["application/json", "text/event-stream"];
        if !both.iter().all(|one| self.request.accepts(one)) {
            self.state
                .record_violation("Accept does not list both forms of a reply");
            return Some(HttpReply::text(406, "Not Acceptable"));
        }
        None
    }

    pub(crate) fn new_call(&self, era: Era, session: Option<String>) -> Call {
        let mut facts = self.info.clone();
        facts.era = era.as_str();
        Call {
            state: Arc::clone(self.state),
            era,
            session,
            id: facts.id.clone(),
            method: facts.method.clone(),
            params: self.message["params"].clone(),
            stream: MessageStream::new(format!("s{}", self.state.next_stream_number())),
            info: facts,
            overrides: self.overrides.clone(),
            cancel_signal: Arc::new(Notify::new()),
        }
    }
}

impl ConnectionAction {
    pub(crate) const fn from_end(end: ConnectionEnd) -> Self {
        match end {
            ConnectionEnd::Clean | ConnectionEnd::Fin => Self::Close,
            ConnectionEnd::Rst => Self::Reset,
        }
    }
}
