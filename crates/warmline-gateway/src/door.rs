//! The door: listeners, connections, and what is turned away before anything is parsed.
//!
//! Asked by: [`Gateway`](crate::Gateway).  A request passes here in this order: how many there
//! are, Host and Origin, the path, what its head says it is, who it is, whether the server is for
//! them, the size of its body. Only then a face reads it.

mod framing;
pub(crate) mod leaving;
pub(crate) mod limits;
mod pace;
mod reading;
mod refusing;
pub(crate) mod replies;
mod resource;
mod shares;
mod socket;
mod stall;
mod strangers;
mod telling;
mod tls;
mod worded;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use warmline::clock;

use self::leaving::{Leaving, OnItsWay};
use self::limits::Connected;
pub use self::limits::Limits;
use self::pace::{Paced, Turns};
use self::refusing::{
    Refusal, closing, foreign, no_such_run, not_let_in, not_there, note_nobody, parting, reason_of,
    too_late, too_many_strangers, two_credentials, unclear, unreadable,
};
pub use self::resource::Resource;
use self::socket::LocalListener;
pub(crate) use self::stall::Stalling;
pub(crate) use self::telling::Faults;
pub use self::tls::TlsFiles;
pub(crate) use self::tls::{Acceptor, Unusable, check as check_certificate};
use self::worded::Worded;
use crate::admin;
use crate::body::Body;
use crate::face::sse::{self, Sse};
use crate::face::{self, Visit};
use crate::metrics::{Face, StatusClass, TurnedAwayFor, Undelivered};
use crate::path::{self, Place};
use crate::reply;
use crate::terms::Terms;
use crate::who::{self, Effort, LOCAL, Peer, Split, Subject};
use crate::{NotStarted, Options, Shared};

/// Connections that cannot be taken now are tried again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// What a client gets before there is room for it to be heard.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// Takes connections of the network until it is closed. While calls under way end, who comes with
/// a new one is told so, and who answers a question or gives a call up is heard.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    listener: TcpListener,
    acceptor: Option<Arc<Acceptor>>,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = stopped(&mut closing) => return,
        };
        match taken {
            Ok((socket, from)) => {
                let Some(place) = shared.gate.connection(Some(from.ip())) else {
                    no_room(&shared, Peer::Address(from.ip()));
                    turn_away(&socket);
                    continue;
                };
                let (shared, stopping) = (Arc::clone(&shared), shared.stopping.clone());
                let serving = welcome(shared, socket, from, acceptor.clone(), stopping);
                drop(clock::spawn("connection", held(place, serving)));
            },
            Err(error) => pause(&error).await,
        }
    }
}

/// What stands behind a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// MCP.
    Mcp,
    /// What runs here, and what may be done about it.
    Admin,
    Both,
}

/// The sockets of this machine that are wanted, each with what stands behind it.
pub(crate) fn sockets(options: &Options) -> Result<Vec<(LocalListener, Opens)>, NotStarted> {
    let wanted = match (&options.socket, &options.admin) {
        (Some(mcp), Some(admin)) if mcp == admin => vec![(mcp, Opens::Both)],
        (mcp, admin) => {
            let mcp = mcp.iter().map(|path| (path, Opens::Mcp));
            mcp.chain(admin.iter().map(|path| (path, Opens::Admin)))
                .collect()
        },
    };
    let bound = wanted.into_iter().map(|(path, opens)| {
        let listener = LocalListener::bind(path);
        let listener = listener.map_err(|error| NotStarted::Socket(path.clone(), error))?;
        Ok((listener, opens))
    });
    bound.collect()
}

/// Takes connections of our own user until it is closed, as those of the network.
pub(crate) async fn listen_locally(
    shared: Arc<Shared>,
    listener: LocalListener,
    opens: Opens,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = stopped(&mut closing) => return,
        };
        match taken {
            Ok(socket) => {
                let Some(place) = shared.gate.connection(None) else {
                    no_room(&shared, Peer::SameUser);
                    continue;
                };
                let serving = serve(
                    Arc::clone(&shared),
                    socket,
                    (Peer::SameUser, opens),
                    shared.stopping.clone(),
                );
                drop(clock::spawn("connection", held(place, serving)));
            },
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be taken");
    clock::sleep(PAUSE).await;
}

