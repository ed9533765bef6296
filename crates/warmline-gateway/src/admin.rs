//! The admin socket: what runs here, for the people it runs for, and what they may do about it.
//!
//! Asked by: [`door`](crate::door), for listeners that only our own user reaches. Whoever comes in
//! is the user of this process; what they see of others are fingerprints.

mod events;
mod handing;
mod joining;
mod lists;
mod pool;
mod reloading;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::watch;
use warmline::clock::{self, Instant};
use warmline::{Code, Error, Run, Warmline};

pub(crate) use self::events::EventLines;
pub use self::handing::Handing;
use self::handing::Registry;
pub use self::reloading::{AskedToReload, Unreloaded};
use self::reloading::{Reader, Unasked};
use crate::Shared;
use crate::body::{self, Body};
use crate::failure::{self, Candour};
use crate::reply;
use crate::who::{self, Split, Subject};

/// Every answer says by this header who gave it: one of another version is not spoken with.
pub(crate) const VERSION_HEADER: HeaderName = HeaderName::from_static("warmline-version");
/// The version of this gateway.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How the gateway shall end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Nobody asked for it.
    #[default]
    Not,
    /// Calls under way may end.
    Drain,
    /// Without waiting for anything.
    AtOnce,
}

/// What whoever looks after the gateway did, and asked for.
#[derive(Debug)]
pub(crate) struct Desk {
    began: Instant,
    /// Milliseconds from the beginning to the last use.
    used: AtomicU64,
    ending: watch::Sender<Ending>,
    pub(crate) handed: Registry,
    /// Who reads the configuration again.
    pub(crate) reader: Reader,
}

impl Desk {
    pub(crate) fn new(handing: Handing) -> Self {
        Self {
            began: clock::now(),
            used: AtomicU64::new(0),
            ending: watch::Sender::new(Ending::Not),
            handed: Registry::new(handing),
            reader: Reader::default(),
        }
    }

