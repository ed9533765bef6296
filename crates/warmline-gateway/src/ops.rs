//! The ops listener: pages for probes and scrapers.
//!
//! It authenticates nobody, and so shows no identity, run or argument. A hanging client takes one
//! of a few slots; if all are taken, the oldest connection is closed, since a rejected probe would
//! have the gateway restarted.

mod metrics;
pub(crate) mod process_health;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use warmline_engine::metrics::{ServerCondition, ServerStatus};
use warmline_platform::clock;

pub use self::metrics::METRICS;
use crate::GatewayState;
use crate::auth::Peer;
use crate::endpoint::AllowedHosts;
use crate::listener::{ACCEPT_RETRY_DELAY, ConnectionIo, ConnectionRequests, ConnectionTimeouts};
use crate::metrics::RejectionReason;
use crate::response::{self, ResponseBody};
use crate::shutdown::wait_for_stop;

const MAX_CONNECTIONS: usize = 32;
const TIMEOUTS: ConnectionTimeouts = ConnectionTimeouts {
    head: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    write: Duration::from_secs(5),
};
const MAX_HEAD: usize = 8 << 10;

/// The ops listener. It serves until it is dropped, also during a drain.
#[derive(Debug)]
pub(crate) struct OpsListener {
    pub(crate) address: SocketAddr,
    #[expect(dead_code, reason = "dropping it stops the listener")]
    stop: watch::Sender<bool>,
}

impl OpsListener {
    pub(crate) fn start(
        shared: &Arc<GatewayState>,
        listener: TcpListener,
        address: SocketAddr,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        // On the network, probes and scrapers use any name: the address of a pod, a service.
        let names = match address.ip().is_loopback() {
            true => shared.options.allowed_hosts.as_slice(),
            false => &[],
        };
        let service = OpsService {
            shared: Arc::clone(shared),
            hosts: Arc::new(AllowedHosts::for_listener(address, names, &[])),
        };
        drop(clock::spawn(
            "ops-listener",
            accept_connections(service, listener, stopping),
        ));
        Self { address, stop }
    }
}

#[derive(Clone)]
struct OpsService {
    shared: Arc<GatewayState>,
    hosts: Arc<AllowedHosts>,
}

async fn accept_connections(
    service: OpsService,
    listener: TcpListener,
    mut stopping: watch::Receiver<bool>,
) {
    let mut open: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = wait_for_stop(&mut stopping) => return,
        };
        let Ok((socket, from)) = accepted else {
            // The MCP listener logs it: it meets the same error.
            clock::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        open.retain(|connection| !connection.is_closed());
        if open.len() >= MAX_CONNECTIONS {
            open.pop_front();
        }
        let (stay, close) = oneshot::channel();
        open.push_back(stay);
        let peer = Peer::Address(from.ip());
        let serving = serve_connection(service.clone(), socket, peer, close);
        drop(clock::spawn("ops-connection", serving));
    }
}

