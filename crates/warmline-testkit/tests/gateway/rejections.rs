//! Every refusal, one by one: what its client gets, which line the log has of it, and which line
//! the audit has where it is known whose request it was.

use crate::prelude::*;

use http::Method;
use warmline_gateway::admin::socket_client::SocketClient;

use super::modern::raw_client::request as modern;
use super::raw_client::{initialize, post, request, send};

const ALICE: (&str, &str) = ("Authorization", "Bearer token-of-alice");
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A request that is refused.
struct Row {
    text: String,
    status: u16,
    /// The reason in the log.
    reason: &'static str,
    /// What the audit has: the method or the path, and the word for it. None where nobody knows
    /// yet whose request it is.
    audited: Option<(&'static str, &'static str)>,
}

/// What a face refuses.
fn message(status: u16, audited: (&'static str, &'static str), text: String) -> Row {
    Row {
        text,
        status,
        reason: "message",
        audited: Some(audited),
    }
}

/// What the door refuses before it is known whose it is.
fn strange(status: u16, reason: &'static str, text: String) -> Row {
    Row {
        text,
        status,
        reason,
        audited: None,
    }
}

/// What the door refuses of somebody, at this path.
fn known(status: u16, reason: &'static str, path: &'static str, text: String) -> Row {
    Row {
        text,
        status,
        reason,
        audited: Some((path, reason)),
    }
}

async fn world(file: &Path) -> World {
    let world = World::knowing(Personality::legacy(), |options, vault| GatewayOptions {
        audit: Some(audit_into(file.to_owned())),
        sse: true,
        max_request: 4 << 10,
        ..crate::fixture::known(options, vault, &["alice"])
    })
    .await;
    reach_every_line(&world).await;
    world
}

/// The first to reach a line of the log decides who is asked about it, and other stories run beside
/// this one: each is reached once before a book is opened.
async fn reach_every_line(world: &World) {
    for path in ["/nowhere", "/nowhere", "/elsewhere"] {
        let evil = [("Origin", "http://evil.example")];
        let headers: &[_] = if path == "/elsewhere" { &evil } else { &[] };
        send(world.gateway.address(), &bare("GET", path, headers)).await;
    }
}

fn list() -> Value {
    request("tools/list", &json!({}))
}

/// A request without a body.
fn bare(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    raw_http::text(method, path, headers, "")
}

/// A modern request with a change made to it and these headers in place of its own.
fn changed(change: impl FnOnce(&mut Value), headers: &[(&str, &str)]) -> String {
    let mut body: Value = serde_json::from_str(&modern("tools/list", json!({})).body).unwrap();
    change(&mut body);
    let mut all = vec![ALICE];
    all.extend_from_slice(headers);
    post(PATH, &all, &body)
}

const MODERN: (&str, &str) = ("MCP-Protocol-Version", "2026-07-28");
const TO_LIST: (&str, &str) = ("Mcp-Method", "tools/list");
const FORGED: (&str, &str) = ("Mcp-Session-Id", "forged");

