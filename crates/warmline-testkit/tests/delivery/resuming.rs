//! Legacy streams that break after an event with an id are taken up again where they broke.

use std::time::Duration;

use serde_json::json;
use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline_testkit::proxy::Gate;
use warmline_testkit::{
    Canned, CutAt, End, EventIds, Fault, FaultProxy, GetStream, Personality, Phase, ReplyForm,
    Rule, SseForm,
};

use super::listening::Ear;
use super::setting::Expected::{Result, Unknown};
use super::setting::{Setting, payment, tool, within, within_ms};

fn resumable(form: SseForm) -> Setting {
    let personality = Personality::legacy().reply(ReplyForm::Sse(form));
    Setting::new(personality, Era::Legacy)
}

fn cut(at: CutAt, end: End) -> Rule {
    Rule::new(Fault::Cut(at, end)).on("tools/call")
}

/// A146, P88: what was cut is asked for with `Last-Event-ID`.
#[tokio::test]
async fn a_stream_that_breaks_after_an_id_is_resumed_and_answered() {
    let setting = resumable(SseForm::resumable());
    let mut resumed = 0;
    for end in [End::Fin, End::Rst, End::Clean] {
        // Events that are whole, and places in the middle of the response.
        let places = [
            CutAt::AfterEvents(0),
            CutAt::InBody(0),
            CutAt::InBody(1),
            CutAt::InBody(40),
        ];
        for at in places {
            let account = format!("D76 {at:?} {end:?}");
            let outcome = setting.row(&account, cut(at, end), Result).await;
            assert_eq!(outcome.account(), account);
            resumed += 1;
        }
    }
    assert_eq!(setting.server.ledger().received("GET"), resumed);
    setting.finish().await;
}

/// P88: nothing comes twice.
#[tokio::test]
async fn a_resumed_stream_brings_each_piece_of_news_once() {
    let setting = resumable(SseForm::resumable());
    for events in 0..=5 {
        let ear = Ear::default();
        let account = format!("D79 {events}");
        setting
            .server
            .inject(cut(CutAt::AfterEvents(events), End::Fin));
        let request = tool("progress", &json!({"steps": 5, "account": account}));
        let session = setting.session().await;
        let outcome = setting.told(&account, session.call(request, &ear).await);
        assert_eq!(outcome.ended, Result, "{account}: {:?}", outcome.trouble);
        assert_eq!(ear.progress(), [1, 2, 3, 4, 5], "{account}");
    }
    setting.finish().await;
}

/// A147, P88: a stream is taken up again each time.
#[tokio::test]
async fn a_stream_may_break_as_often_as_the_server_likes() {
    let setting = resumable(SseForm::resumable());
    setting.server.inject(cut(CutAt::AfterEvents(1), End::Fin));
    let again = Rule::new(Fault::Cut(CutAt::AfterEvents(1), End::Clean))
        .on("GET")
        .times(3);
    setting.server.inject(again);
    let ear = Ear::default();
    let request = tool("progress", &json!({"steps": 5, "account": "D75"}));
    let session = setting.session().await;
    let outcome = setting.told("D75", session.call(request, &ear).await);
    assert_eq!(outcome.ended, Result, "{:?}", outcome.trouble);
    assert_eq!(ear.progress(), [1, 2, 3, 4, 5]);
    assert_eq!(setting.server.ledger().received("GET"), 4);
    setting.finish().await;
}

/// When the server read the first message of this method, and when it read the call.
fn pause_before_the_get(setting: &Setting) -> u64 {
    let entries = setting.server.ledger().entries();
    let at = |method: &str| {
        let one = entries
            .iter()
            .find(|entry| entry.method == method && entry.phase == Phase::Received);
        one.unwrap().at_ms
    };
    at("GET") - at("tools/call")
}

/// A147: `retry` is obeyed.
#[tokio::test]
async fn the_pause_that_a_server_asks_for_is_kept() {
    // The form of rmcp: the id after the data, no name, a priming event.
    let mut form = SseForm::rmcp();
    form.priming_retry_ms = Some(400);
    let setting = resumable(form);
    setting
        .row("asked for", cut(CutAt::AfterEvents(0), End::Fin), Result)
        .await;
    assert!(pause_before_the_get(&setting) >= 400);
    setting.finish().await;
}

/// A147, P10: there is a pause before each try.
#[tokio::test]
async fn a_server_that_asks_for_no_pause_gets_a_usual_one() {
    let mut form = SseForm::resumable();
    form.priming_retry_ms = None;
    let setting = resumable(form);
    setting.server.inject(cut(CutAt::AfterEvents(1), End::Fin));
    let request = tool("progress", &json!({"steps": 2, "account": "unsaid"}));
    let session = setting.session().await;
    let outcome = setting.told("unsaid", session.call(request, &()).await);
    assert_eq!(outcome.ended, Result, "{:?}", outcome.trouble);
    assert!(pause_before_the_get(&setting) >= 1000);
    setting.finish().await;
}

/// A147, P10, P91: no tight loop, whatever the server asks for.
#[tokio::test]
async fn a_server_that_asks_for_no_pause_at_all_is_not_stormed() {
    let mut form = SseForm::resumable();
    form.priming_retry_ms = Some(0);
    let setting = resumable(form);
    setting.server.inject(cut(CutAt::AfterEvents(0), End::Fin));
    let empty = Canned::new(200, "").header("Content-Type", "text/event-stream");
    setting
        .server
        .inject(Rule::new(Fault::Reply(empty)).on("GET").always());
    let session = setting.session().await;
    let request = payment("D78 no replay").patient(within_ms(500, 500));
    let outcome = setting.told("D78 no replay", session.call(request, &()).await);
    assert_eq!(
        outcome.ended,
        Unknown(Reason::Timeout),
        "{:?}",
        outcome.trouble
    );
    let asked = setting.server.ledger().received("GET");
    assert!(
        (1..=20).contains(&asked),
        "{asked} requests in half a second"
    );
    setting.finish().await;
}

