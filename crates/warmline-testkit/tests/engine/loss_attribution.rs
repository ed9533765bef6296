//! Whose loss it is: each run that shares a session is told what was lost with it, a holder hears of
//! no loss but its own, and a loss outlives the key that it happened to.

use crate::prelude::*;

use warmline::ExclusiveSession;

use super::crash_storm::{are_buried, kill_all};

/// A server that forgot the session of one request.
pub(crate) fn forgets(method: &str) -> FaultRule {
    let words = json!({"jsonrpc": "2.0", "id": Value::Null,
        "error": {"code": -32001, "message": "Session not found"}});
    FaultRule::new(Fault::Reply(
        CannedReply::new(404, &words.to_string()).json(),
    ))
    .on_method(method)
}

/// Whether a call says that state was lost, in the way of its policy.
pub(crate) fn says_so(then: StateLossPolicy, called: &Result<ToolResult, Error>) -> bool {
    match (then, called) {
        (StateLossPolicy::Tell | StateLossPolicy::Continue, Ok(result)) => result.state_lost(),
        (StateLossPolicy::Fail | StateLossPolicy::EndRun, Err(error)) => {
            error.code().as_str() == "session-lost"
        },
        (_, other) => panic!("{then:?}: {other:?}"),
    }
}

/// One more call of the counter on a lease, which has its session as it was.
async fn goes_on(lease: &ExclusiveSession, expected: i64) {
    let result = lease.call("counter", json!({})).await.unwrap();
    assert_eq!((counted(&result), result.state_lost()), (expected, false));
}

/// A48, reliability P11: a session that is given up under its holder serves it to the end of the
/// lease, without a word of a loss; whoever calls afterwards has the word.
#[tokio::test]
async fn the_loss_of_a_session_is_told_when_its_holder_is_done_with_it() {
    for then in [StateLossPolicy::Tell, StateLossPolicy::Fail] {
        let world = World::with(Personality::legacy(), |server| server.on_state_loss(then));
        let run = world.begin_run();
        let lease = run.lease(LEDGER).await.unwrap();
        goes_on(&lease, 1).await;
        assert_eq!(world.warm.close_sessions(LEDGER, None), 1);
        for expected in 2..4 {
            goes_on(&lease, expected).await;
        }
        drop(lease);
        let ledger = run.server(LEDGER).unwrap();
        let next = ledger.call("counter", json!({})).await;
        assert!(says_so(then, &next), "{then:?}: {next:?}");
        let after = ledger.call("counter", json!({})).await.unwrap();
        assert!(!after.state_lost(), "told once");
        world.finish().await;
    }
}

/// A48, reliability P11: a loss that was there before a lease began is told on it, once.
#[tokio::test]
async fn a_holder_is_told_of_the_loss_that_its_lease_began_with() {
    let world = World::new(Personality::legacy());
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    world.control().forget_sessions();
    ledger.tools().await.unwrap();
    let lease = run.lease(LEDGER).await.unwrap();
    assert!(lease.state_lost());
    let reply = lease.call("counter", json!({})).await.unwrap();
    assert_eq!((counted(&reply), reply.state_lost()), (1, true));
    assert!(reply.text().contains("lost"), "{reply:?}");
    goes_on(&lease, 2).await;
    drop(lease);
    assert_eq!(count(&ledger).await, 3);
    world.finish().await;
}

/// A48: what is lost with another session of the key is no loss of a holder.
#[tokio::test]
async fn a_holder_hears_nothing_of_a_session_that_is_lost_beside_it() {
    for then in [StateLossPolicy::Tell, StateLossPolicy::Fail] {
        let world = World::with(Personality::legacy(), |server| {
            let server = server.on_state_loss(then);
            server.session_per(SessionScope::Identity).max_per_key(2)
        });
        let identity = world.warm.identity("a");
        let lease = identity.lease(LEDGER).await.unwrap();
        goes_on(&lease, 1).await;
        let ledger = identity.server(LEDGER).unwrap();
        count(&ledger).await;
        world.inject(forgets("tools/list").times(1));
        ledger.request("tools/list", json!({})).await.unwrap();
        goes_on(&lease, 2).await;
        let next = ledger.call("counter", json!({})).await;
        assert!(says_so(then, &next), "{then:?}: {next:?}");
        drop(lease);
        // The server still has the session that it said it forgot.
        world.warm.close().await;
    }
}

/// A48, reliability P11: every run that shares a session is told of its loss, once; a run that
/// begins later lost nothing.
#[tokio::test]
async fn each_run_on_a_shared_session_is_told_of_its_loss() {
    let policies = [
        StateLossPolicy::Tell,
        StateLossPolicy::Continue,
        StateLossPolicy::Fail,
    ];
    let shared = [SessionScope::Identity, SessionScope::Server];
    let both = |then| shared.map(|per| (then, per));
    for (then, per) in policies.into_iter().flat_map(both) {
        let world = World::with(Personality::legacy(), |server| {
            let server = server.session_per(per).calls(CallConcurrency::SideBySide);
            server.on_state_loss(then)
        });
        let runs = [world.warm.begin_run(), world.warm.begin_run()];
        for (run, expected) in runs.iter().zip(1..) {
            assert_eq!(count(&run.server(LEDGER).unwrap()).await, expected);
        }
        world.control().forget_sessions();
        for run in &runs {
            let ledger = run.server(LEDGER).unwrap();
            let paid = world.pay(&ledger, "fresh").await;
            assert!(says_so(then, &paid), "{then:?}, {per:?}: {paid:?}");
            let next = ledger.call("counter", json!({})).await.unwrap();
            assert!(!next.state_lost(), "{then:?}, {per:?}: told once");
        }
        let late = world.warm.begin_run();
        let first = late
            .server(LEDGER)
            .unwrap()
            .call("counter", json!({}))
            .await;
        assert!(!first.unwrap().state_lost(), "{then:?}, {per:?}");
        world.finish().await;
    }
}

