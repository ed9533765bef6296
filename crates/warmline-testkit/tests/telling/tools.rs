//! Tools as people and models see them.

use serde_json::json;
use warmline::core::policy::ToolPolicy;
use warmline::tools::ModelProvider;
use warmline::{Delivery, Server, Warmline};
use warmline_testkit::{Canned, Fault, LedgerServer, Personality, Phase, Rule};

use super::world::{LEDGER, World, count};

/// A17, A158, P17, P25: a list is read once, over the session of the run, and not again for every
/// turn.
#[tokio::test]
async fn a_list_is_read_once_over_the_session_of_the_run() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    for _ in 0..3 {
        assert!(ledger.tools().await.unwrap().len() > 5);
        count(&ledger).await;
    }
    assert_eq!(world.handshakes(), 1);
    let lists = world
        .server
        .ledger()
        .count(|entry| entry.method == "tools/list" && entry.phase == Phase::Received);
    assert_eq!(lists, 1);
    run.end().await;
    world.finish().await;
}

/// A18, E14: a tool that is not there is named with its server and the nearest, and nothing is
/// called.
#[tokio::test]
async fn a_tool_that_is_not_there_is_named_and_nothing_is_called() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let error = run
        .server(LEDGER)
        .unwrap()
        .tool("countr")
        .await
        .unwrap_err();
    assert_eq!(error.code().word(), "tool-unknown");
    let words = format!("{error:?}");
    for word in ["countr", LEDGER, "counter"] {
        assert!(words.contains(word), "{words}");
    }
    let calls = world
        .server
        .ledger()
        .count(|entry| entry.method == "tools/call");
    assert_eq!(calls, 0);
    run.end().await;
    world.finish().await;
}

/// A153, A154, A155, A156, A157, A207: definitions for two providers, and a call by the name that
/// a model knows.
#[tokio::test]
async fn a_model_is_shown_definitions_and_its_call_reaches_the_tool() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
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
    let result = ledger.call_exposed(&exposed, json!({})).await.unwrap();
    assert_eq!(super::world::counted(&result), 1);
    run.end().await;
    world.finish().await;

    let off = Warmline::builder()
        .server(Server::http("off", "http://127.0.0.1:9/mcp").enabled(false))
        .build()
        .unwrap();
    assert_eq!(off.server("off").unwrap_err().code().word(), "not-allowed");
}

/// A190, P100: what the rules do not allow is neither listed nor called, and nothing goes out.
#[tokio::test]
async fn what_the_rules_forbid_is_neither_listed_nor_called() {
    let world = World::with(Personality::legacy(), |server| {
        server.allow(["count*", "pay"]).deny(["pay"])
    });
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let error = ledger
        .call("pay", json!({ "amount": 1 }))
        .await
        .unwrap_err();
    assert_eq!(error.code().word(), "not-allowed");
    assert_eq!(world.server.counts().requests, 0, "nothing went out");
    let names: Vec<String> = ledger
        .tools()
        .await
        .unwrap()
        .tools()
        .iter()
        .map(|tool| tool.name().to_owned())
        .collect();
    assert_eq!(names, ["counter"]);
    run.end().await;
    world.finish().await;
}

/// A163, P6, P81: a list that changed, or whose session was replaced, is read again.
#[tokio::test]
async fn a_list_is_read_again_after_a_change_and_after_a_healing() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    ledger.tools().await.unwrap();
    let lists = || {
        world
            .server
            .ledger()
            .count(|entry| entry.method == "tools/list" && entry.phase == Phase::Received)
    };
    world.server.control().forget_sessions();
    count(&ledger).await;
    ledger.tools().await.unwrap();
    assert_eq!(lists(), 2, "after a healing");
    ledger
        .call("change_tools", json!({}))
        .await
        .unwrap()
        .ok()
        .unwrap();
    ledger.tools().await.unwrap();
    assert_eq!(lists(), 3, "after a change");
    ledger.forget_tools();
    ledger.tools().await.unwrap();
    assert_eq!(lists(), 4, "on request");
    run.end().await;
    world.finish().await;
}