/// What is refused of a modern client.
fn of_modern() -> Vec<Row> {
    let of_list = |why| ("tools/list", why);
    let future = ("MCP-Protocol-Version", "2099-01-01");
    let set = |name: &'static str, value: Value| {
        move |body: &mut Value| body["params"]["_meta"][name] = value
    };
    let ping = |body: &mut Value| body["method"] = json!("ping");
    let listens = |body: &mut Value| body["method"] = json!("subscriptions/listen");
    let listening = [MODERN, ("Mcp-Method", "subscriptions/listen")];
    let as_json = |text: String| text.replace(", text/event-stream", "");
    let answer = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
    let (bad_run, unsupported) = (("Warmline-Run", "a b"), json!("2099-01-01"));
    vec![
        message(400, of_list("bad-headers"), changed(|_| {}, &[MODERN])),
        message(
            400,
            of_list("bad-headers"),
            changed(|_| {}, &[MODERN, MODERN, TO_LIST]),
        ),
        message(
            400,
            of_list("bad-params"),
            changed(set(CAPABILITIES, json!(1)), &[MODERN, TO_LIST]),
        ),
        message(
            400,
            of_list("bad-version"),
            changed(set(VERSION, unsupported), &[future, TO_LIST]),
        ),
        message(
            404,
            ("ping", "unknown-method"),
            changed(ping, &[MODERN, ("Mcp-Method", "ping")]),
        ),
        message(
            406,
            ("subscriptions/listen", "not-acceptable"),
            as_json(changed(listens, &listening)),
        ),
        message(
            400,
            of_list("bad-run"),
            changed(|_| {}, &[MODERN, TO_LIST, bad_run]),
        ),
        message(
            400,
            (PATH, "bad-message"),
            post(PATH, &[ALICE, MODERN], &answer),
        ),
        strange(405, "head", bare("GET", PATH, &[ALICE, MODERN])),
    ]
}

/// What is refused of the messages of a legacy client.
fn of_legacy() -> Vec<Row> {
    let version = |version| ("MCP-Protocol-Version", version);
    let two = [ALICE, version("2025-11-25"), version("2025-06-18")];
    let no_version = request("initialize", &json!({ "capabilities": {} }));
    vec![
        message(
            400,
            ("tools/list", "bad-version"),
            post(PATH, &[ALICE, version("1999-01-01")], &list()),
        ),
        message(
            400,
            ("initialize", "bad-headers"),
            post(PATH, &two, &initialize()),
        ),
        message(
            400,
            ("initialize", "bad-params"),
            post(PATH, &[ALICE], &no_version),
        ),
        message(
            404,
            ("tools/list", "session-unknown"),
            post(PATH, &[ALICE, FORGED], &list()),
        ),
        message(
            400,
            ("tools/list", "bad-run"),
            post(PATH, &[ALICE, ("Warmline-Run", "a b")], &list()),
        ),
    ]
}

/// What is refused of batches: in a session of a version that knows none, and of one that does.
fn of_batches(newest: &str, batching: &str) -> Vec<Row> {
    let [newest, batching] = [newest, batching].map(|ticket| ("Mcp-Session-Id", ticket));
    let told = "notifications/roots/list_changed";
    let notices = json!([{ "jsonrpc": "2.0", "method": told }]);
    let bad = (PATH, "bad-batch");
    let batched = |message: &Value| post(PATH, &[ALICE, batching], message);
    let in_no_run = [ALICE, batching, ("Warmline-Run", "a b")];
    vec![
        message(400, bad, post(PATH, &[ALICE, newest], &json!([list()]))),
        message(400, bad, batched(&json!([]))),
        message(400, bad, batched(&json!([initialize()]))),
        message(400, bad, batched(&json!([list(), list()]))),
        message(400, (told, "bad-run"), post(PATH, &in_no_run, &notices)),
        message(
            404,
            (PATH, "session-unknown"),
            post(PATH, &[ALICE, FORGED], &json!([list()])),
        ),
    ]
}

/// What is refused of requests without a body, in a session that has its standing stream.
fn of_streams(newest: &str) -> Vec<Row> {
    let session = ("Mcp-Session-Id", newest);
    let events = ("Accept", "text/event-stream");
    let asked = |why, method, headers: &[(&str, &str)], status| {
        let mut all = vec![ALICE];
        all.extend_from_slice(headers);
        message(status, (PATH, why), bare(method, PATH, &all))
    };
    let (last, old) = (("Last-Event-ID", "zz-1"), "1999-01-01");
    let old = [session, events, ("MCP-Protocol-Version", old)];
    let json = ("Accept", "application/json");
    vec![
        asked("event-unknown", "GET", &[session, events, last], 400),
        asked("stream-taken", "GET", &[session, events], 409),
        asked("not-acceptable", "GET", &[session, json], 406),
        asked("bad-version", "GET", &old, 400),
        asked("bad-version", "DELETE", &old, 400),
        asked("wrong-method", "GET", &[events], 405),
        asked("wrong-method", "PUT", &[], 405),
        asked("bad-message", "DELETE", &[], 400),
        asked("session-unknown", "DELETE", &[FORGED], 404),
    ]
}

