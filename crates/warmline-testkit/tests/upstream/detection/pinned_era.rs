//! An era or a version that the configuration says is not asked about, and no other is taken.

use crate::prelude::*;

use warmline_testkit::ModernSupport;

use super::fixture::{End, HANDSHAKE, LEGACY, MODERN, PROBE, Scene};
use super::http_sse_server::OldServer;
use super::stdio_rows::asked;

#[tokio::test]
async fn the_legacy_era_is_greeted_without_a_probe() {
    for personality in [
        Personality::legacy(),
        Personality::legacy_stateless(),
        Personality::dual(),
    ] {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality).pinned(Era::Legacy);
        scene.plays(&story, LEGACY, HANDSHAKE).await.unwrap();
    }
}

#[tokio::test]
async fn the_modern_era_is_asked_for_and_nobody_is_greeted() {
    for personality in [
        Personality::modern(),
        Personality::dual(),
        Personality::dual_stateless(),
    ] {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality).pinned(Era::Modern);
        scene.plays(&story, MODERN, PROBE).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_without_the_said_era_is_an_error_and_the_other_era_is_not_tried() {
    let refusing = Personality::legacy().modern_support(ModernSupport::RefusedByVersion);
    for personality in [
        Personality::legacy(),
        Personality::legacy_stateless(),
        refusing,
    ] {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality).pinned(Era::Modern);
        let trouble = scene.fails(&story, Reason::Version, PROBE).await;
        assert!(trouble.hint.unwrap().contains("legacy"), "{story}");
    }
    let scene = Scene::new(Personality::modern()).pinned(Era::Legacy);
    scene
        .fails("modern only", Reason::Version, &["initialize"])
        .await;
}

fn names(trouble: &Diagnostic, versions: [&str; 2]) {
    assert_eq!(trouble.reason, Reason::Version, "{trouble:?}");
    let why = trouble.cause.as_deref().unwrap();
    assert!(versions.iter().all(|one| why.contains(one)), "{trouble:?}");
    assert!(trouble.hint.is_some(), "{trouble:?}");
}

/// A174: exactly that version is offered, and no probe goes before it.
#[tokio::test]
async fn a_version_that_is_said_is_offered_and_nothing_is_asked() {
    for version in Version::ALL
        .into_iter()
        .filter(|one| one.era() == Era::Legacy)
    {
        let mut scene = Scene::new(Personality::dual());
        scene.server.version = Some(version);
        let end = End::Opens(version);
        scene.plays(version.as_str(), end, HANDSHAKE).await.unwrap();
        assert_eq!(scene.offered(), version.as_str());
    }
    let mut scene = Scene::new(Personality::dual());
    scene.server.version = Some(Version::V2026_07_28);
    scene.plays("modern", MODERN, PROBE).await.unwrap();
}

/// A174: a server that chooses another version is not taken; the error names both, and the session
/// that it opened is ended.
#[tokio::test]
async fn a_server_that_chooses_another_version_is_an_error_that_names_both() {
    let mut scene = Scene::new(Personality::legacy().legacy_versions(&["2025-06-18"]));
    scene.server.version = Some(Version::V2024_11_05);
    let sent = ["initialize", "DELETE"];
    let trouble = scene.fails("another", Reason::Version, &sent).await;
    names(&trouble, ["2024-11-05", "2025-06-18"]);
    assert_eq!(scene.ledger.counts().open_sessions, 0);
}

/// A174: so is one that refuses it.
#[tokio::test]
async fn a_server_that_refuses_the_version_is_an_error_that_names_both() {
    let refusal = Fault::Error {
        code: -32602,
        message: "Unsupported protocol version".to_owned(),
        data: json!({"supported": ["2025-06-18"], "requested": "2024-11-05"}),
    };
    let mut scene = Scene::new(Personality::legacy()).once("initialize", refusal);
    scene.server.version = Some(Version::V2024_11_05);
    let trouble = scene.open().await.unwrap_err();
    let why = trouble.cause.unwrap();
    let holds = why.contains("2024-11-05") && why.contains("2025-06-18");
    assert!(holds, "{why}");
    scene.ends("refused").await;

    let mut scene = Scene::new(Personality::legacy());
    scene.server.version = Some(Version::V2026_07_28);
    let trouble = scene.fails("no modern leg", Reason::Version, PROBE).await;
    assert!(trouble.cause.unwrap().contains("2026-07-28"));
}

/// A174: over the other transports too.
#[tokio::test]
async fn a_version_that_is_said_counts_over_every_transport() {
    let program = Program::ledger(&["--personality", "dual"]);
    let of = |version| ServerTarget {
        version: Some(version),
        ..program.server()
    };
    let declared = ClientProfile::default();
    let session = Upstream::new()
        .open(&of(Version::V2025_03_26), &declared)
        .await
        .unwrap();
    assert_eq!(session.facts().version, Version::V2025_03_26);
    session.close().await;
    assert_eq!(asked(&program)[0][0], "initialize");
    drop(session);
    no_task_left().await;
    program.gone().await;

    let old = OldServer::start();
    let mut server = ServerTarget::http("scene", old.url().parse().unwrap());
    server.version = Some(Version::V2024_11_05);
    let session = Upstream::new().open(&server, &declared).await.unwrap();
    assert_eq!(session.facts().version, Version::V2024_11_05);
    drop(session);
    server.version = Some(Version::V2025_11_25);
    let trouble = Upstream::new().open(&server, &declared).await.unwrap_err();
    names(&trouble, ["2025-11-25", "2024-11-05"]);
}

#[tokio::test]
async fn a_version_of_the_other_era_is_a_mistake_that_is_told_before_anything_is_sent() {
    let mut scene = Scene::new(Personality::dual()).pinned(Era::Legacy);
    scene.server.version = Some(Version::V2026_07_28);
    let trouble = scene.open().await.unwrap_err();
    assert_eq!(trouble.code, Code::ConfigBadValue, "{trouble:?}");
    assert_eq!(scene.ledger.counts().requests, 0);
}
