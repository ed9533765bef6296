//! One HTTP request from its bytes to the bytes of its reply.
//!
//! Order: read, written to the ledger, fault before executing, rules of the era, execution,
//! fault after executing, reply.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::Notify;

use super::reply::Reply;
use super::{Connection, Request, console};
use crate::call::{Call, Era, Quirk};
use crate::dialects::{self, Effect, Words};
use crate::fault::{CutAt, End, Executes, Fault, Moment};
use crate::http::carry::{Carried, carry, write_reply};
use crate::ledger::{Facts, Phase, arguments_of};
use crate::personality::ModernLeg;
use crate::state::State;
use crate::stream::Stream;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It takes the next request.
    Again,
    /// FIN.
    Finish,
    /// RST.
    Reset,
    /// It stays open and silent until the client leaves.
    Hold,
}

/// What the rules of an era say to a request.
pub(crate) enum Answer {
    /// This reply.
    Reply(Reply),
    /// It is executed; these headers come with its reply.
    Run(Box<Call>, Vec<(String, String)>),
    /// A stream is read from this place on.
    Follow(Arc<Stream>, usize),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

/// One request and what is known of it.
pub(crate) struct Exchange<'a> {
    pub(crate) state: &'a Arc<State>,
    pub(crate) request: &'a Request,
    pub(crate) message: &'a Value,
    pub(crate) facts: Facts,
    pub(crate) quirk: Quirk,
}

/// Serves a connection to its end.
pub(crate) async fn serve_connection(state: Arc<State>, mut connection: Connection) {
    loop {
        let idle = state.personality.idle_close;
        let read = match idle {
            None => connection.next_request().await,
            Some(limit) => match tokio::time::timeout(limit, connection.next_request()).await {
                Ok(read) => read,
                Err(_) => return connection.finish().await,
            },
        };
        let request = match read {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                state.counts.incomplete.fetch_add(1, Ordering::Relaxed);
                if error.kind() == std::io::ErrorKind::Other {
                    state.violation(error.to_string());
                }
                return;
            },
        };
        let is_last = request
            .header("connection")
            .is_some_and(|word| word.eq_ignore_ascii_case("close"));
        match serve(&state, &mut connection, &request).await {
            Next::Again if is_last => return connection.finish().await,
            Next::Again => {},
            Next::Finish => return connection.finish().await,
            Next::Reset => return connection.reset(),
            Next::Hold => return connection.closed().await,
        }
    }
}

async fn serve(state: &Arc<State>, connection: &mut Connection, request: &Request) -> Next {
    if let Some(reply) = console::answer(state, request) {
        return write_reply(connection, &reply).await;
    }
    state.counts.requests.fetch_add(1, Ordering::Relaxed);
    if let Some(reply) = turned_away(state, request) {
        return write_reply(connection, &reply).await;
    }
    let parsed: Result<Value, _> = serde_json::from_slice(&request.body);
    match parsed {
        Ok(message) => answer(state, connection, request, message).await,
        Err(_) if request.method != "POST" => answer(state, connection, request, Value::Null).await,
        Err(_) => {
            state.violation("the body is not JSON");
            let reply = Reply::error(400, &Value::Null, -32700, "Parse error");
            write_reply(connection, &reply).await
        },
    }
}

async fn answer(
    state: &Arc<State>,
    connection: &mut Connection,
    request: &Request,
    message: Value,
) -> Next {
    let facts = facts(state, connection.number, request, &message);
    state.ledger.write(Phase::Received, &facts);
    let fault = state.fault(&facts, &message);
    let quirk = fault.as_ref().map(Quirk::of).unwrap_or_default();
    let mut exchange = Exchange {
        state,
        request,
        message: &message,
        facts,
        quirk,
    };
    match exchange.before(fault.as_ref()) {
        Before::GoOn => {},
        Before::Reply(reply) => return write_reply(connection, &reply).await,
        Before::End(next) => return next,
    }
    match exchange.route() {
        Answer::Reply(reply) => {
            // What is not executed is late all the same.
            tokio::time::sleep(exchange.quirk.delay).await;
            write_reply(connection, &reply).await
        },
        Answer::Follow(stream, place) => {
            let carried = Carried {
                headers: Vec::new(),
                fault,
                place,
                call: None,
            };
            carry(&exchange, connection, &stream, carried).await
        },
        Answer::Run(call, headers) => {
            let stream = Arc::clone(&call.stream);
            let cancelled = Arc::clone(&call.cancelled);
            let era = call.era;
            let task = tokio::spawn(call.run());
            let carried = Carried {
                headers,
                fault,
                place: 0,
                call: Some((era, cancelled)),
            };
            let next = carry(&exchange, connection, &stream, carried).await;
            drop(task);
            next
        },
    }
}