/// Serves a connection, which keeps its place until it ends.
async fn held(place: Connected, serving: impl Future<Output = ()>) {
    serving.await;
    drop(place);
}

/// There is no room: said in a few bytes that fit into any buffer, without waiting for anything.
fn turn_away(socket: &TcpStream) {
    socket.try_write(FULL).ok();
}

fn no_room(shared: &Shared, peer: Peer) {
    let why = TurnedAwayFor::Connections;
    shared.counts.turned_away.one_more(why);
    note_nobody(shared, None, why);
    let what = "there are too many connections";
    shared.faults.tell_of_connection(why, peer, what);
}

/// Somebody speaks another language from the first word on, and would not read an answer.
fn no_http(shared: &Shared, peer: Peer) {
    let why = TurnedAwayFor::Head;
    shared.counts.turned_away.one_more(why);
    note_nobody(shared, None, why);
    let what = "a connection does not speak HTTP/1.1";
    shared.faults.tell_of_connection(why, peer, what);
}

async fn welcome(
    shared: Arc<Shared>,
    socket: TcpStream,
    from: SocketAddr,
    acceptor: Option<Arc<Acceptor>>,
    stopping: watch::Receiver<bool>,
) {
    let peer = (Peer::Address(from.ip()), Opens::Mcp);
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%from, %error, "a connection is not usable");
        return;
    }
    let Some(acceptor) = acceptor else {
        return serve(shared, socket, peer, stopping).await;
    };
    match acceptor.accept(socket).await {
        Ok(socket) => serve(shared, socket, peer, stopping).await,
        Err(error) => {
            let why = TurnedAwayFor::Handshake;
            shared.counts.turned_away.one_more(why);
            let what = format!("the handshake of TLS failed: {error}");
            shared.faults.tell_of_connection(why, peer.0, &what);
        },
    }
}

async fn serve<I>(
    shared: Arc<Shared>,
    socket: I,
    (peer, opens): (Peer, Opens),
    mut stopping: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // Who comes so late says one thing, and is not kept.
    let is_late = *stopping.borrow();
    let limits = shared.gate.limits();
    let leaving = Arc::clone(&shared);
    let turns = Arc::new(Turns::default());
    let socket = Stalling::new(socket, limits.stalled_after).telling(move || {
        leaving.counts.undelivered.one_more(Undelivered::Stalled);
        leaving.faults.tell_of_stalled(peer);
    });
    let socket = Paced::new(socket, Arc::clone(&turns), &limits);
    let (refusing, refused) = (Arc::clone(&shared), Arc::clone(&turns));
    let socket = Worded::new(socket, move |status| {
        refused.refuse();
        unreadable(&refusing, peer, status)
    });
    let (telling, told) = (Arc::clone(&shared), Arc::clone(&turns));
    let service = service_fn(move |request| {
        let (shared, turns) = (Arc::clone(&shared), Arc::clone(&turns));
        let (turn, bounds) = turns.begin();
        async move {
            let answer = match unclear(&shared, &request, bounds, peer) {
                Some(refusal) => refusal,
                None => answer_behind(&shared, request, (peer, opens)).await,
            };
            Ok::<_, Infallible>(answer.map(|body| turns.answer(body, turn, &shared.leaving)))
        }
    });
    let mut builder = http1::Builder::new();
    // Its own limit would count a connection that rests between two requests as a slow head.
    builder.header_read_timeout(None).keep_alive(!is_late);
    // The buffer alone would let heads pass that came in large pieces.
    builder
        .max_buf_size(limits.head)
        .max_header_size(limits.head);
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    let leaving = &telling.leaving;
    let mut on_its_way = OnItsWay::of(leaving);
    let ended = tokio::select! {
        ended = driven(connection.as_mut(), &told, (leaving, &mut on_its_way)) => ended,
        () = stopped(&mut stopping), if !is_late => {
            connection.as_mut().graceful_shutdown();
            driven(connection.as_mut(), &told, (leaving, &mut on_its_way)).await
        },
    };
    if let Err(error) = ended {
        if error.is_parse() && !told.was_refused() {
            no_http(&telling, peer);
        }
        tracing::debug!(?peer, %error, "a connection ended badly");
    }
}

