//! Opening: one opens for all who wait, and nobody else is held up by it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use warmline::core::delivery::Delivery;
use warmline::upstream::Times;
use warmline::{Server, Warmline};
use warmline_testkit::{Fault, LedgerServer, Moment, Personality, Rule};

use super::census::until;
use super::program::Program;
use super::world::{LEDGER, World, count};

/// A24, P107: a thousand first calls at the same moment open one session over HTTP.
#[tokio::test]
async fn a_thousand_first_calls_make_one_handshake() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let mut counts = join_all((0..1000).map(|_| count(&ledger))).await;
    counts.sort_unstable();
    assert_eq!(counts, (1..=1000).collect::<Vec<_>>());
    assert_eq!(world.handshakes(), 1);
    assert_eq!(world.server.counts().sessions, 1);
    run.end().await;
    world.finish().await;
}

/// Keeps idle connections for a moment only, where the story cannot let time pass.
pub(crate) fn briefly_connected(server: Server) -> Server {
    server.times(Times {
        connection_idle: Duration::from_millis(100),
        ..Times::default()
    })
}

/// A24, P107: the same from a thousand tasks on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_first_calls_of_many_threads_make_one_handshake() {
    let world = World::with(Personality::legacy(), briefly_connected);
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let tasks = (0..1000).map(|_| {
        let ledger = ledger.clone();
        tokio::spawn(async move { count(&ledger).await })
    });
    let mut counts: Vec<i64> = join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=1000).collect::<Vec<_>>());
    assert_eq!(world.handshakes(), 1);
    run.end().await;
    world.finish().await;
}

/// A24, P107, P109: a thousand first calls at the same moment start one process, and none of them is
/// sent before the handshake is over.
#[tokio::test]
async fn a_thousand_first_calls_start_one_process() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = Warmline::builder()
        .server(program.declared("child"))
        .build()
        .unwrap();
    let run = warm.begin();
    let child = run.server("child").unwrap();
    let mut counts = join_all((0..1000).map(|_| count(&child))).await;
    counts.sort_unstable();
    assert_eq!(counts, (1..=1000).collect::<Vec<_>>());
    assert_eq!(program.starts(), 1);
    run.end().await;
    program.gone().await;
    warm.close().await;
    let lines = program.lives().concat();
    let received = lines.iter().filter(|line| line["phase"] == "received");
    let methods: Vec<&str> = received
        .filter_map(|line| line["method"].as_str())
        .collect();
    let place = |method: &str| methods.iter().position(|one| *one == method).unwrap();
    assert!(
        place("notifications/initialized") < place("tools/call"),
        "{:?}",
        &methods[..5]
    );
    let calls = methods.iter().filter(|method| **method == "tools/call");
    assert_eq!(calls.count(), 1000);
}

/// A25: a failed opening is told to all who waited for it, and the next call tries again.
#[tokio::test]
async fn a_failed_opening_is_told_once_to_everybody() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let refusal = Fault::Reply(warmline_testkit::Canned::new(403, "not today"));
    world.server.inject(Rule::new(refusal).on("initialize"));
    let calls = (0..50).map(|_| async { ledger.call("counter", json!({})).await });
    let errors: Vec<_> = join_all(calls)
        .await
        .into_iter()
        .map(Result::unwrap_err)
        .collect();
    for error in &errors {
        assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
        assert_eq!(error.to_string(), errors[0].to_string());
        assert!(error.to_string().contains(LEDGER), "{error:?}");
    }
    assert_eq!(
        world.handshakes(),
        0,
        "the refusal came before it was counted"
    );
    assert_eq!(world.server.ledger().received("initialize"), 1);
    assert_eq!(count(&ledger).await, 1);
    run.end().await;
    world.finish().await;
}

/// A26: whoever began an opening may leave; it goes on for the others.
#[tokio::test]
async fn an_opening_goes_on_when_its_caller_leaves() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let late = Fault::Delay(300, Moment::BeforeExecuting);
    world.server.inject(Rule::new(late).on("initialize"));
    let first = ledger.clone();
    let first = tokio::spawn(async move { count(&first).await });
    let seen = world.server.ledger().clone();
    until("the handshake is under way", || {
        seen.received("initialize") == 1
    })
    .await;
    let second = ledger.clone();
    let second = tokio::spawn(async move { count(&second).await });
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!(world.handshakes(), 1);
    run.end().await;
    world.finish().await;
}

/// A27, A43: a server that takes long to open delays no other.
#[tokio::test]
async fn a_server_that_does_not_open_delays_no_other() {
    let stuck = LedgerServer::start(Personality::legacy()).unwrap();
    stuck.inject(Rule::new(Fault::Silence(Moment::BeforeExecuting)).always());
    let world = World::built(
        Personality::legacy(),
        |server| server,
        |builder| builder.server(Server::http("stuck", stuck.url())),
    );
    let run = world.warm.begin();
    let waiting = run.server("stuck").unwrap();
    let waiting = tokio::spawn(async move { waiting.call("counter", json!({})).await });
    let seen = stuck.ledger().clone();
    until("the stuck server was asked", || !seen.methods().is_empty()).await;
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    assert!(!waiting.is_finished());
    waiting.abort();
    drop(waiting);
    run.end().await;
    world.finish().await;
}
