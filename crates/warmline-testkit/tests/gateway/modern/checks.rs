//! What a modern request must say, and what is told first where it does not.

use crate::prelude::*;

use super::raw_client::{Wire, call, request};

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// One fault, the step that finds it, and what it gets.
type CheckStep = (&'static str, fn(Wire) -> Wire, (u16, i64));

/// The steps of mcp-spec 3.4.6 in their order, as far as a request can fail at them here. Each is
/// made so that it can be added to any later one.
const STEPS: [CheckStep; 14] = [
    (
        "1 origin",
        |wire| wire.with("Origin", "https://evil.example"),
        (403, -32600),
    ),
    (
        "1 host",
        |wire| wire.with("Host", "evil.example"),
        (403, -32600),
    ),
    (
        "3 type",
        |wire| wire.set("Content-Type", "text/plain"),
        (415, -32600),
    ),
    (
        "3 accept",
        |wire| wire.set("Accept", "text/html"),
        (406, -32600),
    ),
    (
        "4 nobody",
        |wire| wire.without("Authorization"),
        (401, -32600),
    ),
    ("5 no JSON", |wire| wire.body("{"), (400, -32700)),
    (
        "5 no JSON, as a batch begins",
        |wire| wire.body("[no JSON"),
        (400, -32700),
    ),
    ("6 a batch", |wire| wire.body("[]"), (400, -32600)),
    ("7 no capabilities", without_capabilities, (400, -32602)),
    (
        "8 twice",
        |wire| wire.with("Mcp-Method", "tools/call"),
        (400, -32020),
    ),
    (
        "9 no version",
        |wire| wire.set("MCP-Protocol-Version", "2026-01-01"),
        (400, -32020),
    ),
    (
        "10 which version",
        |wire| of_version(wire, "2099-01-01"),
        (400, -32022),
    ),
    (
        "11 method",
        |wire| wire.set("Mcp-Method", "tools/list"),
        (400, -32020),
    ),
    (
        "12 unknown",
        |wire| {
            wire.changed(|body| body["method"] = json!("ping"))
                .set("Mcp-Method", "ping")
        },
        (404, -32601),
    ),
];

fn without_capabilities(wire: Wire) -> Wire {
    wire.changed(|body| {
        let meta = body["params"]["_meta"].as_object_mut().unwrap();
        meta.remove(META_CAPABILITIES);
    })
}

fn of_version(wire: Wire, version: &str) -> Wire {
    let wire = wire.changed(|body| body["params"]["_meta"][META_VERSION] = json!(version));
    // A step before it may have put something else there, and is to win.
    let is_untouched = wire
        .headers
        .iter()
        .any(|(_, value)| value == super::raw_client::VERSION);
    if is_untouched {
        wire.set("MCP-Protocol-Version", version)
    } else {
        wire
    }
}

/// A world whose gateway wants a token, and the request that shows it.
async fn guarded() -> (World, Wire) {
    let mut world = World::new(Personality::modern()).await;
    let auth = Auth::tokens(vec![BearerToken::from_text(
        world.warm.vault(),
        "alice",
        "secret",
    )]);
    let options = GatewayOptions { auth, ..local() };
    let warm = world.warm.clone();
    world.gateway = Gateway::start(warm, options).await.unwrap();
    let right = call("echo", json!({})).with("Authorization", "Bearer secret");
    (world, right)
}

/// mcp-spec 3.4.6: every step by itself gets its status and its code.
#[tokio::test]
async fn each_step_is_told_by_its_own_status_and_code() {
    let (world, right) = guarded().await;
    let fine = right.clone().send(&world).await;
    assert_eq!(fine.status, 200, "{fine:?}");
    for (step, spoil, expected) in STEPS {
        let back = spoil(right.clone()).send(&world).await;
        assert_eq!(back.refusal(), expected, "{step}: {back:?}");
        assert_eq!(back.header("mcp-session-id"), None, "{step}");
    }
    world.finish().await;
}

/// mcp-spec 3.4.6: of two faults the one of the earlier step is told.
#[tokio::test]
async fn an_earlier_step_wins_over_a_later_one() {
    let (world, right) = guarded().await;
    for (place, (earlier, spoil, expected)) in STEPS.iter().enumerate() {
        for (later, spoil_later, _) in STEPS.iter().skip(place + 1) {
            // A body that is none cannot be wrong in any other way.
            let no_body = |step: &str| step.starts_with('5') || step.starts_with('6');
            if no_body(earlier) && !no_body(later) {
                continue;
            }
            let first = spoil_later(right.clone());
            let back = spoil(first).send(&world).await;
            let refusal = back.refusal();
            assert_eq!(refusal, *expected, "{earlier} before {later}: {back:?}");
        }
    }
    world.finish().await;
}

/// What a header may look like beside a body that names `echo`, and what it gets.
#[rustfmt::skip]
fn header_rows() -> Vec<(&'static str, Wire, (u16, i64))> {
    let echo = || call("echo", json!({}));
    let named = |header: &str| echo().set("Mcp-Name", header);
    let (fine, refused) = ((200, 0), (400, -32020));
    vec![
        ("plain",                 named("echo"),                               fine),
        ("coded",                 named("=?base64?ZWNobw==?="),                fine),
        ("blanks around it",      named(" echo "),                             fine),
        ("another",               named("put"),                                refused),
        ("another case",          named("Echo"),                               refused),
        ("torn base64",           named("=?base64?ZWNobw?=x"),                 refused),
        ("bad base64",            named("=?base64?ZWNob?="),                   refused),
        ("not canonical",         named("=?base64?ZWNobx==?="),                refused),
        ("the marks in capitals", named("=?BASE64?ZWNobw==?="),                refused),
        ("no name",               echo().without("Mcp-Name"),                  refused),
        ("a name that is none",   echo().changed(|body| body["params"]["name"] = json!(5)), refused),
        ("no name in the body",   echo().changed(|body| body["params"]["name"] = json!(null)), refused),
        ("method in capitals",    echo().set("Mcp-Method", "Tools/Call"),      refused),
        ("no method",             echo().without("Mcp-Method"),                refused),
        ("no version",            echo().without("MCP-Protocol-Version"),      refused),
        ("a name nobody needs",   request("tools/list", json!({})).with("Mcp-Name", "x"), fine),
        ("a session id",          echo().with("Mcp-Session-Id", "any"),        fine),
        ("an event id",           echo().with("Last-Event-ID", "1-1"),         fine),
    ]
}

/// mcp-spec 3.4.6, 3.4.5: what a client got wrong is named, and what it may write otherwise is
/// understood.
#[tokio::test]
async fn headers_are_compared_with_the_body_after_decoding() {
    let world = World::new(Personality::modern()).await;
    for (what, wire, expected) in header_rows() {
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), expected, "{what}: {back:?}");
        assert_eq!(back.header("mcp-session-id"), None, "{what}");
    }
    world.finish().await;
}