/// P99, reliability P4, reliability I4: what one identity was listed is not shown to another.
#[tokio::test]
async fn lists_are_kept_apart_by_identity() {
    let world = World::new(Personality::legacy());
    for who in ["alice", "bob"] {
        let run = world.warm.identity(who).begin();
        run.server(LEDGER).unwrap().tools().await.unwrap();
        run.end().await;
    }
    let lists = world
        .server
        .ledger()
        .count(|entry| entry.method == "tools/list" && entry.phase == Phase::Received);
    assert_eq!(lists, 2);
    world.finish().await;
}

/// A54, S27: one tool may have a session of its own for every call, while others share the run's.
#[tokio::test]
async fn one_tool_may_have_a_session_for_every_call() {
    let own = ToolPolicy {
        session_per: Some(warmline::core::policy::SessionPer::Call),
        ..ToolPolicy::default()
    };
    let world = World::with(Personality::legacy(), |server| server.tool("counter", own));
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    assert_eq!(count(&ledger).await, 1);
    ledger
        .call("note_write", json!({ "title": "a", "text": "b" }))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let read = ledger
        .call("note_read", json!({ "title": "a" }))
        .await
        .unwrap();
    assert!(read.text().contains('b'), "{read:?}");
    run.end().await;
    world.finish().await;
}

/// A132: whether a session is held, and its id, can be read at any time without side effects.
#[tokio::test]
async fn whether_a_session_is_held_can_be_asked_at_any_time() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .build()
        .unwrap();
    let run = warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(ledger.session(), None);
    assert_eq!(server.counts().requests, 0);
    count(&ledger).await;
    let held = ledger.session().unwrap();
    assert_eq!(held.generation, 1);
    assert_eq!(
        held.id.as_deref(),
        server.control().sessions().first().map(String::as_str)
    );
    run.end().await;
    assert_eq!(ledger.session(), None);
    warm.close().await;
}

/// Whoever calls a tool that the server does not have is told so, with the nearest name as far
/// as names are known. Nothing is listed for it on the way of a call.
#[tokio::test]
async fn a_call_of_a_tool_that_is_not_there_names_it_and_the_nearest() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let call = async || ledger.call("countre", json!({})).await.unwrap_err();
    let error = call().await;
    assert_eq!(error.code().word(), "tool-unknown");
    assert_eq!(error.delivery(), Delivery::Answered);
    assert_eq!(error.to_string(), "tool `countre` not found on `ledger`");
    assert!(error.why().unwrap().contains("Unknown tool"), "{error:?}");
    assert_eq!(error.server_error().unwrap().code, -32602);
    assert!(error.hint().unwrap().contains("ServerHandle::tools"));
    assert_eq!(world.server.ledger().received("tools/list"), 0);
    // From now on names are known.
    ledger.tools().await.unwrap();
    assert_eq!(call().await.hint(), Some("did you mean `counter`?"));
    let leased = ledger.lease().await.unwrap();
    let error = leased.call("countre", json!({})).await.unwrap_err();
    assert_eq!(error.code().word(), "tool-unknown");
    drop(leased);
    // Arguments that a tool does not take are something else.
    let said_no = ledger.call("pay", json!({})).await.unwrap();
    assert_eq!(said_no.ok().unwrap_err().code().word(), "tool-failed");
    assert_eq!(world.server.ledger().received("tools/list"), 1);
    run.end().await;
    world.finish().await;
}

/// Some servers say it in a result: that stays data, and an error only for whoever asks for one.
#[tokio::test]
async fn an_unknown_tool_in_a_result_is_an_error_only_for_whoever_asks() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    ledger.tools().await.unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": "$ID", "result": {
        "content": [{ "type": "text", "text": "Unknown tool: countre" }], "isError": true
    }});
    let body = body.to_string().replace("\"$ID\"", "$ID");
    let canned = Canned::new(200, &body).header("Content-Type", "application/json");
    world
        .server
        .inject(Rule::new(Fault::Reply(canned)).on_tool("countre"));
    let result = ledger.call("countre", json!({})).await.unwrap();
    assert!(result.is_error());
    let error = result.ok().unwrap_err();
    assert_eq!(error.code().word(), "tool-unknown");
    assert_eq!(error.delivery(), Delivery::Answered);
    assert_eq!(error.hint(), Some("did you mean `counter`?"));
    run.end().await;
    world.finish().await;
}
