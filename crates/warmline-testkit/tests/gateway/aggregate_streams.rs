//! All servers in one: servers that hang, come late, change or go, and who hears of it.

use crate::prelude::*;

use warmline_config::gateway_settings::GatewaySettings;
use warmline_engine::settings::EngineSettings;
use warmline_gateway::options::AccessByServer;
use warmline_gateway::reload::{LoadedConfiguration, RunningConfiguration};

async fn tools(client: &Legacy) -> (Vec<String>, Value) {
    let tools = list(client, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    let names = names.into_iter().map(str::to_owned).collect();
    (names, tools["_meta"]["dev.warmline/leftOut"].clone())
}

fn has_server(names: &[String], server: &str) -> bool {
    names.iter().any(|name| name.starts_with(server))
}

/// A server that answers, beside one that takes connections and says nothing.
async fn beside_a_hung_one(share: Duration) -> (Merged, TcpListener) {
    beside_hung(&["alpha"], share).await
}

/// These servers, beside one that takes connections and says nothing.
async fn beside_hung(names: &[&'static str], share: Duration) -> (Merged, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let world = Merged::beside(
        names
            .iter()
            .map(|name| (*name, Personality::legacy()))
            .collect(),
        vec![Server::http("hung", url)],
        |options| GatewayOptions {
            list_share: share,
            ..options
        },
    );
    (world.await, silent)
}

/// P101: a server that takes connections and says nothing delays a list by its share and no more,
/// and is named.
#[tokio::test]
async fn a_hung_server_delays_a_list_by_its_share_and_is_named() {
    let (world, silent) = beside_a_hung_one(Duration::from_millis(600)).await;
    let client = world.greet("/mcp", json!({})).await;
    for _ in 0..2 {
        let (names, left_out) = tools(&client).await;
        assert!(has_server(&names, "alpha__") && !has_server(&names, "hung__"));
        assert_eq!(left_out[0]["server"], "hung");
        assert_eq!(left_out[0]["code"], "deadline");
    }
    // Other lists go without it as well.
    let resources = list(&client, "resources/list", json!({})).await;
    assert_eq!(each(&resources, "resources", "uri").len(), 3);
    client.delete().await;
    drop(silent);
    world.finish().await;
}

/// P101: whoever was waited for in vain is not waited for again: neither by another list nor by a
/// log level, which reaches the others.
#[tokio::test]
async fn a_hung_server_is_waited_for_once() {
    let share = Duration::from_secs(4);
    let (world, silent) = beside_a_hung_one(share).await;
    let client = world.greet("/mcp", json!({})).await;
    let (_, left_out) = tools(&client).await;
    assert_eq!(left_out[0]["server"], "hung");
    // Whoever waits for it takes its share at least, each time.
    let soon = |begun: Instant| assert!(begun.elapsed() < share, "{:?}", begun.elapsed());
    for method in ["tools/list", "prompts/list", "resources/list"] {
        let begun = Instant::now();
        let response = list(&client, method, json!({})).await;
        soon(begun);
        let left_out = &response["_meta"]["dev.warmline/leftOut"];
        assert_eq!(left_out[0]["server"], "hung", "{method}");
    }
    for level in ["debug", "info"] {
        let begun = Instant::now();
        let response = ask(&client, "logging/setLevel", json!({ "level": level })).await;
        soon(begun);
        assert!(response["result"].is_object(), "{response}");
    }
    assert_eq!(
        world
            .server("alpha")
            .ledger()
            .messages_received("logging/setLevel"),
        2
    );
    client.delete().await;
    drop(silent);
    world.finish().await;
}

/// P81, P83: what servers say outside any call comes on the one standing stream, from each of
/// them, and lists are read again after a change.
#[tokio::test]
async fn what_servers_say_comes_on_one_standing_stream() {
    let of = |scheme| Personality::legacy().uri_scheme(scheme);
    let world = Merged::new(vec![("alpha", of("one")), ("beta", of("two"))]).await;
    let client = world.greet("/mcp", json!({})).await;
    let (before, _) = tools(&client).await;
    let mut standing = client.get(None).await;
    assert_eq!(standing.status, 200);
    assert_eq!(client.get(None).await.status, 409);
    for name in ["alpha", "beta"] {
        let control = world.server(name).control();
        streams_held(&control, 1).await;
    }
    for (number, name) in ["alpha", "beta"].into_iter().enumerate() {
        world.server(name).control().change_tools();
        standing.heard("notifications/tools/list_changed").await;
        let (after, _) = tools(&client).await;
        assert_eq!(after.len(), before.len() + number + 1, "{after:?}");
    }
    ask(
        &client,
        "resources/subscribe",
        json!({ "uri": "two://page/1" }),
    )
    .await;
    world
        .server("beta")
        .control()
        .update_resource("two://page/1");
    let updated = standing.heard("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "two://page/1");
    client.delete().await;
    drop(standing);
    for name in ["alpha", "beta"] {
        let control = world.server(name).control();
        streams_held(&control, 0).await;
    }
    world.finish().await;
}

/// P104, P101: a server that was not there when the list was read is announced when it is, and
/// then it is in the list.
#[tokio::test]
async fn a_server_that_comes_late_is_announced() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("alpha", legacy()), ("late", legacy())]).await;
    world.server("late").stop();
    let client = world.greet("/mcp", json!({})).await;
    let mut standing = client.get(None).await;
    let (names, left_out) = tools(&client).await;
    assert!(has_server(&names, "alpha__") && !has_server(&names, "late__"));
    assert_eq!(left_out[0]["server"], "late");
    world.server("late").start_again().unwrap();
    for changed in ["tools", "prompts", "resources"] {
        let method = format!("notifications/{changed}/list_changed");
        standing.heard(&method).await;
    }
    let (names, left_out) = tools(&client).await;
    let holds = has_server(&names, "late__") && left_out.is_null();
    assert!(holds, "{left_out}");
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// P104, P101: a server that hangs holds up the announcement of no other.
#[tokio::test]
async fn a_server_that_comes_late_is_announced_while_another_hangs() {
    let share = Duration::from_secs(4);
    let (world, silent) = beside_hung(&["late"], share).await;
    world.server("late").stop();
    let client = world.greet("/mcp", json!({})).await;
    let mut standing = client.get(None).await;
    let (names, left_out) = tools(&client).await;
    let found = (names.len(), left_out[1]["server"].as_str());
    assert_eq!(found, (0, Some("late")));
    world.server("late").start_again().unwrap();
    let begun = Instant::now();
    standing.heard("notifications/tools/list_changed").await;
    // Whoever waits for the one that hangs takes its share at least.
    assert!(begun.elapsed() < share, "{:?}", begun.elapsed());
    client.delete().await;
    drop((standing, silent));
    world.finish().await;
}

