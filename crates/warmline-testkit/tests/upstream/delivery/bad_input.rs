//! Anything a server can send: it ends in a typed error that names the server, the session is
//! given up where its state is unknown, and the next call works.
//!
//! What is wrong with a whole reply or a stream stands in `connect_failures.rs` (D28 to D30) and
//! `streams.rs` (D85 to D88). That memory stays flat follows from the limits, which are met here;
//! it is not measured, because the server lives in the same process.

use crate::prelude::*;

use super::fixture::Expected::{self, Result, Unknown};
use super::recording_listener::Ear;
use super::scripted_server::{ReplyStep, Stub};

fn raw(bytes: &str) -> Fault {
    Fault::Reply(CannedReply::raw(bytes).execute_first())
}

fn json_body(body: &str) -> Fault {
    Fault::Reply(CannedReply::new(200, body).json().execute_first())
}

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete"}}"#;

/// Bytes that are not what HTTP, JSON or JSON-RPC say.
#[rustfmt::skip]
fn garbage() -> Vec<(&'static str, Fault, Expected)> {
    let bad = Unknown(Reason::BadReply);
    let lost = Unknown(Reason::ReplyLost);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let old = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{ANSWER}");
    let cut = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":$ID";
    vec![
        ("half of it",          Fault::CorruptReply(ReplyCorruption::Truncated),       bad),
        ("a member twice",      Fault::CorruptReply(ReplyCorruption::DuplicateMember), bad),
        ("not UTF-8",           Fault::CorruptReply(ReplyCorruption::InvalidUtf8),     bad),
        ("two answers",         Fault::CorruptReply(ReplyCorruption::Duplicate),           bad),
        ("no id, a result",     json_body(r#"{"jsonrpc":"2.0","id":null}"#), bad),
        ("JSON-RPC 1.0",        json_body(r#"{"id":$ID,"result":{}}"#), bad),
        ("the result is text",  json_body("\"hello\""),               bad),
        ("a lone surrogate",    json_body(r#"{"jsonrpc":"2.0","id":$ID,"resu\ud800lt":{}}"#), bad),
        ("a byte order mark",   json_body("\u{feff}\u{feff}{}"),      bad),
        ("NUL bytes",           json_body("\0\0\0\0"),                bad),
        ("gzip nobody asked",   Fault::Reply(CannedReply::new(200, "\u{1f}\u{8b}\u{8}").json().header("Content-Encoding", "gzip").execute_first()), bad),
        ("nothing at all",      raw(""),                              lost),
        ("line noise",          raw("\u{1}\u{2}\u{3}\r\n\r\n"),       bad),
        ("HTTP/2",              raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bad),
        ("two lengths",         raw(&format!("{head}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{{}}")), bad),
        ("a negative length",   raw(&format!("{head}Content-Length: -1\r\n\r\n{{}}")), bad),
        ("no status",           raw("HTTP/1.1 \r\n\r\n"),             bad),
        ("bad chunks",          raw(&format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n")), lost),
        ("it says it closes",   Fault::Reply(CannedReply::new(200, ANSWER).json().header("Connection", "close").execute_first()), Result),
        ("an old server",       raw(&old),                            Result),
        ("an old server, cut",  raw(cut),                             bad),
    ]
}

/// A182, E15, P92, reliability P19: whatever comes, the call ends typed and the process goes on.
#[tokio::test]
async fn bytes_that_are_no_answer_end_typed_and_name_the_server() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        for (account, fault, expected) in garbage() {
            setting
                .row(account, FaultRule::new(fault).on_tool("pay"), expected)
                .await;
        }
        setting.finish().await;
    }
}

/// reliability P17, reliability P19: headers are bounded.
#[tokio::test]
async fn a_head_over_the_limit_names_the_limit() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        let many = "X: y\r\n".repeat(20_000);
        let table = [
            ("one giant header", Fault::GiantHeader(64 << 10)),
            (
                "many headers",
                raw(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")),
            ),
            (
                "a head without an end",
                raw(&format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(99_999))),
            ),
        ];
        for (account, fault) in table {
            let rule = FaultRule::new(fault).on_tool("pay");
            let outcome = setting.row(account, rule, Unknown(Reason::BadReply)).await;
            let holds = outcome.words().contains("32768");
            assert!(holds, "{account}: {}", outcome.words());
        }
        setting.finish().await;
    }
}

/// reliability P17, reliability P19, reliability I25: lines are bounded.
#[tokio::test]
async fn a_line_without_an_end_is_cut_at_the_limit_of_an_event() {
    let personality = Personality::legacy().reply(ReplyFormat::Sse(SseFormat::plain()));
    let mut setting = Setting::new(personality, Era::Legacy);
    setting.known_as.size_limits.event = 64 << 10;
    for (account, field) in [("data", "data: "), ("id", "id: "), ("a comment", ": ")] {
        let body = format!("{field}{}", "x".repeat(200_000));
        let canned = CannedReply::new(200, &body).header("Content-Type", "text/event-stream");
        let rule = FaultRule::new(Fault::Reply(canned.execute_first())).on_tool("pay");
        let outcome = setting
            .row(account, rule, Unknown(Reason::ReplyTooLarge))
            .await;
        assert!(outcome.words().contains("65536"), "{}", outcome.words());
    }
    setting.finish().await;
}

/// P92, reliability P19: nor does depth.
#[tokio::test]
async fn a_result_of_any_depth_is_passed_on_or_refused_and_never_kills_us() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        let session = setting.session().await;
        for depth in [100, 1_000, 100_000] {
            let fault = Fault::CorruptReply(ReplyCorruption::Depth(depth));
            setting.inject(FaultRule::new(fault).on_tool("pay"));
            match session.call(payment("deep"), &()).await {
                AttemptResult::Answered(Reply::Result(raw)) => assert!(raw.len() > 2 * depth),
                AttemptResult::Failed(failure) => {
                    assert_eq!(failure.diagnostic.reason, Reason::BadReply);
                    assert!(failure.diagnostic.message.contains("`ledger`"));
                },
                ending @ AttemptResult::Answered(Reply::Error(_)) => panic!("{ending:?}"),
            }
        }
        assert_eq!(setting.pay("next", &()).await.ended, Result);
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_flood_of_notices_is_heard_and_the_answer_still_comes() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        let ear = Ear::default();
        setting.inject(FaultRule::new(Fault::Flood(20_000)).on_tool("pay"));
        let outcome = setting.pay("flood", &ear).await;
        outcome.ends(Result);
        assert_eq!(ear.heard(), 20_000);
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_session_id_that_no_session_may_have_is_refused() {
    let setting = Setting::legacy();
    let table = [
        (
            "empty",
            Fault::SessionId(String::new()),
            Reason::BadSessionId,
        ),
        (
            "not ASCII",
            Fault::SessionId("séance".to_owned()),
            Reason::BadSessionId,
        ),
        (
            "a blank in it",
            Fault::SessionId("one two".to_owned()),
            Reason::BadSessionId,
        ),
        (
            "a tab in it",
            Fault::SessionId("one\ttwo".to_owned()),
            Reason::BadSessionId,
        ),
        (
            "2 KiB",
            Fault::GiantSessionId(2 << 10),
            Reason::BadSessionId,
        ),
        ("1 MiB", Fault::GiantSessionId(1 << 20), Reason::NotMcp),
    ];
    for (case, fault, reason) in table {
        setting.inject(FaultRule::new(fault).on_method("initialize"));
        let trouble = setting.try_open().await.unwrap_err();
        assert_eq!(trouble.reason, reason, "{case}: {trouble:?}");
        assert!(trouble.message.contains("`ledger`"), "{case}: {trouble}");
        setting.forget();
        assert_eq!(setting.pay(case, &()).await.ended, Result, "{case}");
    }
    setting.finish().await;
}

#[tokio::test]
async fn a_handshake_that_is_no_handshake_ends_typed_and_the_next_one_works() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.handshake = Duration::from_millis(500);
    let table = [
        (
            "half of it",
            Fault::CorruptReply(ReplyCorruption::Truncated),
        ),
        (
            "a member twice",
            Fault::CorruptReply(ReplyCorruption::DuplicateMember),
        ),
        (
            "not UTF-8",
            Fault::CorruptReply(ReplyCorruption::InvalidUtf8),
        ),
        (
            "another id",
            Fault::CorruptReply(ReplyCorruption::Id(json!(1))),
        ),
        ("a batch", Fault::CorruptReply(ReplyCorruption::Batch)),
        ("a giant", Fault::GiantReply(2 << 20)),
        ("a giant head", Fault::GiantHeader(1 << 20)),
        ("without an end", Fault::EndlessBody),
        ("a stream without an end", Fault::EndlessStream),
        ("silence", Fault::Silence(FaultTiming::BeforeExecuting)),
        ("nothing in it", Fault::Result(json!({}))),
        (
            "too deep",
            Fault::CorruptReply(ReplyCorruption::Depth(100_000)),
        ),
        (
            "a page",
            Fault::Reply(CannedReply::new(200, "<html>").header("Content-Type", "text/html")),
        ),
    ];
    for (case, fault) in table {
        // Twice: a handshake that broke off by chance is tried once more.
        setting.inject(FaultRule::new(fault).on_method("initialize").times(2));
        let opened = setting.try_open().await;
        let trouble = opened.err().unwrap_or_else(|| panic!("{case}: it opened"));
        assert!(trouble.message.contains("`ledger`"), "{case}: {trouble}");
        setting.server.control().clear_faults();
        setting.forget();
        assert_eq!(setting.pay(case, &()).await.ended, Result, "{case}");
    }
    setting.finish().await;
}

#[tokio::test]
async fn a_handshake_on_a_stream_names_what_was_wrong_with_it() {
    let personality = Personality::legacy().reply(ReplyFormat::Sse(SseFormat::plain()));
    let mut setting = Setting::new(personality, Era::Legacy);
    setting.known_as.timeouts.handshake = Duration::from_millis(300);
    setting.known_as.size_limits.event = 64 << 10;
    let table = [
        (
            "an endless stream",
            Fault::EndlessStream,
            Reason::Timeout,
            "in time",
        ),
        (
            "silence",
            Fault::Silence(FaultTiming::BeforeExecuting),
            Reason::Timeout,
            "in time",
        ),
        (
            "a giant",
            Fault::GiantReply(100_000),
            Reason::ReplyTooLarge,
            "65536",
        ),
    ];
    for (case, fault, reason, words) in table {
        let before = setting.server.ledger().messages_received("initialize");
        setting.inject(FaultRule::new(fault).on_method("initialize").always());
        let trouble = setting.try_open().await.unwrap_err();
        assert_eq!(trouble.reason, reason, "{case}: {trouble:?}");
        assert!(trouble.message.contains(words), "{case}: {trouble}");
        assert!(trouble.message.contains("`ledger`"), "{case}: {trouble}");
        // Only what broke off by chance is tried again.
        let received = setting.server.ledger().messages_received("initialize");
        assert_eq!(received, before + 1, "{case}");
        setting.server.control().clear_faults();
    }
    assert_eq!(setting.pay("next", &()).await.ended, Result);
    setting.finish().await;
}

#[tokio::test]
async fn what_a_server_says_is_shown_on_one_short_line_without_tricks() {
    let setting = Setting::legacy();
    let tricks = "\u{1b}[31mred\u{7}\r\nand \u{202e}backwards\u{2066} \u{9b}x";
    let long = "long ".repeat(10_000);
    let in_error = format!(
        r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32000,"message":{}}}}}"#,
        json!(tricks)
    );
    for (account, body) in [
        ("tricks", tricks),
        ("long", &long),
        ("in an error", &in_error),
    ] {
        let canned = CannedReply::new(500, body).header("Content-Type", "application/json");
        let rule = FaultRule::new(Fault::Reply(canned.execute_first())).on_tool("pay");
        let outcome = setting
            .row(account, rule, Unknown(Reason::ServerError))
            .await;
        let words = outcome.words();
        let holds = words.chars().count() < 400;
        assert!(holds, "{account}: {} letters", words.len());
        let odd = |letter: char| letter.is_control() || "\u{202e}\u{2066}".contains(letter);
        assert!(!words.contains(odd), "{account}: {words:?}");
    }
    setting.finish().await;
}

