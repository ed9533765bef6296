//! Healing: a session that the server forgot is replaced once, and no call runs twice.

use crate::prelude::*;

/// A120, A121, P1, E3: a 404 costs a handshake and the call once more, over the same connection.
#[tokio::test]
async fn a_404_costs_a_handshake_and_the_call_once_more() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    assert_eq!(count(&ledger).await, 1);
    let before = world.server.ledger().methods().len();
    world.control().forget_sessions();
    let result = ledger.call("counter", json!({})).await.unwrap();
    assert_eq!((result.attempts(), result.generation()), (2, 2));
    let after = world.server.ledger().methods();
    assert_eq!(
        after[before..],
        [
            "tools/call",
            "initialize",
            "notifications/initialized",
            "tools/call"
        ]
    );
    let seen = world.server.counts();
    assert_eq!((seen.initializes, seen.connections), (2, 1));
    world.finish().await;
}

/// A123, reliability P14: a hundred calls that are refused together make one new session.
#[tokio::test]
async fn a_hundred_refusals_make_one_new_session() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let old = ledger.current_session().unwrap().id.unwrap();
    world.control().forget_sessions();
    // Late, so that all are on their way before the first is refused.
    let late = Fault::Delay(300, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(late).on_tool("pay").times(100));
    let accounts: Vec<String> = (0..100).map(|number| format!("storm {number}")).collect();
    let paid = join_all(accounts.iter().map(|account| world.pay(&ledger, account))).await;
    for (paid, account) in paid.into_iter().zip(&accounts) {
        let paid = paid.unwrap();
        assert_eq!((paid.attempts(), paid.generation()), (2, 2));
        let reply: Value = paid.structured().unwrap();
        assert_eq!(reply["account"], **account);
        assert_eq!(world.payments(account), 1);
    }
    let refused = world.server.ledger().count(|entry| {
        entry.phase == ExecutionPhase::Received
            && entry.tool.as_deref() == Some("pay")
            && entry.session.as_deref() == Some(&old)
    });
    assert_eq!(refused, 100);
    assert_eq!(world.handshakes(), 2);
    assert_eq!(world.server.counts().sessions, 2);
    world.finish().await;
}

/// A124: what is said of a session that was replaced already does not concern the new one.
#[tokio::test]
async fn a_late_refusal_leaves_the_new_session_alone() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    world.control().forget_sessions();
    let late = Fault::Delay(400, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(late).on_tool("pay"));
    let (paid, counted) = tokio::join!(world.pay(&ledger, "late"), count(&ledger));
    assert_eq!(counted, 1);
    assert_eq!(paid.unwrap().generation(), 2);
    assert_eq!(world.payments("late"), 1);
    assert_eq!(count(&ledger).await, 2);
    assert_eq!(world.handshakes(), 2);
    world.finish().await;
}

/// A125, E2, P85: an error of the tool's own is passed on as it is.
#[tokio::test]
async fn an_error_of_the_server_is_passed_on_unchanged() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let own = Fault::Error {
        code: -32000,
        message: "no money left".to_owned(),
        data: json!({"left": 0}),
    };
    world.inject(FaultRule::new(own).on_tool("pay"));
    let error = payment(&ledger, "own").await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Answered);
    assert_eq!(error.attempts(), 1);
    let said = error.server_error().unwrap();
    let found = (said.code, said.message.as_str());
    assert_eq!(found, (-32000, "no money left"));
    let data: Value = serde_json::from_slice(said.data.as_deref().unwrap()).unwrap();
    assert_eq!(data, json!({"left": 0}));
    assert_eq!(world.received("tools/call"), 2);
    assert_eq!(world.handshakes(), 1);
    assert_eq!(count(&ledger).await, 2);
    world.finish().await;
}