    /// Somebody asks for something. Counted only where somebody waits for nobody to.
    pub(crate) fn used(&self) {
        if self.handed.takes() {
            let since = self.began.elapsed().as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX);
            self.used.store(since, Ordering::Relaxed);
        }
    }

    pub(crate) fn idle_for(&self, warm: &Warmline) -> Option<Duration> {
        let snapshot = warm.snapshot();
        let mut servers = snapshot.servers.iter();
        let is_busy = servers.any(|server| server.count("calls_under_way", &[]) > 0);
        if is_busy || !snapshot.runs.is_empty() {
            return None;
        }
        let used = Duration::from_millis(self.used.load(Ordering::Relaxed));
        Some(self.began.elapsed().saturating_sub(used))
    }

    pub(crate) async fn asked_to_end(&self) -> Ending {
        let mut asked = self.ending.subscribe();
        match asked.wait_for(|ending| *ending != Ending::Not).await {
            Ok(ending) => *ending,
            // Whoever would ask is gone with us.
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends when somebody asks for another end than before.
    pub(crate) async fn asked_again(&self) {
        let mut asked = self.ending.subscribe();
        asked.borrow_and_update();
        asked.changed().await.ok();
    }

    /// An end that is asked for is not taken back, only hurried.
    fn ask_to_end(&self, how: Ending) {
        self.ending.send_if_modified(|ending| {
            let hurried = *ending == Ending::AtOnce || *ending == how;
            if !hurried {
                *ending = how;
            }
            !hurried
        });
    }
}

/// Whether a path is for whoever looks after the gateway.
pub(crate) fn is_meant(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

/// What somebody gets who asks by another listener.
pub(crate) fn elsewhere() -> Response<Body> {
    refuse(&Refusal {
        status: StatusCode::FORBIDDEN,
        code: Code::NotAllowed,
        what: "what is below /admin is told by the admin socket alone".to_owned(),
        hint: Some("decide `admin.socket`, and ask there as the user of the gateway".to_owned()),
    })
}

/// Answers one request.
pub(crate) async fn answer(shared: &Arc<Shared>, head: &Parts, body: Incoming) -> Response<Body> {
    let path: Vec<&str> = head.uri.path().split('/').skip(2).collect();
    let method = &head.method;
    let mut response = match (method, path.as_slice()) {
        (&Method::GET, []) => told(&hello(shared)),
        (&Method::GET, ["servers"]) => told(&lists::servers(shared)),
        (&Method::GET, ["runs"]) => told(&lists::runs(shared)),
        (&Method::GET, ["sessions"]) => told(&lists::sessions(shared)),
        (&Method::GET, ["events"]) => events::answer(shared),
        (&Method::GET, ["mcp-pool", "metrics"]) => told(&pool::metrics(shared)),
        (&Method::DELETE, ["runs", run]) => end_run(shared, run).await,
        (&Method::DELETE, ["servers", server, "sessions"]) => close(shared, server, None),
        (&Method::DELETE, ["servers", server, "sessions", session]) => {
            close(shared, server, Some(session))
        },
        (&Method::POST, ["drain"]) => drain(shared, head.uri.query()),
        (&Method::POST, ["reload"]) => reload(shared).await,
        (&Method::POST, ["join"]) if shared.desk.handed.takes() => {
            joining::answer(shared, body).await
        },
        _ => refuse(&method_or_place(method, &path)),
    };
    let version = HeaderValue::from_static(VERSION);
    response.headers_mut().insert(VERSION_HEADER, version);
    response
}

/// What the gateway is.
fn hello(shared: &Shared) -> Value {
    json!({
        "version": VERSION,
        "pid": std::process::id(),
        "servers": shared.warm.servers(),
        "up_seconds": shared.desk.began.elapsed().as_secs(),
        "draining": *shared.stopping.borrow(),
    })
}

/// Ends a run, by its fingerprint or its name.
async fn end_run(shared: &Shared, named: &str) -> Response<Body> {
    match run_named(shared, named) {
        Ok(run) => {
            let fingerprint = run.fingerprint();
            run.end().await;
            told(&json!({ "ended": fingerprint }))
        },
        Err(response) => *response,
    }
}

/// The run that is meant: a fingerprint means one; a name our own, else the only one that has it.
fn run_named(shared: &Shared, named: &str) -> Result<Run, Box<Response<Body>>> {
    if let Some(run) = shared.warm.run_by_fingerprint(named) {
        return Ok(run);
    }
    let subject = Subject::local(&shared.warm);
    let identity = who::identity(&shared.warm, &subject, Split::Run(named));
    let unknown = match identity.join(named) {
        Ok(run) => return Ok(run),
        Err(error) => error,
    };
    let mut all = shared.warm.runs_by_name(named);
    match (all.pop(), all.is_empty()) {
        (None, _) => Err(Box::new(failed(&unknown))),
        (Some(run), true) => Ok(run),
        (Some(run), false) => {
            let fingerprints: Vec<String> =
                all.iter().chain([&run]).map(Run::fingerprint).collect();
            Err(Box::new(refuse(&Refusal {
                status: StatusCode::CONFLICT,
                code: Code::BadMessage,
                what: format!("several callers have a run `{named}`"),
                hint: Some(format!("name one of them: {}", fingerprints.join(", "))),
            })))
        },
    }
}

/// Closes sessions of a server: all of them, or the one that is named `KEY.GENERATION`.
fn close(shared: &Shared, server: &str, session: Option<&str>) -> Response<Body> {
    if let Err(error) = shared.warm.server(server) {
        return failed(&error);
    }
    let of = session.map(|session| {
        let (key, generation) = session.split_once('.')?;
        Some((key.parse().ok()?, generation.parse().ok()?))
    });
    let closed = match of {
        Some(None) => 0,
        Some(Some(of)) => shared.warm.close_sessions(server, Some(of)),
        None => shared.warm.close_sessions(server, None),
    };
    if session.is_some() && closed == 0 {
        return refuse(&Refusal {
            status: StatusCode::NOT_FOUND,
            code: Code::SessionLost,
            what: format!("`{server}` has no such session"),
            hint: Some("GET /admin/sessions lists them, by `key` and `generation`".to_owned()),
        });
    }
    told(&json!({ "closed": closed }))
}

fn drain(shared: &Shared, query: Option<&str>) -> Response<Body> {
    let how = match query {
        Some("now") => Ending::AtOnce,
        _ => Ending::Drain,
    };
    tracing::info!(?how, "asked to end by the admin socket");
    shared.desk.ask_to_end(how);
    told(&json!({ "draining": true }))
}

/// Has the configuration read again: whole or not at all.
async fn reload(shared: &Shared) -> Response<Body> {
    let (status, code, what, hint) = match shared.desk.reader.ask().await {
        Ok(Ok(())) => return told(&json!({ "reloaded": true })),
        Ok(Err(Unreloaded {
            code,
            what,
            place,
            why,
            hint,
        })) => {
            let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let what = format!("{place}{what}{why}");
            (StatusCode::CONFLICT, code, what, hint)
        },
        Err(Unasked::Nobody) => {
            let what = "nobody reads a configuration for this gateway".to_owned();
            (StatusCode::NOT_FOUND, Code::NotAllowed, what, None)
        },
        Err(Unasked::TooMany) => {
            let what = "the configuration is being read for others".to_owned();
            (
                StatusCode::SERVICE_UNAVAILABLE,
                Code::Overloaded,
                what,
                None,
            )
        },
    };
    refuse(&Refusal {
        status,
        code,
        what,
        hint,
    })
}

/// What somebody gets who asks for something that there is not.
struct Refusal {
    status: StatusCode,
    code: Code,
    what: String,
    hint: Option<String>,
}

fn method_or_place(method: &Method, path: &[&str]) -> Refusal {
    let known = matches!(
        path,
        [] | ["servers" | "runs" | "sessions" | "events" | "drain" | "reload"]
            | ["mcp-pool", "metrics"]
            | ["runs", _]
            | ["servers", _, "sessions"]
            | ["servers", _, "sessions", _]
    );
    let path = path.join("/");
    let (status, what) = match known {
        true => (
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{method} does not fit /admin/{path}"),
        ),
        false => (
            StatusCode::NOT_FOUND,
            format!("there is nothing at /admin/{path}"),
        ),
    };
    Refusal {
        status,
        code: Code::BadMessage,
        what,
        hint: Some(
            "GET /admin/servers, /admin/runs and /admin/sessions list what there is".to_owned(),
        ),
    }
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    let mut error = json!({ "code": refusal.code.word(), "what": refusal.what });
    if let Some(hint) = &refusal.hint {
        error["hint"] = hint.as_str().into();
    }
    let body = json!({ "error": error }).to_string();
    reply::refused(refusal.status, (refusal.code.word(), &refusal.what), body)
}

/// What somebody gets whose wish failed.
fn failed(error: &Error) -> Response<Body> {
    const STATUSES: [(StatusCode, &[Code]); 4] = [
        (
            StatusCode::NOT_FOUND,
            &[Code::RunUnknown, Code::ServerUnknown],
        ),
        (
            StatusCode::BAD_REQUEST,
            &[Code::BadMessage, Code::ConfigBadValue],
        ),
        (StatusCode::FORBIDDEN, &[Code::NotAllowed]),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            &[
                Code::Draining,
                Code::Closed,
                Code::Overloaded,
                Code::PoolFull,
            ],
        ),
    ];
    let mut known = STATUSES.into_iter();
    let known = known.find(|(_, codes)| codes.contains(&error.code()));
    let status = known.map_or(StatusCode::BAD_GATEWAY, |(status, _)| status);
    let mut fields = failure::fields(error, Candour::Full);
    fields["what"] = error.trouble().what.as_str().into();
    let told = (error.code().word(), &*error.trouble().what);
    reply::refused(status, told, json!({ "error": fields }).to_string())
}

fn told(value: &Value) -> Response<Body> {
    reply::answer(value.to_string())
}

/// Reads what was sent, within a limit that any server that was typed fits into.
async fn read(shared: &Shared, mut body: Incoming) -> Result<Bytes, Refusal> {
    let within = shared.gate.limits().body_within;
    let read = body::read(&mut body, shared.options.max_request, within).await;
    read.map_err(|unread| Refusal {
        status: StatusCode::BAD_REQUEST,
        code: Code::BadMessage,
        what: format!("the message cannot be read: {unread:?}"),
        hint: None,
    })
}