#[tokio::test]
async fn a_pause_beyond_all_limits_ends_the_call_at_its_own() {
    let setting = resumable(SseForm::resumable());
    for pause in ["99999999999", "18446744073709551615"] {
        let account = format!("retry {pause}");
        let body = format!("id: x.1\nretry: {pause}\ndata:\n\n");
        let canned = Canned::new(200, &body).header("Content-Type", "text/event-stream");
        setting
            .server
            .inject(Rule::new(Fault::Reply(canned.executed())).on("tools/call"));
        let session = setting.session().await;
        let request = payment(&account).patient(within_ms(200, 200));
        let outcome = setting.told(&account, session.call(request, &()).await);
        assert_eq!(
            outcome.ended,
            Unknown(Reason::Timeout),
            "{account}: {:?}",
            outcome.trouble
        );
    }
    assert_eq!(setting.server.ledger().received("GET"), 0);
    setting.finish().await;
}

#[tokio::test]
async fn a_resumption_that_is_refused_says_nothing_about_the_request() {
    let setting = resumable(SseForm::resumable());
    for (row, status, retired) in [
        ("D77", 404, Some(Reason::SessionGone)),
        ("D77", 410, Some(Reason::SessionGone)),
        ("D78", 400, None),
        ("D78", 405, None),
        ("D78", 409, None),
        ("D78", 500, None),
    ] {
        let session = setting.session().await;
        let account = format!("{row} {status}");
        let refusal = Rule::new(Fault::Reply(Canned::new(status, "no")))
            .on("GET")
            .always();
        setting.server.inject(refusal);
        let rule = cut(CutAt::AfterEvents(0), End::Fin);
        setting
            .row(&account, rule, Unknown(Reason::ReplyLost))
            .await;
        assert_eq!(session.retired(), retired, "{account}");
        assert_eq!(setting.executions(&account), 1, "{account}");
    }
    setting.finish().await;
}

/// A148, P91, P130: 405 on GET is an answer like any other.
#[tokio::test]
async fn a_server_that_offers_no_get_cannot_be_resumed() {
    let form = ReplyForm::Sse(SseForm::resumable());
    let personality = Personality::legacy()
        .reply(form)
        .get_stream(GetStream::Refused);
    let setting = Setting::new(personality, Era::Legacy);
    let rule = cut(CutAt::AfterEvents(0), End::Fin);
    setting
        .row("D78 405", rule, Unknown(Reason::ReplyLost))
        .await;
    setting.finish().await;
}

#[tokio::test]
async fn a_modern_stream_is_never_resumed() {
    let mut form = SseForm::resumable();
    form.event_ids = EventIds::First;
    let personality = Personality::modern().reply(ReplyForm::Sse(form));
    let setting = Setting::new(personality, Era::Modern);
    // Ids of a server that knows no better change nothing.
    let body = "id: x.1\nretry: 1\ndata:\n\n";
    let canned = Canned::new(200, body).header("Content-Type", "text/event-stream");
    let rule = Rule::new(Fault::Reply(canned.executed())).on("tools/call");
    setting.row("D81", rule, Unknown(Reason::ReplyLost)).await;
    assert_eq!(setting.server.ledger().received("GET"), 0);
    setting.finish().await;
}

/// A setting behind a proxy with a call that has told its first step.
async fn halfway(
    account: &str,
) -> (
    Setting,
    FaultProxy,
    tokio::task::JoinHandle<super::setting::Outcome>,
) {
    let mut setting = resumable(SseForm::resumable());
    let proxy = FaultProxy::start(setting.server.address()).unwrap();
    setting.through(&proxy.url(&setting.server.url()));
    let session = setting.session().await;
    let request = tool(
        "progress",
        &json!({"steps": 2, "pause_ms": 150, "account": account}),
    );
    let ear = std::sync::Arc::new(Ear::default());
    let hears = std::sync::Arc::clone(&ear);
    let call = tokio::spawn(async move {
        super::setting::Outcome::of(session.call(request, hears.as_ref()).await)
    });
    within(Duration::from_secs(5), || ear.heard() == 1).await;
    (setting, proxy, call)
}

/// P88: an outage in the middle costs no answer.
#[tokio::test]
async fn a_server_that_comes_back_in_time_is_asked_for_the_rest() {
    let (setting, proxy, call) = halfway("back").await;
    proxy.gate(Gate::Closed);
    proxy.end_all(End::Rst);
    let seen = proxy.traffic().connections;
    tokio::time::sleep(Duration::from_millis(150)).await;
    proxy.gate(Gate::Open);
    let outcome = call.await.unwrap();
    assert_eq!(outcome.ended, Result, "{:?}", outcome.trouble);
    assert!(proxy.traffic().connections > seen);
    setting.finish().await;
}

/// A147, reliability P10: tries have a limit.
#[tokio::test]
async fn a_server_that_does_not_come_back_is_given_up_after_a_few_tries() {
    let (setting, proxy, call) = halfway("gone").await;
    proxy.gate(Gate::Closed);
    proxy.end_all(End::Rst);
    let outcome = call.await.unwrap();
    assert_eq!(
        outcome.ended,
        Unknown(Reason::ReplyLost),
        "{:?}",
        outcome.trouble
    );
    setting.finish().await;
}
