//! The modern side, by bare sockets.

use serde_json::json;
use warmline_testkit::{LedgerServer, ModernLeg, Personality};

use crate::client::{Client, begin_modern, initialize, modern, post_modern};

#[test]
fn discover_tells_the_versions_it_was_told_to_tell() {
    let told = ["2026-07-28", "2025-11-25"];
    let server = LedgerServer::start(Personality::dual().told_versions(&told)).unwrap();
    let reply = post_modern(
        &mut Client::to(server.address()),
        1,
        "server/discover",
        json!({}),
    );
    let result = &reply.json()["result"];
    assert_eq!(reply.status, 200);
    assert_eq!(result["supportedVersions"], json!(told));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["cacheScope"], "private");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn a_modern_server_refuses_initialize_with_its_versions() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let reply = Client::to(server.address()).post(&[], &initialize(json!({})));
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["code"], -32022);
    assert_eq!(
        reply.json()["error"]["data"]["supported"],
        json!(["2026-07-28"])
    );
}

#[test]
fn a_legacy_server_takes_the_probe_for_a_request_without_session() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let reply = post_modern(
        &mut Client::to(server.address()),
        1,
        "server/discover",
        json!({}),
    );
    assert_eq!(reply.status, 400);
    assert_eq!(server.violations(), Vec::<String>::new());

    let refusing = Personality::legacy().modern_leg(ModernLeg::RefusedByVersion);
    let server = LedgerServer::start(refusing).unwrap();
    let reply = post_modern(
        &mut Client::to(server.address()),
        1,
        "server/discover",
        json!({}),
    );
    assert_eq!(reply.json()["error"]["code"], -32022);
    assert_eq!(reply.json()["error"]["data"]["supported"][0], "2025-11-25");
}

#[test]
fn headers_must_say_what_the_body_says() {
    let call = |arguments| json!({"name": "routed", "arguments": arguments});
    let region = json!({"region": "Åre", "place": {"zone": "z"}});
    let good = [
        ("Mcp-Param-Region", "=?base64?w4VyZQ==?="),
        ("Mcp-Param-Zone", "z"),
    ];
    let cases: [(&[(&str, &str)], _, u16); 5] = [
        (&good, region.clone(), 200),
        (&[], json!({"note": "nothing to mirror"}), 200),
        (&good[1..], region.clone(), 400),
        (
            &[("Mcp-Param-Region", "Are"), ("Mcp-Param-Zone", "z")],
            region,
            400,
        ),
        (&[("Mcp-Param-Level", "3")], json!({}), 400),
    ];
    for (extra, arguments, status) in cases {
        let server = LedgerServer::start(Personality::modern()).unwrap();
        let (headers, body) = modern(1, "tools/call", call(arguments));
        let mut all: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        all.extend(extra);
        let reply = Client::to(server.address()).post(&all, &body);
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(server.violations().is_empty(), status == 200);
        if status == 400 {
            assert_eq!(reply.json()["error"]["code"], -32020);
            assert_eq!(server.ledger().begun("routed"), 0);
        }
    }
}

#[test]
fn an_unknown_method_is_404_with_a_body_that_says_so() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let reply = post_modern(&mut Client::to(server.address()), 7, "ping", json!({}));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["id"], 7);
    assert_eq!(reply.json()["error"]["code"], -32601);
}

#[test]
fn questions_come_in_rounds_and_the_state_must_come_back_as_it_was() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let mut client = Client::to(server.address());
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"roots": {}}});
    let first = json!({"name": "ask_roots", "arguments": {"rounds": 2}, "_meta": meta});
    let mut params = first.clone();
    for round in 1..=2 {
        let result = post_modern(&mut client, round, "tools/call", params).json()["result"].clone();
        assert_eq!(result["resultType"], "input_required");
        let key = format!("question-{round}");
        assert_eq!(result["inputRequests"][&key]["method"], "roots/list");
        params = first.clone();
        params["requestState"] = result["requestState"].clone();
        params["inputResponses"] = json!({key: {"roots": []}});
    }
    let last = post_modern(&mut client, 3, "tools/call", params.clone()).json();
    assert_eq!(
        last["result"]["structuredContent"]["answers"],
        json!([{"roots": []}, {"roots": []}])
    );
    assert_eq!(server.ledger().executions("ask_roots"), 1);
    assert_eq!(server.violations(), Vec::<String>::new());

    let again = post_modern(&mut client, 4, "tools/call", params).json();
    assert_eq!(
        again["error"]["code"], -32602,
        "a state is good for one round"
    );
    assert_eq!(server.violations().len(), 1);
}

#[test]
fn a_question_to_a_client_that_cannot_be_asked_is_refused() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let params = json!({"name": "ask_form", "arguments": {}});
    let reply = post_modern(&mut Client::to(server.address()), 1, "tools/call", params);
    assert_eq!(reply.json()["error"]["code"], -32021);
}

#[test]
fn closing_the_connection_cancels_the_call() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let mut client = Client::to(server.address());
    let params = json!({"name": "slow", "arguments": {"ms": 60_000}});
    begin_modern(&mut client, 1, "tools/call", params);
    while server.ledger().begun("slow") == 0 {
        std::thread::yield_now();
    }
    drop(client);
    while server
        .ledger()
        .count(|entry| entry.phase == warmline_testkit::Phase::Abandoned)
        == 0
    {
        std::thread::yield_now();
    }
    assert_eq!(server.ledger().executions("slow"), 0);
}

#[test]
fn a_listen_is_acknowledged_told_and_ended_with_its_id() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let mut client = Client::to(server.address());
    let control = server.control();
    let told = std::thread::spawn(move || {
        post_modern(
            &mut client,
            5,
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        )
    });
    while server
        .ledger()
        .count(|entry| entry.phase == warmline_testkit::Phase::Begin)
        == 0
    {
        std::thread::yield_now();
    }
    while control.listens() == 0 {
        std::thread::yield_now();
    }
    control.change_tools();
    control.end_listens();
    let events = told.join().unwrap().events();
    let key = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(
        events[0]["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(events[1]["method"], "notifications/tools/list_changed");
    assert_eq!(events[1]["params"]["_meta"][key], 5);
    assert_eq!(events[2]["result"]["_meta"][key], 5);
}
