//! The legacy handshake over HTTP: what a server may get wrong, and which session id counts.

use crate::prelude::*;

use warmline_testkit::ConnectionEnd as Hangup;

use super::fixture::{End, HANDSHAKE, LEGACY, PROBE_THEN_HANDSHAKE, Scene, evidence};

fn greeted(personality: Personality) -> Scene {
    Scene::new(personality).pinned(Era::Legacy)
}

const GREETING: &[&str] = &["initialize"];

#[tokio::test]
async fn a_version_that_nobody_offered_is_taken_if_we_speak_it() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let scene = greeted(Personality::legacy().legacy_versions(&[version]));
        let end = End::Opens(Version::parse(version).unwrap());
        scene.plays(version, end, HANDSHAKE).await.unwrap();
    }
}

#[tokio::test]
async fn a_version_that_we_do_not_speak_ends_the_opening() {
    for version in ["2019-01-01", "2026-07-28", "2027-03-01", "", "latest"] {
        let scene =
            greeted(Personality::legacy()).once("initialize", Fault::Version(version.to_owned()));
        let trouble = scene.fails(version, Reason::Version, GREETING).await;
        assert!(trouble.cause.unwrap().contains(version));
    }
}

#[tokio::test]
async fn an_answer_to_something_else_ends_the_opening() {
    let page = CannedReply::new(200, "<html></html>").header("Content-Type", "text/html");
    let rows: [(Fault, Reason); 8] = [
        (
            Fault::CorruptReply(ReplyCorruption::Id(json!(1))),
            Reason::NotMcp,
        ),
        (
            Fault::CorruptReply(ReplyCorruption::IdAsString),
            Reason::NotMcp,
        ),
        (
            Fault::CorruptReply(ReplyCorruption::Truncated),
            Reason::NotMcp,
        ),
        (Fault::CorruptReply(ReplyCorruption::Batch), Reason::NotMcp),
        (
            Fault::CorruptReply(ReplyCorruption::InvalidUtf8),
            Reason::NotMcp,
        ),
        (Fault::Reply(page), Reason::NotMcp),
        (Fault::Result(json!({"tools": []})), Reason::Handshake),
        (
            Fault::Reply(CannedReply::new(202, "")),
            Reason::NoReplyChannel,
        ),
    ];
    for (fault, reason) in rows {
        let story = format!("{fault:?}");
        let scene = greeted(Personality::legacy()).once("initialize", fault);
        scene
            .plays(&story, End::Fails(reason), GREETING)
            .await
            .unwrap_err();
    }
}

/// E20, P13: a server that holds one session is recognised, and asked once.
#[tokio::test]
async fn a_server_that_holds_one_session_says_so() {
    let words = "Invalid Request: Server already initialized";
    let error = |code: i64, id: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{words}"}}}}"#
        );
        CannedReply::new(400, &body).json()
    };
    let rows = [
        error(-32600, "null"),
        error(-32600, "$ID"),
        error(-32000, "null"),
        CannedReply::new(400, words),
    ];
    for canned in rows {
        let story = format!("{canned:?}");
        let scene = greeted(Personality::legacy()).once("initialize", Fault::Reply(canned));
        let trouble = scene.fails(&story, Reason::SingleSession, GREETING).await;
        assert!(trouble.hint.unwrap().contains("one session"), "{story}");
    }
}

#[tokio::test]
async fn session_ids_that_no_header_may_carry_are_refused() {
    let bad = ["", "a b", "caf\u{e9}", "tab\there"];
    for id in bad {
        let scene =
            greeted(Personality::legacy()).once("initialize", Fault::SessionId(id.to_owned()));
        scene
            .fails(&format!("{id:?}"), Reason::BadSessionId, GREETING)
            .await;
    }
    let scene = greeted(Personality::legacy()).once("initialize", Fault::GiantSessionId(1025));
    let trouble = scene
        .plays("1025 bytes", End::Fails(Reason::BadSessionId), GREETING)
        .await;
    assert!(trouble.unwrap_err().cause.unwrap().contains("1024"));
    let scene = greeted(Personality::legacy()).once("initialize", Fault::GiantSessionId(1024));
    scene.plays("1024 bytes", LEGACY, HANDSHAKE).await.unwrap();
}

/// A86, A97, P62: a handshake has a limit of its own.
#[tokio::test]
async fn a_greeting_that_hangs_ends_in_time() {
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    let scene = greeted(Personality::legacy())
        .always("initialize", silence)
        .hasty();
    scene.fails("silence", Reason::Timeout, GREETING).await;
}

#[tokio::test]
async fn a_greeting_whose_answer_is_lost_is_sent_once_more() {
    let lost = Fault::Cut(CutPoint::AfterExecuting, Hangup::Rst);
    let scene = greeted(Personality::legacy()).once("initialize", lost.clone());
    let sent = ["initialize", "initialize", "notifications/initialized"];
    scene.plays("lost once", LEGACY, &sent).await.unwrap();
    let scene = greeted(Personality::legacy()).always("initialize", lost);
    scene
        .fails(
            "lost for good",
            Reason::ReplyLost,
            &["initialize", "initialize"],
        )
        .await;
}

