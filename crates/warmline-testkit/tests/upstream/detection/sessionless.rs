//! Servers that shall be used without sessions: no greeting, no session header, ever.

use crate::prelude::*;

use warmline_core::policy::SessionMode;

use super::fixture::{PROBE, Scene};
use super::stdio_rows::asked;

async fn echoes(session: &Session) {
    let params = json!({"name": "echo", "arguments": {"n": 1}});
    let request = Request::new("tools/call", Params::from_serialize(&params).unwrap());
    let ending = session.call(request, &()).await;
    let holds = matches!(ending, AttemptResult::Answered(Reply::Result(_)));
    assert!(holds, "{ending:?}");
}

/// A167: no handshake is ever made and no session header is ever sent.
#[tokio::test]
async fn a_legacy_server_is_called_without_a_greeting() {
    for (era, first) in [(None, PROBE), (Some(Era::Legacy), &[])] {
        let mut scene = Scene::new(Personality::legacy_stateless());
        (scene.server.sessions, scene.server.era) = (SessionMode::Never, era);
        let mut wanted: Vec<&str> = first.to_vec();
        for _ in 0..2 {
            let session = scene.open().await.unwrap();
            let facts = session.facts();
            assert_eq!((facts.era, facts.keeps_session), (Era::Legacy, false));
            echoes(&session).await;
            session.close().await;
            wanted.push("tools/call");
            assert_eq!(scene.ledger.ledger().methods(), wanted, "{era:?}");
        }
        let entries = scene.ledger.ledger().entries();
        let received = entries
            .iter()
            .filter(|one| one.phase == ExecutionPhase::Received);
        assert!(received.clone().all(|one| one.session.is_none()));
        scene.ends("never").await;
    }
}

/// A167: a server that insists on a session is not given one either; it says what it wants.
#[tokio::test]
async fn a_server_that_wants_a_session_says_so_and_gets_none() {
    let mut scene = Scene::new(Personality::legacy());
    (scene.server.sessions, scene.server.era) = (SessionMode::Never, Some(Era::Legacy));
    let session = scene.open().await.unwrap();
    let request = Request::new("tools/list", Params::empty());
    let AttemptResult::Failed(failure) = session.call(request, &()).await else {
        panic!("it was answered");
    };
    assert!(failure.diagnostic.session_gone.is_some(), "{failure:?}");
    assert!(failure.diagnostic.hint.unwrap().contains("sessions"));
    assert_eq!(scene.ledger.counts().initializes, 0);
    drop(session);
    scene.ledger.control().clear_violations();
    scene.ends("it wants one").await;
}

/// A173: a modern server has no sessions anyway.
#[tokio::test]
async fn a_modern_server_is_found_as_ever() {
    let mut scene = Scene::new(Personality::dual());
    scene.server.sessions = SessionMode::Never;
    for _ in 0..2 {
        let session = scene.open().await.unwrap();
        assert_eq!(session.facts().version, Version::V2026_07_28);
    }
    assert_eq!(scene.ledger.ledger().methods(), PROBE);
    scene.ends("modern").await;
}

/// A167: over stdio too.
#[tokio::test]
async fn a_child_is_called_without_a_greeting() {
    let rows: [(Option<Era>, &[&str]); 2] = [
        (None, &["server/discover", "tools/list"]),
        (Some(Era::Legacy), &["tools/list"]),
    ];
    for (era, sent) in rows {
        let program = Program::ledger(&["--personality", "legacy"]);
        let server = ServerTarget {
            era,
            sessions: SessionMode::Never,
            ..program.server()
        };
        let session = Upstream::new()
            .open(&server, &ClientProfile::default())
            .await;
        let session = session.unwrap();
        assert_eq!(session.facts().era, Era::Legacy);
        // What it makes of a call without a greeting is its own affair.
        let request = Request::new("tools/list", Params::empty());
        let ending = session.call(request, &()).await;
        assert!(matches!(ending, AttemptResult::Answered(_)), "{ending:?}");
        until("nothing else was sent", || asked(&program) == [sent]).await;
        session.close().await;
        drop(session);
        no_task_left().await;
        program.gone().await;
    }
}
