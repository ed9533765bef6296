//! Pages for machines that watch the gateway, on a listener of their own.
//!
//! Asked by: probes, scrapers, people.  They ask nobody who they are, and so show no identity, no
//! run and no argument. A watcher that hangs takes one of a few places and nothing else; where all
//! are taken, who came first leaves: a probe that is turned away would have the gateway restarted.

pub(crate) mod departure;
mod exposition;
mod page;
pub(crate) mod vitals;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use warmline::clock;

use crate::Shared;
use crate::body::Body;
use crate::door::{Stalling, stopped};
use crate::hosts::Hosts;
use crate::metrics::TurnedAwayFor;
use crate::reply;
use crate::who::Peer;

/// So many may watch at a time.
const MAX_WATCHERS: usize = 32;
/// A watcher may take so long for the head of a request, or for reading a page.
const PATIENCE: Duration = Duration::from_secs(5);
/// Heads of watchers are small.
const MAX_HEAD: usize = 8 << 10;
/// Connections that cannot be taken now are tried again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// The listener of the pages. It ends when this is dropped, and not before: also who goes down is
/// watched.
#[derive(Debug)]
pub(crate) struct Ops {
    pub(crate) address: SocketAddr,
    #[expect(dead_code, reason = "its end is the end of the listener")]
    ending: watch::Sender<bool>,
}

impl Ops {
    /// Begins to answer on a listener.
    pub(crate) fn start(shared: &Arc<Shared>, listener: TcpListener, address: SocketAddr) -> Self {
        let (ending, ended) = watch::channel(false);
        // Names are for clients at the door. Where other machines may look, they ask by whatever
        // leads there: a probe by the address of a pod, a scraper by the name of a service.
        let named = shared.options.hosts.as_slice();
        let named = if address.ip().is_loopback() {
            named
        } else {
            &[]
        };
        let hosts = Arc::new(Hosts::of(address, named, &[]));
        let watched = Watched {
            shared: Arc::clone(shared),
            hosts,
        };
        drop(clock::spawn(
            "ops-listener",
            listen(watched, listener, ended),
        ));
        Self { address, ending }
    }
}

/// What watchers look at.
#[derive(Clone)]
struct Watched {
    shared: Arc<Shared>,
    hosts: Arc<Hosts>,
}

async fn listen(watched: Watched, listener: TcpListener, mut ended: watch::Receiver<bool>) {
    let mut staying: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = stopped(&mut ended) => return,
        };
        let Ok((socket, from)) = taken else {
            // The door says what is wrong: it meets the same trouble.
            clock::sleep(PAUSE).await;
            continue;
        };
        staying.retain(|one| !one.is_closed());
        if staying.len() >= MAX_WATCHERS {
            staying.pop_front();
        }
        let (stay, leave) = oneshot::channel();
        staying.push_back(stay);
        let peer = Peer::Address(from.ip());
        let serving = serve(watched.clone(), socket, peer, leave);
        drop(clock::spawn("ops-connection", serving));
    }
}

async fn serve(watched: Watched, socket: TcpStream, peer: Peer, leave: oneshot::Receiver<()>) {
    let service = service_fn(move |request| {
        let watched = watched.clone();
        async move { Ok::<_, Infallible>(watched.answer(&request, peer).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEAD);
    let socket = TokioIo::new(Stalling::new(socket, PATIENCE));
    let connection = builder.serve_connection(socket, service);
    tokio::select! {
        // How a watcher leaves concerns nobody.
        left = connection => drop(left),
        // Its place, or the listener, is gone.
        _ = leave => {},
    }
}

/// What a page is about.
#[derive(Clone, Copy, Debug)]
enum About {
    Readiness,
    Metrics,
    Servers,
}

impl Watched {
    /// Answers a request; one that is refused has its line in the log.
    async fn answer(&self, request: &Request<Incoming>, peer: Peer) -> Response<Body> {
        match self.answered(request).await {
            Ok(page) => page,
            Err(refusal) => {
                let Refusal { why, response } = *refusal;
                self.shared.faults.tell(Some(why), peer, &response);
                response
            },
        }
    }

    async fn answered(&self, request: &Request<Incoming>) -> Result<Response<Body>, Box<Refusal>> {
        let headers = request.headers();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        // A page in somebody's browser must not read this under a name that leads here.
        if headers.contains_key(ORIGIN) || !self.hosts.may_be_called(host) {
            let what = "this Host or Origin is not one of ours";
            return Err(refused(TurnedAwayFor::Host, StatusCode::FORBIDDEN, what));
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let (why, status) = (TurnedAwayFor::Head, StatusCode::METHOD_NOT_ALLOWED);
            let mut refusal = refused(why, status, "these pages are read");
            let allowed = HeaderValue::from_static("GET, HEAD");
            refusal.response.headers_mut().insert(ALLOW, allowed);
            return Err(refusal);
        }
        Ok(match request.uri().path() {
            "/livez" if self.shared.vitals.are_good() => plain(StatusCode::OK, "ok\n"),
            "/livez" => plain(StatusCode::SERVICE_UNAVAILABLE, "the loop does not turn\n"),
            "/readyz" => {
                self.shared.departure.asked();
                self.page(About::Readiness).await
            },
            "/metrics" => self.page(About::Metrics).await,
            "/servers" => self.page(About::Servers).await,
            _ => {
                let what = "there is /livez, /readyz, /metrics and /servers";
                return Err(refused(TurnedAwayFor::Path, StatusCode::NOT_FOUND, what));
            },
        })
    }

    /// A page that looks at everything there is: not in the loop that carries calls.
    async fn page(&self, about: About) -> Response<Body> {
        let shared = Arc::clone(&self.shared);
        let writing = clock::spawn_blocking("ops-page", move || match about {
            About::Readiness => {
                let (is_ready, said) = page::readiness(&shared);
                let status = if is_ready {
                    StatusCode::OK
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                };
                written(status, JSON, format!("{said}\n"))
            },
            About::Metrics => {
                let kind = HeaderValue::from_static(exposition::CONTENT_TYPE);
                written(StatusCode::OK, kind, page::metrics(&shared))
            },
            About::Servers => {
                let said = page::servers(&shared);
                written(StatusCode::OK, JSON, format!("{said}\n"))
            },
        });
        let failed = |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "this page broke\n");
        writing.await.unwrap_or_else(failed)
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A request for a page that is not given.
struct Refusal {
    why: TurnedAwayFor,
    response: Response<Body>,
}

fn refused(why: TurnedAwayFor, status: StatusCode, what: &'static str) -> Box<Refusal> {
    let mut response = reply::refused(status, (why.word(), what), format!("{what}\n"));
    head(&mut response, TEXT);
    Box::new(Refusal { why, response })
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    written(status, TEXT, text.to_owned())
}

fn written(status: StatusCode, kind: HeaderValue, text: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(text.into()));
    *response.status_mut() = status;
    head(&mut response, kind);
    response
}

fn head(response: &mut Response<Body>, kind: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
