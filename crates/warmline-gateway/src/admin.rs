//! The admin socket: shows and controls what runs, for the user who runs the gateway.
//!
//! Only that user reaches it. Other callers' identities appear as fingerprints.

mod adopted_servers;
mod lists;
pub mod socket_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use warmline_core::error::code::Code;
use warmline_engine::admin::EngineAdmin as _;
use warmline_engine::events::EventItem;
use warmline_engine::{Error, Run};
use warmline_platform::clock::{self, Instant};

use self::adopted_servers::AdoptedServers;
use crate::GatewayState;
use crate::auth::{self, AnonymousScope, Subject};
use crate::response::call_error::{self, ErrorDetail};
use crate::response::{self, ResponseBody};
use crate::shutdown::wait_for_stop;

/// The header of every response with the gateway's version: a client of another version stops.
pub(crate) const VERSION_HEADER: HeaderName = HeaderName::from_static("warmline-version");
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How the gateway should stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownRequest {
    /// No stop was requested.
    #[default]
    NotRequested,
    /// After calls in flight.
    Drain,
    /// Without waiting.
    AtOnce,
}

pub(crate) struct AdminState {
    pub(crate) started_at: Instant,
    /// Milliseconds from the start to the last use.
    pub(crate) last_used: AtomicU64,
    pub(crate) shutdown: watch::Sender<ShutdownRequest>,
    /// Whether commands may declare servers.
    adopts_servers: bool,
    pub(crate) adopted: AdoptedServers,
    pub(crate) reload_queue: ReloadQueue,
}

impl AdminState {
    pub(crate) fn new(adopts_servers: bool) -> Self {
        Self {
            started_at: clock::now(),
            last_used: AtomicU64::new(0),
            shutdown: watch::Sender::new(ShutdownRequest::NotRequested),
            adopts_servers,
            adopted: AdoptedServers::default(),
            reload_queue: ReloadQueue::default(),
        }
    }

    /// Records a use, if the gateway adopts servers: only such a gateway stops when idle.
    pub(crate) fn record_use(&self) {
        if self.adopts_servers {
            let since = self.started_at.elapsed().as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX);
            self.last_used.store(since, Ordering::Relaxed);
        }
    }

    /// A stop cannot be cancelled, only hurried.
    fn request_shutdown(&self, request: ShutdownRequest) {
        self.shutdown.send_if_modified(|current| {
            let changes = *current != ShutdownRequest::AtOnce && *current != request;
            if changes {
                *current = request;
            }
            changes
        });
    }
}

