//! Legacy streams that break after an event with an id are taken up again where they broke.

use crate::prelude::*;

use warmline_testkit::proxy::AcceptMode;
use warmline_testkit::{EventIds, GetStreamSupport};

use super::fixture::Expected::{Result, Unknown};
use super::recording_listener::Ear;

fn resumable(form: SseFormat) -> Setting {
    let personality = Personality::legacy().reply(ReplyFormat::Sse(form));
    Setting::new(personality, Era::Legacy)
}

fn cut(at: CutPoint, end: ConnectionEnd) -> FaultRule {
    FaultRule::new(Fault::Cut(at, end)).on_method("tools/call")
}

/// A146, P88: what was cut is asked for with `Last-Event-ID`.
#[tokio::test]
async fn a_stream_that_breaks_after_an_id_is_resumed_and_answered() {
    let setting = resumable(SseFormat::resumable());
    let mut resumed = 0;
    for end in [ConnectionEnd::Fin, ConnectionEnd::Rst, ConnectionEnd::Clean] {
        // Events that are whole, and places in the middle of the response.
        let places = [
            CutPoint::AfterEvents(0),
            CutPoint::InBody(0),
            CutPoint::InBody(1),
            CutPoint::InBody(40),
        ];
        for at in places {
            let account = format!("D76 {at:?} {end:?}");
            let outcome = setting.row(&account, cut(at, end), Result).await;
            assert_eq!(outcome.account(), account);
            resumed += 1;
        }
    }
    assert_eq!(setting.server.ledger().messages_received("GET"), resumed);
    setting.finish().await;
}

/// P88: nothing comes twice.
#[tokio::test]
async fn a_resumed_stream_brings_each_piece_of_news_once() {
    let setting = resumable(SseFormat::resumable());
    for events in 0..=5 {
        let ear = Ear::default();
        let account = format!("D79 {events}");
        setting.inject(cut(CutPoint::AfterEvents(events), ConnectionEnd::Fin));
        let request = tool("progress", &json!({"steps": 5, "account": account}));
        let session = setting.session().await;
        let outcome = setting.told(&account, session.call(request, &ear).await);
        assert_eq!(outcome.ended, Result, "{account}: {:?}", outcome.trouble);
        assert_eq!(ear.progress(), [1, 2, 3, 4, 5], "{account}");
    }
    setting.finish().await;
}

/// When the server read the first message of this method, and when it read the call.
fn pause_before_the_get(setting: &Setting) -> u64 {
    let entries = setting.server.ledger().entries();
    let at = |method: &str| {
        let one = entries
            .iter()
            .find(|entry| entry.method == method && entry.phase == ExecutionPhase::Received);
        one.unwrap().at_ms
    };
    at("GET") - at("tools/call")
}

/// A147: `retry` is obeyed.
#[tokio::test]
async fn the_pause_that_a_server_asks_for_is_kept() {
    // The form of rmcp: the id after the data, no name, a priming event.
    let mut form = SseFormat::rmcp();
    form.priming_retry_ms = Some(400);
    let setting = resumable(form);
    setting
        .row(
            "asked for",
            cut(CutPoint::AfterEvents(0), ConnectionEnd::Fin),
            Result,
        )
        .await;
    assert!(pause_before_the_get(&setting) >= 400);
    setting.finish().await;
}

/// A147, P10: there is a pause before each try.
#[tokio::test]
async fn a_server_that_asks_for_no_pause_gets_a_usual_one() {
    let mut form = SseFormat::resumable();
    form.priming_retry_ms = None;
    let setting = resumable(form);
    setting.inject(cut(CutPoint::AfterEvents(1), ConnectionEnd::Fin));
    let request = tool("progress", &json!({"steps": 2, "account": "unsaid"}));
    let session = setting.session().await;
    let outcome = setting.told("unsaid", session.call(request, &()).await);
    outcome.ends(Result);
    assert!(pause_before_the_get(&setting) >= 1000);
    setting.finish().await;
}

/// A147, P10, P91: no tight loop, whatever the server asks for.
#[tokio::test]
async fn a_server_that_asks_for_no_pause_at_all_is_not_stormed() {
    let mut form = SseFormat::resumable();
    form.priming_retry_ms = Some(0);
    let setting = resumable(form);
    setting.inject(cut(CutPoint::AfterEvents(0), ConnectionEnd::Fin));
    let empty = CannedReply::new(200, "").header("Content-Type", "text/event-stream");
    setting.inject(
        FaultRule::new(Fault::Reply(empty))
            .on_method("GET")
            .always(),
    );
    let session = setting.session().await;
    let request = payment("D78 no replay").with_deadlines(within_ms(500, 500));
    let outcome = setting.told("D78 no replay", session.call(request, &()).await);
    outcome.ends(Unknown(Reason::Timeout));
    let asked = setting.server.ledger().messages_received("GET");
    let holds = (1..=20).contains(&asked);
    assert!(holds, "{asked} requests in half a second");
    setting.finish().await;
}