/// P104: what was found is announced, also to a client whose stream is cut at that moment.
#[tokio::test]
async fn a_server_that_comes_while_the_stream_is_cut_is_announced() {
    let (world, silent) = beside_hung(&["late"], Duration::from_secs(2)).await;
    world.server("late").stop();
    let client = world.greet("/mcp", json!({})).await;
    let mut standing = client.get(None).await;
    let last = standing.event().await.unwrap().id;
    let (_, left_out) = tools(&client).await;
    assert_eq!(left_out[1]["server"], "late");
    world.server("late").start_again().unwrap();
    let ledger = world.server("late").ledger();
    let is_so = || ledger.messages_received("tools/list") == 1;
    until("it is found", is_so).await;
    drop(standing);
    let mut standing = client.get(last.as_deref()).await;
    standing.heard("notifications/tools/list_changed").await;
    client.delete().await;
    drop((standing, silent));
    world.finish().await;
}

/// One that was missed in a list is announced also where another list was read since.
#[tokio::test]
async fn what_is_missed_is_missed_in_its_own_list() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("alpha", legacy()), ("late", legacy())]).await;
    world.server("late").stop();
    let client = world.greet("/mcp", json!({})).await;
    let mut standing = client.get(None).await;
    assert_eq!(tools(&client).await.1[0]["server"], "late");
    world.server("late").start_again().unwrap();
    let is_in = |list: &Value| list["_meta"]["dev.warmline/leftOut"].is_null();
    while !is_in(&list(&client, "prompts/list", json!({})).await) {
        tokio::task::yield_now().await;
    }
    standing.heard("notifications/tools/list_changed").await;
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// P104, P106: servers that are declared or taken away while clients are there are announced, and
/// the others keep their sessions.
#[tokio::test]
async fn servers_that_come_and_go_by_configuration_are_announced() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    let mut standing = client.get(None).await;
    let count = || async {
        let answer = client.call("alpha__counter", json!({})).await;
        answer["result"]["structuredContent"]["count"].as_i64()
    };
    assert_eq!(count().await, Some(1));
    let more = LedgerServer::start(Personality::legacy()).unwrap();
    world.add_server(Server::http("more", more.url()));
    standing.heard("notifications/resources/list_changed").await;
    assert!(has_server(&tools(&client).await.0, "more__"));
    let control = more.control();
    streams_held(&control, 1).await;
    control.change_tools();
    standing.heard("notifications/tools/list_changed").await;
    // The same name, somewhere else.
    let moved = LedgerServer::start(Personality::legacy()).unwrap();
    world.add_server(Server::http("more", moved.url()));
    standing.heard("notifications/resources/list_changed").await;
    drop(more);
    assert!(world.warm.remove_server("more"));
    standing.heard("notifications/resources/list_changed").await;
    let (names, left_out) = tools(&client).await;
    assert!(!has_server(&names, "more__") && left_out.is_null());
    assert_eq!(count().await, Some(2));
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// P100: a tool that is denied is denied under every name: also under the one that was made for it
/// where it was still allowed.
#[tokio::test]
async fn a_tool_that_is_denied_cannot_be_called_by_the_name_that_was_made_for_it() {
    let odd = || vec![("alpha", Personality::legacy().extra_tools(&["files.read"]))];
    let world = Merged::new(odd()).await;
    let client = world.greet("/mcp", json!({})).await;
    let (names, _) = tools(&client).await;
    let made = names
        .into_iter()
        .find(|name| name.starts_with("alpha__files_read"));
    let made = made.unwrap();
    let answer = client.call(&made, json!({})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "files.read ran");
    world.finish_with(&client).await;

    let denied = denied(Some("files.*"));
    let rules = AccessRules::none().with_server("alpha", denied);
    let world = Merged::beside(odd(), Vec::new(), |options| GatewayOptions {
        rules,
        ..options
    })
    .await;
    let client = world.greet("/mcp", json!({})).await;
    for name in [&*made, "alpha__files.read"] {
        let answer = client.call(name, json!({})).await;
        assert!(answer["error"].is_object(), "{name}: {answer}");
    }
    assert_eq!(world.server("alpha").ledger().executions("files.read"), 0);
    let (names, _) = tools(&client).await;
    assert!(!names.contains(&made));
    world.finish_with(&client).await;
}

