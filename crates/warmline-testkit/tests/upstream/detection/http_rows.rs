//! Rows P1 to P12 and P16: the answer to the probe tells the era.

use crate::prelude::*;

use warmline_testkit::faults::dialects::SESSION_MISSING;
use warmline_testkit::{ModernSupport, Newline};

use super::fixture::{
    End, LEGACY, MODERN, PROBE, PROBE_THEN_HANDSHAKE, PROBE_TWICE, Scene, evidence,
};
use super::http_sse_server::OldServer;

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
    Fault::Reply(CannedReply::new(status, &body).json())
}

/// The row of the table that the answer to the probe is, the answer in words, the server that gives it,
/// and the version that is spoken in the end.
type ProbeRow = (&'static str, String, Scene, Version);

fn probe_row(
    (row, story, personality, version): (&'static str, &str, Personality, Version),
) -> ProbeRow {
    (row, story.to_owned(), Scene::new(personality), version)
}

/// Rows in which a modern server tells its versions.
fn modern_versions() -> Vec<ProbeRow> {
    let all = [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ];
    let modern = |told: &[&str]| Personality::modern().advertised_versions(told);
    let (later, words) = (["2027-03-01", "2026-07-28"], ["draft", "2026-07-28"]);
    let rows = [
        ("only modern", Personality::modern()),
        ("only modern is told", Personality::dual()),
        (
            "both eras are told",
            Personality::dual().advertised_versions(&all),
        ),
        ("a later one as well", modern(&later)),
        ("words among them", modern(&words)),
    ];
    let as_p1 = |(story, personality)| probe_row(("P1", story, personality, Version::V2026_07_28));
    rows.into_iter().map(as_p1).collect()
}

/// Rows in which a server tells, or asks for, legacy versions alone.
fn legacy_versions() -> Vec<ProbeRow> {
    use Version::{V2025_03_26, V2025_06_18, V2025_11_25};
    let told: [(&[&str], Version); 4] = [
        (&["2025-11-25", "2025-06-18", "2025-03-26"], V2025_11_25),
        (&["2025-03-26", "2025-06-18", "2024-11-05"], V2025_06_18),
        (&["2025-03-26", "2025-06-18"], V2025_06_18),
        (&["2025-03-26"], V2025_03_26),
    ];
    let both = |(told, best): (&[&str], Version)| {
        let dual = Personality::dual().advertised_versions(told);
        let refusing = Personality::legacy().modern_support(ModernSupport::RefusedByVersion);
        let story = format!("{told:?}");
        [("P2", dual), ("P5", refusing)].map(|(row, personality)| {
            probe_row((row, &story, personality.legacy_versions(told), best))
        })
    };
    told.into_iter().flat_map(both).collect()
}

/// Rows in which a legacy server says something that no modern one says.
fn legacy_answers() -> Vec<ProbeRow> {
    let no_list = Value::Null;
    let method =
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"Method not found"}}"#;
    let of = |id: &str, code: i64, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    let version = of("null", -32600, "Unsupported protocol version: 2026-07-28");
    let no_session = of("null", -32000, "No valid session ID provided");
    let missing = of("\"server-error\"", -32600, "Missing session ID");
    let page = CannedReply::new(200, "<html>hello</html>").header("Content-Type", "text/html");
    let no_versions = json!({"supportedVersions": "2026-07-28", "capabilities": {}});
    let mut rows = vec![
        ("P3", Fault::Result(json!({}))),
        ("P3", Fault::Result(json!({"tools": []}))),
        ("P3", Fault::Result(no_versions)),
        ("P3", Fault::Reply(page)),
    ];
    let lists = [
        no_list,
        json!({}),
        json!({"supported": null}),
        json!({"supported": []}),
        json!({"supported": "2026-07-28"}),
        json!({"supported": [1, "draft"]}),
    ];
    rows.extend(lists.map(|data| ("P7", error(-32022, data))));
    let replies = [
        ("P9", 400, ""),
        ("P9", 400, "Bad Request"),
        ("P9", 400, &version),
        ("P9", 400, &no_session),
        ("P9", 400, &missing),
        ("P9", 200, method),
        ("P10", 404, method),
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
    let canned = |status, body| Fault::Reply(CannedReply::new(status, body).json());
    rows.extend(replies.map(|(row, status, body)| (row, canned(status, body))));
    let met = |(row, fault): (_, Fault)| {
        let scene = Scene::new(Personality::legacy());
        let story = format!("{fault:?}");
        (
            row,
            story,
            scene.once("server/discover", fault),
            Version::V2025_11_25,
        )
    };
    rows.into_iter().map(met).collect()
}

/// A169, A173, E23, E24, P116: a modern server is found by `server/discover` alone; whatever else
/// answers it is greeted, at the best version that it named.
#[tokio::test]
async fn the_answer_to_the_probe_tells_the_era() {
    let rows = [modern_versions(), legacy_versions(), legacy_answers()];
    for (row, story, scene, version) in rows.into_iter().flatten() {
        let story = format!("{row}, {story}");
        let end = End::Opens(version);
        let is_modern = end == MODERN;
        let sent = if is_modern {
            PROBE
        } else {
            PROBE_THEN_HANDSHAKE
        };
        let evidence = scene.plays(&story, end, sent).await.unwrap();
        let holds = evidence.contains(&format!("({row})"));
        assert!(holds, "{story}: {evidence}");
        if !is_modern {
            assert_eq!(scene.offered(), version.as_str(), "{story}");
        }
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
        scene
            .fails("it never comes to terms", Reason::Version, PROBE_TWICE)
            .await;
    }
}

/// E23, P117: no `initialize` for a modern server.
#[tokio::test]
async fn a_server_of_modern_versions_that_nobody_speaks_is_not_greeted() {
    let later = json!({"supported": ["2027-03-01"]});
    let scenes = [
        Scene::new(Personality::dual()).once("server/discover", error(-32022, later)),
        Scene::new(Personality::dual().advertised_versions(&["2027-03-01"])),
    ];
    for scene in scenes {
        let trouble = scene
            .fails("only later versions", Reason::Version, PROBE)
            .await;
        assert!(trouble.cause.unwrap().contains("2027-03-01"));
    }
}

/// P117: no `initialize` for a modern server.
#[tokio::test]
async fn a_server_that_knows_modern_errors_is_modern_and_never_greeted() {
    for (status, code) in [(400, -32020), (400, -32021), (200, -32021)] {
        let story = format!("HTTP {status} with {code}");
        let scene =
            Scene::new(Personality::dual()).once("server/discover", error_with(status, code, ""));
        let trouble = scene.fails(&story, Reason::Handshake, PROBE).await;
        let why = trouble.cause.unwrap();
        assert!(why.contains(&code.to_string()), "{story}: {why}");
    }
}

/// E24, P116: every known refusal of the probe leads to `initialize`.
#[tokio::test]
async fn every_known_refusal_of_a_request_without_a_session_is_legacy() {
    // b6 is a modern server that was told to refuse the legacy era: it is not asked here.
    for dialect in SESSION_MISSING
        .iter()
        .filter(|dialect| dialect.name != "b6")
    {
        let scene = Scene::new(Personality::legacy().session_missing(dialect));
        // Some put a session id on their refusal. The ledger would tell if it were used.
        let evidence = scene
            .plays(dialect.name, LEGACY, PROBE_THEN_HANDSHAKE)
            .await
            .unwrap();
        assert!(evidence.starts_with("server/discover: HTTP"), "{evidence}");
    }
}

/// A145: JSON and event stream say the same.
#[tokio::test]
async fn answers_in_streams_are_read_like_any_other() {
    let forms = [
        SseFormat::plain(),
        SseFormat::python(),
        SseFormat::rmcp(),
        SseFormat::resumable(),
        SseFormat::plain().newline(Newline::Cr),
    ];
    let rows: [(&str, Personality, End, &[&str]); 4] = [
        ("P1", Personality::modern(), MODERN, PROBE),
        ("P1", Personality::dual(), MODERN, PROBE),
        (
            "P2",
            Personality::dual().advertised_versions(&["2025-11-25"]),
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
            let scene = Scene::new(personality.clone().reply(ReplyFormat::Sse(form.clone())));
            let evidence = scene.plays(&story, *end, sent).await.unwrap();
            let holds = evidence.contains(&format!("({row})"));
            assert!(holds, "{story}: {evidence}");
        }
    }
}

#[tokio::test]
async fn a_stream_may_say_much_before_its_answer() {
    let personality = Personality::modern().reply(ReplyFormat::Sse(SseFormat::python()));
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
    scene.server = ServerTarget {
        timeouts: scene.server.timeouts,
        ..ServerTarget::http("scene", old.url().parse().unwrap())
    };
    let session = scene.open().await.unwrap();
    assert_eq!(session.facts().version, Version::V2024_11_05);
    let holds = evidence(&session).contains("endpoint");
    assert!(holds, "{}", evidence(&session));
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
        let canned = CannedReply::new(200, text).header("Content-Type", "text/event-stream");
        Fault::Reply(canned)
    };
    let rows: [(&str, Fault, Reason); 4] = [
        (
            "no GET either",
            Fault::Reply(CannedReply::new(405, "")),
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
        let refusal = || Fault::Reply(CannedReply::new(404, "no POST here"));
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
    let page = CannedReply::new(200, "<!doctype html><title>Welcome</title>");
    let page = Fault::Reply(page.header("Content-Type", "text/html"));
    let scene = Scene::new(Personality::legacy())
        .always("server/discover", page.clone())
        .always("initialize", page);
    let sent = &["server/discover", "initialize"];
    let trouble = scene.fails("a page", Reason::NotMcp, sent).await;
    assert!(trouble.hint.unwrap().contains("URL"));
}
