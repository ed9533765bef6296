//! State loss: whoever can act on it is told that what earlier calls left behind is gone.

use crate::prelude::*;

use warmline::ToolOutput;
use warmline_core::policy::SessionMode;

use super::crash_storm::kill_all;

/// A result as it came.
fn raw(result: &ToolResult) -> Value {
    serde_json::from_slice(result.raw()).unwrap()
}

async fn counter(handle: &ServerHandle) -> ToolOutput {
    handle
        .call("counter", json!({}))
        .await
        .unwrap()
        .ok()
        .unwrap()
}

fn world(on_state_loss: Option<StateLossPolicy>) -> World {
    World::with(Personality::legacy(), |server| match on_state_loss {
        Some(then) => server.on_state_loss(then),
        None => server,
    })
}

/// A48, reliability P11: by default the result begins with a sentence that a model can read,
/// once.
#[tokio::test]
async fn the_loss_is_told_once_in_words_that_a_model_reads() {
    for said in [None, Some(StateLossPolicy::Tell)] {
        let world = world(said);
        let ledger = world.in_run();
        let first = counter(&ledger).await;
        let meta = raw(&first)["_meta"].clone();
        assert!(meta.is_null(), "straight replies stay as they are");
        world.control().forget_sessions();
        let reply = counter(&ledger).await;
        assert!(reply.state_lost());
        let result = raw(&reply);
        let words = result["content"][0]["text"].as_str().unwrap();
        for word in [LEDGER, "lost", "gone"] {
            assert!(words.contains(word), "{words}");
        }
        assert_eq!(result["structuredContent"], json!({"count": 1}));
        let expected = json!({"count": 1}).to_string();
        assert_eq!(result["content"][1]["text"], expected);
        assert_eq!(result["_meta"]["dev.warmline/stateLost"], true);
        assert_eq!(result["_meta"]["dev.warmline/generation"], 2);
        assert_eq!(result["_meta"]["dev.warmline/attempts"], 2);
        let next = counter(&ledger).await;
        assert_eq!(raw(&next).get("_meta"), None);
        assert_eq!((counted(&next), next.state_lost()), (2, false));
        world.finish().await;
    }
}

/// A48: what is not a tool's call mentions the loss, and the next tool is told in words.
#[tokio::test]
async fn a_read_mentions_the_loss_and_the_next_tool_tells_it() {
    let world = world(None);
    let ledger = world.in_run();
    counter(&ledger).await;
    let resources = ledger.list(ListKind::Resources).await;
    let first: Value = serde_json::from_slice(&resources.unwrap()[0]).unwrap();
    let uri = first["uri"].as_str().unwrap();
    world.control().forget_sessions();
    let read = ledger.read_resource(uri).await.unwrap();
    let read: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(read["_meta"]["dev.warmline/stateLost"], true, "{read}");
    let reply = counter(&ledger).await;
    assert!(reply.state_lost());
    assert!(reply.text().contains("gone"));
    assert!(!counter(&ledger).await.state_lost());
    world.finish().await;
}

/// A48: a session that only ever answered what may run twice had nothing to lose.
#[tokio::test]
async fn nothing_is_told_where_nothing_was_left() {
    let world = world(None);
    let ledger = world.in_run();
    let read = || ledger.call("get", json!({"key": "a"})).repeatable();
    read().await.unwrap().ok().unwrap();
    world.control().forget_sessions();
    let result = read().await.unwrap();
    assert_eq!(result.attempts(), 2);
    assert!(!result.state_lost());
    assert_eq!(raw(&result)["_meta"].get("dev.warmline/stateLost"), None);
    world.finish().await;
}

/// reliability P11: `continue` says it in `_meta` alone.
#[tokio::test]
async fn continue_says_it_in_meta_alone() {
    let world = world(Some(StateLossPolicy::Continue));
    let ledger = world.in_run();
    counter(&ledger).await;
    world.control().forget_sessions();
    let result = counter(&ledger).await;
    assert!(result.state_lost());
    let shown = raw(&result);
    assert_eq!(shown["_meta"]["dev.warmline/stateLost"], true);
    assert_eq!(shown["content"].as_array().unwrap().len(), 1);
    assert!(!counter(&ledger).await.state_lost());
    world.finish().await;
}

