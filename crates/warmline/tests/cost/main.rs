//! What an HTTP session and a call on it cost: heap, tasks, connections.
//!
//! The server runs on threads of its own, so what is counted on this thread is ours alone: a
//! connection is driven by the future that uses it.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends when its setting fails, and waits by the real clock"
)]

mod counting_allocator;
mod event_cost;
mod held_session;
mod plain_server;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use warmline_core::era::Era;
use warmline_core::exchange::{AttemptResult, Reply, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{
    ClientProfile, HeaderSource, ResumableSession, ServerFacts, ServerTarget, Session, Upstream,
};

use self::counting_allocator::{ALLOCATIONS, HELD};
use self::plain_server::PlainServer;

/// The budget of one `tools/call` with a JSON reply on an open session.
const BUDGET: u64 = 15;
/// The budget of a held session, its credential included. The pool has the rest of the kibibyte.
const SESSION_BYTES: i64 = 640;
const OPENED: usize = 500;

async fn open(server: &PlainServer) -> (Upstream, Session) {
    open_as(server, &ClientProfile::default()).await
}

async fn open_as(server: &PlainServer, declared: &ClientProfile) -> (Upstream, Session) {
    let upstream = Upstream::new();
    let described = described(server);
    let session = upstream.open(&described, declared).await.unwrap();
    (upstream, session)
}

fn described(server: &PlainServer) -> ServerTarget {
    let mut described = ServerTarget::http("plain", server.url().parse().unwrap());
    described.era = Some(Era::Legacy);
    described.timeouts.connection_idle = Duration::from_millis(200);
    described
}

/// A credential of the usual length, one per session as where every person has their own.
#[derive(Debug)]
struct Token(HeaderValue);

impl HeaderSource for Token {
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        Some((AUTHORIZATION, self.0.clone()))
    }
}

async fn call(session: &Session, params: Bytes) {
    let request = Request::new("tools/call", Params::parse(params).unwrap());
    let ending = session.send(request, &()).await;
    let holds = matches!(ending, AttemptResult::Answered(Reply::Result(_)));
    assert!(holds, "{ending:?}");
}

