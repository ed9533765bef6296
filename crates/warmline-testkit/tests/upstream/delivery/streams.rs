//! Replies that are streams: D74 to D92 of the delivery table, as far as one attempt concerns.
//!
//! Not here:
//! - D75 to D79: `stream_resume.rs`. D86: `deadlines.rs`. D89: `server_requests.rs`.
//! - D84: the standing stream of a session carries questions, not answers.
//! - D91, D92: we do not declare tasks, so a task handle is a result of a kind nobody asked for.
//! - D93: what an ended `subscriptions/listen` means is for those who keep one.
//! - D94 to D96: the transport of 2024 has tests of its own, beside its driver.

use crate::prelude::*;

use super::fixture::Expected::{self, Result, Unknown};
use super::recording_listener::Ear;
use super::scripted_server::{ReplyStep, Stub};

fn streaming(era: Era, form: SseFormat) -> Setting {
    let personality = personality_of(era);
    Setting::new(personality.reply(ReplyFormat::Sse(form)), era)
}

fn stream(body: &str) -> Fault {
    let canned = CannedReply::new(200, body).header("Content-Type", "text/event-stream");
    Fault::Reply(canned.execute_first())
}

/// Streams that are cut, ended or wrong, and no id to go on from.
#[rustfmt::skip]
fn broken() -> Vec<(&'static str, Fault, Expected)> {
    let lost = Unknown(Reason::ReplyLost);
    let bad = Unknown(Reason::BadReply);
    let cut = Fault::Cut;
    vec![
        ("D74 before events, FIN",  cut(CutPoint::AfterEvents(0), ConnectionEnd::Fin), lost),
        ("D74 before events, RST",  cut(CutPoint::AfterEvents(0), ConnectionEnd::Rst), lost),
        ("D74 after the head, FIN", cut(CutPoint::AfterHead, ConnectionEnd::Fin),      lost),
        ("D74 after the head, RST", cut(CutPoint::AfterHead, ConnectionEnd::Rst),      lost),
        ("D74 in the event, FIN",   cut(CutPoint::InBody(20), ConnectionEnd::Fin),     lost),
        ("D82 a clean early end",   cut(CutPoint::AfterEvents(0), ConnectionEnd::Clean), lost),
        ("D82 nothing at all",      stream(""),                           lost),
        ("D82 comments only",       stream(": hello\n\n: still here\n\n"), lost),
        ("D83 whole, then FIN",     cut(CutPoint::AfterEvents(1), ConnectionEnd::Fin), Result),
        ("D83 whole, then RST",     cut(CutPoint::AfterEvents(1), ConnectionEnd::Rst), Result),
        ("D85 a stranger first",    Fault::CorruptReply(ReplyCorruption::UnknownIdFirst),   Result),
        ("D85 the next id first",   Fault::CorruptReply(ReplyCorruption::NextIdFirst),       Result),
        ("D85 the answer twice",    Fault::CorruptReply(ReplyCorruption::Duplicate),           Result),
        ("D85 only a stranger's",   Fault::CorruptReply(ReplyCorruption::Id(json!(77))),   lost),
        ("D85 only a twin's",       Fault::CorruptReply(ReplyCorruption::IdAsString),      lost),
        ("D88 not JSON",            stream("data: {oops\n\n"),            bad),
        ("D88 garbage, then good",  Fault::CorruptReply(ReplyCorruption::GarbageFirst("{oops".to_owned())), Result),
        ("D88 duplicate members",   Fault::CorruptReply(ReplyCorruption::DuplicateMember), bad),
        ("D88 half of it",          Fault::CorruptReply(ReplyCorruption::Truncated),       bad),
        ("D88 not UTF-8",           Fault::CorruptReply(ReplyCorruption::InvalidUtf8),     bad),
        ("D88 a batch",             Fault::CorruptReply(ReplyCorruption::Batch),           bad),
    ]
}

