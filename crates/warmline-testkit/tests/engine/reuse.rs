//! Reuse: one session serves a run, whoever calls, however many at once.

use crate::prelude::*;

use warmline::InCurrentRun;

use super::open_session::briefly_connected;

/// A14, A15, A9: every server and every run has a session of its own.
#[tokio::test]
async fn each_server_and_each_run_has_its_own_session() {
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.server(Server::http("other", other.url()))
    });
    let one_run = || {
        world.warm.run(async |run| {
            let (one, two) = (run.server(LEDGER).unwrap(), run.server("other").unwrap());
            assert_eq!((count(&one).await, count(&one).await), (1, 2));
            assert_eq!(count(&two).await, 1);
            payment(&two, "other").await.unwrap().ok().unwrap();
            run.name().to_owned()
        })
    };
    assert_ne!(one_run().await, one_run().await);
    assert_eq!(world.server.counts().sessions, 2);
    assert_eq!(other.counts().sessions, 2);
    assert_eq!(world.server.ledger().executions("pay"), 0);
    assert_eq!(other.ledger().executions("pay"), 2);
    assert_eq!(other.violations(), Vec::<String>::new());
    world.finish().await;
}

/// A16, P108: calls side by side are told apart by their ids; a slow one delays nobody.
#[tokio::test]
async fn a_slow_call_does_not_delay_a_fast_one() {
    for personality in [Personality::legacy(), Personality::modern()] {
        let world = World::new(personality);
        let ledger = world.in_run();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        let order = Mutex::new(Vec::new());
        let slow = async {
            let slow = ledger.call("slow", json!({"ms": 400})).await.unwrap();
            order.lock().unwrap().push(slow.text());
        };
        let fast = async {
            for number in 0..5 {
                let echo = ledger.call("echo", json!({"number": number})).await;
                order.lock().unwrap().push(echo.unwrap().text());
            }
        };
        tokio::join!(slow, fast);
        let order = order.into_inner().unwrap();
        assert_eq!(order.last().unwrap(), "took 400 ms");
        for (number, text) in order.iter().take(5).enumerate() {
            assert!(text.contains(&number.to_string()), "{text}");
        }
        world.finish().await;
    }
}

/// A18, E14: a tool that is not there is named with its server, and nothing is called.
#[tokio::test]
async fn a_tool_that_is_not_there_is_named_with_its_server() {
    let world = World::new(Personality::legacy());
    let error = world.ledger().tool("countr").await.unwrap_err();
    failed_as(&error, "tool-unknown", Delivery::Unsent);
    let words = format!("{error:?}");
    for named in ["countr", LEDGER, "counter"] {
        assert!(words.contains(named), "{words}");
    }
    let exposed = world
        .ledger()
        .call_by_exposed_name("countr", json!({}))
        .await;
    assert_eq!(exposed.unwrap_err().code(), error.code());
    assert_eq!(world.received("tools/call"), 0);
    world.finish().await;
}

/// A19: outside a run every call has a session of its own, and nothing of it stays.
#[tokio::test]
async fn outside_a_run_a_session_serves_one_call() {
    let world = World::new(Personality::legacy());
    for _ in 0..3 {
        assert_eq!(count(&world.ledger()).await, 1);
    }
    assert_eq!(world.server.counts().sessions, 3);
    world.no_session_left().await;
    assert!(world.warm.snapshot().sessions.is_empty());
    world.finish().await;
}

/// A20: what fails inside a run and outside fails with the same words.
#[tokio::test]
async fn an_error_is_the_same_inside_a_run_and_outside() {
    let world = World::new(Personality::legacy());
    let run = world.begin_run();
    let faults = [
        None,
        Some(Fault::Reply(CannedReply::new(500, "broken"))),
        Some(Fault::Error {
            code: -32050,
            message: "no".to_owned(),
            data: json!({"more": 1}),
        }),
    ];
    for fault in faults {
        let mut told = Vec::new();
        for handle in [run.server(LEDGER).unwrap(), world.ledger()] {
            if let Some(fault) = &fault {
                let rule = FaultRule::new(fault.clone())
                    .on_method("tools/call")
                    .always();
                world.inject(rule);
            }
            let error = handle.call("nobody", json!({})).await.unwrap_err();
            world.control().clear_faults();
            told.push((
                error.to_string(),
                error.code(),
                error.reason(),
                error.delivery(),
                error.cause().map(str::to_owned),
                error.hint().map(str::to_owned),
                error.server_error_raw().cloned(),
            ));
        }
        assert_eq!(told.first(), told.last());
    }
    world.finish().await;
}

