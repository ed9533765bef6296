//! Rules about callers, while the servers that they are about come and go.

use crate::prelude::*;

use warmline_config::gateway_settings::GatewaySettings;
use warmline_engine::settings::EngineSettings;
use warmline_gateway::options::AccessByServer;
use warmline_gateway::reload::{LoadedConfiguration, RunningConfiguration};

const PEOPLE: [&str; 2] = ["alice", "eve"];

/// Alice may call `echo`, and nobody else anything.
fn strict() -> AccessRules {
    let alice = AccessRule {
        subject: AccessSubject::Identity("alice".to_owned()),
        tools: Some(vec!["echo".to_owned()]),
    };
    let rules = DeclaredAccess {
        allow: vec![alice],
        deny: Vec::new(),
    };
    AccessRules::none().with_server(LEDGER, rules)
}

/// Another configuration, with these servers and these rules.
fn reload(world: &World, servers: &[(&str, String)], rules: AccessRules) {
    let server = |(name, url): &(&str, String)| Server::http(*name, url.as_str());
    reload_as(world, &|| servers.iter().map(server).collect(), rules);
}

/// The same, with servers about which more is decided.
pub(crate) fn reload_as(world: &World, servers: &dyn Fn() -> Vec<Server>, rules: AccessRules) {
    let wanted = || LoadedConfiguration {
        servers: servers(),
        engine: EngineSettings::default(),
        gateway: GatewaySettings::default(),
        access: AccessByServer::default(),
    };
    let options = |_: &LoadedConfiguration| {
        let options = GatewayOptions {
            rules,
            ..GatewayOptions::default()
        };
        Ok(known(options, world.warm.vault(), &PEOPLE))
    };
    let fixed = RunningConfiguration::new(&wanted());
    world.gateway.reload(wanted(), &fixed, options).unwrap();
}

/// Somebody who knows a path, and shows their token.
fn somebody(world: &World, name: &str, path: &str) -> Legacy {
    Legacy::nameless(world.gateway.address(), name, path)
}

/// Whether a call is done.
async fn is_done(client: &Legacy, tool: &str) -> bool {
    let answer = client.call(tool, json!({})).await;
    answer.get("result").is_some()
}

/// The names that a list shows.
async fn listed(client: &Legacy) -> Vec<String> {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let answer: Value = client.post(&list).await.answer().await;
    let tools = answer["result"]["tools"].as_array();
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    tools.into_iter().flatten().map(name).collect()
}

/// P106: the rules of a server that is taken out of the configuration, or renamed there,
/// count for whoever has a live run or a ticket there, as long as they have it.
#[tokio::test]
async fn rules_of_a_removed_server_hold_for_live_runs_and_tickets() {
    for renamed in [false, true] {
        let world = World::of_alice(Personality::legacy()).await;
        let url = || world.server.url().to_string();
        reload(&world, &[(LEDGER, url())], AccessRules::none());
        let path = format!("/servers/{LEDGER}/mcp");
        let in_run = format!("/runs/trip{path}");
        let alice = somebody(&world, "alice", &in_run);
        let eve = somebody(&world, "eve", &in_run);
        let shown = alice.more.clone();
        let held = Legacy::greet_with(&world, &path, "2025-11-25", json!({}), shown).await;
        let merged = somebody(&world, "alice", "/runs/trip/mcp");
        for client in [&alice, &eve, &held] {
            assert!(is_done(client, "counter").await, "{}", client.path);
        }
        reload(&world, &[(LEDGER, url())], strict());
        let others: &[(&str, String)] = match renamed {
            true => &[("other", url())],
            false => &[],
        };
        for step in ["locked", "taken away", "another one comes"] {
            for client in [&alice, &held] {
                assert!(!is_done(client, "counter").await, "{step}: {}", client.path);
                assert!(is_done(client, "echo").await, "{step}: {}", client.path);
                assert_eq!(listed(client).await, ["echo"], "{step}: {}", client.path);
            }
            assert!(!is_done(&eve, "echo").await, "{step}");
            assert!(!is_done(&merged, "ledger__counter").await, "{step}");
            match step {
                "locked" => reload(&world, others, AccessRules::none()),
                _ => reload(&world, &[("more", url())], AccessRules::none()),
            }
        }
        // What counts for a name that is there again is what is said of it then.
        reload(&world, &[(LEDGER, url())], AccessRules::none());
        assert!(is_done(&alice, "counter").await && is_done(&eve, "counter").await);
        world.finish().await;
    }
}

