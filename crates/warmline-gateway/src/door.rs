//! The door: listeners, connections, and what is turned away before anything is parsed.
//!
//! Asked by: [`Gateway`](crate::Gateway).  A request passes here in this order: Host and Origin,
//! the path, what its head says it is, who it is, the size of its body. Only then a face reads it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use warmline::clock;

use crate::Shared;
use crate::body::{self, Body, Unread};
use crate::face::{self, Visit};
use crate::path::{self, Place};
use crate::reply::{self, RpcCode};
use crate::who::TurnedAway;

/// How long a client may take for the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// How long a client may take for the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The head of a request, at most.
const MAX_HEAD: usize = 32 << 10;

/// Takes connections until told to stop.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = stopped(&mut stopping) => return,
        };
        match taken {
            Ok((socket, peer)) => {
                let serving = serve(Arc::clone(&shared), socket, peer, stopping.clone());
                drop(clock::spawn("connection", serving));
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                clock::sleep(Duration::from_millis(100)).await;
            },
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    mut stopping: watch::Receiver<bool>,
) {
    if let Err(error) = ready(&socket) {
        tracing::debug!(%peer, %error, "a connection is not usable");
        return;
    }
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(MAX_HEAD);
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended badly");
    }
}

/// Waits until nothing new is taken.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Whoever would say so may be gone; that means the same.
    stopping.wait_for(|stop| *stop).await.map(drop).ok();
}

fn ready(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)
}

/// Answers one request.
async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if let Some(what) = foreign(shared, &head) {
        return reply::error(StatusCode::FORBIDDEN, None, RpcCode::Invalid, what);
    }
    let Some(place) = path::place(head.uri.path()) else {
        return reply::nothing_here();
    };
    if let (Place::Mcp(_), Some(refusal)) = (&place, face::unfit(&head)) {
        return refusal;
    }
    let subject = match shared.doorman.identify(&head) {
        Ok(subject) => subject,
        Err(turned_away) => return not_let_in(turned_away),
    };
    let target = match place {
        Place::Mcp(target) => target,
        Place::Run(name) => return shared.end_run(&subject, &head, name).await,
    };
    let visit = Visit {
        shared,
        subject,
        target,
        head: &head,
    };
    if head.method != Method::POST {
        return face::without_body(visit).await;
    }
    match body::read(body, shared.options.max_request, BODY_WITHIN).await {
        Ok(body) => face::with_body(visit, body).await,
        Err(unread) => not_read(unread),
    }
}

/// What is wrong with where a request comes from: a page of elsewhere sent it, or it came under a
/// name that leads here by rebinding.
fn foreign(shared: &Shared, head: &Parts) -> Option<&'static str> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    if !shared.hosts.may_be_called(host) {
        return Some("Forbidden: this Host is not one of ours");
    }
    let origin = head.headers.get(ORIGIN)?;
    let may = shared.hosts.may_come_from(origin);
    (!may).then_some("Forbidden: this Origin may not call here")
}

fn not_let_in(turned_away: TurnedAway) -> Response<Body> {
    let what = match turned_away {
        TurnedAway::Missing => "Unauthorized: a bearer token is needed",
        TurnedAway::Unknown => "Unauthorized: this token is not known here",
    };
    let mut response = reply::error(StatusCode::UNAUTHORIZED, None, RpcCode::Invalid, what);
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    response
}

fn not_read(unread: Unread) -> Response<Body> {
    let (status, what) = match unread {
        Unread::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the message is too large"),
        Unread::TooSlow => (
            StatusCode::REQUEST_TIMEOUT,
            "the message did not come in time",
        ),
        Unread::Broken => (StatusCode::BAD_REQUEST, "the message broke off"),
    };
    reply::error(status, None, RpcCode::Invalid, what)
}