/// What is refused whoever sends it.
fn of_anybody() -> Vec<Row> {
    let broken = post(PATH, &[ALICE], &json!("xx")).replace("\"xx\"", "{\"x\"");
    let twice = request("tools/list", &json!({ "x": 1, "y": 1 }));
    let twice = post(PATH, &[ALICE], &twice).replace("\"y\"", "\"x\"");
    let large = request("tools/list", &json!({ "x": "y".repeat(5 << 10) }));
    let (is_json, is_text) = ("Type: application/json", "Type: text/plain");
    let plain = post(PATH, &[ALICE], &list()).replace(is_json, is_text);
    let (sse, messages) = ("/servers/ledger/sse", "/servers/ledger/messages");
    let (nope, admin, run) = ("/servers/nope/mcp", "/admin/runs", "/runs/nope");
    let evil = [ALICE, ("Origin", "http://evil.example")];
    vec![
        message(400, (PATH, "bad-message"), broken),
        message(400, ("tools/list", "bad-params"), twice),
        message(
            404,
            (messages, "session-unknown"),
            post(messages, &[ALICE], &list()),
        ),
        message(404, (run, "run-unknown"), bare("DELETE", run, &[ALICE])),
        known(413, "too-large", PATH, post(PATH, &[ALICE], &large)),
        known(404, "path", nope, post(nope, &[ALICE], &list())),
        known(403, "not-allowed", admin, bare("GET", admin, &[ALICE])),
        known(401, "no-token", PATH, post(PATH, &[], &list())),
        strange(405, "head", bare("GET", run, &[ALICE])),
        strange(405, "head", bare("PUT", sse, &[ALICE])),
        strange(405, "head", bare("GET", messages, &[ALICE])),
        strange(415, "head", plain),
        strange(404, "path", bare("GET", "/nowhere", &[ALICE])),
        strange(403, "origin", post(PATH, &evil, &list())),
    ]
}

/// What stands in the audit of each refusal: its method or path, the word for it, and whose it is.
fn refused(file: &Path) -> Vec<(String, String)> {
    let lines = audit_lines(file).into_iter().filter_map(|line| {
        let why = line["refused"].as_str().or(line["code"].as_str())?;
        let what = line["method"].as_str().or(line["path"].as_str()).unwrap();
        // Of those whom nobody asked who they are not each has a line.
        let is_nobodys = line["subject"] == "nobody";
        if is_nobodys && why != "no-token" {
            return None;
        }
        assert!(is_nobodys || line["subject"] == "alice", "{line}");
        Some((what.to_owned(), why.to_owned()))
    });
    lines.collect()
}

/// reliability O25: whatever is refused has one line in the log, and one in the audit where it is
/// known whose it is (DESIGN 7).
#[tokio::test]
async fn every_refusal_has_its_line_in_the_log_and_in_the_audit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let world = world(&file).await;
    let (book, _guard) = Logbook::open();
    let newest = world.greet_as_alice(PATH).await;
    let alice = bearer("alice");
    let batching = Legacy::greet_with(&world, PATH, "2025-03-26", json!({}), alice).await;
    let standing = newest.get(None).await;
    assert_eq!(standing.status, 200);
    let mut rows = of_modern();
    rows.extend(of_legacy());
    rows.extend(of_batches(&newest.ticket, &batching.ticket));
    rows.extend(of_streams(&newest.ticket));
    rows.extend(of_anybody());
    let mut expected = Vec::new();
    for Row {
        text,
        status,
        reason,
        audited,
    } in rows
    {
        let before = book.lines().len();
        let reply = send(world.gateway.address(), &text).await;
        let first = text.lines().next().unwrap();
        assert_eq!(reply.status, status, "{text}\n{reply:?}");
        let mut told = book.lines().split_off(before);
        told.retain(|line| line.contains("request refused"));
        let said = format!("reason=\"{reason}\" status={status}");
        let [line] = told.as_slice() else {
            panic!("not one line of {first} ({status}): {told:#?}");
        };
        assert!(line.contains(&said), "{first}: {line}");
        let audited = audited.map(|(what, why)| (what.to_owned(), why.to_owned()));
        expected.extend(audited);
    }
    drop(standing);
    world.finish().await;
    assert_eq!(refused(&file), expected);
}