/// A connection, and the call that is answered on it.
async fn driven<C: Future>(
    mut connection: Pin<&mut C>,
    turns: &Turns,
    (leaving, on_its_way): (&Leaving, &mut OnItsWay<'_>),
) -> C::Output {
    std::future::poll_fn(|cx| {
        turns.drive(cx, leaving);
        let ended = connection.as_mut().poll(cx);
        on_its_way.is(turns.has_an_answer_to_leave());
        ended
    })
    .await
}

/// Waits until nothing new is taken.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Whoever would say so may be gone; that means the same.
    stopping.wait_for(|stop| *stop).await.map(drop).ok();
}

/// Answers one request, as far as its listener opens to what it is for.
async fn answer_behind(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    (peer, opens): (Peer, Opens),
) -> Response<Body> {
    let (head, body) = request.into_parts();
    // Whoever looks after us is heard also when there is too much to do.
    if opens != Opens::Mcp && admin::is_meant(head.uri.path()) {
        let response = Box::pin(admin::answer(shared, &head, body)).await;
        shared.faults.tell(None, peer, &response);
        if let (Some(audit), Some(told)) = (&shared.audit, reply::told(&response)) {
            audit.turned_away(&head, None, (LOCAL, told.why));
        }
        return reply::headed(response, HeaderMap::new());
    }
    let response = match opens {
        Opens::Mcp | Opens::Both => answer(shared, &head, body, peer).await,
        Opens::Admin => {
            let response = reply::nothing_here();
            shared
                .faults
                .tell(Some(TurnedAwayFor::Path), peer, &response);
            response
        },
    };
    let mut response = reply::headed(response, head.headers);
    if shared.departure.has_begun() {
        closing(&mut response);
    }
    response
}

/// Answers one request: every one is counted here, and what is wrong with it is told once.
async fn answer(shared: &Arc<Shared>, head: &Parts, body: Incoming, peer: Peer) -> Response<Body> {
    // Gone once it was read whole.
    let mut body = Some(body);
    let (why, face, response) = match passed(shared, head, &mut body, peer).await {
        Ok((face, response)) => (None, face, response),
        Err(refusal) => {
            shared.counts.turned_away.one_more(refusal.why);
            (Some(refusal.why), Face::None, refusal.response)
        },
    };
    shared.faults.tell(why, peer, &response);
    let class = StatusClass::of(response.status());
    shared.counts.requests.one_more(face, class);
    parting(response, head, body).await
}

/// Answers a request that may come in.
async fn passed(
    shared: &Arc<Shared>,
    head: &Parts,
    body: &mut Option<Incoming>,
    peer: Peer,
) -> Result<(Face, Response<Body>), Refusal> {
    let Some(burden) = shared.gate.request() else {
        let refusal = TurnedAwayFor::Overloaded.with(reply::overloaded());
        return Err(nobodys(shared, head, refusal));
    };
    let burden = Mutex::new(burden);
    let terms = shared.terms.hold();
    if let Some(refusal) = foreign(&terms, head) {
        return Err(nobodys(shared, head, refusal));
    }
    let resource = terms.resource.as_ref();
    if let Some(answer) = resource.and_then(|resource| resource.answer(head)) {
        return match reply::told(&answer) {
            Some(_) => Err(nobodys(shared, head, TurnedAwayFor::Head.with(answer))),
            None => Ok((Face::None, answer)),
        };
    }
    let Some(place) = path::place(head.uri.path()) else {
        return Err(nowhere(shared, &terms, head, peer).await);
    };
    let unfit = match place {
        Place::Mcp(_) => face::unfit(head),
        Place::Run(_) => unfit_for_run(head),
        Place::Sse(_) | Place::Messages(_) if shared.options.sse == Sse::Off => {
            return Err(nowhere(shared, &terms, head, peer).await);
        },
        Place::Sse(_) => sse::unfit_to_listen(head),
        Place::Messages(_) => sse::unfit_to_say(head),
    };
    if let Some(refusal) = unfit {
        let refusal = TurnedAwayFor::Head.with(refusal);
        return Err(nobodys(shared, head, refusal));
    }
    let subject = let_in(shared, &terms, head, peer).await?;
    shared.desk.used();
    let visit = Visit::new(shared, (subject, peer), place.target(), head, &burden);
    let answered = known(&visit, place, body, &terms).await;
    let answered = answered.map(|(face, response)| {
        let held = |answer: Body| answer.held_in(|| visit.reply_room());
        (face, response.map(held))
    });
    // Whose it is is known from here on: what is refused has its line in the audit.
    match &answered {
        Ok((_, response)) => visit.note_refusal(None, response),
        Err(refusal) => visit.sent_away(refusal.why.word()),
    }
    answered
}

