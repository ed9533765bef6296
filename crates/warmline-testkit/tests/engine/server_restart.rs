//! A server that restarts once: every session is replaced, nobody is stopped for it, and nothing is
//! learnt from it that is not so.

use crate::prelude::*;

/// So many runs of so many tenants, by turns.
fn runs(world: &World, number: usize, tenants: usize) -> Vec<Run> {
    let tenant = |number: usize| format!("tenant {}", number % tenants);
    let begin = |number| world.warm.identity(&tenant(number)).begin_run();
    (0..number).map(begin).collect()
}

fn ledger(run: &Run) -> ServerHandle {
    run.server(LEDGER).unwrap()
}

/// A world where nothing is sent but calls, so that time may go by at once.
fn quiet_world() -> World {
    World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| {
            policy.check_after = secs(100_000);
            policy.health_check_interval = secs(100_000);
            policy.keep_alive = Duration::ZERO;
        })
    })
}

async fn ends(world: World, _runs: Vec<Run>) {
    world.finish().await;
}

/// Each makes its first call, all at the same time, and all are served.
async fn all_are_served(runs: &[Run], when: &str) {
    let calls = runs.iter().map(ledger);
    let calls = calls.map(|ledger| async move { ledger.call("counter", json!({})).await });
    for served in join_all(calls).await {
        let served = served.and_then(ToolResult::ok);
        served.unwrap_or_else(|error| panic!("{when}: {error:?}"));
    }
}

/// reliability P5, reliability P14: sessions that were opened and not yet used when their server
/// restarts cost a handshake each, and stop nobody: neither whoever had them nor anybody else.
#[tokio::test]
async fn a_restart_before_the_first_calls_stops_nobody() {
    for (tenants, rested) in [(12, 0), (12, 600), (1, 0), (1, 600)] {
        let when = format!("{tenants} tenants, after {rested} s");
        let world = quiet_world();
        let runs = runs(&world, 12, tenants);
        for run in &runs {
            ledger(run).info().await.unwrap();
        }
        pass(secs(rested)).await;
        let before = world.handshakes();
        world.control().forget_sessions();
        all_are_served(&runs, &when).await;
        assert_eq!(world.handshakes(), before + 12, "{when}");
        let stranger = world.warm.identity("somebody else").begin_run();
        assert_eq!(count(&ledger(&stranger)).await, 1, "{when}");
        stranger.end().await;
        ends(world, runs).await;
    }
}

/// reliability P5, reliability P14: the same where it restarts while the first calls are under way.
#[tokio::test]
async fn a_restart_under_the_first_calls_stops_nobody() {
    let forgotten =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    for tenants in [12, 1] {
        let world = World::new(Personality::legacy());
        count(&world.ledger()).await;
        let reply = Fault::Reply(CannedReply::new(404, forgotten).json());
        let rule = FaultRule::new(reply).on_method("tools/call").times(12);
        world.inject(rule);
        let runs = runs(&world, 12, tenants);
        all_are_served(&runs, &format!("{tenants} tenants")).await;
        // What it said to have forgotten is still there.
        world.control().forget_sessions();
        all_are_served(&runs, "again").await;
        ends(world, runs).await;
    }
}

/// P127: sessions that one restart took at one age are no sign of an age at which they end: those
/// that came after it live on.
#[tokio::test]
async fn a_restart_teaches_no_age() {
    for age in [30, 300] {
        let world = quiet_world();
        let mut runs = runs(&world, 4, 4);
        let echo = async |run: &Run| {
            let echo = ledger(run).call("echo", json!({})).repeatable();
            echo.await.unwrap().ok().unwrap();
        };
        join_all(runs.iter().map(&echo)).await;
        pass(secs(age)).await;
        world.control().forget_sessions();
        join_all(runs.iter().map(&echo)).await;
        for run in runs.drain(1..) {
            run.end().await;
        }
        let healed = world.handshakes();
        for _ in 0..60 {
            pass(secs(60)).await;
            echo(&runs[0]).await;
        }
        assert_eq!(world.handshakes(), healed, "in an hour, after {age} s");
        ends(world, runs).await;
    }
}
