//! Tools: lists that are read once, names that models know, and rules about both.

use crate::prelude::*;

fn lists(world: &World) -> usize {
    world.received("tools/list")
}

/// P99, reliability P4, reliability I4, reliability T18: a list is read once for each who may see
/// it, until
/// its horizon.
#[tokio::test]
async fn a_list_is_read_once_for_each_who_may_see_it() {
    let world = World::new(Personality::legacy());
    let alice = world.warm.identity("alice").server(LEDGER).unwrap();
    let (one, two) = tokio::join!(alice.tools(), alice.tools());
    assert_eq!(one.unwrap().len(), two.unwrap().len());
    alice.tools().await.unwrap();
    assert_eq!(lists(&world), 1);
    let bob = world.warm.identity("bob").server(LEDGER).unwrap();
    bob.tools().await.unwrap();
    assert_eq!(lists(&world), 2);
    alice.forget_tools();
    alice.tools().await.unwrap();
    assert_eq!(lists(&world), 3);
    pass(secs(400)).await;
    alice.tools().await.unwrap();
    assert_eq!(lists(&world), 4);
    world.finish().await;
}

/// P113: all pages are read, and pages that never end are an error.
#[tokio::test]
async fn all_pages_are_read_and_a_loop_is_an_error() {
    let whole = World::new(Personality::legacy());
    let all = whole.ledger().tools().await.unwrap().len();
    whole.finish().await;
    let world = World::new(Personality::legacy().page_size(3));
    assert_eq!(world.ledger().tools().await.unwrap().len(), all);
    world.ledger().forget_tools();
    let rule = FaultRule::new(Fault::CursorLoop)
        .on_method("tools/list")
        .always();
    world.inject(rule);
    let error = world.ledger().tools().await.unwrap_err();
    assert_eq!(error.code().as_str(), "bad-answer", "{error:?}");
    world.finish().await;
}

/// A190, P100: what the rules forbid is refused before anything is sent, and is not listed.
#[tokio::test]
async fn what_is_forbidden_is_refused_before_anything_is_sent() {
    let world = World::built(
        Personality::legacy(),
        |server| server.allow(["get", "p*"]).deny(["pay"]),
        |builder| {
            builder
                .server(Server::http("other", "http://127.0.0.1:9/mcp"))
                .allow_servers([LEDGER])
        },
    );
    for tool in ["pay", "counter", "Get"] {
        let error = world.ledger().call(tool, json!({})).await.unwrap_err();
        assert_eq!(error.code().as_str(), "not-allowed", "{tool}: {error:?}");
        assert_eq!(error.delivery(), Delivery::Unsent);
    }
    let other = world.warm.server("other").unwrap_err();
    assert_eq!(other.code().as_str(), "not-allowed");
    assert_eq!(world.server.counts().requests, 0);
    let get = json!({"key": "a"});
    world.ledger().call("get", get).await.unwrap().ok().unwrap();
    let listed = world.ledger().tools().await.unwrap();
    let names: Vec<&str> = listed.tools().iter().map(|tool| tool.name()).collect();
    let holds = names.contains(&"get") && names.contains(&"put");
    assert!(holds, "{names:?}");
    assert!(!names.contains(&"pay") && !names.contains(&"counter"));
    let lease = world.ledger().lease().await.unwrap();
    let error = lease.call("pay", json!({"amount": 1})).await.unwrap_err();
    assert_eq!(error.code().as_str(), "not-allowed");
    drop(lease);
    assert_eq!(world.server.ledger().executions("pay"), 0);
    world.finish().await;
}

/// A154, S32: a server that is switched off is not used.
#[tokio::test]
async fn a_server_that_is_switched_off_is_not_used() {
    let world = World::with(Personality::legacy(), |server| server.enabled(false));
    let error = world.warm.server(LEDGER).unwrap_err();
    assert_eq!(error.code().as_str(), "not-allowed");
    assert_eq!(world.server.counts().requests, 0);
    world.finish().await;
}