/// A refusal of a request of which nobody asked yet whose it is, with its line in the audit.
fn nobodys(shared: &Shared, head: &Parts, refusal: Refusal) -> Refusal {
    note_nobody(shared, Some(head.uri.path()), refusal.why);
    refusal
}

/// What is wrong with a request that is about a run.
fn unfit_for_run(head: &Parts) -> Option<Response<Body>> {
    (head.method != Method::DELETE).then(|| reply::wrong_method("DELETE"))
}

/// Answers a request of somebody.
async fn known(
    visit: &Visit<'_>,
    place: Place<'_>,
    body: &mut Option<Incoming>,
    terms: &Terms,
) -> Result<(Face, Response<Body>), Refusal> {
    if let Place::Run(name) = place {
        return Ok((Face::None, end_run(visit, name).await));
    }
    if let Some(server) = visit.target.server
        && let Some(refusal) = not_there(terms, visit, server)
    {
        return Err(refusal);
    }
    if let Some(refusal) = two_credentials(visit) {
        return Err(refusal);
    }
    if let Place::Sse(_) = place {
        return Ok((Face::Legacy, sse::listen(visit)));
    }
    if visit.head.method != Method::POST {
        return Ok((Face::Legacy, face::without_body(visit).await));
    }
    said(visit, place, body, terms.max_request).await
}

/// `DELETE /runs/{run}`: the run must be there.
async fn end_run(visit: &Visit<'_>, name: &str) -> Response<Body> {
    let identity = who::identity(&visit.shared.warm, &visit.subject, Split::Run(name));
    match identity.join(name) {
        Ok(run) => {
            run.end().await;
            reply::done()
        },
        Err(error) => no_such_run(&error, visit.candour()),
    }
}

/// Reads a message, and answers it.
async fn said(
    visit: &Visit<'_>,
    place: Place<'_>,
    unread: &mut Option<Incoming>,
    most: usize,
) -> Result<(Face, Response<Body>), Refusal> {
    let body = reading::read(visit, unread, most).await?;
    if *visit.shared.stopping.borrow()
        && let Some(refusal) = too_late(visit, &body)
    {
        return Err(refusal);
    }
    if let Place::Messages(_) = place {
        return Ok((Face::Legacy, sse::said(visit, body).await));
    }
    Ok(face::with_body(visit, body).await)
}

/// There is nothing at this path. Nobody looks after the gateway from here either; who is not
/// known does not even hear that.
async fn nowhere(shared: &Shared, terms: &Terms, head: &Parts, peer: Peer) -> Refusal {
    if !admin::is_meant(head.uri.path()) {
        let refusal = TurnedAwayFor::Path.with(reply::nothing_here());
        return nobodys(shared, head, refusal);
    }
    match let_in(shared, terms, head, peer).await {
        Ok(subject) => {
            let why = TurnedAwayFor::NotAllowed;
            if let Some(audit) = &shared.audit {
                audit.turned_away(head, None, (subject.name(), why.word()));
            }
            why.with(admin::elsewhere())
        },
        Err(refusal) => refusal,
    }
}

/// Who it is, or what somebody gets who is not let in.
async fn let_in(
    shared: &Shared,
    terms: &Terms,
    head: &Parts,
    peer: Peer,
) -> Result<Subject, Refusal> {
    let is_tired = match peer {
        Peer::Address(address) => shared.gate.is_tired_of(address),
        Peer::SameUser => false,
    };
    let effort = if is_tired {
        Effort::Little
    } else {
        Effort::Full
    };
    let turned_away = match terms.identify(head, peer, effort).await {
        Ok(subject) => return Ok(subject),
        Err(turned_away) => turned_away,
    };
    if let Peer::Address(address) = peer {
        shared.gate.stranger(address);
    }
    note_nobody(shared, Some(head.uri.path()), reason_of(turned_away));
    if is_tired {
        return Err(TurnedAwayFor::Strangers.with(too_many_strangers()));
    }
    Err(not_let_in(terms, head, turned_away))
}