/// What the rules forbid is not in the list and cannot be called; a server that may not be used is
/// like one that is not there.
#[tokio::test]
async fn what_the_rules_forbid_is_neither_shown_nor_called() {
    let rules = AccessRules::none()
        .with_server("alpha", denied(Some("p*")))
        .with_server("beta", denied(None));
    let legacy = Personality::legacy;
    let world = Merged::beside(
        vec![("alpha", legacy()), ("beta", legacy())],
        Vec::new(),
        |options| GatewayOptions { rules, ..options },
    )
    .await;
    let client = world.greet("/mcp", json!({})).await;
    let (names, left_out) = tools(&client).await;
    assert!(has_server(&names, "alpha__counter"));
    assert!(!has_server(&names, "alpha__p") && !has_server(&names, "beta__"));
    assert!(left_out.is_null(), "{left_out}");
    let answer = client.call("alpha__pay", json!({ "amount": 1 })).await;
    assert_eq!(answer["error"]["data"]["warmline"]["code"], "not-allowed");
    let answer = client.call("beta__counter", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(world.server("alpha").control().total_paid(), 0);
    assert_eq!(world.server("beta").ledger().entries().len(), 0);
    world.finish_with(&client).await;
}

/// Rules that change while a client is there count for what it hears as well: the lists are said
/// to have changed, and a server that may not be used any more is not heard.
#[tokio::test]
async fn a_server_that_may_not_be_used_any_more_is_not_heard() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("alpha", legacy()), ("beta", legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    tools(&client).await;
    let mut standing = client.get(None).await;
    let controls = ["alpha", "beta"].map(|name| world.server(name).control());
    until("both are attended", || {
        controls
            .iter()
            .all(|control| control.open_get_streams() == 1)
    })
    .await;
    let denied = denied(None);
    let servers = world.servers.iter();
    let wanted = || LoadedConfiguration {
        servers: servers
            .clone()
            .map(|(name, server)| Server::http(*name, server.url()))
            .collect(),
        engine: EngineSettings::default(),
        gateway: GatewaySettings::default(),
        access: AccessByServer::default(),
    };
    let fixed = RunningConfiguration::new(&wanted());
    let options = |_: &LoadedConfiguration| {
        Ok(GatewayOptions {
            rules: AccessRules::none().with_server("beta", denied),
            ..GatewayOptions::default()
        })
    };
    world.gateway.reload(wanted(), &fixed, options).unwrap();
    standing.heard("notifications/resources/list_changed").await;
    let [_, beta] = &controls;
    let is_so = || beta.open_get_streams() == 0;
    until("it is not attended any more", is_so).await;
    let (names, left_out) = tools(&client).await;
    assert!(!has_server(&names, "beta__") && left_out.is_null());
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// P80: a cancel reaches the one server that the call went to, at once and not behind that call.
#[tokio::test]
async fn a_cancel_reaches_the_server_of_its_call() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("alpha", legacy()), ("beta", legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    let ledger = world.server("beta").ledger();
    let cancelled = "notifications/cancelled";
    let notice = json!({ "jsonrpc": "2.0", "method": cancelled, "params": { "requestId": 5 } });
    let mut quickest = Duration::MAX;
    // A machine that has much else to do may be late once, but not each time.
    for round in 1..=5 {
        let other = client.clone();
        let slow = call(5, "beta__slow", json!({ "ms": 60_000 }));
        let waiting = tokio::spawn(async move { other.post(&slow).await.whole().await });
        let is_so = || ledger.started_executions("slow") == round;
        until("it is called", is_so).await;
        let begun = Instant::now();
        assert_eq!(client.post(&notice).await.status, 202);
        let is_so = || ledger.messages_received(cancelled) == round;
        until("it is cancelled", is_so).await;
        quickest = quickest.min(begun.elapsed());
        assert!(!waiting.await.unwrap().contains("took"));
    }
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
    let received = world.server("alpha").ledger().messages_received(cancelled);
    assert_eq!(received, 0);
    world.finish_with(&client).await;
}