/// DESIGN 7: what is refused before anybody asks whose it is has its line in the audit as well, also
/// of somebody with a token. Of many that come alike one is written: strangers do not fill a disk.
#[tokio::test]
async fn what_is_refused_of_nobody_is_in_the_audit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let world = World::knowing(Personality::legacy(), |options, vault| GatewayOptions {
        audit: Some(audit_into(file.clone())),
        ..crate::fixture::known(options, vault, &["alice"])
    })
    .await;
    let whole = post(PATH, &[ALICE], &list());
    let evil = [ALICE, ("Origin", "http://evil.example")];
    let refused = [
        (whole.replace("Host: localhost", "Host: evil"), 403, "host"),
        (post(PATH, &evil, &list()), 403, "origin"),
        (
            whole.replace("application/json\r\n", "text/plain\r\n"),
            415,
            "head",
        ),
        (bare("GET", "/nowhere", &[ALICE]), 404, "path"),
    ];
    for (text, status, _) in &refused {
        for _ in 0..3 {
            let reply = send(world.gateway.address(), text).await;
            assert_eq!(reply.status, *status, "{text}");
        }
    }
    let unwanted = [ALICE, ("Accept", "image/png")];
    let unwanted = post(PATH, &unwanted, &list()).replace("Accept: application/json", "X: ");
    let reply = send(world.gateway.address(), &unwanted).await;
    assert_eq!(reply.status, 406, "{reply:?}");
    world.finish().await;
    let lines = audit_lines(&file);
    for line in &lines {
        assert_eq!(line["subject"], "nobody", "{line}");
    }
    let words: Vec<&Value> = lines.iter().map(|line| &line["refused"]).collect();
    assert_eq!(words, refused.map(|(_, _, word)| word));
}

