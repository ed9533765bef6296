//! Every dialect, byte for byte.

use serde_json::json;
use warmline_testkit::dialects::{self, ALL, Effect, MISSING};
use warmline_testkit::{Fault, LedgerServer, Personality, Rule};

use crate::client::{Client, Session};

/// A188: a test server that speaks every dialect.
#[test]
fn every_dialect_leaves_the_server_as_it_stands_in_the_table() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    for dialect in ALL
        .iter()
        .filter(|one| one.post.effect == Effect::NotExecuted)
    {
        server.inject(Rule::new(Fault::Dialect(dialect.name.to_owned())).on("tools/call"));
        let reply = session.call("pay", json!({"amount": 1}));
        assert_eq!(reply.status, dialect.post.status, "{}", dialect.name);
        assert_eq!(
            reply.header("content-type").as_deref(),
            dialect.post.content_type
        );
        let request = server.ledger().entries().pop().unwrap();
        let body = dialect.post.filled(&request.id, session.id.as_deref());
        assert_eq!(reply.text(), body, "{}", dialect.name);
    }
    assert_eq!(server.ledger().executions("pay"), 0);
    assert_eq!(server.control().paid(), 0);
}

#[test]
fn bodies_are_those_that_were_measured() {
    let cases = [
        (
            "a1",
            404,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
        ),
        ("a3", 400, "Bad Request: No valid session ID provided"),
        (
            "a6",
            404,
            r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
        ),
        (
            "a8",
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#,
        ),
        ("a14", 404, "Not Found: Session not found"),
        ("a15", 401, "Unauthorized: Session not found"),
        ("a17", 404, "session not found\n"),
        ("b7", 400, "Bad Request: Session ID is required"),
    ];
    for (name, status, body) in cases {
        let words = dialects::named(name).unwrap().post;
        assert_eq!((words.status, words.body), (status, body), "{name}");
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = ALL.iter().chain(MISSING).map(|one| one.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 60);
}

#[test]
fn a_server_speaks_its_dialect_to_whatever_is_sent_with_a_dead_id() {
    for dialect in ALL.iter() {
        let server = LedgerServer::start(Personality::legacy().gone(dialect)).unwrap();
        let mut session = Session::open(&server, json!({}));
        session.call("counter", json!({}));
        server.control().forget_sessions();
        let reply = session.call("counter", json!({}));
        if dialect.post.effect == Effect::Served {
            let count = &reply.json()["result"]["structuredContent"]["count"];
            assert_eq!(count, 1, "{}: served, and the state is gone", dialect.name);
        } else {
            assert_eq!(reply.status, dialect.post.status, "{}", dialect.name);
            let mut client = Client::to(server.address());
            client.send("DELETE", &session.headers(), "");
            let expected = match dialect.delete.effect {
                Effect::Served => 200,
                Effect::NotExecuted | Effect::Executed => dialect.delete.status,
            };
            assert_eq!(client.receive().status, expected, "{}", dialect.name);
        }
    }
}

#[test]
fn a_dialect_of_something_that_ran_is_written_after_it_ran() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut session = Session::open(&server, json!({}));
    server.inject(Rule::new(Fault::Dialect("g11".to_owned())).on_tool("pay"));
    assert_eq!(session.call("pay", json!({"amount": 3})).status, 500);
    assert_eq!(server.control().paid(), 3);
}
