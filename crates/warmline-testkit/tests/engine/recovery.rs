//! Healing: faults that end, calls that outlive their session, and one server among many.

use crate::prelude::*;

use warmline::{ClientProfile, ServerRequestReply};

use super::http_sse_server::OldServer;

/// reliability P13: whatever was wrong, once it is over calls are served again by themselves, after
/// the breaker's longest wait at the latest.
#[tokio::test]
async fn after_a_fault_calls_are_served_again_by_themselves() {
    let faults = [
        None,
        Some(Fault::Reply(CannedReply::new(503, "down"))),
        Some(Fault::Reply(CannedReply::new(401, "who are you?"))),
        Some(Fault::Reply(CannedReply::new(404, "nothing here"))),
        Some(Fault::Silence(FaultTiming::BeforeExecuting)),
        Some(Fault::ForgetSessions),
    ];
    for fault in faults {
        let world = World::new(Personality::legacy());
        let held = world.warm.begin_run();
        count(&held.server(LEDGER).unwrap()).await;
        match &fault {
            None => world.server.stop(),
            Some(fault) => world.inject(FaultRule::new(fault.clone()).always()),
        }
        for number in 0..8 {
            let run = world.warm.begin_run();
            let handle = [&held, &run][number % 2].server(LEDGER).unwrap();
            let call = handle.call("pay", json!({ "amount": 1 }));
            // Some faults let single calls pass.
            drop(call.timeout(Duration::from_millis(100)).await);
            run.end().await;
        }
        match &fault {
            None => world.server.start_again().unwrap(),
            Some(_) => world.control().clear_faults(),
        }
        pass(secs(61)).await;
        let fresh = world.warm.begin_run();
        for run in [&held, &fresh] {
            let again = run.server(LEDGER).unwrap().call("counter", json!({})).await;
            let again = again.and_then(ToolResult::ok);
            again.unwrap_or_else(|error| panic!("{fault:?}: {error:?}"));
        }
        fresh.end().await;
        held.end().await;
        // Behind a 404 there might be a server of the first version: it was looked for. And what it
        // said to have forgotten is still there.
        world.control().clear_violations();
        world.control().forget_sessions();
        world.finish().await;
    }
}

/// reliability I20: a call under way when its session is replaced ends with its own answer, and the
/// new session is another one.
#[tokio::test]
async fn a_call_under_way_ends_on_its_own_when_its_session_is_replaced() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let old = ledger.current_session().unwrap();
    let slow = tokio::spawn(ledger.call("slow", json!({ "ms": 800 })).into_future());
    world.under_way("slow", 1).await;
    world.control().forget_sessions();
    let healed = ledger.call("counter", json!({})).await.unwrap();
    assert_eq!((healed.generation(), healed.attempts()), (2, 2));
    assert!(!slow.is_finished(), "the heal did not wait for it");
    let slow = slow.await.unwrap().unwrap();
    assert_eq!((slow.generation(), slow.attempts()), (1, 1));
    assert_eq!(slow.text(), "took 800 ms");
    let new = ledger.current_session().unwrap();
    assert_eq!((old.generation, new.generation), (1, 2));
    assert_ne!(old.id, new.id);
    assert_eq!(count(&ledger).await, 2);
    world.finish().await;
}

/// P3: of several servers one forgets its sessions; it is healed alone, and the others keep theirs.
#[tokio::test]
async fn one_dead_server_of_many_is_healed_alone() {
    let others = [(); 3].map(|()| LedgerServer::start(Personality::legacy()).unwrap());
    let world = World::with_engine(Personality::legacy(), |builder| {
        let declared = (0..).zip(&others);
        builder.servers(declared.map(|(n, one)| Server::http(format!("other-{n}"), one.url())))
    });
    let run = world.begin_run();
    let mut handles = vec![run.server(LEDGER).unwrap()];
    handles.extend((0..others.len()).map(|n| run.server(&format!("other-{n}")).unwrap()));
    for handle in &handles {
        assert_eq!(count(handle).await, 1);
    }
    world.control().forget_sessions();
    assert_eq!(count(&handles[0]).await, 1, "it began anew");
    for handle in &handles[1..] {
        assert_eq!(count(handle).await, 2);
    }
    assert_eq!(world.handshakes(), 2);
    for other in &others {
        assert_eq!(other.counts().initializes, 1);
    }
    world.finish().await;
}

