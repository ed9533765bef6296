//! Rows P1 to P12 and P16: the answer to the probe tells the era.

use serde_json::{Value, json};
use warmline::core::code::Reason;
use warmline::core::era::Version;
use warmline::upstream::Server;
use warmline_testkit::dialects::MISSING;
use warmline_testkit::{Canned, Fault, ModernLeg, Newline, Personality, ReplyForm, SseForm};

use super::census::until;
use super::old_server::OldServer;
use super::scene::{
    End, LEGACY, MODERN, PROBE, PROBE_THEN_HANDSHAKE, PROBE_TWICE, Scene, evidence,
};

fn error(code: i64, data: Value) -> Fault {
    Fault::Error {
        code,
        message: "said on purpose".to_owned(),
        data,
    }
}

/// A JSON-RPC error under a status of its own.
fn error_with(status: u16, code: i64, data: &str) -> Fault {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"error":{{"code":{code},"message":"said on purpose"{data}}}}}"#
    );
    Fault::Reply(Canned::new(status, &body).json())
}

/// A169, A173: a modern server is found by `server/discover` alone.
#[tokio::test]
async fn a_discover_result_with_a_shared_modern_version_is_modern() {
    let all = [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ];
    let rows: [(&str, Personality); 5] = [
        ("only modern", Personality::modern()),
        ("both eras, and only modern is told", Personality::dual()),
        (
            "both eras, all is told",
            Personality::dual().told_versions(&all),
        ),
        (
            "a later version as well",
            Personality::modern().told_versions(&["2027-03-01", "2026-07-28"]),
        ),
        (
            "words among the versions",
            Personality::modern().told_versions(&["draft", "2026-07-28"]),
        ),
    ];
    for (story, personality) in rows {
        let scene = Scene::new(personality);
        let evidence = scene.plays(story, MODERN, PROBE).await.unwrap();
        assert!(evidence.contains("(P1)"), "{story}: {evidence}");
    }
}