/// mcp-spec 3.4.6: who answers a question under the modern version is told where a modern client
/// answers; the id of the question is no id of theirs.
#[tokio::test]
async fn an_answer_under_the_modern_version_is_refused_in_its_words() {
    let world = World::new(Personality::legacy()).await;
    for answer in [
        json!({ "jsonrpc": "2.0", "id": 7, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": 1, "message": "no" } }),
    ] {
        let reply = send(world.gateway.address(), &post(PATH, &[MODERN], &answer)).await;
        let body = reply.json();
        let found = (reply.status, &body["error"]["code"]);
        assert_eq!(found, (400, &json!(-32600)));
        assert_eq!(body["id"], Value::Null);
        let words = body["error"]["message"].as_str().unwrap();
        assert!(words.contains("modern client"), "{words}");
    }
    world.finish().await;
}

/// What is refused on the stream of the 2024-11-05 transport has its lines as well.
#[tokio::test]
async fn what_is_refused_on_a_stream_has_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let world = world(&file).await;
    let (book, _guard) = Logbook::open();
    let address = world.gateway.address();
    let headers = [ALICE, ("Accept", "text/event-stream")];
    let mut stream = raw_http::request(address, "GET", "/servers/ledger/sse", &headers, "").await;
    let place = stream.event().await.unwrap().data;
    for (message, refused) in [
        (list(), "begins with initialize"),
        (json!([list()]), "begins with initialize"),
    ] {
        let response = send(address, &post(&place, &[ALICE], &message)).await;
        assert_eq!(response.status, 202);
        let answer = stream.message().await.unwrap();
        assert!(answer.to_string().contains(refused), "{answer}");
    }
    let told = || book.lines_with("request refused").len() == 2;
    until("both have their line", told).await;
    drop(stream);
    world.finish().await;
    let path = place.split('?').next().unwrap().to_owned();
    let bad = |what: &str| (what.to_owned(), "bad-message".to_owned());
    assert_eq!(refused(&file), [bad("tools/list"), bad(&path)]);
}

/// So has what is refused of whoever watches the gateway, and of whoever looks after it.
#[tokio::test]
async fn what_is_refused_at_other_listeners_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let [file, admin] = ["audit.jsonl", "admin"].map(|name| folder.path().join(name));
    let world = World::with(Personality::legacy(), |options| {
        watched(GatewayOptions {
            audit: Some(audit_into(file.clone())),
            admin_socket: Some(admin.clone()),
            ..options
        })
    })
    .await;
    reach_every_line(&world).await;
    let (book, _guard) = Logbook::open();
    let told = |said: &str| {
        let mut lines = book.lines_with("request refused");
        lines.retain(|line| line.contains(said));
        assert_eq!(lines.len(), 1, "{said}: {:#?}", book.lines());
    };
    let ops = world.gateway.ops_address().unwrap();
    for (method, path, headers, said) in [
        ("GET", "/nothing", &[][..], "reason=\"path\" status=404"),
        ("POST", "/livez", &[], "reason=\"head\" status=405"),
        (
            "GET",
            "/livez",
            &[("Origin", "http://evil.example")],
            "reason=\"host\" status=403",
        ),
    ] {
        send(ops, &bare(method, path, headers)).await;
        told(said);
    }
    let user = SocketClient::new(&admin);
    for (method, path, said) in [
        (
            Method::GET,
            "/admin/nothing",
            "reason=\"message\" status=404",
        ),
        (Method::GET, "/admin/drain", "reason=\"message\" status=405"),
        (Method::POST, "/mcp", "there is nothing at this path"),
    ] {
        user.request(method, path, None).await.unwrap();
        told(said);
    }
    world.finish().await;
    let mut lines = audit_lines(&file);
    lines.retain(|line| line["subject"] != "nobody");
    let of_user = |line: &Value| json!([line["subject"], line["refused"], line["path"]]);
    let lines: Vec<Value> = lines.iter().map(of_user).collect();
    let expected = ["/admin/nothing", "/admin/drain"];
    assert_eq!(
        lines,
        expected.map(|path| json!(["local", "bad-message", path]))
    );
}

/// DESIGN 7: what is refused before it is a request has its line in the audit too: nobody's, without a
/// path where none was read.
#[tokio::test]
async fn a_head_that_is_no_request_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let world = World::with(Personality::legacy(), |mut options| {
        options.audit = Some(audit_into(file.clone()));
        options.limits.head_timeout = Duration::from_millis(100);
        options
    })
    .await;
    let address = world.gateway.address();
    let long = format!("GET /mcp HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    for (text, status) in [("not HTTP at all\r\n\r\n", 400), ("GET /mcp HT", 408)] {
        assert_eq!(send(address, text).await.status, status);
    }
    assert_eq!(send(address, &long).await.status, 431);
    world.finish().await;
    let lines = audit_lines(&file);
    let nobodys = |line: &Value| json!([line["subject"], line["path"], line["refused"]]);
    let lines: Vec<Value> = lines.iter().map(nobodys).collect();
    // Of many that come alike one is written.
    let expected = ["head", "too-slow"];
    assert_eq!(lines, expected.map(|why| json!(["nobody", null, why])));
}