/// Wrong path, wrong credential: said before anything is read.
fn turned_away(state: &State, request: &Request) -> Option<Reply> {
    if request.count("host") != 1 {
        state.violation("not exactly one Host header");
    }
    let single = [
        "content-length",
        "content-type",
        "accept",
        "authorization",
        "mcp-session-id",
    ];
    for name in single.into_iter().filter(|name| request.count(name) > 1) {
        state.violation(format!("{name} comes twice"));
    }
    let path = request.path.split('?').next().unwrap_or_default();
    if path != state.personality.path {
        return Some(Reply::text(404, "Not Found"));
    }
    let token = state.memory().token.clone()?;
    let shown = request.header("authorization").unwrap_or_default();
    (shown != format!("Bearer {token}")).then(|| {
        let challenge = if shown.is_empty() {
            "Bearer"
        } else {
            r#"Bearer error="invalid_token""#
        };
        Reply::text(401, "Unauthorized").header("WWW-Authenticate", challenge)
    })
}

fn facts(state: &State, connection: u64, request: &Request, message: &Value) -> Facts {
    let params = &message["params"];
    let method = match (request.method.as_str(), message["method"].as_str()) {
        ("POST", Some(method)) => method.to_owned(),
        ("POST", None) => "(response)".to_owned(),
        (verb, _) => verb.to_owned(),
    };
    let tool = (method == "tools/call").then(|| params["name"].as_str().unwrap_or_default());
    let era = if state.is_modern(request, message) {
        Era::Modern
    } else {
        Era::Legacy
    };
    Facts {
        era: era.word(),
        connection,
        session: request.header("mcp-session-id").map(str::to_owned),
        arguments: arguments_of(message),
        tool: tool.map(str::to_owned),
        method,
        meta: params["_meta"].clone(),
        id: message["id"].clone(),
        credential: request.header("authorization").map(str::to_owned),
        extra: extra_of(request),
    }
}

/// Headers that are neither of HTTP nor of the protocol.
fn extra_of(request: &Request) -> BTreeMap<String, String> {
    let traces = ["traceparent", "tracestate", "baggage"];
    let is_extra = |name: &str| name.starts_with("x-") || traces.contains(&name);
    let extra = request.headers.iter().filter(|(name, _)| is_extra(name));
    extra.cloned().collect()
}

impl State {
    /// Whether a message is one of the modern era, to a server that knows it. The body decides;
    /// without a claim in it a header that names a version we know to be modern does.
    fn is_modern(&self, request: &Request, message: &Value) -> bool {
        if self.personality.modern == ModernLeg::Unknown {
            return false;
        }
        let header = request.header("mcp-protocol-version").unwrap_or_default();
        let is_legacy = crate::personality::LEGACY_VERSIONS.contains(&header);
        claims_modern(message) || !(header.is_empty() || is_legacy)
    }
}

fn claims_modern(message: &Value) -> bool {
    message["params"]["_meta"]
        .get("io.modelcontextprotocol/protocolVersion")
        .is_some()
}

/// What happens before the rules of the era are asked.
enum Before {
    GoOn,
    Reply(Reply),
    End(Next),
}

