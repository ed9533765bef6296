//! The breaker against a server that is dead for long, and comes back.

use crate::prelude::*;

/// What a call is told while nobody listens.
async fn told(handle: &ServerHandle) -> &'static str {
    let error = handle.call("counter", json!({})).await.unwrap_err();
    if error.reason() == Reason::BreakerOpen {
        let wait = error.retry_after().unwrap();
        assert!(wait <= secs(60), "{wait:?}");
    } else {
        assert_eq!(error.reason(), Reason::ConnectRefused, "{error:?}");
    }
    error.code().as_str()
}

/// E11, P10: errors of the connection are typed and counted: callers that never rest open at most
/// ten times in any minute.
#[tokio::test]
async fn a_dead_server_is_tried_at_most_ten_times_a_minute() {
    let world = World::new(Personality::legacy());
    world.server.stop();
    let (run, ledger) = world.new_run();
    let mut tries = Vec::new();
    for second in 0..240_u64 {
        for _ in 0..3 {
            if told(&ledger).await == "cannot-reach" {
                tries.push(second);
            }
        }
        pass(secs(1)).await;
    }
    for begin in 0..180 {
        let minute = begin..begin + 60;
        let within = tries.iter().filter(|at| minute.contains(*at)).count();
        assert!(within <= 10, "{within} from second {begin} on: {tries:?}");
    }
    assert!(tries.iter().any(|at| *at > 180), "it is tried for ever");
    let failed = world.number("opens_total", &["unreachable"]);
    assert_eq!(failed, tries.len() as u64, "each is counted");
    run.end().await;
    world.server.start_again().unwrap();
    world.finish().await;
}

/// P9: nobody is given up for good, and a success begins the count anew.
#[tokio::test]
async fn a_server_that_was_dead_for_an_hour_is_used_when_it_is_back() {
    let world = World::new(Personality::legacy());
    world.server.stop();
    let ledger = world.in_run();
    for _ in 0..120 {
        told(&ledger).await;
        pass(secs(30)).await;
    }
    world.server.start_again().unwrap();
    pass(secs(60)).await;
    assert_eq!(count(&ledger).await, 1);
    // Four failures trip nothing again.
    let (_fresh, other) = world.new_run();
    world.server.stop();
    for _ in 0..4 {
        assert_eq!(told(&other).await, "cannot-reach");
    }
    world.server.start_again().unwrap();
    assert_eq!((count(&other).await, count(&ledger).await), (1, 2));
    world.finish().await;
}
