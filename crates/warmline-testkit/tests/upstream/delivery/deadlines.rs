//! Time limits: signs of life extend the idle limit, nothing extends the total one.

use crate::prelude::*;

use super::fixture::Expected::Unknown;
use super::recording_listener::Ear;

fn settings(form: &SseFormat) -> [Setting; 2] {
    let form = || ReplyFormat::Sse(form.clone());
    [
        Setting::new(Personality::legacy().reply(form()), Era::Legacy),
        Setting::new(Personality::modern().reply(form()), Era::Modern),
    ]
}

/// A97, P63, reliability P10: the whole call has a limit of its own.
#[tokio::test]
async fn progress_does_not_extend_the_total_limit() {
    for setting in settings(&SseFormat::plain()) {
        let session = setting.session().await;
        let ear = Ear::default();
        let steps = json!({"steps": 100_000, "pause_ms": 10, "account": "for ever"});
        let request = tool("progress", &steps).with_deadlines(within_ms(400, 800));
        let outcome = setting.told("for ever", session.call(request, &ear).await);
        outcome.ends(Unknown(Reason::Timeout));
        assert!(ear.heard() > 5, "{} signs of life", ear.heard());
        setting.finish().await;
    }
}

/// reliability P10: comments are no sign of life.
#[tokio::test]
async fn comments_extend_nothing() {
    let form = SseFormat::plain().keep_alive(Duration::from_millis(10));
    for setting in settings(&form) {
        let session = setting.session().await;
        let ear = Ear::default();
        // The second step would come in time if comments counted as signs of life.
        let steps = json!({"steps": 2, "pause_ms": 3_000, "account": "D86"});
        let request = tool("progress", &steps).with_deadlines(within_ms(300, 20_000));
        let outcome = setting.told("D86", session.call(request, &ear).await);
        outcome.ends(Unknown(Reason::Timeout));
        assert_eq!(ear.progress(), [1]);
        assert_eq!(session.retired_reason(), None);
        setting.finish().await;
    }
}

#[tokio::test]
async fn while_somebody_thinks_only_the_total_limit_runs() {
    for mut setting in settings(&SseFormat::plain()) {
        setting.declared.capabilities = super::server_requests::EVERYTHING;
        let session = setting.session().await;
        let ear = Ear::that_answers(super::recording_listener::Answers::Never);
        let began = Instant::now();
        let request = tool("ask_form", &json!({"account": "thinking"}));
        let call = session.call(request.with_deadlines(within_ms(100, 600)), &ear);
        // Far beyond the limit: a call that does not end is not waited for.
        let ending = tokio::time::timeout(Duration::from_secs(20), call).await;
        let outcome = setting.told("thinking", ending.unwrap());
        outcome.ends(Unknown(Reason::Timeout));
        outcome.names_the_server("thinking");
        let holds = began.elapsed() >= Duration::from_millis(590);
        assert!(holds, "{:?}", began.elapsed());
        assert_eq!(ear.questions().len(), 1);
        drop(session);
        setting.finish().await;
    }
}

/// A97, reliability P10: one limit spans all rounds.
#[tokio::test]
async fn the_total_limit_spans_all_rounds() {
    let mut setting = Setting::modern();
    setting.declared.capabilities = super::server_requests::EVERYTHING;
    let session = setting.session().await;
    // Each round without a question is paced, so that ten of them take two seconds.
    let request = tool("ask_again", &json!({"rounds": 9, "account": "rounds"}));
    let ending = session
        .call(request.with_deadlines(within_ms(700, 700)), &())
        .await;
    let outcome = setting.told("rounds", ending);
    let late = [
        Unknown(Reason::Timeout),
        super::fixture::Expected::Unsent(Reason::TimeoutUnsent),
    ];
    assert!(late.contains(&outcome.ended), "{:?}", outcome.trouble);
    assert!(setting.server.ledger().messages_received("tools/call") < 6);
    setting.finish().await;
}