/// E20, P13: a server that holds one session and says so to the healer: the old session is ended, and
/// tried once more; if that does not help, it is told, and never asked in a loop.
#[tokio::test]
async fn a_server_with_one_session_is_freed_of_the_old_one_first() {
    let taken = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#;
    let refusal = || {
        FaultRule::new(Fault::Reply(CannedReply::new(400, taken).json())).on_method("initialize")
    };
    for is_freed in [true, false] {
        let world = World::new(Personality::legacy());
        let (run, ledger) = world.new_run();
        count(&ledger).await;
        let before = world.server.ledger().methods().len();
        world.control().forget_sessions();
        let rule = if is_freed {
            refusal()
        } else {
            refusal().always()
        };
        world.inject(rule);
        let paid = world.pay(&ledger, "single").await;
        let methods = world.server.ledger().methods().split_off(before);
        let first = ["tools/call", "initialize", "DELETE", "initialize"];
        assert_eq!(methods[..4], first, "{methods:?}");
        if is_freed {
            assert_eq!(paid.unwrap().attempts(), 2);
        } else {
            let error = paid.unwrap_err();
            assert_eq!(error.reason(), Reason::SingleSession, "{error:?}");
            assert!(error.delivery().is_safe_to_retry(), "{error:?}");
            assert_eq!(methods.len(), 4, "{methods:?}");
        }
        world.control().clear_faults();
        run.end().await;
        world.control().clear_violations();
        world.finish().await;
    }
}

/// A129: what a client says of itself is said to the new session too: a server that asks for its
/// roots is answered after a heal as before it.
#[tokio::test]
async fn the_new_session_is_told_the_same_roots() {
    let declared = ClientProfile {
        capabilities: Bytes::from_static(br#"{"roots":{}}"#),
        ..ClientProfile::default()
    };
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.client_profile(declared)
    });
    let (run, ledger) = world.new_run();
    let at_home = |_| async {
        ServerRequestReply::Result(r#"{"roots":[{"uri":"file:///home/ada"}]}"#.into())
    };
    let roots = async || {
        let asked = ledger.call("ask_roots", json!({ "rounds": 1 }));
        let asked = asked.on_request(at_home).await;
        asked.unwrap().structured::<Value>().unwrap()["answers"].clone()
    };
    let at_home = json!([{ "roots": [{ "uri": "file:///home/ada" }] }]);
    assert_eq!(roots().await, at_home);
    world.control().forget_sessions();
    assert_eq!(roots().await, at_home);
    assert_eq!(world.handshakes(), 2);
    let entries = world.server.ledger().entries().into_iter();
    let greetings = entries.filter(|entry| entry.method == "initialize");
    let said: Vec<Value> = greetings
        .map(|entry| entry.arguments["capabilities"].clone())
        .collect();
    let holds = said.len() >= 2 && said.iter().all(|one| *one == json!({ "roots": {} }));
    assert!(holds, "{said:?}");
    run.end().await;
    drop(ledger);
    world.finish().await;
}

/// P8, P89: over HTTP+SSE the stream is the session; one that died at rest is replaced at the next
/// call, and its caller sees a result.
#[tokio::test]
async fn a_stream_of_the_old_transport_that_died_at_rest_is_healed_at_the_next_call() {
    let old = OldServer::start();
    let address = old.url();
    let address = address
        .trim_start_matches("http://")
        .trim_end_matches("/sse");
    let proxy = FaultProxy::start(address.parse().unwrap()).unwrap();
    let declared = Server::http("old", format!("http://{}/sse", proxy.address()));
    let warm = Warmline::builder().server(declared).build().unwrap();
    let run = warm.begin_run();
    let handle = run.server("old").unwrap();
    let greeted = || {
        let heard = old.heard();
        let greetings = heard.iter().filter(|method| *method == "initialize");
        u32::try_from(greetings.count()).unwrap()
    };
    let mut met = None;
    for generation in 1..=4 {
        for _ in 0..2 {
            let called = handle.call("echo", json!({ "n": generation })).await;
            let called = called.unwrap();
            assert_eq!(called.generation(), generation);
            let reply: Value = called.structured().unwrap();
            assert_eq!(reply["arguments"]["n"], generation);
        }
        // Meeting it for the first time may take another greeting.
        let met = *met.get_or_insert_with(greeted);
        assert_eq!(greeted(), met + generation - 1);
        proxy.end_connections(ConnectionEnd::Rst);
        pass(secs(300)).await;
    }
    run.end().await;
    warm.close().await;
}

/// reliability P5, reliability P14: streams of the old transport that end all at once, used or not,
/// are one fault: all are opened again, and nobody is stopped.
#[tokio::test]
async fn streams_that_end_all_at_once_stop_nobody() {
    for tenants in [1, 8] {
        let old = OldServer::start();
        let at = old.url().replace("http://", "").replace("/sse", "");
        let proxy = FaultProxy::start(at.parse().unwrap()).unwrap();
        let server = Server::http("old", format!("http://{}/sse", proxy.address()));
        let warm = Warmline::builder().server(server).build().unwrap();
        let tenant = |number| warm.identity(&format!("tenant {}", number % tenants));
        let runs: Vec<_> = (0..8).map(|number| tenant(number).begin_run()).collect();
        for run in &runs {
            run.server("old").unwrap().info().await.unwrap();
        }
        proxy.end_connections(ConnectionEnd::Rst);
        for run in &runs {
            let echo = run.server("old").unwrap().call("echo", json!({ "n": 1 }));
            // It may be under way when the end of its stream is seen.
            let echo = echo.repeatable().await.and_then(ToolResult::ok);
            echo.unwrap_or_else(|error| panic!("{tenants}: {error:?}"));
        }
        for run in runs {
            run.end().await;
        }
        warm.close().await;
    }
}