#[tokio::test]
async fn a_pause_beyond_all_limits_ends_the_call_at_its_own() {
    let setting = resumable(SseFormat::resumable());
    for pause in ["99999999999", "18446744073709551615"] {
        let account = format!("retry {pause}");
        let body = format!("id: x.1\nretry: {pause}\ndata:\n\n");
        let canned = CannedReply::new(200, &body).header("Content-Type", "text/event-stream");
        setting
            .inject(FaultRule::new(Fault::Reply(canned.execute_first())).on_method("tools/call"));
        let session = setting.session().await;
        let request = payment(&account).with_deadlines(within_ms(200, 200));
        let outcome = setting.told(&account, session.call(request, &()).await);
        let expected = Unknown(Reason::Timeout);
        assert_eq!(outcome.ended, expected, "{account}: {:?}", outcome.trouble);
    }
    assert_eq!(setting.server.ledger().messages_received("GET"), 0);
    setting.finish().await;
}

#[tokio::test]
async fn a_resumption_that_is_refused_says_nothing_about_the_request() {
    let setting = resumable(SseFormat::resumable());
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
        let refusal = FaultRule::new(Fault::Reply(CannedReply::new(status, "no")))
            .on_method("GET")
            .always();
        setting.inject(refusal);
        let rule = cut(CutPoint::AfterEvents(0), ConnectionEnd::Fin);
        setting
            .row(&account, rule, Unknown(Reason::ReplyLost))
            .await;
        assert_eq!(session.retired_reason(), retired, "{account}");
        assert_eq!(setting.executions(&account), 1, "{account}");
    }
    setting.finish().await;
}

/// A148, P91, P130: 405 on GET is an answer like any other.
#[tokio::test]
async fn a_server_that_offers_no_get_cannot_be_resumed() {
    let form = ReplyFormat::Sse(SseFormat::resumable());
    let personality = Personality::legacy()
        .reply(form)
        .get_stream(GetStreamSupport::Refused);
    let setting = Setting::new(personality, Era::Legacy);
    let rule = cut(CutPoint::AfterEvents(0), ConnectionEnd::Fin);
    setting
        .row("D78 405", rule, Unknown(Reason::ReplyLost))
        .await;
    setting.finish().await;
}

#[tokio::test]
async fn a_modern_stream_is_never_resumed() {
    let mut form = SseFormat::resumable();
    form.event_ids = EventIds::BeforeData;
    let personality = Personality::modern().reply(ReplyFormat::Sse(form));
    let setting = Setting::new(personality, Era::Modern);
    // Ids of a server that knows no better change nothing.
    let body = "id: x.1\nretry: 1\ndata:\n\n";
    let canned = CannedReply::new(200, body).header("Content-Type", "text/event-stream");
    let rule = FaultRule::new(Fault::Reply(canned.execute_first())).on_method("tools/call");
    setting.row("D81", rule, Unknown(Reason::ReplyLost)).await;
    assert_eq!(setting.server.ledger().messages_received("GET"), 0);
    setting.finish().await;
}

/// A setting behind a proxy with a call that has told its first step.
async fn halfway(account: &str) -> (Setting, FaultProxy, tokio::task::JoinHandle<Outcome>) {
    let mut setting = resumable(SseFormat::resumable());
    let proxy = FaultProxy::start(setting.server.address()).unwrap();
    setting.through(&proxy.proxied_url(&setting.server.url()));
    let session = setting.session().await;
    let request = tool(
        "progress",
        &json!({"steps": 2, "pause_ms": 150, "account": account}),
    );
    let ear = Arc::new(Ear::default());
    let hears = Arc::clone(&ear);
    let call =
        tokio::spawn(async move { Outcome::of(session.call(request, hears.as_ref()).await) });
    within(Duration::from_secs(5), || ear.heard() == 1).await;
    (setting, proxy, call)
}

/// P88: an outage in the middle costs no answer.
#[tokio::test]
async fn a_server_that_comes_back_in_time_is_asked_for_the_rest() {
    let (setting, proxy, call) = halfway("back").await;
    proxy.set_accept_mode(AcceptMode::Refuse);
    proxy.end_connections(ConnectionEnd::Rst);
    let seen = proxy.traffic().connections;
    tokio::time::sleep(Duration::from_millis(150)).await;
    proxy.set_accept_mode(AcceptMode::Forward);
    let outcome = call.await.unwrap();
    outcome.ends(Result);
    assert!(proxy.traffic().connections > seen);
    setting.finish().await;
}

/// A147, reliability P10: tries have a limit.
#[tokio::test]
async fn a_server_that_does_not_come_back_is_given_up_after_a_few_tries() {
    let (setting, proxy, call) = halfway("gone").await;
    proxy.set_accept_mode(AcceptMode::Refuse);
    proxy.end_connections(ConnectionEnd::Rst);
    let outcome = call.await.unwrap();
    outcome.ends(Unknown(Reason::ReplyLost));
    setting.finish().await;
}