/// mcp-spec 2.7 E10: a version that is not spoken gets the list of those that are.
#[tokio::test]
async fn an_unknown_version_is_answered_with_those_that_are_spoken() {
    let world = World::new(Personality::modern()).await;
    let back = of_version(call("echo", json!({})), "2099-01-01")
        .send(&world)
        .await;
    assert_eq!(back.refusal(), (400, -32022));
    let data = &back.json()["error"]["data"];
    assert_eq!(
        *data,
        json!({ "supported": ["2026-07-28"], "requested": "2099-01-01" })
    );
    assert_eq!(back.json()["id"], "wire-1");
    world.finish().await;
}

/// P91: which era a message is of is told by its body first (mcp-spec 4.3, R1 to R12); where there is
/// no stream a GET is answered with 405.
#[tokio::test]
async fn the_era_of_a_message_is_told_by_its_body_first() {
    let world = World::new(Personality::dual()).await;
    let right = || request("tools/list", json!({}));
    let bare = |body: Value| right().body(&body.to_string());
    let legacy = |wire: Wire| wire.set("MCP-Protocol-Version", "2025-11-25");
    let unnamed = |wire: Wire| wire.without("MCP-Protocol-Version");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/x" });
    let greeting = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" },
    } });
    let modern_greeting = request("initialize", json!({}));
    let half = modern_greeting.clone().changed(|body| {
        body["params"] = greeting["params"].clone();
        body["params"]["_meta"] = json!({ META_VERSION: "2026-07-28" });
    });
    let modern_batch = format!("[{}]", right().body);
    let rows = [
        ("R1", right(), (200, 0)),
        ("R1 with a legacy header", legacy(right()), (400, -32020)),
        ("R2", bare(list.clone()), (400, -32602)),
        (
            "R2 of the future",
            bare(list.clone()).set("MCP-Protocol-Version", "2099-01-01"),
            (400, -32602),
        ),
        ("R3", unnamed(bare(greeting.clone())), (200, 0)),
        ("R3 with a modern header", bare(greeting.clone()), (200, 0)),
        ("R3 with half a claim", unnamed(half), (200, 0)),
        ("R4", modern_greeting, (404, -32601)),
        ("R5", legacy(bare(list.clone())), (200, 0)),
        ("R6", bare(notice.clone()), (202, 0)),
        ("R7", legacy(bare(notice)), (202, 0)),
        ("R9", unnamed(right().body(&modern_batch)), (400, -32600)),
        ("R12", right().with("Mcp-Session-Id", "any"), (200, 0)),
    ];
    for (row, wire, expected) in rows {
        let back = wire.send(&world).await;
        let found = if back.body.is_empty() {
            (back.status, 0)
        } else {
            back.refusal()
        };
        assert_eq!(found, expected, "{row}: {back:?}");
    }
    for http in ["GET", "DELETE", "PUT"] {
        let back = right().body("").http(http).send(&world).await;
        let seen = (back.status, back.header("allow"));
        assert_eq!(seen, (405, Some("POST")), "R10: {http}");
    }
    world.gateway.stop().await;
    world.warm.close().await;
}

/// mcp-spec 3.4.7: errors of the server keep their words, and the status that their code has.
#[tokio::test]
async fn errors_of_the_server_pass_with_the_status_of_their_code() {
    let world = World::new(Personality::modern()).await;
    let rows = [
        (
            "an unknown method",
            request("x/unknown", json!({})),
            (404, -32601),
        ),
        ("an unknown tool", call("nothing", json!({})), (200, -32602)),
        (
            "a capability that is missing",
            call("ask_form", json!({})),
            (400, -32021),
        ),
        (
            "an unknown resource",
            request("resources/read", json!({ "uri": "x://y" })),
            (200, -32602),
        ),
    ];
    for (what, wire, expected) in rows {
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), expected, "{what}: {back:?}");
    }
    let back = call("ask_form", json!({})).send(&world).await;
    let needed = &back.json()["error"]["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({ "elicitation": { "form": {} } }));
    let error = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"no"}}"#;
    for status in [200, 400] {
        let refusal = Fault::Reply(CannedReply::new(status, error).json());
        world.inject(FaultRule::new(refusal).on_tool("echo").times(1));
        let back = call("echo", json!({})).send(&world).await;
        let found = back.refusal();
        assert_eq!(found, (status, -32602), "as the server has it: {back:?}");
    }
    let nowhere = call("echo", json!({})).at("/servers/nobody/mcp");
    assert_eq!(nowhere.send(&world).await.status, 404);
    world.finish().await;
}