/// A21, A109: every method goes the same way: the session of the run, else one of its own.
#[tokio::test]
async fn every_method_takes_the_session_of_the_run() {
    let world = World::new(Personality::legacy());
    world
        .warm
        .run(async |run| all_methods(&run.server(LEDGER).unwrap()).await)
        .await;
    assert_eq!(world.server.counts().sessions, 1);
    let before = world.server.counts().sessions;
    let methods = all_methods(&world.ledger()).await;
    assert_eq!(world.server.counts().sessions, before + methods);
    world.finish().await;
}

/// Uses every kind of method, and says how many requests that were.
async fn all_methods(ledger: &ServerHandle) -> u64 {
    ledger.forget_tools();
    ledger.tools().await.unwrap();
    ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
    for list in [
        ListKind::Resources,
        ListKind::ResourceTemplates,
        ListKind::Prompts,
    ] {
        ledger.list(list).await.unwrap();
    }
    let resources = ledger.list(ListKind::Resources).await.unwrap();
    let first: Value = serde_json::from_slice(&resources[0]).unwrap();
    let uri = first["uri"].as_str().unwrap();
    ledger.read_resource(uri).await.unwrap();
    let prompts = ledger.list(ListKind::Prompts).await.unwrap();
    let first: Value = serde_json::from_slice(&prompts[0]).unwrap();
    let name = first["name"].as_str().unwrap();
    ledger.prompt(name, json!({})).await.unwrap();
    let completion = json!({
        "ref": {"type": "ref/prompt", "name": name},
        "argument": {"name": "topic", "value": "a"},
    });
    ledger.complete(completion).await.unwrap();
    ledger.ping().await.unwrap();
    ledger.set_log_level("info").await.unwrap();
    ledger
        .request("resources/subscribe", json!({ "uri": uri }))
        .await
        .unwrap();
    ledger
        .request("resources/unsubscribe", json!({ "uri": uri }))
        .await
        .unwrap();
    14
}

/// A175: a server that is declared nowhere is called the same way.
#[tokio::test]
async fn call_with_session_needs_no_declaration() {
    let world = World::new(Personality::legacy());
    let undeclared = world.warm.once(Server::http("x", world.server.url()));
    assert_eq!(count(&undeclared).await, 1);
    assert_eq!(count(&undeclared).await, 1);
    let bad = world.warm.once(Server::http("x", "no url"));
    let error = bad.call("counter", json!({})).await.unwrap_err();
    failed_as(&error, "config-bad-value", Delivery::Unsent);
    world.finish().await;
}

/// A server that is declared nowhere keeps its state for as long as somebody has its handle, and no
/// longer, though the run goes on.
#[tokio::test]
async fn what_is_declared_nowhere_ends_with_its_handle_inside_a_run_too() {
    let world = World::new(Personality::legacy());
    world
        .warm
        .run(async |run| {
            for _ in 0..3 {
                let undeclared = world.warm.once(Server::http("x", world.server.url()));
                assert_eq!(count(&undeclared).await, 1);
                assert_eq!(count(&undeclared).await, 2);
                drop(undeclared);
                world.no_session_left().await;
            }
            assert!(run.is_live());
        })
        .await;
    world.finish().await;
}