/// reliability P11: `end_run` ends every run that lost its state with a shared session, and none
/// that begins later.
#[tokio::test]
async fn each_run_on_a_shared_session_ends_by_its_loss() {
    let world = World::with(Personality::legacy(), |server| {
        let server = server.session_per(SessionScope::Identity);
        let server = server.calls(CallConcurrency::SideBySide);
        server.on_state_loss(StateLossPolicy::EndRun)
    });
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    for run in &runs {
        count(&run.server(LEDGER).unwrap()).await;
    }
    world.control().forget_sessions();
    for run in &runs {
        let paid = world.pay(&run.server(LEDGER).unwrap(), "fresh").await;
        assert!(says_so(StateLossPolicy::EndRun, &paid));
        assert!(!run.is_live());
    }
    assert_eq!(world.payments("fresh"), 0);
    let late = world.warm.begin_run();
    assert_eq!(count(&late.server(LEDGER).unwrap()).await, 1);
    world.finish().await;
}

/// A48, reliability P11: a run that comes to a shared session after a loss lost nothing with it, also
/// where nobody was told of that yet: it is neither told, nor refused, nor ended.
#[tokio::test]
async fn a_run_that_begins_after_a_loss_lost_nothing() {
    let policies = [
        StateLossPolicy::Tell,
        StateLossPolicy::Continue,
        StateLossPolicy::Fail,
        StateLossPolicy::EndRun,
    ];
    let shared = [(SessionScope::Identity, "a"), (SessionScope::Server, "b")];
    let both = |then| shared.map(|(per, who)| (then, per, who));
    for (then, per, who) in policies.into_iter().flat_map(both) {
        let world = World::with(Personality::legacy(), |server| {
            let server = server.session_per(per).calls(CallConcurrency::SideBySide);
            server.on_state_loss(then)
        });
        let [one, stays] = [(); 2].map(|()| world.warm.identity("a").begin_run());
        count(&one.server(LEDGER).unwrap()).await;
        count(&stays.server(LEDGER).unwrap()).await;
        world.control().forget_sessions();
        // It heals, and tells nobody.
        let listed = one.server(LEDGER).unwrap();
        listed.request("tools/list", json!({})).await.unwrap();
        one.end().await;
        let late = world.warm.identity(who);
        for run in [late.begin_run(), late.named_run("chat").unwrap()] {
            let first = run.server(LEDGER).unwrap().call("counter", json!({})).await;
            assert!(!first.unwrap().state_lost(), "{then:?}, {per:?}");
            assert!(run.is_live(), "{then:?}, {per:?}");
            run.end().await;
        }
        let reply = stays
            .server(LEDGER)
            .unwrap()
            .call("counter", json!({}))
            .await;
        assert!(says_so(then, &reply), "{then:?}, {per:?}: {reply:?}");
        world.finish().await;
    }
}

/// A48: a modern program serves all runs of an identity, and its death is told to each of them.
#[tokio::test]
async fn each_run_on_a_modern_program_is_told_of_its_death() {
    let program = Program::ledger(&["--personality", "modern"]);
    let server = program.declared("child");
    let warm = Warmline::builder().server(server).build().unwrap();
    let runs = [warm.begin_run(), warm.begin_run()];
    for run in &runs {
        count(&run.server("child").unwrap()).await;
    }
    let killed = kill_all(&program);
    are_buried(&killed).await;
    for run in &runs {
        let child = run.server("child").unwrap();
        let reply = child.call("counter", json!({})).await.unwrap();
        assert!(reply.state_lost(), "{}", reply.text());
    }
    for run in runs {
        run.end().await;
    }
    warm.close().await;
    program.gone().await;
}

/// A48: a loss that nobody was told of yet is told where the server keeps no sessions any more.
#[tokio::test]
async fn a_loss_outlives_the_sessions_of_its_server() {
    let dialect = warmline_testkit::faults::dialects::by_name("a23").unwrap();
    let world = World::new(Personality::legacy().session_gone(dialect));
    let ledger = world.in_counted_run().await;
    world.inject(forgets("tools/list").times(1));
    ledger.request("tools/list", json!({})).await.unwrap();
    assert_eq!(ledger.current_session().unwrap().generation, 2);
    world.control().forget_sessions();
    let reply = ledger.call("counter", json!({})).await.unwrap();
    assert!(reply.state_lost(), "{}", reply.text());
    world.finish().await;
}
