//! Which run a modern request belongs to.

use crate::prelude::*;

use warmline_engine::relay::RelayHandle as _;
use warmline_gateway::RunSource;
use warmline_testkit::LegacySupport;

use super::raw_client::{Wire, call};

fn with_meta(wire: Wire, name: &str, value: Value) -> Wire {
    wire.changed(|body| body["params"]["_meta"][name] = value)
}

/// A10: a run is named by path, header, `_meta` or what the operator named, in this order; the server
/// hears nothing of it.
#[tokio::test]
async fn a_run_is_named_by_path_header_meta_or_what_the_operator_named() {
    let world = World::with(Personality::modern(), |mut options| {
        options.run_from.extend(RunSource::parse("header:X-Thread"));
        options
    })
    .await;
    let plain = || call("echo", json!({}));
    let ours = "dev.warmline/run";
    let rows = [
        ("none", plain(), None),
        (
            "path",
            plain()
                .at("/runs/p/servers/ledger/mcp")
                .with("Warmline-Run", "h"),
            Some("p"),
        ),
        (
            "header",
            with_meta(plain().with("Warmline-Run", "h"), ours, json!("m")),
            Some("h"),
        ),
        (
            "meta",
            with_meta(plain(), ours, json!("m")).with("X-Thread", "t"),
            Some("m"),
        ),
    ];
    for (what, wire, run) in rows {
        let back = wire.send(&world).await;
        assert_eq!(back.status, 200, "{what}: {back:?}");
        let last = world.server.ledger().entries();
        let meta = &last.last().unwrap().meta;
        assert!(meta.get(ours).is_none(), "{what}: {meta}");
        let Some(run) = run else { continue };
        let identity = world.warm.identity(&format!("anybody/run/{run}"));
        assert!(identity.join_run(run).is_ok(), "{what}");
        let ended = Wire {
            headers: Vec::new(),
            ..plain()
        }
        .at(&format!("/runs/{run}"))
        .body("")
        .http("DELETE");
        assert_eq!(ended.send(&world).await.status, 204, "{what}");
        assert!(identity.join_run(run).is_err(), "{what}");
    }
    let before = world.warm.snapshot().runs.len();
    for wire in [
        plain().with("X-Thread", "any text, ä"),
        with_meta(plain(), "openai/session", json!("v1/abc")),
    ] {
        assert_eq!(wire.send(&world).await.status, 200);
    }
    assert_eq!(world.warm.snapshot().runs.len(), before + 2);
    world.finish().await;
}

/// A name that no run may have is an error wherever it is ours; nothing is called.
#[tokio::test]
async fn a_name_that_no_run_may_have_is_refused() {
    let world = World::new(Personality::modern()).await;
    let plain = || call("echo", json!({}));
    let ours = "dev.warmline/run";
    let rows = [
        ("path", plain().at("/runs/a%20b/servers/ledger/mcp")),
        ("dots", plain().at("/runs/../servers/ledger/mcp")),
        ("header", plain().with("Warmline-Run", "a b")),
        (
            "two headers",
            plain().with("Warmline-Run", "a").with("Warmline-Run", "b"),
        ),
        ("meta", with_meta(plain(), ours, json!("a/b"))),
        ("no text", with_meta(plain(), ours, json!(7))),
        ("long", with_meta(plain(), ours, json!("x".repeat(129)))),
    ];
    for (what, wire) in rows {
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), (400, -32602), "{what}: {back:?}");
    }
    assert_eq!(world.received("tools/call"), 0);
    world.finish().await;
}

/// A server that speaks both eras is met in the era of its client, inside a run too.
#[tokio::test]
async fn a_modern_request_in_a_run_stays_modern() {
    for leg in [LegacySupport::Sessions, LegacySupport::Stateless] {
        let mut personality = Personality::dual();
        personality.legacy = leg;
        let world = World::new(personality).await;
        let in_run = || call("echo", json!({})).at("/runs/r/servers/ledger/mcp");
        // The run has a session of the legacy era too, of another client.
        let client = world.client("/runs/r/servers/ledger/mcp");
        let legacy = client.server("through").unwrap().with_era(Era::Legacy);
        legacy.call("echo", json!({})).await.unwrap().ok().unwrap();
        for _ in 0..2 {
            let back = in_run().send(&world).await;
            assert_eq!(back.json()["result"]["resultType"], "complete", "{back:?}");
        }
        let modern =
            |entry: &LedgerEntry| entry.tool.as_deref() == Some("echo") && entry.era == "modern";
        assert!(world.server.ledger().count(modern) >= 2);
        client.close().await;
        world.finish().await;
    }
}
