//! Trace context of clients, on its way to servers over HTTP and to programs.

use crate::prelude::*;

fn parent(number: u32) -> String {
    format!("00-{number:032x}-b7ad6b7169203331-01")
}

fn call(number: u32, meta: &Value) -> Value {
    let params = json!({ "name": "echo", "arguments": { "n": number }, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params })
}

/// Headers, `_meta`, and the trace and the vendors' part that are passed on.
type Case<'a> = (
    Vec<(&'a str, &'a str)>,
    Value,
    Option<&'a str>,
    Option<&'a str>,
);

/// A100, P57: each call of one session has the trace of its own request, whether it stood in a
/// header or in `_meta`; what is malformed goes no further as a header, and `_meta` stays as it is.
#[tokio::test]
async fn each_call_carries_its_own_trace_and_nothing_sticks() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let (one, two) = (parent(1), parent(2));
    let state = ("tracestate", "vendor=1");
    #[rustfmt::skip]
    let cases: [Case<'_>; 6] = [
        (vec![("traceparent", &one), state], json!({}), Some(&one), Some("vendor=1")),
        (vec![], json!({}), None, None),
        (vec![], json!({ "traceparent": two, "tracestate": "in=meta" }), Some(&two), Some("in=meta")),
        (vec![("traceparent", "00-nonsense"), state], json!({}), None, None),
        (vec![("traceparent", "00-nonsense")], json!({ "traceparent": two }), Some(&two), None),
        (vec![state], json!({ "traceparent": "nonsense" }), None, None),
    ];
    for (number, (headers, meta, expected, vendors)) in (10..).zip(cases) {
        let mut reply = client.post_with(&headers, &call(number, &meta)).await;
        let reply = reply.answer().await;
        assert!(reply["result"].is_object(), "{reply}");
        let sent = world.server.ledger().received("tools/call").pop().unwrap();
        let header = |name: &str| sent.extra_headers.get(name).map(String::as_str);
        assert_eq!(header("traceparent"), expected, "{headers:?} {meta}");
        assert_eq!(header("tracestate"), vendors, "{headers:?} {meta}");
        let in_meta = |name: &str| sent.meta.get(name).cloned();
        assert_eq!(in_meta("traceparent"), meta.get("traceparent").cloned());
    }
    world.finish().await;
}

/// P57: the same for a modern client, whose requests say all in themselves.
#[tokio::test]
async fn a_modern_request_carries_its_trace_too() {
    let world = World::new(Personality::modern()).await;
    let trace = parent(7);
    let wire = modern::call("echo", json!({})).with("traceparent", &trace);
    let reply = wire.with("baggage", "who=me").send(&world).await.json();
    assert!(reply["result"].is_object(), "{reply}");
    let sent = world.server.ledger().received("tools/call").pop().unwrap();
    let extra = sent.extra_headers;
    assert_eq!(extra.get("traceparent"), Some(&trace));
    assert_eq!(extra.get("baggage").map(String::as_str), Some("who=me"));
    world.finish().await;
}

/// P57: a program has no headers, and gets the trace in `_meta`; what stands there already stays.
#[tokio::test]
async fn a_program_gets_the_trace_in_its_meta() {
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let folder = tempfile::tempdir().unwrap();
    let heard = folder.path().join("heard");
    let script = format!(
        "tee '{}' | '{ledger}' --stdio --personality legacy",
        heard.display()
    );
    let world = World::new(Personality::legacy()).await;
    let child = Server::stdio("child", ["sh", "-c", &script]);
    world.add_server(child);
    let client = Legacy::greet(&world, "/servers/child/mcp", "2025-11-25", json!({})).await;
    let (one, two) = (parent(1), parent(2));
    let cases = [
        (one.as_str(), json!({}), json!(one)),
        (one.as_str(), json!({ "traceparent": two }), json!(two)),
        ("nonsense", json!({}), Value::Null),
    ];
    for (before, (header, meta, expected)) in cases.into_iter().enumerate() {
        let headers = [("traceparent", header), ("tracestate", "vendor=1")];
        let mut reply = client.post_with(&headers, &call(1, &meta)).await;
        let answered = reply.answer().await;
        assert!(answered["result"].is_object(), "{answered}");
        let line = heard_call(&heard, before).await;
        let sent: Value = serde_json::from_str(&line).unwrap();
        let said = &sent["params"]["_meta"];
        assert_eq!(said["traceparent"], expected, "{line}");
        let vendors = (expected == json!(one)).then_some("vendor=1");
        assert_eq!(said["tracestate"].as_str(), vendors, "{line}");
    }
    world.finish().await;
}

/// The call that came after so many others. The file is written after the program has its copy.
async fn heard_call(heard: &Path, before: usize) -> String {
    let mut found = None;
    until("the call was heard", || {
        let text = fs::read_to_string(heard).unwrap();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let mut calls = whole.filter(|line| line.contains("tools/call"));
        found = calls.nth(before).map(str::to_owned);
        found.is_some()
    })
    .await;
    found.unwrap()
}
