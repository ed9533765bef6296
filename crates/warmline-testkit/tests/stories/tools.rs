//! Tools: lists that are read once, names that models know, and rules about both.

use serde_json::{Value, json};
use warmline::Server;
use warmline::core::delivery::Delivery;
use warmline::tools::ModelProvider;
use warmline_testkit::{Fault, Personality, Rule};

use super::census::until;
use super::world::{LEDGER, World, count, pass, secs};

fn lists(world: &World) -> usize {
    world.server.ledger().received("tools/list")
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

/// P81: a server that says that its tools changed is asked again.
#[tokio::test]
async fn a_list_that_changed_is_read_again() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let before = ledger.tools().await.unwrap().len();
    ledger
        .call("change_tools", json!({}))
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(ledger.tools().await.unwrap().len(), before + 1);
    assert!(ledger.tool("new_1").await.is_ok());
    run.end().await;
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
    let rule = Rule::new(Fault::CursorLoop).on("tools/list").always();
    world.server.inject(rule);
    let error = world.ledger().tools().await.unwrap_err();
    assert_eq!(error.code().word(), "bad-answer", "{error:?}");
    world.finish().await;
}

/// A156, A157, A207, P112: a tool is called by the name that a model knows it by.
#[tokio::test]
async fn a_tool_is_called_by_the_name_a_model_knows() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let tools = ledger.tools().await.unwrap();
    for provider in [ModelProvider::OpenAi, ModelProvider::Anthropic] {
        let definitions = tools.definitions(provider);
        assert_eq!(definitions.len(), tools.len());
    }
    let exposed = tools.find("counter").unwrap().exposed_name().to_owned();
    let result = ledger.call_exposed(&exposed, json!({})).await.unwrap();
    let said: Value = result.structured().unwrap();
    assert_eq!(said, json!({"count": 1}));
    run.end().await;
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
        assert_eq!(error.code().word(), "not-allowed", "{tool}: {error:?}");
        assert_eq!(error.delivery(), Delivery::Unsent);
    }
    let other = world.warm.server("other").unwrap_err();
    assert_eq!(other.code().word(), "not-allowed");
    assert_eq!(world.server.counts().requests, 0);
    let get = json!({"key": "a"});
    world.ledger().call("get", get).await.unwrap().ok().unwrap();
    let listed = world.ledger().tools().await.unwrap();
    let names: Vec<&str> = listed.tools().iter().map(|tool| tool.name()).collect();
    assert!(
        names.contains(&"get") && names.contains(&"put"),
        "{names:?}"
    );
    assert!(!names.contains(&"pay") && !names.contains(&"counter"));
    let lease = world.ledger().lease().await.unwrap();
    let error = lease.call("pay", json!({"amount": 1})).await.unwrap_err();
    assert_eq!(error.code().word(), "not-allowed");
    drop(lease);
    assert_eq!(world.server.ledger().executions("pay"), 0);
    world.finish().await;
}

/// A154, S32: a server that is switched off is not used.
#[tokio::test]
async fn a_server_that_is_switched_off_is_not_used() {
    let world = World::with(Personality::legacy(), |server| server.enabled(false));
    let error = world.warm.server(LEDGER).unwrap_err();
    assert_eq!(error.code().word(), "not-allowed");
    assert_eq!(world.server.counts().requests, 0);
    world.finish().await;
}

/// P84: the tool's own word is asked for when it matters, and only then.
#[tokio::test]
async fn the_hints_are_read_when_they_matter() {
    use warmline_testkit::{CutAt, End};
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    assert_eq!(lists(&world), 0);
    let cut = Rule::new(Fault::Cut(CutAt::AfterExecuting, End::Fin));
    world.server.inject(cut.on_tool("get"));
    let got = ledger.call("get", json!({"key": "a"})).await.unwrap();
    assert_eq!(got.attempts(), 2);
    assert_eq!(lists(&world), 1);
    until("nothing more is asked", || lists(&world) == 1).await;
    run.end().await;
    world.finish().await;
}
