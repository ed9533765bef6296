//! Limits: what can grow has an end, and over it the answer is no, at once.

use crate::prelude::*;

/// reliability P17, reliability P18, reliability I24: a flood of calls meets so many sessions and
/// so many places in line, and whoever finds none is told at once when to come back.
#[tokio::test]
async fn a_flood_meets_limits_that_are_never_passed() {
    let world = World::built(
        Personality::legacy(),
        |server| server.session_per(SessionScope::Identity).max_per_key(2),
        |builder| {
            builder.limits(|limits| {
                limits.sessions = 5;
                limits.waiters_per_key = 4;
            })
        },
    );
    let calls = (0..4).flat_map(|who| {
        let ledger = world.warm.identity(&format!("who {who}")).server(LEDGER);
        let ledger = ledger.unwrap();
        (0..20).map(move |_| {
            let ledger = ledger.clone();
            async move { ledger.call("slow", json!({"ms": 60})).await }
        })
    });
    let watch = async {
        let mut most = 0;
        loop {
            most = most.max(world.server.counts().open_sessions);
            assert!(most <= 5, "{most} sessions");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::select! {
        ended = join_all(calls) => ended,
        never = watch => never,
    };
    let (served, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    // Of each identity's twenty, so many as have a session or a place in line.
    assert!((4 * 4..=4 * 6).contains(&served.len()), "{}", served.len());
    for error in refused.into_iter().map(Result::unwrap_err) {
        failed_as(&error, "overloaded", Delivery::Unsent);
        assert!(error.retry_after().is_some(), "{error:?}");
    }
    let started = world.server.ledger().started_executions("slow");
    assert_eq!(started, served.len());
    world.finish().await;
}