#[tokio::test]
async fn a_discover_result_with_only_legacy_versions_leads_to_initialize_at_the_best_of_them() {
    let rows: [(&[&str], Version); 3] = [
        (&["2025-11-25", "2025-06-18"], Version::V2025_11_25),
        (
            &["2025-03-26", "2025-06-18", "2024-11-05"],
            Version::V2025_06_18,
        ),
        (&["2025-03-26"], Version::V2025_03_26),
    ];
    for (told, best) in rows {
        let personality = Personality::dual()
            .told_versions(told)
            .legacy_versions(told);
        let scene = Scene::new(personality);
        let story = format!("{told:?}");
        let evidence = scene
            .plays(&story, End::Opens(best), PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(evidence.contains("(P2)"), "{story}: {evidence}");
        assert_eq!(scene.offered(), best.as_str());
    }
}

#[tokio::test]
async fn a_result_that_is_no_discover_result_is_legacy() {
    let rows: [(&str, Fault); 4] = [
        ("an empty result", Fault::Result(json!({}))),
        ("a list of tools", Fault::Result(json!({"tools": []}))),
        (
            "versions that are no list",
            Fault::Result(json!({"supportedVersions": "2026-07-28", "capabilities": {}})),
        ),
        (
            "a page",
            Fault::Reply(
                Canned::new(200, "<html>hello</html>").header("Content-Type", "text/html"),
            ),
        ),
    ];
    for (story, fault) in rows {
        let scene = Scene::new(Personality::legacy()).once("server/discover", fault);
        let evidence = scene
            .plays(story, LEGACY, PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(evidence.contains("(P3)"), "{story}: {evidence}");
    }
}

/// E23, P117: another modern version is no legacy server.
#[tokio::test]
async fn an_unsupported_version_that_lists_ours_is_modern_and_asked_once_more() {
    let data = json!({"supported": ["2027-03-01", "2026-07-28"], "requested": "2026-07-28"});
    let told = format!(r#","data":{data}"#);
    for status in [200, 400, 404, 500] {
        let story = format!("HTTP {status}");
        let fault = error_with(status, -32022, &told);
        let scene = Scene::new(Personality::modern()).once("server/discover", fault.clone());
        let evidence = scene.plays(&story, MODERN, PROBE_TWICE).await.unwrap();
        assert!(evidence.contains("(P4)"), "{story}: {evidence}");

        let scene = Scene::new(Personality::dual()).always("server/discover", fault);
        let end = End::Fails(Reason::Version);
        scene
            .plays("it never comes to terms", end, PROBE_TWICE)
            .await
            .unwrap_err();
    }
}

/// E23: unless all it lists is legacy.
#[tokio::test]
async fn an_unsupported_version_that_lists_legacy_ones_leads_to_initialize_at_the_best_of_them() {
    let refusing = || Personality::legacy().modern_leg(ModernLeg::RefusedByVersion);
    let rows: [(&[&str], Version); 2] = [
        (
            &["2025-11-25", "2025-06-18", "2025-03-26"],
            Version::V2025_11_25,
        ),
        (&["2025-03-26", "2025-06-18"], Version::V2025_06_18),
    ];
    for (versions, best) in rows {
        let story = format!("{versions:?}");
        let scene = Scene::new(refusing().legacy_versions(versions));
        let end = End::Opens(best);
        let evidence = scene
            .plays(&story, end, PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(evidence.contains("(P5)"), "{story}: {evidence}");
        assert_eq!(scene.offered(), best.as_str());
    }
}

/// E23, P117: no `initialize` for a modern server.
#[tokio::test]
async fn a_server_of_modern_versions_that_nobody_speaks_is_not_greeted() {
    let later = json!({"supported": ["2027-03-01"]});
    let scenes = [
        Scene::new(Personality::dual()).once("server/discover", error(-32022, later)),
        Scene::new(Personality::dual().told_versions(&["2027-03-01"])),
    ];
    for scene in scenes {
        let end = End::Fails(Reason::Version);
        let trouble = scene
            .plays("only later versions", end, PROBE)
            .await
            .unwrap_err();
        assert!(trouble.why.unwrap().contains("2027-03-01"));
    }
}

#[tokio::test]
async fn an_unsupported_version_without_a_usable_list_is_legacy() {
    let lists = [
        Value::Null,
        json!({}),
        json!({"supported": null}),
        json!({"supported": []}),
        json!({"supported": "2026-07-28"}),
        json!({"supported": [1, "draft"]}),
    ];
    for data in lists {
        let story = data.to_string();
        let scene = Scene::new(Personality::legacy()).once("server/discover", error(-32022, data));
        let evidence = scene
            .plays(&story, LEGACY, PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(evidence.contains("(P7)"), "{story}: {evidence}");
    }
}

/// P117: no `initialize` for a modern server.
#[tokio::test]
async fn a_server_that_knows_modern_errors_is_modern_and_never_greeted() {
    for (status, code) in [(400, -32020), (400, -32021), (200, -32021)] {
        let story = format!("HTTP {status} with {code}");
        let scene =
            Scene::new(Personality::dual()).once("server/discover", error_with(status, code, ""));
        let end = End::Fails(Reason::Handshake);
        let trouble = scene.plays(&story, end, PROBE).await.unwrap_err();
        let why = trouble.why.unwrap();
        assert!(why.contains(&code.to_string()), "{story}: {why}");
    }
}

/// E24, P116: every known refusal of the probe leads to `initialize`.
#[tokio::test]
async fn every_known_refusal_of_a_request_without_a_session_is_legacy() {
    // b6 is a modern server that was told to refuse the legacy era: it is not asked here.
    for dialect in MISSING.iter().filter(|dialect| dialect.name != "b6") {
        let scene = Scene::new(Personality::legacy().missing(dialect));
        // Some put a session id on their refusal. The ledger would tell if it were used.
        let evidence = scene
            .plays(dialect.name, LEGACY, PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(evidence.starts_with("server/discover: HTTP"), "{evidence}");
    }
}

/// E24, P116: and so does every other.
#[tokio::test]
async fn every_other_refusal_is_legacy() {
    let rows: [(&str, u16, &str); 18] = [
        ("P9", 400, ""),
        ("P9", 400, "Bad Request"),
        (
            "P9",
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Unsupported protocol version: 2026-07-28"}}"#,
        ),
        (
            "P9",
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}"#,
        ),
        (
            "P9",
            400,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}"#,
        ),
        (
            "P9",
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"Method not found"}}"#,
        ),
        (
            "P10",
            404,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"Method not found"}}"#,
        ),
        ("P11", 404, "not found"),
        ("P11", 404, ""),
        ("P11", 405, ""),
        ("P12", 402, ""),
        ("P12", 406, "Not Acceptable"),
        ("P12", 409, ""),
        ("P12", 413, ""),
        ("P12", 415, "Unsupported Media Type"),
        ("P12", 421, "Invalid Host header"),
        ("P12", 422, "Unexpected message, expect initialize request"),
        ("P12", 499, ""),
    ];
    for (row, status, body) in rows {
        let story = format!("{row}, HTTP {status} {body:?}");
        let fault = Fault::Reply(Canned::new(status, body).json());
        let scene = Scene::new(Personality::legacy()).once("server/discover", fault);
        let evidence = scene
            .plays(&story, LEGACY, PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(
            evidence.contains(&format!("({row})")),
            "{story}: {evidence}"
        );
        assert_eq!(scene.offered(), "2025-11-25");
    }
}

/// A145: JSON and event stream say the same.
#[tokio::test]
async fn answers_in_streams_are_read_like_any_other() {
    let forms = [
        SseForm::plain(),
        SseForm::python(),
        SseForm::rmcp(),
        SseForm::resumable(),
        SseForm::plain().newline(Newline::Cr),
    ];
    let rows: [(&str, Personality, End, &[&str]); 4] = [
        ("P1", Personality::modern(), MODERN, PROBE),
        ("P1", Personality::dual(), MODERN, PROBE),
        (
            "P2",
            Personality::dual().told_versions(&["2025-11-25"]),
            LEGACY,
            PROBE_THEN_HANDSHAKE,
        ),
        (
            "P9",
            Personality::legacy_stateless(),
            LEGACY,
            PROBE_THEN_HANDSHAKE,
        ),
    ];
    for form in forms {
        for (row, personality, end, sent) in &rows {
            let story = format!("{row} by {form:?}");
            let scene = Scene::new(personality.clone().reply(ReplyForm::Sse(form.clone())));
            let evidence = scene.plays(&story, *end, sent).await.unwrap();
            assert!(
                evidence.contains(&format!("({row})")),
                "{story}: {evidence}"
            );
        }
    }
}

#[tokio::test]
async fn a_stream_may_say_much_before_its_answer() {
    let personality = Personality::modern().reply(ReplyForm::Sse(SseForm::python()));
    let scene = Scene::new(personality).once("server/discover", Fault::Flood(200));
    scene
        .plays("200 notices first", MODERN, PROBE)
        .await
        .unwrap();
}

#[tokio::test]
async fn where_nothing_takes_a_post_the_transport_of_2024_is_spoken_if_a_get_names_it() {
    let old = OldServer::start();
    let mut scene = Scene::new(Personality::legacy());
    scene.server = Server {
        times: scene.server.times,
        ..Server::http("scene", old.url().parse().unwrap())
    };
    let session = scene.open().await.unwrap();
    assert_eq!(session.facts().version, Version::V2024_11_05);
    assert!(
        evidence(&session).contains("endpoint"),
        "{}",
        evidence(&session)
    );
    session.close().await;
    drop(session);
    scene.ends("two endpoints").await;
    until("the stream is closed", || old.connections() == 0).await;
    let sent = [
        "server/discover",
        "initialize",
        "GET",
        "initialize",
        "notifications/initialized",
    ];
    assert_eq!(old.heard(), sent);

    // The next time nothing is tried that was not taken before.
    drop(scene.open().await.unwrap());
    let again = ["GET", "initialize", "notifications/initialized"];
    assert_eq!(old.heard().split_off(sent.len()), again);
    scene.ends("two endpoints again").await;
}

#[tokio::test]
async fn where_nothing_takes_anything_the_refusal_of_the_post_is_told() {
    let sent = &["server/discover", "initialize", "GET"];
    let stream = |text: &str| {
        let canned = Canned::new(200, text).header("Content-Type", "text/event-stream");
        Fault::Reply(canned)
    };
    let rows: [(&str, Fault, Reason); 4] = [
        (
            "no GET either",
            Fault::Reply(Canned::new(405, "")),
            Reason::NotFound,
        ),
        ("an empty stream", stream(""), Reason::NotFound),
        (
            "another stream",
            stream("event: hello\ndata: {}\n\n"),
            Reason::NotFound,
        ),
        (
            "another origin",
            stream("event: endpoint\ndata: http://127.0.0.1:9/x\n\n"),
            Reason::NotMcp,
        ),
    ];
    for (story, get, reason) in rows {
        let refusal = || Fault::Reply(Canned::new(404, "no POST here"));
        let scene = Scene::new(Personality::legacy())
            .always("server/discover", refusal())
            .always("initialize", refusal())
            .once("GET", get);
        scene
            .plays(story, End::Fails(reason), sent)
            .await
            .unwrap_err();
    }
}

#[tokio::test]
async fn a_page_instead_of_a_server_is_told_as_such() {
    let page = Canned::new(200, "<!doctype html><title>Welcome</title>");
    let page = Fault::Reply(page.header("Content-Type", "text/html"));
    let scene = Scene::new(Personality::legacy())
        .always("server/discover", page.clone())
        .always("initialize", page);
    let end = End::Fails(Reason::NotMcp);
    let sent = &["server/discover", "initialize"];
    let trouble = scene.plays("a page", end, sent).await.unwrap_err();
    assert!(trouble.hint.unwrap().contains("URL"));
}
