//! What a session that a run holds costs in the engine: its cell, the session itself, the run and
//! its way there.

use std::cell::Cell;
use std::time::Duration;

use warmline::{Run, Server, Warmline};
use warmline_core::era::Era;
use warmline_upstream::Timeouts;

use super::counting_allocator::HELD;
use super::plain_server::PlainServer;

/// What many held sessions cost.
pub(crate) struct Cost {
    /// Heap of each run that holds nothing yet.
    pub(crate) run: i64,
    /// Heap of each session: the cell, the session itself, and the way of its run there.
    pub(crate) session: i64,
    /// Tasks of all of them.
    pub(crate) tasks: usize,
    /// Connections of all of them.
    pub(crate) connections: usize,
}

/// Begins so many runs, calls once in each, and lets them rest.
pub(crate) async fn held(count: usize) -> Cost {
    let server = PlainServer::start();
    let warm = engine(&server, u32::try_from(count).unwrap() + 10);
    // What is there once, whoever comes.
    let first = warm.begin_run();
    call(&first).await;
    rests(&server).await;
    let each = |before: i64| (HELD.with(Cell::get) - before) / i64::try_from(count).unwrap();
    let before = HELD.with(Cell::get);
    let runs: Vec<Run> = (0..count).map(|_| warm.begin_run()).collect();
    let run = each(before);
    let before = HELD.with(Cell::get);
    for run in &runs {
        call(run).await;
    }
    rests(&server).await;
    let cost = Cost {
        run,
        session: each(before),
        tasks: tasks() - KEEPER,
        connections: server.connections(),
    };
    assert_eq!(warm.snapshot().sessions.len(), count + 1);
    cost
}

/// The engine's keeper: one task, however many sessions there are.
const KEEPER: usize = 1;

fn engine(server: &PlainServer, most: u32) -> Warmline {
    let times = Timeouts {
        connection_idle: Duration::from_millis(200),
        ..Timeouts::default()
    };
    let declared = Server::http("plain", server.url());
    let builder = Warmline::builder().server(declared.era(Era::Legacy).times(times));
    let builder = builder.limits(|limits| {
        limits.runs_per_identity = most;
        limits.sessions_per_identity = most;
        limits.sessions = most;
    });
    builder.build().unwrap()
}

async fn call(run: &Run) {
    let server = run.server("plain").unwrap();
    let called = server.call("pay", serde_json::json!({})).await;
    assert!(!called.unwrap().is_error());
}

fn tasks() -> usize {
    let runtime = tokio::runtime::Handle::current();
    runtime.metrics().num_alive_tasks()
}

/// Waits until connections and what drives them are gone; the limit is only there so that a
/// failure ends.
async fn rests(server: &PlainServer) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(10);
    while tasks() > KEEPER || server.connections() > 0 {
        let now = tokio::time::Instant::now();
        assert!(now < limit, "still held after its idle time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A107: sessions that rest while time passes cost what they cost at first.
#[tokio::test(flavor = "current_thread")]
async fn what_sessions_cost_does_not_grow_with_time() {
    const SESSIONS: usize = 2_000;
    // So often the keeper looks around.
    const ROUNDS: usize = 8;
    let server = PlainServer::start();
    let warm = engine(&server, 2_010);
    let runs: Vec<Run> = (0..SESSIONS).map(|_| warm.begin_run()).collect();
    for run in &runs {
        call(run).await;
    }
    rests(&server).await;
    let mut held = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(10)).await;
        tokio::time::resume();
        rests(&server).await;
        held.push(HELD.with(Cell::get));
    }
    println!("bytes that are held, round by round: {held:?}");
    // What the first rounds keep for the next ones is there once.
    let grown = held[ROUNDS - 1] - held[1];
    assert!(grown < 1_024, "{grown} bytes more for {SESSIONS} sessions");
    assert_eq!(warm.snapshot().sessions.len(), SESSIONS);
}

/// A107, reliability P20, reliability I26: a kibibyte each, no task, no connection.
#[tokio::test(flavor = "current_thread")]
async fn a_session_that_a_run_holds_costs_less_than_a_kibibyte() {
    let cost = held(10_000).await;
    println!(
        "bytes of a run: {}, of a session that it holds: {}",
        cost.run, cost.session
    );
    assert!(cost.session <= 1024, "{} bytes a session", cost.session);
    assert!(cost.run <= 512, "{} bytes a run", cost.run);
    assert_eq!((cost.tasks, cost.connections), (0, 0));
}