/// A126, A202: a server that forgets every session at once is not asked for ever.
#[tokio::test]
async fn healing_has_an_end_and_the_breaker_hears_of_it() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    world.inject(
        FaultRule::new(Fault::ForgetSessions)
            .on_method("tools/call")
            .always(),
    );
    let mut codes = Vec::new();
    for number in 0..8 {
        let paid = world.pay(&ledger, &format!("lost {number}")).await;
        let error = paid.unwrap_err();
        assert!(error.delivery().is_safe_to_retry(), "{error:?}");
        assert!(error.attempts() <= 2, "{error:?}");
        if number == 0 {
            // Healed once, and lost again.
            assert_eq!((error.attempts(), world.handshakes()), (2, 2), "{error:?}");
        }
        codes.push(error.code().as_str());
    }
    assert_eq!(codes[0], "session-lost");
    assert_eq!(codes[7], "breaker-open");
    let asked = world.handshakes();
    let error = world.pay(&ledger, "refused at once").await.unwrap_err();
    assert!(error.retry_after().is_some(), "{error:?}");
    assert_eq!(world.handshakes(), asked);
    assert_eq!(world.server.ledger().executions("pay"), 0);
    world.finish().await;
}

/// A127: a lost session is healed whatever is asked.
#[tokio::test]
async fn every_method_heals() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let methods: [(&str, Value); 8] = [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "counter", "arguments": {}})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "info"})),
        ("some/extension", json!({"any": 1})),
    ];
    ledger.ping().await.unwrap();
    for (number, (method, params)) in methods.into_iter().enumerate() {
        world.control().forget_sessions();
        let asked = ledger.request(method, params).await;
        if let Err(error) = asked {
            // An unknown method is answered, on a session that is good.
            assert_eq!(error.delivery(), Delivery::Answered, "{method}: {error:?}");
        }
        assert_eq!(world.handshakes(), 2 + number as u64, "{method}");
        let session = ledger.current_session().unwrap().id.unwrap();
        assert_eq!(world.control().session_ids(), [session]);
    }
    world.finish().await;
}

/// A128, P84, P87, reliability P8: a lost answer is unknown, and only what may run twice is sent
/// again.
#[tokio::test]
async fn a_lost_answer_is_unknown_unless_the_call_may_run_twice() {
    let cut = |tool: &str| {
        FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst)).on_tool(tool)
    };
    for personality in [Personality::legacy(), Personality::modern()] {
        let world = World::with(personality, |server| server.repeatable(["put"]));
        let run = world.begin_run();
        let ledger = run.server(LEDGER).unwrap();
        count(&ledger).await;

        world.inject(cut("pay"));
        let error = world.pay(&ledger, "once").await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unknown, "{error:?}");
        assert_eq!(error.attempts(), 1);
        assert_eq!(world.payments("once"), 1);

        // The tool says that it reads; the operator says that `put` may run twice; the caller does.
        world.inject(cut("get"));
        let got = ledger.call("get", json!({"key": "a"})).await.unwrap();
        assert_eq!(got.attempts(), 2);
        world.inject(cut("put"));
        let put = ledger.call("put", json!({"key": "a", "value": 1})).await;
        assert_eq!(put.unwrap().attempts(), 2);
        world.inject(cut("pay"));
        let twice = payment(&ledger, "twice").repeatable().await.unwrap();
        assert_eq!(twice.attempts(), 2);
        assert_eq!(world.payments("twice"), 2);
        world.inject(cut("get"));
        let once = ledger.call("get", json!({"key": "a"})).not_repeatable();
        assert_eq!(once.await.unwrap_err().delivery(), Delivery::Unknown);
        world.finish().await;
    }
}