const PARAMS: Bytes = Bytes::from_static(br#"{"name":"pay","arguments":{"amount":10}}"#);

#[tokio::test(flavor = "current_thread")]
async fn a_call_on_an_open_session_makes_few_allocations_and_no_task() {
    let server = PlainServer::start();
    let (_upstream, session) = open(&server).await;
    call(&session, PARAMS).await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();

    let before = ALLOCATIONS.with(Cell::get);
    call(&session, PARAMS).await;
    let made = ALLOCATIONS.with(Cell::get) - before;

    println!("allocations of one call: {made}");
    assert!(made <= BUDGET, "{made} allocations, the budget is {BUDGET}");
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        tasks
    );
    assert_eq!(server.connections(), 1, "the connection was kept");
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_with_a_credential_costs_no_more() {
    let server = PlainServer::start();
    let mut described = described(&server);
    let token = HeaderValue::from_maybe_shared(Bytes::from_static(b"Bearer of a token")).unwrap();
    described.credential = Some(Arc::new(Token(token)));
    let upstream = Upstream::new();
    let session = upstream
        .open(&described, &ClientProfile::default())
        .await
        .unwrap();
    call(&session, PARAMS).await;
    let before = ALLOCATIONS.with(Cell::get);
    call(&session, PARAMS).await;
    let made = ALLOCATIONS.with(Cell::get) - before;
    assert!(made <= BUDGET, "{made} allocations, the budget is {BUDGET}");
}

/// Heap of each session that is added by `make`, all in.
fn bytes_per_session(count: usize, mut make: impl FnMut(usize) -> Session) -> (i64, Vec<Session>) {
    let mut sessions = Vec::with_capacity(count);
    let before = HELD.with(Cell::get);
    for number in 0..count {
        sessions.push(make(number));
    }
    // The place in the list is part of the price, whoever holds it.
    let place = i64::try_from(size_of::<Session>()).unwrap();
    let grown = HELD.with(Cell::get) - before;
    (grown / i64::try_from(count).unwrap() + place, sessions)
}

/// A107: what each of ten thousand held sessions costs.
#[tokio::test(flavor = "current_thread")]
async fn a_held_session_costs_less_than_a_kibibyte_and_neither_task_nor_connection() {
    let server = PlainServer::start();
    let (upstream, first) = open(&server).await;
    let described = described(&server);
    let facts = first.kept().unwrap().facts;
    let declared = ClientProfile::default();
    // Each brings facts of its own, as records do; equal ones are held once.
    let (bytes, sessions) = bytes_per_session(10_000, |number| {
        let kept = ResumableSession {
            session_id: format!("{number:036}"),
            facts: Arc::new(ServerFacts::clone(&facts)),
        };
        upstream.resume(&described, &declared, &kept).unwrap()
    });
    println!("bytes of a session that was taken up: {bytes}");
    assert!(bytes <= SESSION_BYTES, "{bytes} bytes a session");
    until_nothing_is_held(&server).await;
    assert_eq!(sessions.len(), 10_000);
}

/// A107: the same for sessions that were opened and used.
#[tokio::test(flavor = "current_thread")]
async fn a_session_that_was_opened_and_used_costs_no_more_than_one_taken_up() {
    let server = PlainServer::start();
    let (upstream, first) = open(&server).await;
    let mut described = described(&server);
    let declared = ClientProfile::default();
    call(&first, PARAMS).await;
    until_nothing_is_held(&server).await;

    let before = HELD.with(Cell::get);
    let mut sessions = Vec::with_capacity(OPENED);
    for number in 0..OPENED {
        let token = HeaderValue::from_str(&format!("Bearer {number:064}")).unwrap();
        described.credential = Some(Arc::new(Token(token)));
        let session = upstream.open(&described, &declared).await.unwrap();
        call(&session, PARAMS).await;
        sessions.push(session);
    }
    described.credential = None;
    until_nothing_is_held(&server).await;
    let bytes = (HELD.with(Cell::get) - before) / i64::try_from(OPENED).unwrap();
    println!("bytes of a session that was opened and used: {bytes}");
    assert!(bytes <= SESSION_BYTES, "{bytes} bytes a session");
    assert_eq!(sessions.len(), OPENED);
}

/// Waits for the condition; the limit is only there so that a failure ends.
async fn until_nothing_is_held(server: &PlainServer) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let limit = tokio::time::Instant::now() + Duration::from_secs(10);
    while metrics.num_alive_tasks() > 0 || server.connections() > 0 {
        let holds = tokio::time::Instant::now() < limit;
        assert!(holds, "still held after its idle time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// P123, reliability I26, reliability I27: an idle session holds nothing.
#[tokio::test(flavor = "current_thread")]
async fn an_idle_session_holds_no_task_and_gives_its_connection_up() {
    let server = PlainServer::start();
    let (_upstream, session) = open(&server).await;
    call(&session, PARAMS).await;
    until_nothing_is_held(&server).await;
    call(&session, PARAMS).await;
    assert_eq!(server.connections(), 1, "a new connection serves it again");
}

#[tokio::test(flavor = "current_thread")]
async fn a_session_that_can_be_asked_rests_too_though_its_stream_never_falls_silent() {
    let server = PlainServer::start();
    let declared = ClientProfile {
        capabilities: Bytes::from_static(br#"{"elicitation":{}}"#),
        ..ClientProfile::default()
    };
    let (_upstream, session) = open_as(&server, &declared).await;
    call(&session, PARAMS).await;
    let connections = server.connections();
    assert_eq!(connections, 2, "one for calls, one standing stream");
    until_nothing_is_held(&server).await;
    call(&session, PARAMS).await;
}