/// A22: whoever calls once and for all, outside any run, gets and sends the same while others have
/// runs on the same engine.
#[tokio::test]
async fn a_single_call_is_the_same_while_others_have_runs() {
    let world = World::new(Personality::legacy());
    let single = async || {
        let before = world.server.ledger().methods().len();
        let undeclared = world.warm.once(Server::http("x", world.server.url()));
        let mut told = Vec::new();
        for handle in [world.ledger(), undeclared] {
            let called = handle.call("counter", json!({})).await.unwrap();
            told.push((called.raw().clone(), called.generation(), called.attempts()));
        }
        until("its sessions are closed", || {
            let methods = world.server.ledger().methods();
            let closed = methods.iter().skip(before).filter(|one| *one == "DELETE");
            closed.count() == 2
        })
        .await;
        let mut sent = world.server.ledger().methods().split_off(before);
        sent.sort_unstable();
        (told, sent)
    };
    // What is found out once about a server is no part of the comparison.
    single().await;
    let alone = single().await;
    let run = world.begin_run();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    assert_eq!(single().await, alone);
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 2);
    world.finish().await;
}

/// A4, A6, A10, P16, P23: sub-agents of one run share its session, whatever they run on.
#[tokio::test]
async fn sub_agents_of_a_run_always_share_its_state() {
    let world = World::new(Personality::legacy());
    let warm = world.warm.clone();
    let mut counts = world
        .warm
        .run(async |run| {
            let here = sub_agent(warm.clone());
            let joined = futures_util::future::join(sub_agent(warm.clone()), ambient());
            let spawned = tokio::spawn(sub_agent(warm.clone()).in_current_run());
            let handed = tokio::spawn(ambient().in_run(&run));
            let explicit = run.clone();
            let runtime = tokio::runtime::Handle::current();
            let (done, thread) = tokio::sync::oneshot::channel();
            let worker = std::thread::spawn(move || {
                let counted =
                    runtime.block_on(async { count(&explicit.server(LEDGER).unwrap()).await });
                done.send(counted).unwrap();
            });
            let (here, (one, two), spawned, handed, thread) =
                tokio::join!(here, joined, spawned, handed, thread);
            worker.join().unwrap();
            vec![
                here,
                one,
                two,
                spawned.unwrap(),
                handed.unwrap(),
                thread.unwrap(),
            ]
        })
        .await;
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 4, 5, 6]);
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// Built from scratch: knows the engine, and nothing of the run.
async fn sub_agent(warm: Warmline) -> i64 {
    count(&warm.server(LEDGER).unwrap()).await
}

/// Knows nothing at all.
async fn ambient() -> i64 {
    count(&Run::current().unwrap().server(LEDGER).unwrap()).await
}

/// A13, A173: inside a run a server of both eras is met where it keeps state.
#[tokio::test]
async fn a_server_of_both_eras_keeps_the_state_of_a_run() {
    let world = World::new(Personality::dual());
    let (run, ledger) = world.new_run();
    assert_eq!((count(&ledger).await, count(&ledger).await), (1, 2));
    assert_eq!(world.handshakes(), 1);
    run.end().await;
    // Outside it needs no handshake at all.
    done(world.ledger().call("echo", json!({}))).await;
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// A189, A195, P19: the same few words declare a server of any kind.
#[tokio::test]
async fn a_url_is_all_a_server_needs() {
    let kinds = [
        Personality::legacy(),
        Personality::legacy_stateless(),
        Personality::modern(),
        Personality::dual(),
        Personality::dual_stateless(),
    ];
    for personality in kinds {
        let world = World::new(personality);
        let paid = world.pay(&world.ledger(), "outside").await.unwrap();
        assert_eq!(paid.attempts(), 1);
        let run = world.warm.begin_run();
        let paid = world.pay(&run.server(LEDGER).unwrap(), "inside").await;
        paid.unwrap().ok().unwrap();
        run.end().await;
        let payments = (world.payments("outside"), world.payments("inside"));
        assert_eq!(payments, (1, 1));
        world.finish().await;
    }
}

/// A shared handle works from any number of threads at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_are_shared_by_threads() {
    let world = World::with(Personality::dual(), briefly_connected);
    let ledger = Arc::new(world.ledger());
    let calls = (0..64).map(|number| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move { ledger.call("echo", json!({"number": number})).await })
    });
    for called in join_all(calls).await {
        called.unwrap().unwrap().ok().unwrap();
    }
    world.finish().await;
}
