//! Tools: names that no provider takes, lists that change, and sessions that lists are read on.

use crate::prelude::*;

use warmline_engine::tools::ModelProvider;

/// Names that model providers refuse, as a server may give them.
fn odd_names() -> Vec<String> {
    vec![
        "räum auf!".to_owned(),
        "raum auf?".to_owned(),
        "a.b/c:d e".to_owned(),
        "a_b_c_d_e".to_owned(),
        "x".repeat(200),
        "✓".to_owned(),
    ]
}

/// A156: odd names are shown clean, different and the same each time, and a call by the shown name
/// reaches the tool under its own.
#[tokio::test]
async fn a_call_by_the_shown_name_reaches_the_tool_under_its_own() {
    let world = World::new(Personality::legacy());
    let named = |name: &String| json!({ "name": name, "inputSchema": { "type": "object" } });
    let list: Vec<Value> = odd_names().iter().map(named).collect();
    let list = Fault::Result(json!({ "tools": list }));
    world.inject(FaultRule::new(list).on_method("tools/list").always());
    let mut shown_before: Option<Vec<String>> = None;
    for _ in 0..2 {
        let (run, ledger) = world.new_run();
        ledger.forget_tools();
        let tools = ledger.tools().await.unwrap();
        let definitions = tools.definitions(ModelProvider::OpenAi);
        let shown: Vec<String> = definitions
            .iter()
            .map(|one| one["function"]["name"].as_str().unwrap().to_owned())
            .collect();
        for (shown, own) in shown.iter().zip(odd_names()) {
            assert!((1..=64).contains(&shown.len()), "{shown}");
            let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            assert!(shown.bytes().all(is_clean), "{shown}");
            // The ledger knows no such tool; what counts is the name that it was asked for.
            drop(ledger.call_by_exposed_name(shown, json!({})).await);
            let entries = world.server.ledger().entries();
            let last = entries.iter().rfind(|entry| {
                entry.phase == ExecutionPhase::Received && entry.method == "tools/call"
            });
            assert_eq!(last.unwrap().tool.as_deref(), Some(own.as_str()));
        }
        let mut different = shown.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), odd_names().len(), "{shown:?}");
        assert_eq!(*shown_before.get_or_insert_with(|| shown.clone()), shown);
        run.end().await;
    }
    world.finish().await;
}

/// P40: a list that is read again and again uses the session that is there; where none is there it
/// closes its own.
#[tokio::test]
async fn reading_a_list_again_leaves_no_session_behind() {
    let world = World::new(Personality::legacy());
    let (run, ledger) = world.new_run();
    count(&ledger).await;
    for _ in 0..10 {
        ledger.forget_tools();
        ledger.tools().await.unwrap();
    }
    assert_eq!(world.server.counts().sessions, 1);
    run.end().await;
    for _ in 0..10 {
        let outside = world.ledger();
        outside.forget_tools();
        outside.tools().await.unwrap();
    }
    let server = &world.server;
    let is_so = || server.counts().open_sessions == 0;
    until("every session of a reading is closed", is_so).await;
    world.finish().await;
}

/// P81: a notice that the tools changed drops the list, also of a server that never declared that it
/// sends any, and whatever call it came with.
#[tokio::test]
async fn a_notice_of_a_change_drops_the_list() {
    let form = || ReplyFormat::Sse(SseFormat::plain());
    let declaring = World::new(Personality::legacy().reply(form()));
    let terse = World::new(Personality::legacy_stateless().reply(form()));
    let said = r#"{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"terse","version":"1"}}}"#;
    let said = Fault::Reply(CannedReply::new(200, said).json());
    terse
        .server
        .inject(FaultRule::new(said).on_method("initialize").always());
    for world in [declaring, terse] {
        let ledger = world.in_run();
        let before = ledger.tools().await.unwrap().len();
        done(ledger.call("change_tools", json!({}))).await;
        assert_eq!(ledger.tools().await.unwrap().len(), before + 1);
        world.finish().await;
    }
}
