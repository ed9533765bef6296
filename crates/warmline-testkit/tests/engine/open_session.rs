//! Opening: one opens for all who wait, and nobody else is held up by it.

use crate::prelude::*;

use warmline_upstream::Timeouts;

/// Keeps idle connections for a moment only, where the story cannot let time pass.
pub(crate) fn briefly_connected(server: Server) -> Server {
    server.times(Timeouts {
        connection_idle: Duration::from_millis(100),
        ..Timeouts::default()
    })
}

/// A24, P107: a thousand first calls of a thousand tasks on several threads open one session over HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_first_calls_of_many_threads_make_one_handshake() {
    let world = World::with(Personality::legacy(), briefly_connected);
    let ledger = world.in_run();
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
    world.finish().await;
}

/// A24, P31, P33, P107, P109: nothing runs before it is called. Then a thousand first calls at the same
/// moment start one process, and none of them is sent before the handshake is over.
#[tokio::test]
async fn a_thousand_first_calls_start_one_process() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = program.engine();
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    assert_eq!(program.starts(), 0, "a handle is no use of it");
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
    let holds = place("notifications/initialized") < place("tools/call");
    assert!(holds, "{:?}", &methods[..5]);
    let calls = methods.iter().filter(|method| **method == "tools/call");
    assert_eq!(calls.count(), 1000);
}

/// A25: a failed opening is told to all who waited for it, and the next call tries again.
#[tokio::test]
async fn a_failed_opening_is_told_once_to_everybody() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let refusal = Fault::Reply(CannedReply::new(403, "not today"));
    world.inject(FaultRule::new(refusal).on_method("initialize"));
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
    let handshakes = world.handshakes();
    assert_eq!(handshakes, 0, "the refusal came before it was counted");
    assert_eq!(world.received("initialize"), 1);
    assert_eq!(count(&ledger).await, 1);
    world.finish().await;
}

/// A26: whoever began an opening may leave; it goes on for the others.
#[tokio::test]
async fn an_opening_goes_on_when_its_caller_leaves() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let late = Fault::Delay(300, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(late).on_method("initialize"));
    let first = ledger.clone();
    let first = tokio::spawn(async move { count(&first).await });
    let seen = world.server.ledger().clone();
    let is_so = || seen.messages_received("initialize") == 1;
    until("the handshake is under way", is_so).await;
    let second = ledger.clone();
    let second = tokio::spawn(async move { count(&second).await });
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// A27: a server that takes long to open delays no other.
#[tokio::test]
async fn a_server_that_does_not_open_delays_no_other() {
    let stuck = LedgerServer::start(Personality::legacy()).unwrap();
    stuck.inject(FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).always());
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.server(Server::http("stuck", stuck.url()))
    });
    let run = world.begin_run();
    let waiting = run.server("stuck").unwrap();
    let waiting = tokio::spawn(async move { waiting.call("counter", json!({})).await });
    let seen = stuck.ledger().clone();
    until("the stuck server was asked", || !seen.methods().is_empty()).await;
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    assert!(!waiting.is_finished());
    waiting.abort();
    drop(waiting);
    world.finish().await;
}