/// A28, P38: a session that is half open is ended at the server.
#[tokio::test]
async fn a_session_whose_handshake_is_not_taken_is_ended_and_opened_once_more() {
    let faults: [(Fault, Reason); 4] = [
        (
            Fault::Reply(CannedReply::new(400, "Bad Request")),
            Reason::Rejected,
        ),
        (Fault::Reply(CannedReply::new(500, "")), Reason::Rejected),
        (
            Fault::Cut(CutPoint::BeforeExecuting, Hangup::Rst),
            Reason::ReplyLost,
        ),
        (
            Fault::Silence(FaultTiming::BeforeExecuting),
            Reason::Timeout,
        ),
    ];
    let tries = ["initialize", "notifications/initialized", "DELETE"];
    for (fault, reason) in faults {
        let story = format!("{fault:?}");
        let told = "notifications/initialized";
        let scene = greeted(Personality::legacy())
            .once(told, fault.clone())
            .hasty();
        let sent: Vec<&str> = tries.iter().chain(HANDSHAKE).copied().collect();
        scene.plays(&story, LEGACY, &sent).await.unwrap();
        assert_eq!(scene.ledger.counts().open_sessions, 0, "{story}");

        let scene = greeted(Personality::legacy()).always(told, fault).hasty();
        scene
            .plays(&story, End::Fails(reason), &tries.repeat(2))
            .await
            .unwrap_err();
        assert_eq!(scene.ledger.counts().open_sessions, 0, "{story}");
    }
}

/// A150, P125: the id is taken from the answer to `initialize` and from nowhere else.
#[tokio::test]
async fn the_session_id_comes_from_a_successful_initialize_alone() {
    let bogus = CannedReply::new(400, "Bad Request").header("Mcp-Session-Id", "thrown-away");
    let scene =
        Scene::new(Personality::legacy()).once("server/discover", Fault::Reply(bogus.clone()));
    let session = scene.open().await.unwrap();
    assert_eq!(scene.ledger.ledger().methods(), PROBE_THEN_HANDSHAKE);

    scene
        .ledger
        .inject(FaultRule::new(Fault::Reply(bogus)).on_tool("counter"));
    for _ in 0..3 {
        let params = Params::from_serialize(&json!({"name": "counter", "arguments": {}})).unwrap();
        drop(session.call(Request::new("tools/call", params), &()).await);
    }
    session.close().await;
    let given = scene.ledger.control().counts();
    assert_eq!((given.sessions, given.open_sessions), (1, 0));
    let carried = |id: &str| {
        scene
            .ledger
            .ledger()
            .count(|entry| entry.session.as_deref() == Some(id))
    };
    assert_eq!(carried("thrown-away"), 0);
    drop(session);
    scene.ends("the right id").await;

    // A refused initialize gives no session, whatever its headers say.
    let refused = CannedReply::new(403, "").header("Mcp-Session-Id", "not-given");
    let scene = greeted(Personality::legacy()).once("initialize", Fault::Reply(refused));
    scene
        .fails("refused with an id", Reason::Forbidden, GREETING)
        .await;
}

/// A145, A169: one request for each call, and the same result in either form.
#[tokio::test]
async fn a_server_without_sessions_is_sent_no_id_and_no_delete() {
    let streams = ReplyFormat::Sse(SseFormat::python());
    let mut results = Vec::new();
    for form in [ReplyFormat::Json, streams] {
        let scene = Scene::new(Personality::legacy_stateless().reply(form));
        let session = scene.open().await.unwrap();
        assert!(!session.facts().keeps_session, "{}", evidence(&session));
        let params = Params::from_serialize(&json!({"name": "counter", "arguments": {}})).unwrap();
        let ending = session.call(Request::new("tools/call", params), &()).await;
        let AttemptResult::Answered(Reply::Result(result)) = ending else {
            panic!("{ending:?}");
        };
        results.push(serde_json::from_slice::<Value>(&result).unwrap());
        session.close().await;
        let received = scene.ledger.ledger().entries();
        let received = received
            .iter()
            .filter(|entry| entry.phase == ExecutionPhase::Received);
        assert!(received.clone().all(|entry| entry.session.is_none()));
        assert_eq!(received.count(), 4, "probe, handshake and one call");
        drop(session);
        scene.ends("no sessions").await;
    }
    assert_eq!(results[0]["structuredContent"]["count"], 1);
    assert_eq!(results[0], results[1]);
}

/// A149, A187, P38: `DELETE` ends a session; 405 and worse are accepted.
#[tokio::test]
async fn a_session_is_deleted_when_it_is_closed_and_what_that_gets_does_not_matter() {
    let rows: [Option<Fault>; 5] = [
        None,
        Some(Fault::Reply(CannedReply::new(405, ""))),
        Some(Fault::Reply(CannedReply::new(404, "gone"))),
        Some(Fault::Reply(CannedReply::new(500, ""))),
        Some(Fault::Cut(CutPoint::BeforeExecuting, Hangup::Rst)),
    ];
    for fault in rows {
        let story = format!("{fault:?}");
        let scene = greeted(Personality::legacy());
        let session = scene.open().await.unwrap();
        assert!(session.facts().keeps_session);
        if let Some(fault) = fault {
            scene
                .ledger
                .inject(FaultRule::new(fault).on_method("DELETE"));
        }
        session.close().await;
        let received = scene.ledger.ledger().messages_received("DELETE");
        assert_eq!(received, 1, "{story}");
        drop(session);
        scene.ends(&story).await;
    }
}

#[tokio::test]
async fn what_a_server_says_of_itself_is_kept() {
    for era in [Era::Legacy, Era::Modern] {
        let scene = Scene::new(Personality::dual()).pinned(era);
        let session = scene.open().await.unwrap();
        let facts = session.facts();
        let info = String::from_utf8(facts.server_info.clone().unwrap().to_vec()).unwrap();
        assert!(info.contains("warmline-ledger"), "{era}: {info}");
        assert!(facts.capabilities.starts_with(b"{"), "{era}");
        assert!(
            facts
                .instructions
                .as_deref()
                .unwrap()
                .contains("writes down"),
            "{era}"
        );
        session.close().await;
        drop(session);
        scene.ends(era.as_str()).await;
    }
}