#[tokio::test]
async fn a_stream_that_brings_no_response_leaves_the_request_unknown() {
    for (era, form) in [
        (Era::Legacy, SseFormat::plain()),
        (Era::Legacy, SseFormat::python()),
        (Era::Modern, SseFormat::plain()),
    ] {
        let setting = streaming(era, form);
        for (account, fault, expected) in broken() {
            setting
                .row(account, FaultRule::new(fault).on_tool("pay"), expected)
                .await;
        }
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_after_its_news_leaves_the_request_unknown() {
    for era in [Era::Legacy, Era::Modern] {
        let setting = streaming(era, SseFormat::plain());
        for (account, end) in [
            ("D80 FIN", ConnectionEnd::Fin),
            ("D80 RST", ConnectionEnd::Rst),
            ("D82", ConnectionEnd::Clean),
        ] {
            let ear = Ear::default();
            let session = setting.session().await;
            let cut = Fault::Cut(CutPoint::AfterEvents(2), end);
            setting.inject(FaultRule::new(cut).on_tool("progress"));
            let request = tool("progress", &json!({"steps": 3, "account": account}));
            let outcome = setting.told(account, session.call(request, &ear).await);
            assert_eq!(outcome.ended, Unknown(Reason::ReplyLost), "{account}");
            assert_eq!(ear.progress(), [1, 2], "{account}");
            assert_eq!(session.retired_reason(), None);
        }
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_server_that_keeps_answering_strangers_loses_its_session() {
    for era in [Era::Legacy, Era::Modern] {
        let setting = streaming(era, SseFormat::plain());
        let session = setting.session().await;
        let strange = "data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}\n\n".repeat(17);
        let rule = FaultRule::new(stream(&strange)).on_tool("pay");
        setting
            .row("D85 seventeen", rule, Unknown(Reason::BadReply))
            .await;
        assert_eq!(session.retired_reason(), Some(Reason::BadReply));
        setting.finish().await;
    }
}

/// reliability P17, reliability I25: events are bounded.
#[tokio::test]
async fn an_event_over_the_limit_names_the_limit_and_keeps_the_session() {
    for era in [Era::Legacy, Era::Modern] {
        let mut setting = streaming(era, SseFormat::plain());
        setting.known_as.size_limits.event = 64 << 10;
        let session = setting.session().await;
        let rule = FaultRule::new(Fault::GiantReply(70_000)).on_tool("pay");
        let outcome = setting
            .row("D87", rule, Unknown(Reason::ReplyTooLarge))
            .await;
        assert!(outcome.words().contains("65536"), "{}", outcome.words());
        assert_eq!(session.retired_reason(), None);
        setting.finish().await;
    }
}

/// reliability P10, reliability P19: no stream holds a call for ever.
#[tokio::test]
async fn a_stream_without_an_end_ends_at_the_total_limit() {
    for era in [Era::Legacy, Era::Modern] {
        let setting = streaming(era, SseFormat::plain());
        let session = setting.session().await;
        setting.inject(FaultRule::new(Fault::EndlessStream).on_tool("pay"));
        let request = payment("D87 endless").with_deadlines(within_ms(200, 500));
        let mut outcome = setting.told("D87 endless", session.call(request, &()).await);
        outcome.ends(Unknown(Reason::Timeout));
        setting.go_on("D87 endless", &mut outcome).await;
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_modern_result_of_an_unknown_kind_is_no_answer() {
    for kind in ["task", "odd", ""] {
        let setting = Setting::modern();
        let rule = FaultRule::new(Fault::CorruptReply(ReplyCorruption::ResultType(
            kind.to_owned(),
        )))
        .on_tool("pay");
        setting.row("D90", rule, Unknown(Reason::BadReply)).await;
        assert_eq!(setting.executions("D90"), 1);
        setting.finish().await;
    }
    // Earlier versions have no such member: it is a part of the result like any other.
    let setting = Setting::legacy();
    let rule = FaultRule::new(Fault::CorruptReply(ReplyCorruption::ResultType(
        "odd".to_owned(),
    )))
    .on_tool("pay");
    setting.row("no such member", rule, Result).await;
    setting.finish().await;
}

/// Takes its time over each piece of news, so that there is always more to read.
#[derive(Default)]
struct Slow(AtomicUsize);

impl Listener for Slow {
    fn on_notification(&self, _: Notification) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
    }
}

/// reliability P10, reliability P19: nor does a flood.
#[tokio::test]
async fn a_flood_of_news_does_not_drown_the_clock() {
    let event =
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n";
    let count = 100_000;
    let setting = streaming(Era::Legacy, SseFormat::plain());
    let session = setting.session().await;
    let flood = FaultRule::new(stream(&event.repeat(count))).on_tool("pay");
    setting.inject(flood);
    let slow = Slow::default();
    let request = payment("flood").with_deadlines(within_ms(50, 50));
    let outcome = setting.told("flood", session.call(request, &slow).await);
    outcome.ends(Unknown(Reason::Timeout));
    let heard = slow.0.load(Ordering::Relaxed);
    assert!(heard < count, "all of it was heard first");
    setting.finish().await;
}

/// reliability P3: news reach their own call.
#[tokio::test]
async fn progress_of_another_call_reaches_nobody() {
    let report = |token: &str, step: u32| {
        format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":{step}}}}}\n\n"
        )
    };
    let answer =
        "data: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"resultType\":\"complete\"}}\n\n";
    // Ours, in the forms that servers write it; then those of others.
    let ours = report("$ID", 1) + &report("\"$ID\"", 2) + &report("$ID.0", 3);
    let others = report("77", 4) + &report("\"abc\"", 5) + &report("null", 6);
    for era in [Era::Legacy, Era::Modern] {
        let setting = streaming(era, SseFormat::plain());
        let ear = Ear::default();
        let all = stream(&format!("{ours}{others}{answer}"));
        setting.inject(FaultRule::new(all).on_tool("pay"));
        let outcome = setting.pay("reports", &ear).await;
        outcome.ends(Result);
        assert_eq!(ear.progress(), [1, 2, 3]);
        setting.finish().await;
    }
}

/// A stream that ends a moment after its answer costs no connection: it rests until it ended, and
/// another one carries the call that comes before that.
#[tokio::test]
async fn a_connection_whose_stream_ends_late_is_used_again() {
    const CALLS: usize = 20;
    for era in [Era::Legacy, Era::Modern] {
        let called = AtomicUsize::new(0);
        // The stream of a call ends when the next call was read.
        let stub = Stub::start(move |_| {
            let next = called.fetch_add(1, Ordering::SeqCst) + 2;
            let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete"}}"#;
            vec![ReplyStep::Event(answer.to_owned()), ReplyStep::Calls(next)]
        })
        .await;
        let mut server = ServerTarget::http("late", stub.url.parse().unwrap());
        server.era = Some(era);
        let upstream = Upstream::new();
        let session = upstream
            .open(&server, &ClientProfile::default())
            .await
            .unwrap();
        for _ in 0..CALLS {
            let ending = session.call(tool("any", &json!({})), &()).await;
            assert_eq!(Outcome::of(ending).ended, Result);
        }
        let calls = stub.of("tools/call").into_iter();
        let connections: BTreeSet<_> = calls.map(|call| call.connection).collect();
        // Two if each end comes before the call after the next; one more for each that does not.
        let few = 2..=CALLS / 4;
        assert!(few.contains(&connections.len()), "{era:?}: {connections:?}");
    }
}