async fn serve_connection(
    service: OpsService,
    socket: TcpStream,
    peer: Peer,
    close: oneshot::Receiver<()>,
) {
    let requests = Arc::new(ConnectionRequests::default());
    let socket = ConnectionIo::new(socket, Arc::clone(&requests), TIMEOUTS, |_| Bytes::new());
    let service = service_fn(move |request| {
        let (service, in_flight) = (service.clone(), requests.begin_request());
        async move {
            let response = service.serve_request(&request, peer).await;
            drop(in_flight);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(MAX_HEAD);
    tokio::select! {
        ended = builder.serve_connection(TokioIo::new(socket), service) => drop(ended),
        _ = close => {},
    }
}

type OpsRejection = (RejectionReason, StatusCode, &'static str);

impl OpsService {
    async fn serve_request(
        &self,
        request: &Request<Incoming>,
        peer: Peer,
    ) -> Response<ResponseBody> {
        let page: fn(&GatewayState) -> Response<ResponseBody> = match self.check_request(request) {
            Ok("/livez") => return liveness(&self.shared),
            Ok("/readyz") => readiness,
            Ok("/metrics") => metrics,
            Ok("/servers") => servers,
            Ok(_) => {
                let what = "the pages are /livez, /readyz, /metrics and /servers";
                let rejection = (RejectionReason::Path, StatusCode::NOT_FOUND, what);
                return self.reject(rejection, peer);
            },
            Err(rejection) => return self.reject(rejection, peer),
        };
        // These pages read everything: off the threads that carry calls.
        let shared = Arc::clone(&self.shared);
        let rendering = clock::spawn_blocking("ops-page", move || page(&shared));
        rendering.await.unwrap_or_else(|_| {
            let text = "this page failed\n".to_owned();
            self::page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
        })
    }

    /// The path of a request that may be answered.
    fn check_request<'r>(&self, request: &'r Request<Incoming>) -> Result<&'r str, OpsRejection> {
        let headers = request.headers();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        // A web page must not read this under a rebound name.
        if headers.contains_key(ORIGIN) || !self.hosts.allows_host(host) {
            let what = "this Host or Origin is not allowed";
            return Err((RejectionReason::Host, StatusCode::FORBIDDEN, what));
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let what = "these pages support GET and HEAD";
            return Err((RejectionReason::Head, StatusCode::METHOD_NOT_ALLOWED, what));
        }
        Ok(request.uri().path())
    }

    fn reject(&self, (reason, status, what): OpsRejection, peer: Peer) -> Response<ResponseBody> {
        let details = (reason.as_str(), what);
        let mut response = response::rejection(status, details, format!("{what}\n"));
        set_headers(&mut response, TEXT);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
        }
        let log = &self.shared.rejection_log;
        log.log_response(Some(reason), peer, &response);
        response
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

fn is_draining(shared: &GatewayState) -> bool {
    shared.drain_notice.announced.load(Ordering::Relaxed) || *shared.stopping.borrow()
}

fn unready_reason(shared: &GatewayState, statuses: &[ServerStatus]) -> Option<&'static str> {
    let fails = |status: &ServerStatus| {
        let fails = matches!(
            status.state,
            ServerCondition::Degraded | ServerCondition::BreakerOpen
        );
        status.required && fails
    };
    if is_draining(shared) {
        Some("draining")
    } else if shared.limiter.is_full() {
        Some("overloaded")
    } else if statuses.iter().any(fails) {
        Some("required")
    } else {
        None
    }
}

fn liveness(shared: &GatewayState) -> Response<ResponseBody> {
    match shared.process_health.is_alive() {
        true => page(StatusCode::OK, TEXT, "ok\n".to_owned()),
        false => {
            let text = "the runtime is stuck\n".to_owned();
            page(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
        },
    }
}

/// Whether the gateway is ready, and the states of its servers. Of servers, only required ones
/// decide.
fn readiness(shared: &GatewayState) -> Response<ResponseBody> {
    shared.drain_notice.record_probe();
    let statuses = shared.warmline.snapshot().server_statuses;
    let reason = unready_reason(shared, &statuses);
    let servers: Vec<Value> = statuses
        .iter()
        .map(|status| json!({ "server": status.server, "state": status.state }))
        .collect();
    let mut body = json!({ "ready": reason.is_none(), "servers": servers });
    let mut status = StatusCode::OK;
    if let Some(reason) = reason {
        body["why"] = reason.into();
        status = StatusCode::SERVICE_UNAVAILABLE;
    }
    page(status, JSON, format!("{body}\n"))
}

fn metrics(shared: &GatewayState) -> Response<ResponseBody> {
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    page(StatusCode::OK, kind, metrics::metrics_page(shared))
}

/// The states of all servers, without texts of theirs.
fn servers(shared: &GatewayState) -> Response<ResponseBody> {
    let statuses = shared.warmline.snapshot().server_statuses.into_iter();
    let servers: Vec<ServerStatus> = statuses.map(ServerStatus::without_details).collect();
    let body = json!({ "servers": servers });
    page(StatusCode::OK, JSON, format!("{body}\n"))
}

fn page(status: StatusCode, kind: HeaderValue, text: String) -> Response<ResponseBody> {
    let mut response = response::json_response(status, text);
    set_headers(&mut response, kind);
    response
}

fn set_headers(response: &mut Response<ResponseBody>, kind: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