/// P106: once nobody has a removed server any more, its rules are gone as well: they say nothing
/// about another of its name.
#[tokio::test]
async fn rules_of_a_removed_server_go_with_it() {
    let world = World::of_alice(Personality::legacy()).await;
    let url = world.server.url().to_string();
    reload(&world, &[(LEDGER, url.clone())], strict());
    let path = format!("/runs/trip/servers/{LEDGER}/mcp");
    let (alice, eve) = (
        somebody(&world, "alice", &path),
        somebody(&world, "eve", &path),
    );
    assert!(is_done(&alice, "echo").await && !is_done(&eve, "echo").await);
    reload(&world, &[], AccessRules::none());
    assert!(is_done(&alice, "echo").await && !is_done(&eve, "echo").await);
    pass(Duration::from_secs(24)).await;
    until("it is put away", || !world.warm.has_removed_server(LEDGER)).await;
    let status = alice.post(&call(1, "echo", json!({}))).await.status;
    assert_eq!(status, 404);
    world.add_server(Server::http(LEDGER, url));
    let free = async {
        while !is_done(&eve, "echo").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let freed = tokio::time::timeout(Duration::from_secs(20), free).await;
    assert!(freed.is_ok(), "the old rules still count");
    world.finish().await;
}

/// Where rules choose among the tools of a server, a call that names none by a text goes nowhere: its
/// server might read the name of a denied one into it. Without such rules that is its server's to
/// refuse. Whatever rules forbid was not tried, and that is what is told.
#[tokio::test]
async fn a_call_that_names_no_tool_by_a_text_passes_no_rule() {
    let world = World::of_alice(Personality::legacy()).await;
    let server = || Server::http(LEDGER, world.server.url());
    let alice = somebody(&world, "alice", &format!("/servers/{LEDGER}/mcp"));
    let of_alice = DeclaredAccess {
        allow: Vec::new(),
        deny: vec![AccessRule {
            subject: AccessSubject::Identity("alice".to_owned()),
            tools: Some(vec!["counter".to_owned()]),
        }],
    };
    let of_alice = AccessRules::none().with_server(LEDGER, of_alice);
    let calls = [
        json!({ "name": ["counter"] }),
        json!({ "name": { "toString": "counter" } }),
        json!({ "name": 7 }),
        json!({ "Name": "counter" }),
        json!({}),
    ];
    let none = AccessRules::none;
    let rows = [
        ("of a caller", server(), of_alice, false),
        ("denied", server().deny(["counter"]), none(), false),
        ("allowed", server().allow(["echo"]), none(), false),
        ("none", server(), none(), true),
    ];
    for (what, server, rules, passes) in rows {
        reload_as(&world, &|| vec![server.clone()], rules);
        assert!(is_done(&alice, "echo").await, "{what}");
        for params in &calls {
            let received = || world.received("tools/call");
            let before = received();
            let call =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            let answer = alice.post(&call).await.answer().await;
            let told = &answer["error"]["data"]["warmline"];
            assert_eq!(told["code"] != "not-allowed", passes, "{what}: {answer}");
            assert_eq!(received() - before, usize::from(passes), "{what}: {params}");
        }
        if !passes {
            let answer = alice.call("counter", json!({})).await;
            let told = &answer["error"]["data"]["warmline"];
            let said = (&told["code"], &told["delivery"], &told["attempts"]);
            let expected = (&json!("not-allowed"), &json!("unsent"), &json!(0));
            assert_eq!(said, expected, "{what}: {answer}");
        }
    }
    world.finish().await;
}
