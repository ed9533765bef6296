//! Modern clients in front of a server of the other era: they are told so as such a server would,
//! and go on with `initialize`.

use crate::prelude::*;

use warmline_testkit::ModernSupport;

use super::raw_client::{Wire, call, request};

fn probes() -> [Wire; 4] {
    [
        request("server/discover", json!({})),
        request("tools/list", json!({})),
        call("pay", json!({ "amount": 1 })),
        request("subscriptions/listen", json!({ "notifications": {} })),
    ]
}

/// mcp-spec 4.1 P9: whatever a modern client asks a legacy server, it hears what no modern server
/// says; the server is asked once for all of them.
#[tokio::test]
async fn a_legacy_server_is_answered_for_and_asked_once() {
    for leg in [ModernSupport::Unknown, ModernSupport::RefusedByVersion] {
        let world = World::new(Personality::legacy().modern_support(leg)).await;
        for _ in 0..3 {
            for probe in probes() {
                let back = probe.send(&world).await;
                assert_eq!(back.refusal(), (400, -32600), "{leg:?}: {back:?}");
                assert_eq!(back.json()["id"], "wire-1");
            }
        }
        let ledger = world.server.ledger();
        assert_eq!(ledger.methods(), ["server/discover"], "{leg:?}");
        assert_eq!(world.control().total_paid(), 0);
        world.finish().await;
    }
}

/// A client that finds out the era by itself falls back, and keeps its state; however many modern
/// ones were turned away, nothing trips for it.
#[tokio::test]
async fn clients_that_find_out_the_era_fall_back_and_keep_their_state() {
    let world = World::new(Personality::legacy()).await;
    for _ in 0..12 {
        assert_eq!(call("echo", json!({})).send(&world).await.status, 400);
    }
    let client = world.client("/servers/ledger/mcp");
    let run = client.begin_run();
    let through = run.server("through").unwrap();
    assert_eq!(through.info().await.unwrap().era, Era::Legacy);
    for expected in 1..=3 {
        assert_eq!(count(&through).await, expected);
    }
    assert_eq!(world.received("server/discover"), 1);
    run.end().await;
    client.close().await;
    world.finish().await;
}

/// mcp-spec 4.1 P13 to P15: a server that cannot be met is an error and no verdict. When it is
/// there again it is spoken to in the era it speaks.
#[tokio::test]
async fn a_server_that_cannot_be_met_is_no_verdict() {
    let world = World::new(Personality::modern()).await;
    let probe = || request("server/discover", json!({}));
    world.server.stop();
    let back = probe().send(&world).await;
    assert_eq!(back.refusal(), (502, 7501), "{back:?}");
    let called = call("echo", json!({})).send(&world).await;
    assert_eq!(called.refusal(), (200, 7501), "{called:?}");
    world.server.start_again().unwrap();
    assert_eq!(probe().send(&world).await.status, 200);
    world.finish().await;

    let guarded = World::new(Personality::modern().token("of somebody")).await;
    let back = probe().send(&guarded).await;
    assert_eq!(back.status, 502, "a refused credential: {back:?}");
    guarded.finish().await;
}

/// What an operator says of the era counts, and the server is not asked.
#[tokio::test]
async fn the_era_that_an_operator_names_is_the_only_one() {
    let world = World::new(Personality::dual()).await;
    for (name, era) in [("old", Era::Legacy), ("new", Era::Modern)] {
        let declared = Server::http(name, world.server.url()).era(era);
        world.add_server(declared);
    }
    let back = call("echo", json!({}))
        .at("/servers/old/mcp")
        .send(&world)
        .await;
    assert_eq!(back.refusal(), (400, -32600), "{back:?}");
    assert!(world.server.ledger().entries().is_empty());
    for name in ["new", LEDGER] {
        let at = format!("/servers/{name}/mcp");
        let back = call("echo", json!({})).at(&at).send(&world).await;
        assert_eq!(back.status, 200, "{name}: {back:?}");
    }
    assert_eq!(world.received("initialize"), 0);
    world.finish().await;
}

/// The same over pipes: a program of the legacy era is started once for the question.
#[tokio::test]
async fn a_legacy_program_is_asked_once_too() {
    let world = World::new(Personality::legacy()).await;
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let script = format!(
        "echo one >> {}; exec {ledger} --stdio --personality legacy",
        starts.display()
    );
    let child = Server::stdio("child", ["sh", "-c", &script]);
    world.add_server(child);
    for probe in probes() {
        let back = probe.at("/servers/child/mcp").send(&world).await;
        assert_eq!(back.refusal(), (400, -32600), "{back:?}");
    }
    let started = fs::read_to_string(&starts).unwrap();
    assert_eq!(started.lines().count(), 1);
    world.finish().await;
}
