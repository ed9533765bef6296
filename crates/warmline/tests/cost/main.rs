//! What a call on an open HTTP session costs: heap allocations, tasks, connections.
//!
//! The server runs on threads of its own, so what is counted on this thread is ours alone: a
//! connection is driven by the future that uses it.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends when its setting fails, and waits by the real clock"
)]

mod plain_server;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use warmline::core::era::Era;
use warmline::core::exchange::{Ending, Reply, Request};
use warmline::core::protocol::params::Params;
use warmline::upstream::{Declared, Server, Session, Upstream};

use self::plain_server::PlainServer;

/// The budget of one `tools/call` with a JSON reply on an open session.
const BUDGET: u64 = 15;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "counting allocations needs a global allocator")]
// SAFETY: every method passes its arguments unchanged to the system allocator; counting touches
// only a thread-local without a destructor, so it cannot allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn open(server: &PlainServer) -> (Upstream, Session) {
    open_as(server, &Declared::default()).await
}

async fn open_as(server: &PlainServer, declared: &Declared) -> (Upstream, Session) {
    let upstream = Upstream::new();
    let mut described = Server::http("plain", server.url().parse().unwrap());
    described.era = Some(Era::Legacy);
    described.times.connection_idle = Duration::from_millis(200);
    let session = upstream.open(&described, declared).await.unwrap();
    (upstream, session)
}

async fn call(session: &Session, params: Bytes) {
    let request = Request::new("tools/call", Params::parse(params).unwrap());
    let ending = session.send(request, &()).await;
    assert!(
        matches!(ending, Ending::Answered(Reply::Result(_))),
        "{ending:?}"
    );
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

/// Waits for the condition; the limit is only there so that a failure ends.
async fn until_nothing_is_held(server: &PlainServer) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let limit = tokio::time::Instant::now() + Duration::from_secs(10);
    while metrics.num_alive_tasks() > 0 || server.connections() > 0 {
        assert!(
            tokio::time::Instant::now() < limit,
            "still held after its idle time"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

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
    let declared = Declared {
        capabilities: Bytes::from_static(br#"{"elicitation":{}}"#),
        ..Declared::default()
    };
    let (_upstream, session) = open_as(&server, &declared).await;
    call(&session, PARAMS).await;
    assert_eq!(
        server.connections(),
        2,
        "one for calls, one standing stream"
    );
    until_nothing_is_held(&server).await;
    call(&session, PARAMS).await;
}