pub(crate) fn is_admin_path(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

pub(crate) fn wrong_listener() -> Response<ResponseBody> {
    let what = "paths below /admin are served by the admin socket alone";
    let hint = "set `admin.socket`, and connect to it as the user who runs the gateway";
    AdminError::new(StatusCode::FORBIDDEN, Code::NotAllowed, what)
        .with_hint(hint)
        .into_response()
}

pub(crate) async fn serve_request(
    shared: &Arc<GatewayState>,
    head: &Parts,
    body: Incoming,
) -> Response<ResponseBody> {
    let path: Vec<&str> = head.uri.path().split('/').skip(2).collect();
    let method = &head.method;
    let mut response = match (method, path.as_slice()) {
        (&Method::GET, []) => json_response(&gateway_info(shared)),
        (&Method::GET, ["servers"]) => json_response(&lists::servers(shared)),
        (&Method::GET, ["runs"]) => json_response(&lists::runs(shared)),
        (&Method::GET, ["sessions"]) => json_response(&lists::sessions(shared)),
        (&Method::GET, ["events"]) => stream_events(shared),
        (&Method::GET, ["mcp-pool", "metrics"]) => json_response(&lists::pool_metrics(shared)),
        (&Method::DELETE, ["runs", run]) => end_run(shared, run).await,
        (&Method::DELETE, ["servers", server, "sessions"]) => close_sessions(shared, server, None),
        (&Method::DELETE, ["servers", server, "sessions", session]) => {
            close_sessions(shared, server, Some(session))
        },
        (&Method::POST, ["drain"]) => request_drain(shared, head.uri.query()),
        (&Method::POST, ["reload"]) => match shared.admin.reload_queue.reload().await {
            Ok(()) => json_response(&json!({ "reloaded": true })),
            Err(error) => error.into_response(),
        },
        (&Method::POST, ["join"]) if shared.admin.adopts_servers => {
            adopted_servers::serve_join(shared, body).await
        },
        _ => unknown_endpoint(method, &path).into_response(),
    };
    let version = HeaderValue::from_static(VERSION);
    response.headers_mut().insert(VERSION_HEADER, version);
    response
}

fn gateway_info(shared: &GatewayState) -> Value {
    json!({
        "version": VERSION,
        "pid": std::process::id(),
        "servers": shared.warmline.server_names(),
        "up_seconds": shared.admin.started_at.elapsed().as_secs(),
        "draining": *shared.stopping.borrow(),
    })
}

fn local_caller(shared: &GatewayState, scope: AnonymousScope<'_>) -> warmline_engine::Caller {
    let subject = Subject::local_user(&shared.warmline);
    auth::caller_for(&shared.warmline, &subject, scope)
}

async fn end_run(shared: &GatewayState, name: &str) -> Response<ResponseBody> {
    let run = match find_run(shared, name) {
        Ok(run) => run,
        Err(response) => return *response,
    };
    let fingerprint = run.fingerprint();
    run.end().await;
    json_response(&json!({ "ended": fingerprint }))
}

/// The run with this fingerprint; else the local user's run with this name, or the only one.
fn find_run(shared: &GatewayState, name: &str) -> Result<Run, Box<Response<ResponseBody>>> {
    if let Some(run) = shared.warmline.run_by_fingerprint(name) {
        return Ok(run);
    }
    let unknown = match local_caller(shared, AnonymousScope::Run(name)).join_run(name) {
        Ok(run) => return Ok(run),
        Err(error) => error,
    };
    let mut all = shared.warmline.runs_by_name(name);
    match (all.pop(), all.is_empty()) {
        (None, _) => Err(Box::new(engine_error_response(&unknown))),
        (Some(run), true) => Ok(run),
        (Some(run), false) => {
            let runs = all.iter().chain([&run]);
            let fingerprints: Vec<String> = runs.map(Run::fingerprint).collect();
            let what = format!("several callers have a run `{name}`");
            let hint = format!("use one of these fingerprints: {}", fingerprints.join(", "));
            let error = AdminError::new(StatusCode::CONFLICT, Code::BadMessage, what);
            Err(Box::new(error.with_hint(hint).into_response()))
        },
    }
}

/// Closes all sessions of a server, or the one with this `KEY.GENERATION`.
fn close_sessions(
    shared: &GatewayState,
    server: &str,
    session: Option<&str>,
) -> Response<ResponseBody> {
    if let Err(error) = shared.warmline.server(server) {
        return engine_error_response(&error);
    }
    let parse = |session: &str| {
        let (key, generation) = session.split_once('.')?;
        Some((key.parse().ok()?, generation.parse().ok()?))
    };
    let closed = match session.map(parse) {
        Some(None) => 0,
        parsed => shared.warmline.close_sessions(server, parsed.flatten()),
    };
    if session.is_some() && closed == 0 {
        let what = format!("`{server}` has no such session");
        return AdminError::new(StatusCode::NOT_FOUND, Code::SessionLost, what)
            .with_hint("GET /admin/sessions lists them, by `key` and `generation`")
            .into_response();
    }
    json_response(&json!({ "closed": closed }))
}

fn request_drain(shared: &GatewayState, query: Option<&str>) -> Response<ResponseBody> {
    let request = match query {
        Some("now") => ShutdownRequest::AtOnce,
        _ => ShutdownRequest::Drain,
    };
    tracing::info!(how = ?request, "stop requested by the admin socket");
    shared.admin.request_shutdown(request);
    json_response(&json!({ "draining": true }))
}

struct AdminError {
    status: StatusCode,
    code: Code,
    what: String,
    hint: Option<String>,
}

impl AdminError {
    fn new(status: StatusCode, code: Code, what: impl Into<String>) -> Self {
        Self {
            status,
            code,
            what: what.into(),
            hint: None,
        }
    }

    fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    fn into_response(self) -> Response<ResponseBody> {
        let mut error = json!({ "code": self.code.as_str(), "what": self.what });
        if let Some(hint) = self.hint {
            error["hint"] = hint.into();
        }
        let body = json!({ "error": error }).to_string();
        response::rejection(self.status, (self.code.as_str(), &self.what), body)
    }
}

fn unknown_endpoint(method: &Method, path: &[&str]) -> AdminError {
    let is_known = matches!(
        path,
        [] | ["servers" | "runs" | "sessions" | "events" | "drain" | "reload"]
            | ["mcp-pool", "metrics"]
            | ["runs", _]
            | ["servers", _, "sessions"]
            | ["servers", _, "sessions", _]
    );
    let path = path.join("/");
    let (status, what) = match is_known {
        true => (
            StatusCode::METHOD_NOT_ALLOWED,
            format!("/admin/{path} does not support {method}"),
        ),
        false => (
            StatusCode::NOT_FOUND,
            format!("there is nothing at /admin/{path}"),
        ),
    };
    AdminError::new(status, Code::BadMessage, what)
        .with_hint("GET /admin/servers, /admin/runs and /admin/sessions list what there is")
}

fn engine_error_response(error: &Error) -> Response<ResponseBody> {
    const STATUSES: [(Code, StatusCode); 9] = [
        (Code::RunUnknown, StatusCode::NOT_FOUND),
        (Code::ServerUnknown, StatusCode::NOT_FOUND),
        (Code::BadMessage, StatusCode::BAD_REQUEST),
        (Code::ConfigBadValue, StatusCode::BAD_REQUEST),
        (Code::NotAllowed, StatusCode::FORBIDDEN),
        (Code::Draining, StatusCode::SERVICE_UNAVAILABLE),
        (Code::Closed, StatusCode::SERVICE_UNAVAILABLE),
        (Code::Overloaded, StatusCode::SERVICE_UNAVAILABLE),
        (Code::PoolFull, StatusCode::SERVICE_UNAVAILABLE),
    ];
    let mut known = STATUSES.into_iter();
    let known = known.find(|(code, _)| *code == error.code());
    let status = known.map_or(StatusCode::BAD_GATEWAY, |(_, status)| status);
    let message = error.diagnostic().message.as_str();
    let mut fields = call_error::error_fields(error, ErrorDetail::Full);
    fields["what"] = message.into();
    let body = json!({ "error": fields }).to_string();
    response::rejection(status, (error.code().as_str(), message), body)
}

fn json_response(value: &Value) -> Response<ResponseBody> {
    response::ok_json(value.to_string())
}

const DRAIN_GRACE: Duration = Duration::from_secs(24);

/// Streams events of the engine, one line of JSON each, until the gateway ends. A reader that does not
/// keep up misses the oldest events, and its next line counts them.
fn stream_events(shared: &GatewayState) -> Response<ResponseBody> {
    let first = event_line(json!({ "kind": "listening", "version": VERSION }));
    let streams = (shared.warmline.events(), shared.stopping.clone());
    let following = stream::unfold(streams, |(mut events, mut stopping)| async move {
        let ended = async {
            wait_for_stop(&mut stopping).await;
            clock::sleep(DRAIN_GRACE).await;
        };
        let item = tokio::select! {
            item = events.next() => item?,
            () = ended => return None,
        };
        let line = match item {
            EventItem::Event(event) => serde_json::to_value(&event).unwrap_or_default(),
            EventItem::Missed(count) => json!({ "kind": "missed", "events": count }),
        };
        Some((event_line(line), (events, stopping)))
    });
    let lines = stream::once(std::future::ready(first)).chain(following);
    response::stream_response(lines.boxed(), "application/x-ndjson")
}

fn event_line(mut event: Value) -> Bytes {
    if event.is_object() {
        event["at"] = clock::wall_seconds().into();
    }
    Bytes::from(format!("{event}\n"))
}

const MAX_QUEUED: usize = 16;

/// A request to reload the configuration.
#[derive(Debug)]
pub struct ReloadRequest(oneshot::Sender<Result<(), ReloadFailure>>);

impl ReloadRequest {
    /// Answers the request.
    pub fn respond(self, result: Result<(), ReloadFailure>) {
        // The requester may have left.
        self.0.send(result).ok();
    }
}

/// Why a configuration was rejected. The running one stays.
#[derive(Clone, Debug)]
pub struct ReloadFailure {
    /// The error code.
    pub code: Code,
    /// What is wrong, where and why.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Passes requests to the owner of the configuration, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ReloadQueue(Mutex<Option<mpsc::Sender<ReloadRequest>>>);

impl ReloadQueue {
    pub(crate) fn open(&self) -> mpsc::Receiver<ReloadRequest> {
        let (sender, requests) = mpsc::channel(MAX_QUEUED);
        *self.0.lock() = Some(sender);
        requests
    }

    async fn reload(&self) -> Result<(), AdminError> {
        let no_owner = || {
            let what = "this gateway has no configuration to reload";
            AdminError::new(StatusCode::NOT_FOUND, Code::NotAllowed, what)
        };
        let sender = self.0.lock().clone().ok_or_else(no_owner)?;
        let (respond, response) = oneshot::channel();
        sender
            .try_send(ReloadRequest(respond))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => {
                    let what = "too many reloads of the configuration are waiting";
                    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, Code::Overloaded, what)
                },
                mpsc::error::TrySendError::Closed(_) => no_owner(),
            })?;
        let result = response.await.map_err(|_| no_owner())?;
        result.map_err(|failure| AdminError {
            hint: failure.hint,
            ..AdminError::new(StatusCode::CONFLICT, failure.code, failure.what)
        })
    }
}
