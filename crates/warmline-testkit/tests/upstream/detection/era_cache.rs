//! What was found out is remembered: a server is asked once, and again when something speaks
//! against what is known.

use crate::prelude::*;

use super::fixture::{HANDSHAKE, LEGACY, PROBE, PROBE_THEN_HANDSHAKE, Scene};

/// Opens and ends a session, and tells what was sent meanwhile.
async fn sent(scene: &Scene, server: &ServerTarget, declared: &ClientProfile) -> Vec<String> {
    let before = scene.ledger.ledger().methods().len();
    let session = scene.upstream.open(server, declared).await.unwrap();
    let sent = scene.ledger.ledger().methods().split_off(before);
    session.close().await;
    sent
}

/// A171: what was found out is remembered.
#[tokio::test]
async fn a_server_that_was_met_is_not_asked_again() {
    let nothing: &[&str] = &[];
    let rows: [(Personality, &[&str], &[&str]); 3] = [
        (Personality::modern(), PROBE, nothing),
        (Personality::dual(), PROBE, nothing),
        (Personality::legacy(), PROBE_THEN_HANDSHAKE, HANDSHAKE),
    ];
    for (personality, first, later) in rows {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality);
        let declared = ClientProfile::default();
        let found = sent(&scene, &scene.server, &declared).await;
        assert_eq!(found, first, "{story}");
        for _ in 0..2 {
            let found = sent(&scene, &scene.server, &declared).await;
            assert_eq!(found, later, "{story}");
        }
        scene.ends(&story).await;
    }
}

#[tokio::test]
async fn another_credential_or_declaration_is_another_acquaintance() {
    let scene = Scene::new(Personality::modern());
    let declared = ClientProfile::default();
    sent(&scene, &scene.server, &declared).await;

    let mut other = scene.server.clone();
    if let TransportConfig::Http(reach) = &mut other.transport {
        let (name, value) = ("authorization".parse(), "Bearer other".parse());
        reach.headers.push((name.unwrap(), value.unwrap()));
    }
    assert_eq!(sent(&scene, &other, &declared).await, PROBE);
    let louder = ClientProfile {
        client_name: "louder".to_owned(),
        ..declared
    };
    assert_eq!(sent(&scene, &scene.server, &louder).await, PROBE);
    scene.ends("three acquaintances").await;
}

#[tokio::test]
async fn a_legacy_server_that_changed_is_asked_again() {
    let scene = Scene::new(Personality::legacy());
    scene
        .plays("first", LEGACY, PROBE_THEN_HANDSHAKE)
        .await
        .unwrap();
    let scene = scene.once(
        "initialize",
        Fault::Error {
            code: -32022,
            message: "Unsupported protocol version".to_owned(),
            data: json!({"supported": ["2026-07-28"]}),
        },
    );
    let declared = ClientProfile::default();
    let again = sent(&scene, &scene.server, &declared).await;
    let greeted_in_vain = ["initialize"].iter().chain(PROBE_THEN_HANDSHAKE);
    assert_eq!(again, greeted_in_vain.copied().collect::<Vec<_>>());
    scene.ends("it changed").await;
}

#[tokio::test]
async fn an_outage_changes_nothing_of_what_is_known() {
    let scene = Scene::new(Personality::legacy());
    let declared = ClientProfile::default();
    sent(&scene, &scene.server, &declared).await;
    let scene = scene.once("initialize", Fault::Reply(CannedReply::new(503, "")));
    scene
        .upstream
        .open(&scene.server, &declared)
        .await
        .unwrap_err();
    assert_eq!(sent(&scene, &scene.server, &declared).await, HANDSHAKE);
    scene.ends("an outage").await;
}

#[tokio::test]
async fn both_legs_of_a_server_are_remembered() {
    let scene = Scene::new(Personality::dual());
    let declared = ClientProfile::default();
    for era in [Era::Legacy, Era::Modern] {
        let server = ServerTarget {
            era: Some(era),
            ..scene.server.clone()
        };
        sent(&scene, &server, &declared).await;
    }
    let known = scene.upstream.known_eras(&scene.server, &declared).unwrap();
    assert_eq!(known.legacy.unwrap().era, Era::Legacy);
    assert_eq!(known.modern.unwrap().era, Era::Modern);
    let session = scene.open().await.unwrap();
    assert_eq!(session.facts().version, Version::V2026_07_28);
    drop(session);
    scene.ends("both legs").await;
}

#[tokio::test]
async fn a_modern_server_whose_calls_are_refused_like_a_legacy_ones_is_asked_again() {
    // Nothing is sent to open it, so only a call can notice that it has become another one.
    let scene = Scene::new(Personality::modern());
    let declared = ClientProfile::default();
    assert_eq!(sent(&scene, &scene.server, &declared).await, PROBE);
    let scene = scene.once(
        "tools/list",
        Fault::Reply(CannedReply::new(400, "Bad Request: Missing session ID")),
    );
    let session = scene.upstream.open(&scene.server, &declared).await.unwrap();
    let refused = session
        .send(Request::new("tools/list", Params::empty()), &())
        .await;
    assert_eq!(refused.delivery(), Delivery::Refused, "{refused:?}");
    assert!(
        scene
            .upstream
            .known_eras(&scene.server, &declared)
            .is_none()
    );
    drop((refused, session));
    assert_eq!(sent(&scene, &scene.server, &declared).await, PROBE);
    scene.ends("a modern server that changed").await;
}