impl Exchange<'_> {
    fn before(&self, fault: Option<&Fault>) -> Before {
        let session = self.facts.session.as_deref();
        let id = &self.facts.id;
        match fault {
            Some(Fault::ForgetSessions) => self.state.forget_sessions(),
            Some(Fault::Dialect(name)) => {
                let words = dialects::named(name).map(|dialect| dialect.post);
                if words.is_none() {
                    self.state
                        .violation(format!("the test names no dialect: {name}"));
                }
                if let Some(words) = words.filter(|words| words.effect == Effect::NotExecuted) {
                    return Before::Reply(self.words(&words));
                }
            },
            Some(Fault::Reply(canned)) if canned.executes == Executes::No => {
                return Before::Reply(Reply::of_canned(canned, id, session));
            },
            Some(Fault::Error {
                code,
                message,
                data,
            }) => {
                let mut error = crate::message::RpcError::new(*code, message.as_str());
                error.data = (!data.is_null()).then(|| data.clone());
                let body = crate::message::response(id, &Err(error));
                return Before::Reply(Reply::json(200, &body));
            },
            Some(Fault::Result(result)) => {
                let body = crate::message::response(id, &Ok(result.clone()));
                return Before::Reply(Reply::json(200, &body));
            },
            Some(Fault::Cut(CutAt::BeforeExecuting, end)) => return Before::End(Next::of(*end)),
            Some(Fault::Silence(Moment::BeforeExecuting)) => return Before::End(Next::Hold),
            Some(Fault::Crash(Moment::BeforeExecuting)) => {
                self.state.crash.notify_one();
                return Before::End(Next::Hold);
            },
            _ => {},
        }
        Before::GoOn
    }

    /// Which era's rules apply, and what they say.
    fn route(&mut self) -> Answer {
        let is_modern = self.facts.era == Era::Modern.word();
        match (
            self.request.method.as_str(),
            is_modern,
            self.state.personality.modern,
        ) {
            ("POST", true, ModernLeg::RefusedByVersion) => self.unsupported_version().into(),
            ("POST", true, _) => self.modern_post(),
            ("POST", false, _) => self.legacy_post(),
            ("GET" | "DELETE", true, _) => Reply::text(405, "Method Not Allowed")
                .header("Allow", "POST")
                .into(),
            ("GET", false, _) => self.legacy_get(),
            ("DELETE", false, _) => self.legacy_delete(),
            _ => Reply::text(405, "Method Not Allowed")
                .header("Allow", "GET, POST, DELETE")
                .into(),
        }
    }

    /// Whether it is the question of a client that does not know the era yet.
    pub(crate) fn is_probe(&self) -> bool {
        self.facts.method == "server/discover" && claims_modern(self.message)
    }

    pub(crate) fn words(&self, words: &Words) -> Reply {
        Reply::of_words(words, &self.facts.id, self.facts.session.as_deref())
    }

    /// `Accept` and `Content-Type`, the same in both eras.
    pub(crate) fn content_refused(&self) -> Option<Reply> {
        let content_type = self.request.header("content-type").unwrap_or_default();
        if content_type.split(';').next().unwrap_or_default().trim() != "application/json" {
            self.state
                .violation(format!("Content-Type is {content_type:?}"));
            return Some(Reply::text(415, "Unsupported Media Type"));
        }
        let both = ["application/json", "text/event-stream"];
        if !both.iter().all(|one| self.request.accepts(one)) {
            self.state
                .violation("Accept does not list both forms of a reply");
            return Some(Reply::text(406, "Not Acceptable"));
        }
        None
    }

    pub(crate) fn call(&self, era: Era, session: Option<String>) -> Call {
        let mut facts = self.facts.clone();
        facts.era = era.word();
        Call {
            state: Arc::clone(self.state),
            era,
            session,
            id: facts.id.clone(),
            method: facts.method.clone(),
            params: self.message["params"].clone(),
            stream: Stream::new(format!("s{}", self.state.next_stream())),
            facts,
            quirk: self.quirk.clone(),
            cancelled: Arc::new(Notify::new()),
        }
    }
}

impl Next {
    pub(crate) const fn of(end: End) -> Self {
        match end {
            End::Clean | End::Fin => Self::Finish,
            End::Rst => Self::Reset,
        }
    }
}