/// P84: the tool's own word is asked for when it matters, and only then.
#[tokio::test]
async fn the_hints_are_read_when_they_matter() {
    use warmline_testkit::{ConnectionEnd, CutPoint};
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    assert_eq!(lists(&world), 0);
    let cut = FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Fin));
    world.inject(cut.on_tool("get"));
    let got = ledger.call("get", json!({"key": "a"})).await.unwrap();
    assert_eq!(got.attempts(), 2);
    assert_eq!(lists(&world), 1);
    until("nothing more is asked", || lists(&world) == 1).await;
    world.finish().await;
}

/// A128: that twice is once is believed of a tool that says so where the operator names it, and of
/// no other.
#[tokio::test]
async fn a_tool_that_says_twice_is_once_is_believed_where_it_is_named() {
    use warmline_testkit::{ConnectionEnd, CutPoint};
    for named in [vec![], vec!["p*".to_owned()]] {
        let is_named = !named.is_empty();
        let world = World::with(Personality::legacy(), |server| {
            server.with_policy(|policy| policy.trust_idempotent_hint = named)
        });
        let ledger = world.in_counted_run().await;
        let cut = || FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst));
        world.inject(cut().on_tool("put"));
        let put = ledger.call("put", json!({"key": "a", "value": 1})).await;
        match put {
            Ok(put) => assert_eq!((put.attempts(), is_named), (2, true)),
            Err(error) => {
                assert_eq!((error.attempts(), is_named), (1, false), "{error:?}");
                assert_eq!(error.delivery(), Delivery::Unknown);
            },
        }
        let times = world.server.ledger().executions("put");
        assert_eq!(times, 1 + usize::from(is_named));
        // A payment says that twice is twice, whoever is named.
        world.inject(cut().on_tool("pay"));
        let error = world.pay(&ledger, "once").await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unknown);
        assert_eq!(world.payments("once"), 1);
        world.finish().await;
    }
}

/// A153, A154: of several servers those that are switched on have a client each, and nothing is
/// connected for it; all tools of one server go over one session.
#[tokio::test]
async fn clients_are_made_without_connecting_and_tools_of_a_server_share_one() {
    let others = [(); 2].map(|()| LedgerServer::start(Personality::legacy()).unwrap());
    let world = World::with_engine(Personality::legacy(), |builder| {
        let off = Server::http("off", others[1].url()).enabled(false);
        builder
            .server(Server::http("other", others[0].url()))
            .server(off)
    });
    let run = world.begin_run();
    let names = world.warm.server_names();
    let clients: Vec<_> = names
        .iter()
        .filter_map(|name| run.server(name).ok())
        .collect();
    let mut made: Vec<&str> = clients.iter().map(|client| client.name()).collect();
    made.sort_unstable();
    assert_eq!(made, [LEDGER, "other"]);
    for server in others.iter().chain([&world.server]) {
        assert_eq!(server.counts().connections, 0);
    }
    let ledger = run.server(LEDGER).unwrap();
    let tools = ledger.tools().await.unwrap();
    for name in ["counter", "echo", "get", "counter"] {
        let exposed = tools.find(name).unwrap().exposed_name().to_owned();
        let called = ledger
            .call_by_exposed_name(&exposed, json!({"key": "a"}))
            .await;
        called.unwrap().ok().unwrap();
    }
    assert_eq!((world.handshakes(), world.server.counts().sessions), (1, 1));
    assert_eq!(count(&ledger).await, 3);
    for other in &others {
        assert_eq!(other.counts().connections, 0);
    }
    world.finish().await;
}

/// A158: results are checked against the schema that the list holds, however many there are: the
/// list is read once.
#[tokio::test]
async fn results_are_checked_against_a_schema_that_was_read_once() {
    let world = World::new(Personality::legacy());
    let schema = json!({ "type": "object", "required": ["count"] });
    let listed = json!({ "tools": [
        { "name": "counter", "inputSchema": { "type": "object" }, "outputSchema": schema },
    ] });
    let listed = FaultRule::new(Fault::Result(listed)).on_method("tools/list");
    world.inject(listed.always());
    let ledger = world.in_run();
    for number in 1..=50 {
        let reply: Value = ledger
            .call("counter", json!({}))
            .await
            .unwrap()
            .structured()
            .unwrap();
        let known = ledger.tool("counter").await.unwrap().output_schema();
        assert_eq!(known, Some(schema.clone()));
        assert_eq!(reply["count"], number);
    }
    assert_eq!(lists(&world), 1);
    world.finish().await;
}