/// P86, P133, reliability P9: a repeat is marked, with the same key; two equal calls are not.
#[tokio::test]
async fn a_repeat_carries_the_mark_of_its_call() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let cut =
        || FaultRule::new(Fault::Cut(CutPoint::BeforeExecuting, ConnectionEnd::Fin)).on_tool("pay");
    world.inject(cut());
    let result = payment(&ledger, "marked").repeatable().await.unwrap();
    let meta: Value = serde_json::from_slice(result.raw()).unwrap();
    assert_eq!(meta["_meta"]["dev.warmline/attempts"], 2);
    world.inject(cut());
    payment(&ledger, "own key")
        .repeatable()
        .call_id("k-1")
        .await
        .unwrap()
        .ok()
        .unwrap();
    for _ in 0..2 {
        payment(&ledger, "equal").await.unwrap().ok().unwrap();
    }
    let marks = |account: &str| -> Vec<(Value, Value)> {
        let entries = world.server.ledger().entries().into_iter();
        entries
            .filter(|entry| {
                entry.phase == ExecutionPhase::Received && entry.arguments["account"] == account
            })
            .map(|entry| {
                let meta = &entry.meta;
                (
                    meta["dev.warmline/callId"].clone(),
                    meta["dev.warmline/attempt"].clone(),
                )
            })
            .collect()
    };
    let marked = marks("marked");
    assert_eq!(marked.len(), 2);
    assert_eq!(marked[0], (Value::Null, Value::Null));
    assert!(marked[1].0.is_string());
    assert_eq!(marked[1].1, 2);
    let own = marks("own key");
    assert_eq!(own[0], (json!("k-1"), json!(1)));
    assert_eq!(own[1], (json!("k-1"), json!(2)));
    assert_eq!(marks("equal"), vec![(Value::Null, Value::Null); 2]);
    assert_eq!(world.payments("equal"), 2);
    world.finish().await;
}

/// A129, P6: listeners are told, and what was said to the old session is said to the new one.
#[tokio::test]
async fn the_new_session_is_told_what_the_old_one_was_told() {
    let world = World::new(Personality::legacy());
    let mut events = world.warm.events();
    let ledger = world.in_run();
    ledger.set_log_level("warning").await.unwrap();
    ledger
        .request("resources/subscribe", json!({ "uri": "note://a" }))
        .await
        .unwrap();
    ledger
        .request("resources/subscribe", json!({ "uri": "note://b" }))
        .await
        .unwrap();
    ledger
        .request("resources/unsubscribe", json!({ "uri": "note://a" }))
        .await
        .unwrap();
    count(&ledger).await;
    let before = world.server.ledger().methods().len();
    world.control().forget_sessions();
    count(&ledger).await;
    assert_eq!(
        world.server.ledger().methods()[before..],
        [
            "tools/call",
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe",
            "tools/call"
        ]
    );
    let mut told = Vec::new();
    while let Some(EventItem::Event(event)) = events.next().await {
        let is_last = matches!(event, Event::SessionHealed { .. });
        told.push(event);
        if is_last {
            break;
        }
    }
    let gone = told.iter().any(|event| {
        matches!(event, Event::SessionGone { session, .. } if session.generation == Some(1))
    });
    assert!(gone, "{told:?}");
    let Some(Event::SessionHealed {
        session,
        from,
        state_lost,
        ..
    }) = told.last()
    else {
        panic!("{told:?}");
    };
    assert_eq!((session.generation, *from, *state_lost), (Some(2), 1, true));
    world.finish().await;
}