/// reliability P11: `fail`, and `sessions = "always"` without a word, end the call refused;
/// the next one works.
#[tokio::test]
async fn fail_ends_the_call_and_the_next_one_works() {
    let always = |server: Server| server.sessions(SessionMode::Always);
    let fail = |server: Server| server.on_state_loss(StateLossPolicy::Fail);
    let worlds = [
        World::with(Personality::legacy(), always),
        World::with(Personality::legacy(), fail),
    ];
    for world in worlds {
        let ledger = world.in_counted_run().await;
        world.control().forget_sessions();
        let error = world.pay(&ledger, "fail").await.unwrap_err();
        failed_as(&error, "session-lost", Delivery::Refused);
        assert_eq!(world.payments("fail"), 0);
        assert_eq!(count(&ledger).await, 1);
        world.finish().await;
    }
}

/// reliability P11: whatever else is under way on the new session, the first tool that is called
/// there has the word of the loss.
#[tokio::test]
async fn the_word_of_a_loss_waits_for_no_other_call() {
    let others = [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("prompts/list", json!({})),
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "info"})),
        (
            "tools/call",
            json!({"name": "slow", "arguments": {"ms": 1}}),
        ),
    ];
    for (method, params) in others {
        for then in [
            StateLossPolicy::Tell,
            StateLossPolicy::Continue,
            StateLossPolicy::Fail,
        ] {
            if (method, then) == ("tools/call", StateLossPolicy::Fail) {
                continue; // It is refused itself, and the next one works.
            }
            let world = world(Some(then));
            let ledger = world.in_run();
            counter(&ledger).await;
            world.control().forget_sessions();
            let silence = Fault::Silence(FaultTiming::BeforeExecuting);
            let before = world.received(method);
            // The first is refused with the old session's id.
            world.inject(FaultRule::new(silence).on_method(method).skip(1));
            let other = tokio::spawn(ledger.request(method, params.clone()).into_future());
            let is_so = || world.received(method) == before + 2;
            until("it is under way on the new session", is_so).await;
            let paid = world.pay(&ledger, "fresh").await;
            match (then, paid) {
                (StateLossPolicy::Fail, Err(error)) => {
                    assert_eq!(error.code().as_str(), "session-lost", "{method}: {error:?}");
                },
                (_, paid) => {
                    assert_ne!(then, StateLossPolicy::Fail, "{method}: {paid:?}");
                    assert!(paid.unwrap().state_lost(), "{method}, {then:?}");
                },
            }
            assert!(!counter(&ledger).await.state_lost(), "{method}: told once");
            other.abort();
            world.finish().await;
        }
    }
}

/// reliability P11: `end_run` ends the run with the call.
#[tokio::test]
async fn end_run_ends_the_run() {
    let world = world(Some(StateLossPolicy::EndRun));
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    world.control().forget_sessions();
    let error = world.pay(&ledger, "end").await.unwrap_err();
    assert_eq!(error.code().as_str(), "session-lost", "{error:?}");
    assert!(error.hint().unwrap().contains("begin another"), "{error:?}");
    assert_eq!(error.delivery(), Delivery::Refused);
    assert!(
        !run.is_live(),
        "when its caller reads that it ended, it has"
    );
    let error = world.pay(&ledger, "after").await.unwrap_err();
    failed_as(&error, "run-ended", Delivery::Unsent);
    world.finish().await;
}

/// reliability P11: under `end_run` a lease that meets the loss ends the run as well, and the name
/// of the run begins another at once, as the error says.
#[tokio::test]
async fn what_ends_with_a_run_that_lost_its_state_can_be_begun_anew() {
    let world = world(Some(StateLossPolicy::EndRun));
    let run = world.warm.named_run("x").unwrap();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    world.control().forget_sessions();
    // It heals, and tells nobody.
    ledger.tools().await.unwrap();
    let error = run.lease(LEDGER).await.unwrap_err();
    assert_eq!(error.code().as_str(), "session-lost", "{error:?}");
    let error = world.pay(&ledger, "after").await.unwrap_err();
    assert_eq!(error.code().as_str(), "run-ended", "{error:?}");
    let another = world.warm.named_run("x").unwrap();
    let paid = world.pay(&another.server(LEDGER).unwrap(), "another").await;
    assert!(!paid.unwrap().state_lost());
    assert_eq!((world.payments("after"), world.payments("another")), (0, 1));
    world.finish().await;
}

/// reliability P11: of calls that wait side by side none goes on in a run that its loss ends.
#[tokio::test]
async fn nobody_goes_on_in_a_run_that_its_loss_ends() {
    let world = World::with(Personality::legacy(), |server| {
        server.on_state_loss(StateLossPolicy::EndRun).serial()
    });
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    world.control().forget_sessions();
    let pays = (0..4).map(|_| world.pay(&ledger, "side by side"));
    for paid in join_all(pays).await {
        let code = paid.unwrap_err().code().as_str();
        assert!(["session-lost", "run-ended"].contains(&code), "{code}");
    }
    assert_eq!(world.payments("side by side"), 0);
    world.finish().await;
}