fn reply(body: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// reliability P3: an early answer is nobody's.
#[tokio::test]
async fn an_answer_that_came_before_its_question_reaches_nobody() {
    // The answer to the first call, and at once one to the next that nobody has sent yet.
    let good = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","of":"this"}}"#;
    let early = r#"{"jsonrpc":"2.0","id":$NEXT,"result":{"resultType":"complete","of":"early"}}"#;
    for era in [Era::Legacy, Era::Modern] {
        let stub = Stub::start(move |body| {
            let id = body["id"].as_u64().unwrap();
            let good = good.replace("$ID", &id.to_string());
            let early = early.replace("$NEXT", &(id + 1).to_string());
            vec![ReplyStep::Raw(reply(&good) + &reply(&early))]
        })
        .await;
        let session = stub.session(era).await;
        for round in 0..20 {
            let ending = session
                .call(tool("any", &json!({"round": round})), &())
                .await;
            let outcome = Outcome::of(ending);
            outcome.ends(Result);
            assert_eq!(outcome.answer["of"], "this", "round {round}");
        }
    }
}

/// reliability P10, reliability P19: a server that sends informational replies and never the answer is given
/// up, long before the time of the call is over; a few of them are nothing unusual.
#[tokio::test]
async fn informational_replies_come_to_an_end() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let good = r#"{"jsonrpc":"2.0","id":$ID,"result":{"of":"this"}}"#;
    for (hints, expected) in [(20, Result), (60_000, Unknown(Reason::ReplyLost))] {
        let stub = Stub::start(move |body| {
            let good = reply(&good.replace("$ID", &body["id"].to_string()));
            vec![ReplyStep::Raw(hint.repeat(hints) + &good)]
        })
        .await;
        let session = stub.session(Era::Legacy).await;
        let outcome = Outcome::of(session.call(tool("any", &json!({})), &()).await);
        assert_eq!(outcome.ended, expected, "{hints}: {:?}", outcome.trouble);
        assert_eq!(outcome.words().contains("informational"), hints > 20);
    }
}

/// reliability P3: bytes left over reach no other call.
#[tokio::test]
async fn a_body_where_none_may_be_does_not_reach_the_next_call() {
    let setting = Setting::legacy();
    let smuggled =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    for (account, status, expected) in [
        ("204 with a body", 204, Unknown(Reason::BadReply)),
        ("304 with a body", 304, Unknown(Reason::Redirect)),
    ] {
        let rule = FaultRule::new(Fault::Reply(
            CannedReply::new(status, smuggled).execute_first(),
        ));
        setting.row(account, rule.on_tool("pay"), expected).await;
    }
    setting.finish().await;
}