/// A161, A48, E27: a broken wire is no verdict: the same session goes on.
#[tokio::test]
async fn a_broken_wire_does_not_end_a_session() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    assert_eq!(count(&ledger).await, 1);
    let cuts = [
        (CutPoint::BeforeExecuting, ConnectionEnd::Fin),
        (CutPoint::BeforeExecuting, ConnectionEnd::Rst),
        (CutPoint::AfterExecuting, ConnectionEnd::Fin),
        (CutPoint::InHead, ConnectionEnd::Rst),
        (CutPoint::InBody(5), ConnectionEnd::Fin),
    ];
    for (number, (at, end)) in (0..).zip(cuts) {
        let rule = FaultRule::new(Fault::Cut(at, end)).on_tool("pay");
        world.inject(rule);
        let error = world.pay(&ledger, &format!("cut {number}")).await;
        assert_eq!(error.unwrap_err().delivery(), Delivery::Unknown);
        assert_eq!(count(&ledger).await, number + 2);
    }
    // The server's program comes back, and remembers.
    world.server.stop();
    world.server.start_again().unwrap();
    assert_eq!(count(&ledger).await, 7);
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// S30: a call is sent again as often as it is decided, and not at all where nothing is.
#[tokio::test]
async fn so_many_heals_are_made_for_a_call_as_are_decided() {
    for heals in [0, 1, 3] {
        let world = World::with(Personality::legacy(), |server| {
            server.with_policy(|policy| policy.heals_per_call = heals)
        });
        let ledger = world.in_run();
        let forgets = FaultRule::new(Fault::ForgetSessions).on_method("tools/call");
        world.inject(forgets.always());
        let error = world.pay(&ledger, "lost").await.unwrap_err();
        let told = (error.code().as_str(), error.delivery(), error.attempts());
        assert_eq!(told, ("session-lost", Delivery::Refused, heals + 1));
        assert_eq!(world.server.ledger().executions("pay"), 0);
        world.finish().await;
    }
}

/// A162, E26: a modern server has no session to lose.
#[tokio::test]
async fn a_modern_server_is_never_healed() {
    let world = World::new(Personality::modern());
    let ledger = world.in_run();
    ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
    let met = world.handshakes();
    let unknown = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"Not Found: Invalid session ID"}}"#;
    let told = [
        (CannedReply::new(404, unknown).json(), Delivery::Answered),
        (
            CannedReply::new(404, "Session not found"),
            Delivery::Refused,
        ),
        (
            CannedReply::new(400, "Bad Request: No valid session ID provided"),
            Delivery::Refused,
        ),
    ];
    for (canned, delivery) in told {
        let before = world.server.ledger().methods().len();
        world.inject(FaultRule::new(Fault::Reply(canned)).on_tool("pay"));
        let error = world.pay(&ledger, "modern").await.unwrap_err();
        assert_eq!(error.delivery(), delivery, "{error:?}");
        // What was refused may make us look at the server again, but never send it twice.
        let methods = world.server.ledger().methods().split_off(before);
        let calls = methods.iter().filter(|method| *method == "tools/call");
        assert_eq!(calls.count(), 1, "{methods:?}: {error:?}");
    }
    ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
    assert_eq!(world.handshakes(), met);
    world.finish().await;
}

/// A182, A183: an empty body and an error reply are told for what they are.
#[tokio::test]
async fn an_empty_body_names_the_url() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let empty = CannedReply::new(200, "").json();
    world.inject(FaultRule::new(Fault::Reply(empty)).on_tool("pay"));
    let error = world.pay(&ledger, "empty").await.unwrap_err();
    let words = format!("{error} {error:?}");
    assert!(words.contains(&world.server.url()), "{words}");
    failed_as(&error, "bad-answer", Delivery::Unknown);
    world.finish().await;
}

/// A call that only reads, by the caller's own word.
pub(crate) async fn read(handle: &ServerHandle) -> Result<ToolResult, Error> {
    handle.call("get", json!({"key": "a"})).repeatable().await
}

/// reliability D53: what is told about a notification on a lost session is the truth: the server got
/// it and refused it.
#[tokio::test]
async fn a_notification_on_a_lost_session_was_refused() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    world.control().forget_sessions();
    let method = "notifications/roots/list_changed";
    let error = ledger.notify(method, b"{}").await.unwrap_err();
    assert_eq!(world.received(method), 1);
    failed_as(&error, "request-refused", Delivery::Refused);
    assert_eq!(count(&ledger).await, 1, "the next call is healed");
    world.finish().await;
}
