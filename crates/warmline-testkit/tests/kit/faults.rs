//! Faults do what they say: seen by the client, and in the ledger.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::json;
use warmline_testkit::{
    Canned, CutAt, End, Fault, LedgerServer, Moment, Personality, Phase, ReplyForm, Rule, Spoil,
    SseForm, Then, Writes,
};

use crate::client::{Client, Session, begin_modern, initialize};

fn forms() -> [Personality; 2] {
    [
        Personality::legacy(),
        Personality::legacy().reply(ReplyForm::Sse(SseForm::plain())),
    ]
}

#[test]
fn a_connection_ends_where_and_how_it_was_told() {
    use CutAt::{AfterExecuting, AfterHead, BeforeExecuting, InBody, InHead};
    let places = [
        (BeforeExecuting, 0, ""),
        (AfterExecuting, 1, ""),
        (InHead, 1, "HTTP"),
        (AfterHead, 1, "HTTP"),
        (InBody(9), 1, "HTTP"),
    ];
    for personality in forms() {
        for (place, executions, begins) in places {
            for end in [End::Fin, End::Rst] {
                let server = LedgerServer::start(personality.clone()).unwrap();
                let mut session = Session::open(&server, json!({}));
                server.inject(Rule::new(Fault::Cut(place, end)).on_tool("pay"));
                let reply = session.call("pay", json!({"amount": 1}));
                let what = format!("{place:?} {end:?} {:?}", personality.reply);
                assert!(!reply.whole, "{what}");
                assert!(reply.head.starts_with(begins), "{what}: {}", reply.head);
                assert_eq!(server.ledger().executions("pay"), executions, "{what}");
                if end == End::Rst && begins.is_empty() {
                    // What came before a reset may or may not have been read by then.
                    assert_ne!(session.client.end(), None, "{what}");
                }
                if let (InBody(count), End::Fin) = (place, end) {
                    assert_eq!(reply.body.len(), count, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_reset_is_a_reset_and_an_end_is_an_end() {
    for (end, kind) in [
        (End::Fin, ErrorKind::UnexpectedEof),
        (End::Rst, ErrorKind::ConnectionReset),
    ] {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        server
            .control()
            .next(Fault::Cut(CutAt::BeforeExecuting, end));
        let mut client = Client::to(server.address());
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        client.send("POST", &headers, &initialize(json!({})).to_string());
        assert_eq!(client.end(), Some(kind));
    }
}

#[test]
fn a_reply_can_be_lost_after_the_payment_was_made() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    server.inject(Rule::new(Fault::Silence(Moment::AfterExecuting)).on_tool("pay"));
    std::thread::scope(|scope| {
        let lost = scope.spawn(move || session.call("pay", json!({"amount": 9})));
        while server.ledger().executions("pay") == 0 {
            std::thread::yield_now();
        }
        assert_eq!(server.control().paid(), 9);
        server.stop();
        assert_eq!(lost.join().unwrap().status, 0);
    });
}

#[test]
fn canned_replies_are_written_as_they_stand() {
    let cases = [
        Canned::new(202, ""),
        Canned::new(404, "<html>not here</html>").header("Content-Type", "text/html"),
        Canned::new(429, "").header("Retry-After", "1"),
        Canned::redirect(307, "http://127.0.0.1:1/elsewhere"),
        Canned::new(401, "").header("WWW-Authenticate", "Bearer"),
        Canned::new(
            500,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"no"}}"#,
        )
        .json(),
    ];
    for canned in cases {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        let mut session = Session::open(&server, json!({}));
        server.inject(Rule::new(Fault::Reply(canned.clone())).on_tool("pay"));
        let reply = session.call("pay", json!({"amount": 1}));
        assert_eq!(reply.status, canned.status);
        assert_eq!(reply.text(), canned.body.replace("$ID", "2"));
        for (name, value) in &canned.headers {
            assert_eq!(reply.header(name).as_ref(), Some(value));
        }
        assert_eq!(server.ledger().executions("pay"), 0);
        assert!(
            session.call("pay", json!({"amount": 1})).whole,
            "one rule, one request"
        );
    }
}

#[test]
fn raw_bytes_are_written_without_a_head_of_ours() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let raw = Canned::raw("HTTP/1.1 200 OK\r\nMcp-Session-Id: a\rb\r\nContent-Length: 2\r\n\r\n{}");
    server.control().next(Fault::Reply(raw.then(Then::Reset)));
    let reply = Client::to(server.address()).post(&[], &initialize(json!({})));
    assert!(reply.head.contains("a\rb"));
}

#[test]
fn good_replies_are_spoilt() {
    let cases: [(Spoil, &str); 8] = [
        (Spoil::Id(json!("other")), r#""id":"other""#),
        (Spoil::StringTwin, r#""id":"2""#),
        (Spoil::FloatTwin, r#""id":2.5"#),
        (Spoil::Twice, r#""id":2"#),
        (Spoil::StrangerFirst, r#""id":987654321"#),
        (Spoil::NextFirst, r#""id":3"#),
        (Spoil::ResultAndError, r#""error""#),
        (Spoil::GarbageFirst("oops".to_owned()), "oops"),
    ];
    for personality in forms() {
        for (spoil, holds) in &cases {
            let server = LedgerServer::start(personality.clone()).unwrap();
            let mut session = Session::open(&server, json!({}));
            server.inject(Rule::new(Fault::Spoil(spoil.clone())).on_tool("echo"));
            let text = session.call("echo", json!({})).text();
            assert!(text.contains(holds), "{spoil:?}: {text}");
        }
        let server = LedgerServer::start(personality).unwrap();
        let mut session = Session::open(&server, json!({}));
        server.inject(Rule::new(Fault::Spoil(Spoil::InvalidUtf8)).on_tool("echo"));
        assert!(std::str::from_utf8(&session.call("echo", json!({})).body).is_err());
        server.inject(Rule::new(Fault::Giant(1 << 20)).on_tool("echo"));
        assert!(session.call("echo", json!({})).body.len() > 1 << 20);
        server.inject(Rule::new(Fault::GiantHeader(1 << 16)).on_tool("echo"));
        assert!(session.call("echo", json!({})).head.len() > 1 << 16);
    }
}

#[test]
fn rules_choose_their_requests() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    let refuse = || Fault::Reply(Canned::new(503, ""));
    server.inject(Rule::new(refuse()).on_tool("get").after(1).times(2));
    let statuses =
        ["get", "pay", "get", "get", "get"].map(|tool| session.call(tool, json!({})).status);
    assert_eq!(statuses, [200, 200, 503, 503, 200]);
    assert_eq!(server.control().applied(), 2);
    server.inject(Rule::new(refuse()).on("tools/list").always());
    for _ in 0..3 {
        assert_eq!(session.request("tools/list", json!({})).status, 503);
    }
    server.control().clear();
    assert_eq!(session.request("tools/list", json!({})).status, 200);
}

#[test]
fn a_stream_that_ends_early_is_resumed_where_it_ended() {
    let form = ReplyForm::Sse(SseForm::resumable());
    let server = LedgerServer::start(Personality::legacy().reply(form)).unwrap();
    let mut session = Session::open(&server, json!({}));
    server.inject(Rule::new(Fault::Cut(CutAt::AfterEvents(2), End::Clean)).on_tool("progress"));
    let params =
        json!({"name": "progress", "arguments": {"steps": 3}, "_meta": {"progressToken": "t"}});
    let broken = session.request("tools/call", params);
    assert_eq!(broken.events().len(), 2);
    let last = broken
        .text()
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("id: ").map(str::to_owned));
    let last = last.unwrap();

    let mut stream = Client::to(server.address());
    let mut headers = session.headers();
    headers.extend([
        ("Accept", "text/event-stream"),
        ("Last-Event-ID", last.as_str()),
    ]);
    stream.send("GET", &headers, "");
    let rest = stream.receive().events();
    assert_eq!(rest.len(), 2, "one more step, and the response");
    assert_eq!(rest[0]["params"]["progress"], 3);
    assert!(rest[1]["result"].is_object());
    assert_eq!(server.ledger().executions("progress"), 1);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn pieces_of_a_reply_wait_for_each_other_when_nagle_is_left_on() {
    let events = Personality::legacy().reply(ReplyForm::Sse(SseForm::plain()));
    let times = [events.clone(), events.writes(Writes::Pieces)].map(|personality| {
        let server = LedgerServer::start(personality).unwrap();
        let mut session = Session::open(&server, json!({}));
        // The first acknowledgements of a connection are quick; the stall comes after them.
        for _ in 0..20 {
            session.call("echo", json!({}));
        }
        let start = Instant::now();
        for _ in 0..5 {
            session.call("echo", json!({}));
        }
        start.elapsed()
    });
    assert!(times[1] > Duration::from_millis(5 * 30), "{times:?}");
    assert!(times[1] > times[0] * 2, "{times:?}");
}

#[test]
fn a_crash_closes_everything_and_a_restart_forgets_the_sessions() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    assert_eq!(session.call("crash", json!({})).status, 0);
    assert_eq!(server.ledger().executions("crash"), 0);
    server.restart().unwrap();
    session.client = Client::to(server.address());
    assert_eq!(session.call("echo", json!({})).status, 404);
}

#[test]
fn lists_come_in_pages_and_the_pages_can_go_round_for_ever() {
    let server = LedgerServer::start(Personality::legacy().page_size(10)).unwrap();
    let mut session = Session::open(&server, json!({}));
    let mut names = Vec::new();
    let mut params = json!({});
    loop {
        let result = session.request("tools/list", params).json()["result"].clone();
        names.extend(
            result["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| tool["name"].to_string()),
        );
        if result["nextCursor"].is_null() {
            break;
        }
        params = json!({"cursor": result["nextCursor"]});
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 20);

    server.inject(Rule::new(Fault::CursorLoop).on("tools/list").always());
    for _ in 0..3 {
        let page = session
            .request("tools/list", json!({"cursor": "from-1"}))
            .json();
        assert_eq!(page["result"]["nextCursor"], "from-1");
    }
}

#[test]
fn initialize_hands_out_what_it_is_told_to() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut client = Client::to(server.address());
    server.control().next(Fault::SessionId(String::new()));
    assert_eq!(
        client
            .post(&[], &initialize(json!({})))
            .header("mcp-session-id"),
        Some(String::new())
    );
    server.control().next(Fault::GiantSessionId(1 << 20));
    let giant = client
        .post(&[], &initialize(json!({})))
        .header("mcp-session-id");
    assert_eq!(giant.unwrap().len(), 1 << 20);
    server
        .control()
        .next(Fault::Version("1999-12-31".to_owned()));
    let reply = client.post(&[], &initialize(json!({})));
    assert_eq!(reply.json()["result"]["protocolVersion"], "1999-12-31");
}

#[test]
fn floods_and_endless_replies_come_as_told() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    server.inject(Rule::new(Fault::Flood(100)).on_tool("echo"));
    assert_eq!(session.call("echo", json!({})).events().len(), 101);
    for endless in [Fault::EndlessStream, Fault::EndlessBody] {
        let mut session = Session::open(&server, json!({}));
        server.inject(Rule::new(endless).on_tool("echo"));
        session.client.limit(1 << 20);
        let reply = session.call("echo", json!({}));
        assert!(!reply.whole && reply.body.len() > 1 << 19);
    }
}

#[test]
fn comments_keep_a_waiting_stream_warm() {
    let form = SseForm::plain().keep_alive(Duration::from_millis(5));
    let server = LedgerServer::start(Personality::legacy().reply(ReplyForm::Sse(form))).unwrap();
    let mut session = Session::open(&server, json!({}));
    let reply = session.call("slow", json!({"ms": 100}));
    assert!(reply.text().matches(": keep-alive").count() > 3);
    assert_eq!(reply.events().len(), 1);
}

#[test]
fn two_calls_at_a_time_can_get_each_others_ids() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut one = Session::open(&server, json!({}));
    let mut two = Session::open(&server, json!({}));
    two.id.clone_from(&one.id);
    one.skip_ids(50);
    std::thread::scope(|scope| {
        let slow = scope.spawn(move || one.call("slow", json!({"ms": 300})).json()["id"].clone());
        while server.ledger().begun("slow") == 0 {
            std::thread::yield_now();
        }
        server.inject(Rule::new(Fault::Spoil(Spoil::OtherCall)).on_tool("echo"));
        let misled = two.call("echo", json!({})).json()["id"].clone();
        assert_eq!(misled, slow.join().unwrap());
    });
}

#[test]
fn a_late_request_can_be_cancelled_before_it_begins() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    server.inject(Rule::new(Fault::Delay(60_000, Moment::BeforeExecuting)).on_tool("pay"));
    let mut client = Client::to(server.address());
    let params = json!({"name": "pay", "arguments": {"amount": 1}});
    begin_modern(&mut client, 1, "tools/call", params);
    while server.ledger().received("tools/call") == 0 {
        std::thread::yield_now();
    }
    drop(client);
    while server
        .ledger()
        .count(|entry| entry.phase == Phase::Abandoned)
        == 0
    {
        std::thread::yield_now();
    }
    assert_eq!(server.ledger().begun("pay"), 0);
}

/// A188: a test server that is changed while it runs.
#[test]
fn a_running_server_is_changed_over_its_console() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    let mut console = Client::to(server.address());
    let rule = r#"{"tool":"pay","fault":{"reply":{"status":503,"body":"later"}}}"#;
    console.send_to("POST", "/-/faults", rule);
    assert_eq!(console.receive().status, 200);
    assert_eq!(session.call("pay", json!({"amount": 1})).text(), "later");
    console.send_to("GET", "/-/ledger", "");
    let lines = console.receive().json();
    assert_eq!(lines.as_array().unwrap().last().unwrap()["tool"], "pay");
}
