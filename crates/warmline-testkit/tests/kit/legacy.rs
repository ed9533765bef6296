//! The legacy side, by bare sockets.

use serde_json::json;
use warmline_testkit::{GetStream, LedgerServer, Personality, Phase, ReplyForm, SseForm};

use crate::client::{Client, Session, initialize};

#[test]
fn a_session_counts_for_itself_and_the_ledger_counts_for_all() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut one = Session::open(&server, json!({}));
    let mut two = Session::open(&server, json!({}));
    for (session, count) in [(&mut one, 1), (&mut two, 1)] {
        let reply = session.call("counter", json!({}));
        assert_eq!(reply.json()["result"]["structuredContent"]["count"], count);
    }
    assert_eq!(
        one.call("counter", json!({})).json()["result"]["structuredContent"]["count"],
        2
    );
    assert_eq!(server.ledger().executions("counter"), 3);
    assert_eq!(server.counts().sessions, 2);
    assert_eq!(server.counts().initializes, 2);
    assert_eq!(server.counts().connections, 2);
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A188: a test server that forgets sessions on command.
#[test]
fn a_forgotten_session_is_refused_and_nothing_is_executed() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    server.control().forget_sessions();
    let reply = session.call("pay", json!({"amount": 5}));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["message"], "Session not found");
    assert_eq!(server.ledger().executions("pay"), 0);
    assert_eq!(server.control().paid(), 0);
}

#[test]
fn a_stateless_server_gives_no_id_and_forgets_at_once() {
    let server = LedgerServer::start(Personality::legacy_stateless()).unwrap();
    let mut session = Session::open(&server, json!({}));
    assert_eq!(session.id, None);
    for _ in 0..2 {
        let reply = session.call("counter", json!({}));
        assert_eq!(reply.json()["result"]["structuredContent"]["count"], 1);
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn replies_come_as_events_in_every_form() {
    let forms = [
        SseForm::plain(),
        SseForm::python(),
        SseForm::rmcp(),
        SseForm::resumable(),
        SseForm::plain().newline(warmline_testkit::Newline::Cr),
    ];
    for form in forms {
        let server =
            LedgerServer::start(Personality::legacy().reply(ReplyForm::Sse(form.clone()))).unwrap();
        let mut session = Session::open(&server, json!({}));
        let reply = session.call("echo", json!({"word": "a\nb"}));
        assert_eq!(
            reply.header("content-type").as_deref(),
            Some("text/event-stream")
        );
        let events = reply.events();
        let echoed = &events[0]["result"]["structuredContent"]["arguments"]["word"];
        assert_eq!(echoed, "a\nb", "{form:?}: {}", reply.text());
        assert_eq!(
            reply.text().contains("retry: "),
            form.priming_retry_ms.is_some()
        );
        assert_eq!(
            reply.text().contains("event: message"),
            form != SseForm::rmcp()
        );
    }
}

#[test]
fn a_server_asks_in_the_middle_of_a_call_and_goes_on_with_the_answer() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({"elicitation": {}}));
    let mut other = Session::open(&server, json!({}));
    other.id.clone_from(&session.id);
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || session.call("ask_form", json!({})));
        // The question is out when the call has begun; its id is the first there is.
        while server.ledger().begun("ask_form") == 0 {
            std::thread::yield_now();
        }
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"name": "Ada"}}});
        assert_eq!(other.say(&answer).status, 202);
        let reply = asked.join().unwrap();
        let events = reply.events();
        assert_eq!(events[0]["method"], "elicitation/create");
        let answers = &events[1]["result"]["structuredContent"]["answers"];
        assert_eq!(answers[0]["content"]["name"], "Ada");
    });
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn what_a_client_must_not_do_is_noted() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    session.say(&list);
    assert_eq!(server.violations(), ["id 1 was used twice in a session"]);
    server.control().clear_violations();

    let mut client = Client::to(server.address());
    assert_eq!(client.post(&[], &list).status, 400);
    assert_eq!(server.violations(), ["tools/list without a session id"]);
    server.control().clear_violations();

    let stale = [("Mcp-Session-Id", "never-given")];
    assert_eq!(client.post(&stale, &initialize(json!({}))).status, 404);
    assert_eq!(server.violations(), ["initialize carries a session id"]);
    server.control().clear_violations();

    client.send(
        "POST",
        &[("Content-Type", "application/json")],
        &list.to_string(),
    );
    assert_eq!(client.receive().status, 406);
    assert_eq!(
        server.violations(),
        ["Accept does not list both forms of a reply"]
    );
}

#[test]
fn a_delete_ends_the_session_and_is_in_the_ledger() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    let id = session.id.clone().unwrap();
    let headers = [
        ("Mcp-Session-Id", id.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    session.client.send("DELETE", &headers, "");
    assert_eq!(session.client.receive().status, 200);
    assert_eq!(server.ledger().received("DELETE"), 1);
    assert_eq!(server.counts().open_sessions, 0);
}

#[test]
fn the_standing_stream_is_offered_refused_or_silent() {
    for (get, status) in [(GetStream::Offered, 200), (GetStream::Refused, 405)] {
        let server = LedgerServer::start(Personality::legacy().get_stream(get)).unwrap();
        let mut session = Session::open(&server, json!({}));
        let mut stream = Client::to(server.address());
        let mut headers = session.headers();
        headers.push(("Accept", "text/event-stream"));
        stream.send("GET", &headers, "");
        if get == GetStream::Offered {
            while server.control().standing_streams() == 0 {
                std::thread::yield_now();
            }
            session.call("change_tools", json!({}));
            server.control().forget_sessions();
        }
        let reply = stream.receive();
        assert_eq!(reply.status, status);
        if get == GetStream::Offered {
            assert_eq!(
                reply.events()[0]["method"],
                "notifications/tools/list_changed"
            );
        }
    }
}

#[test]
fn a_question_on_the_standing_stream_is_answered_by_a_post() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({"roots": {}}));
    let mut stream = Client::to(server.address());
    let mut headers = session.headers();
    headers.push(("Accept", "text/event-stream"));
    stream.send("GET", &headers, "");
    while server.control().standing_streams() == 0 {
        std::thread::yield_now();
    }
    server.control().ask("roots/list", &json!({}));
    session.say(&json!({"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}));
    server.control().forget_sessions();
    assert_eq!(stream.receive().events()[0]["method"], "roots/list");
    assert_eq!(server.ledger().received("(response)"), 1);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn a_cancelled_call_is_abandoned() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    let mut other = Session::open(&server, json!({}));
    other.id.clone_from(&session.id);
    std::thread::scope(|scope| {
        let slow = scope.spawn(move || session.call("slow", json!({"ms": 60_000})));
        while server.ledger().begun("slow") == 0 {
            std::thread::yield_now();
        }
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        assert_eq!(other.say(&cancel).status, 202);
        assert_eq!(slow.join().unwrap().json()["error"]["code"], -32800);
    });
    assert_eq!(server.ledger().executions("slow"), 0);
    assert_eq!(
        server
            .ledger()
            .count(|entry| entry.phase == Phase::Abandoned),
        1
    );
}