/// A48: a program that died took its state with it, and that is told.
#[tokio::test]
async fn a_program_that_died_is_started_again_and_its_loss_is_told() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = program.engine();
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    assert_eq!((count(&child).await, count(&child).await), (1, 2));
    let error = child.call("crash", json!({})).await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unknown, "{error:?}");
    let reply = child.call("counter", json!({})).await.unwrap();
    assert_eq!((counted(&reply), reply.generation()), (1, 2));
    assert!(reply.state_lost());
    assert!(reply.text().contains("gone"), "{}", reply.text());
    assert_eq!(program.starts(), 2);
    run.end().await;
    program.gone().await;
    warm.close().await;
}

/// When a call began that its session died under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Began {
    BeforeState,
    AfterState,
}

/// reliability P11: a call that saw its program die goes on nowhere where the policy forbids it,
/// also if somebody else was told of the loss before it could be sent again, and if there was no
/// state yet when it began.
#[tokio::test]
async fn no_call_that_saw_its_program_die_goes_on_where_it_may_not() {
    let policies = [StateLossPolicy::Fail, StateLossPolicy::EndRun];
    let both = |then| [(then, Began::BeforeState), (then, Began::AfterState)];
    for (then, began) in policies.into_iter().flat_map(both) {
        let late = r#"{"method":"tools/list","fault":{"delay":[1000,"before-executing"]}}"#;
        let program = Program::ledger(&["--personality", "legacy", "--fault", late]);
        let server = program.declared("child").on_state_loss(then);
        let warm = Warmline::builder().server(server).build().unwrap();
        let run = warm.begin_run();
        let child = run.server("child").unwrap();
        if began == Began::AfterState {
            assert_eq!(count(&child).await, 1);
        }
        // It only reads, as the list of tools says: it is sent again once that was read.
        let reading = tokio::spawn(child.call("slow", json!({"ms": 5_000})).into_future());
        let begun = |line: &&Value| line["phase"] == "begin" && line["tool"] == "slow";
        let is_so = || program.lives().iter().flatten().any(|line| begun(&line));
        until("it is under way", is_so).await;
        if began == Began::BeforeState {
            assert_eq!(count(&child).await, 1);
        }
        kill_all(&program);
        until("the program is started again", || {
            child
                .current_session()
                .is_some_and(|held| held.generation == 2)
        })
        .await;
        let lost = child.call("counter", json!({})).await.unwrap_err();
        assert_eq!(lost.code().as_str(), "session-lost", "{lost:?}");
        let error = reading.await.unwrap();
        let error = error.expect_err(&format!("{then:?}, {began:?}"));
        if then == StateLossPolicy::Fail {
            assert_eq!(error.code().as_str(), "session-lost", "{error:?}");
            assert_eq!(count(&child).await, 1, "the next one works");
        }
        run.end().await;
        program.gone().await;
        warm.close().await;
    }
}

/// A48: each run is told of its own loss, and only of its own.
#[tokio::test]
async fn each_run_is_told_of_its_own_loss() {
    let world = world(None);
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    for run in &runs {
        counter(&run.server(LEDGER).unwrap()).await;
    }
    world.control().forget_sessions();
    for run in &runs {
        let ledger = run.server(LEDGER).unwrap();
        assert!(counter(&ledger).await.state_lost());
        assert!(!counter(&ledger).await.state_lost());
    }
    let fresh = world.warm.begin_run();
    assert!(!counter(&fresh.server(LEDGER).unwrap()).await.state_lost());
    world.finish().await;
}

/// A lease is for one holder alone: what is lost under it is lost, and said, with what helps.
#[tokio::test]
async fn nothing_is_healed_under_a_lease() {
    let world = world(None);
    let run = world.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    done(lease.call("counter", json!({}))).await;
    world.control().forget_sessions();
    for delivery in [Delivery::Refused, Delivery::Unsent] {
        let error = lease.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.delivery(), delivery, "{error:?}");
        let holds = error.hint().unwrap().contains("take a new one");
        assert!(holds, "{error:?}");
        assert_eq!(error.code().as_str(), "session-lost");
    }
    assert!(!lease.is_held());
    drop(lease);
    let again = run.lease(LEDGER).await.unwrap();
    assert!(again.state_lost());
    let result = again.call("counter", json!({})).await.unwrap();
    assert_eq!(counted(&result), 1);
    drop(again);
    world.finish().await;
}
