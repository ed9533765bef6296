//! Tools as people and models see them.

use crate::prelude::*;

use warmline::Delivery;
use warmline_engine::tools::ModelProvider;

/// A17, A158, P17, P25: a list is read once, over the session of the run, and not again for every
/// turn.
#[tokio::test]
async fn a_list_is_read_once_over_the_session_of_the_run() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    for _ in 0..3 {
        assert!(ledger.tools().await.unwrap().len() > 5);
        count(&ledger).await;
    }
    assert_eq!(world.handshakes(), 1);
    let lists = world
        .server
        .ledger()
        .count(|entry| entry.method == "tools/list" && entry.phase == ExecutionPhase::Received);
    assert_eq!(lists, 1);
    world.finish().await;
}

/// A153, A155, A156, A157, A207, P112: definitions for two providers, and a call by the name that
/// a model knows.
#[tokio::test]
async fn a_model_is_shown_definitions_and_its_call_reaches_the_tool() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let tools = ledger.tools().await.unwrap();
    let counter = tools.find("counter").unwrap();
    assert!(counter.description().is_some_and(|text| !text.is_empty()));
    assert!(counter.input_schema().is_object());
    let openai = tools.definitions(ModelProvider::OpenAi);
    let anthropic = tools.definitions(ModelProvider::Anthropic);
    assert_eq!((openai.len(), anthropic.len()), (tools.len(), tools.len()));
    let exposed = counter.exposed_name().to_owned();
    assert!(
        openai
            .iter()
            .any(|one| one["function"]["name"] == json!(exposed))
    );
    assert!(anthropic.iter().any(|one| one["name"] == json!(exposed)));
    let result = ledger
        .call_by_exposed_name(&exposed, json!({}))
        .await
        .unwrap();
    assert_eq!(counted(&result), 1);
    world.finish().await;
}

/// A163, P6, P81: a list that changed, or whose session was replaced, is read again.
#[tokio::test]
async fn a_list_is_read_again_after_a_change_and_after_a_healing() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    ledger.tools().await.unwrap();
    let lists = || {
        world
            .server
            .ledger()
            .count(|entry| entry.method == "tools/list" && entry.phase == ExecutionPhase::Received)
    };
    world.control().forget_sessions();
    count(&ledger).await;
    ledger.tools().await.unwrap();
    assert_eq!(lists(), 2, "after a healing");
    done(ledger.call("change_tools", json!({}))).await;
    ledger.tools().await.unwrap();
    assert_eq!(lists(), 3, "after a change");
    ledger.forget_tools();
    ledger.tools().await.unwrap();
    assert_eq!(lists(), 4, "on request");
    world.finish().await;
}

/// Whoever calls a tool that the server does not have is told so, with the nearest name as far
/// as names are known. Nothing is listed for it on the way of a call.
#[tokio::test]
async fn a_call_of_a_tool_that_is_not_there_names_it_and_the_nearest() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let call = async || ledger.call("countre", json!({})).await.unwrap_err();
    let error = call().await;
    failed_as(&error, "tool-unknown", Delivery::Answered);
    assert_eq!(error.to_string(), "tool `countre` not found on `ledger`");
    assert!(error.cause().unwrap().contains("Unknown tool"), "{error:?}");
    assert_eq!(error.server_error().unwrap().code, -32602);
    assert!(error.hint().unwrap().contains("ServerHandle::tools"));
    assert_eq!(world.received("tools/list"), 0);
    // From now on names are known.
    ledger.tools().await.unwrap();
    assert_eq!(call().await.hint(), Some("did you mean `counter`?"));
    let leased = ledger.lease().await.unwrap();
    let error = leased.call("countre", json!({})).await.unwrap_err();
    assert_eq!(error.code().as_str(), "tool-unknown");
    drop(leased);
    // Arguments that a tool does not take are something else.
    let said_no = ledger.call("pay", json!({})).await.unwrap();
    assert_eq!(said_no.ok().unwrap_err().code().as_str(), "tool-failed");
    assert_eq!(world.received("tools/list"), 1);
    world.finish().await;
}

/// Some servers say it in a result: that stays data, and an error only for whoever asks for one.
#[tokio::test]
async fn an_unknown_tool_in_a_result_is_an_error_only_for_whoever_asks() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    ledger.tools().await.unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": "$ID", "result": {
        "content": [{ "type": "text", "text": "Unknown tool: countre" }], "isError": true
    }});
    let body = body.to_string().replace("\"$ID\"", "$ID");
    let canned = CannedReply::new(200, &body).header("Content-Type", "application/json");
    world.inject(FaultRule::new(Fault::Reply(canned)).on_tool("countre"));
    let result = ledger.call("countre", json!({})).await.unwrap();
    assert!(result.is_error());
    let error = result.ok().unwrap_err();
    failed_as(&error, "tool-unknown", Delivery::Answered);
    assert_eq!(error.hint(), Some("did you mean `counter`?"));
    world.finish().await;
}
