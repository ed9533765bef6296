//! The kit, where a story could not notice that it does nothing: what it writes down of a client that
//! breaks the rules, and what it says and does on command. By bare sockets.

mod raw_client;

use serde_json::json;
use warmline_testkit::faults::dialects::{DialectEffect, SESSION_GONE};
use warmline_testkit::{CannedReply, Fault, FaultRule, LedgerServer, Personality};

use raw_client::{Client, Session, call_modern, initialize};

/// A188: a test server that speaks every dialect.
#[test]
fn every_dialect_leaves_the_server_as_it_stands_in_the_table() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server);
    for dialect in SESSION_GONE
        .iter()
        .filter(|one| one.post.effect == DialectEffect::NotExecuted)
    {
        server.inject(
            FaultRule::new(Fault::Dialect(dialect.name.to_owned())).on_method("tools/call"),
        );
        let reply = session.call("pay", json!({"amount": 1}));
        assert_eq!(reply.status, dialect.post.status, "{}", dialect.name);
        let form = reply.header("content-type");
        assert_eq!(form.as_deref(), dialect.post.content_type);
        let request = server.ledger().entries().pop().unwrap();
        let body = dialect.post.fill_body(&request.id, session.id.as_deref());
        assert_eq!(reply.text(), body, "{}", dialect.name);
    }
    assert_eq!(server.ledger().executions("pay"), 0);
    assert_eq!(server.control().total_paid(), 0);
}

#[test]
fn rules_choose_their_requests() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server);
    let refuse = || Fault::Reply(CannedReply::new(503, ""));
    server.inject(FaultRule::new(refuse()).on_tool("get").skip(1).times(2));
    let statuses =
        ["get", "pay", "get", "get", "get"].map(|tool| session.call(tool, json!({})).status);
    assert_eq!(statuses, [200, 200, 503, 503, 200]);
    assert_eq!(server.control().faults_applied(), 2);
    server.inject(FaultRule::new(refuse()).on_method("tools/list").always());
    for _ in 0..3 {
        assert_eq!(session.request("tools/list", json!({})).status, 503);
    }
    server.control().clear_faults();
    assert_eq!(session.request("tools/list", json!({})).status, 200);
}

/// A188: a test server that is changed while it runs.
#[test]
fn a_running_server_is_changed_over_its_console() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server);
    let mut console = Client::to(server.address());
    let rule = r#"{"tool":"pay","fault":{"reply":{"status":503,"body":"later"}}}"#;
    assert_eq!(console.send("POST /-/faults", &[], rule).status, 200);
    assert_eq!(session.call("pay", json!({"amount": 1})).text(), "later");
    let lines = console.send("GET /-/ledger", &[], "").json();
    assert_eq!(lines.as_array().unwrap().last().unwrap()["tool"], "pay");
}

/// A188: a test server that forgets sessions on command.
#[test]
fn a_forgotten_session_is_refused_and_nothing_is_executed() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server);
    server.control().forget_sessions();
    let reply = session.call("pay", json!({"amount": 5}));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["message"], "Session not found");
    assert_eq!(server.ledger().executions("pay"), 0);
    assert_eq!(server.control().total_paid(), 0);
}

#[test]
fn what_a_client_must_not_do_is_noted() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    session.say(&list);
    assert_eq!(server.violations(), ["id 1 was used twice in a session"]);
    server.control().clear_violations();

    let mut client = Client::to(server.address());
    assert_eq!(client.post(&[], &list).status, 400);
    assert_eq!(server.violations(), ["tools/list without a session id"]);
    server.control().clear_violations();

    let stale = [("Mcp-Session-Id", "never-given")];
    assert_eq!(client.post(&stale, &initialize()).status, 404);
    assert_eq!(server.violations(), ["initialize carries a session id"]);
    server.control().clear_violations();

    let json_alone = [("Content-Type", "application/json")];
    let reply = client.send("POST /mcp", &json_alone, &list.to_string());
    assert_eq!(reply.status, 406);
    let violations = server.violations();
    assert_eq!(violations, ["Accept does not list both forms of a reply"]);
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
        let mut client = Client::to(server.address());
        let reply = call_modern(&mut client, 1, call(arguments), extra);
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(server.violations().is_empty(), status == 200);
        if status == 400 {
            assert_eq!(reply.json()["error"]["code"], -32020);
            assert_eq!(server.ledger().started_executions("routed"), 0);
        }
    }
}

#[test]
fn questions_come_in_rounds_and_the_state_must_come_back_as_it_was() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let mut client = Client::to(server.address());
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"roots": {}}});
    let first = json!({"name": "ask_roots", "arguments": {"rounds": 2}, "_meta": meta});
    let mut params = first.clone();
    for round in 1..=2 {
        let result = call_modern(&mut client, round, params, &[]).json()["result"].clone();
        assert_eq!(result["resultType"], "input_required");
        let key = format!("question-{round}");
        assert_eq!(result["inputRequests"][&key]["method"], "roots/list");
        params = first.clone();
        params["requestState"] = result["requestState"].clone();
        params["inputResponses"] = json!({key: {"roots": []}});
    }
    let last = call_modern(&mut client, 3, params.clone(), &[]).json();
    let expected = json!([{"roots": []}, {"roots": []}]);
    assert_eq!(last["result"]["structuredContent"]["answers"], expected);
    assert_eq!(server.ledger().executions("ask_roots"), 1);
    assert_eq!(server.violations(), Vec::<String>::new());

    let again = call_modern(&mut client, 4, params, &[]).json();
    assert_eq!(
        again["error"]["code"], -32602,
        "a state is good for one round"
    );
    assert_eq!(server.violations().len(), 1);
}
