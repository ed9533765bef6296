//! What each of a hundred thousand held sessions costs: heap, tasks, connections.
//!
//! `tests/cost` holds the same numbers at ten thousand.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark asks the real clock, prints, and ends when its setting fails"
)]

#[path = "../tests/cost/counting_allocator.rs"]
mod counting_allocator;
#[path = "../tests/cost/held_session.rs"]
mod held_session;
#[path = "../tests/cost/plain_server.rs"]
mod plain_server;

const SESSIONS: usize = 100_000;

fn main() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let cost = runtime.block_on(held_session::held(SESSIONS));
    println!(
        "{SESSIONS} sessions, each held by a run of its own: {} bytes a session, {} bytes a run, \
         {} tasks, {} connections",
        cost.session, cost.run, cost.tasks, cost.connections
    );
    assert!(cost.session <= 1024, "more than a kibibyte a session");
    assert_eq!((cost.tasks, cost.connections), (0, 0));
    // A hundred thousand runs need not be ended one by one.
    runtime.shutdown_background();
}
