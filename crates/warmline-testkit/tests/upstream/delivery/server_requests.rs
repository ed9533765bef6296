//! Questions of a server in the middle of a call: on the call's stream in the legacy era, by
//! rounds of `input_required` in the modern one.

use crate::prelude::*;

use super::fixture::Expected::{Error, Result, Unknown};
use super::recording_listener::{Answers, Ear, fitting};
use super::scripted_server::{ReplyStep, Stub};

/// What a client says that can answer everything.
pub(crate) const EVERYTHING: Bytes =
    Bytes::from_static(br#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#);

const ASKING: [(&str, ServerRequestKind); 4] = [
    ("ask_form", ServerRequestKind::Elicitation),
    ("ask_url", ServerRequestKind::Elicitation),
    ("ask_sampling", ServerRequestKind::Sampling),
    ("ask_roots", ServerRequestKind::Roots),
];

fn settings() -> Vec<Setting> {
    let personalities = [
        (Personality::legacy(), Era::Legacy),
        (
            Personality::legacy().reply(ReplyFormat::Sse(SseFormat::resumable())),
            Era::Legacy,
        ),
        (Personality::modern(), Era::Modern),
        (
            Personality::modern().reply(ReplyFormat::Sse(SseFormat::plain())),
            Era::Modern,
        ),
    ];
    let able = |(personality, era)| {
        let mut setting = Setting::new(personality, era);
        setting.declared.capabilities = EVERYTHING;
        setting
    };
    personalities.into_iter().map(able).collect()
}

async fn ask(setting: &Setting, account: &str, name: &str, rounds: u64, ear: &Ear) -> Outcome {
    let session = setting.session().await;
    let request = tool(name, &json!({"rounds": rounds, "account": account}));
    setting.told(account, session.call(request, ear).await)
}

#[tokio::test]
async fn every_kind_of_question_is_answered_in_either_era() {
    for setting in settings() {
        for (name, kind) in ASKING {
            let ear = Ear::that_answers(Answers::Fitting);
            let outcome = ask(&setting, name, name, 3, &ear).await;
            assert_eq!(outcome.ended, Result, "{name}: {:?}", outcome.trouble);
            let questions = ear.questions();
            assert!(questions.iter().all(|(asked, _)| *asked == kind), "{name}");
            let wanted: Vec<Value> = questions
                .iter()
                .map(|(kind, params)| fitting(*kind, params))
                .collect();
            assert_eq!(wanted.len(), 3, "{name}");
            assert_eq!(
                outcome.answer["structuredContent"]["answers"],
                json!(wanted),
                "{name}"
            );
            assert_eq!(setting.executions(name), 1, "{name}");
        }
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_declined() {
    for setting in settings() {
        for (name, _) in ASKING
            .iter()
            .filter(|(_, kind)| *kind == ServerRequestKind::Elicitation)
        {
            let outcome = ask(&setting, name, name, 1, &Ear::default()).await;
            assert_eq!(outcome.ended, Result, "{name}: {:?}", outcome.trouble);
            let answers = &outcome.answer["structuredContent"]["answers"];
            assert_eq!(*answers, json!([{"action": "decline"}]), "{name}");
        }
        setting.finish().await;
    }
    // In the legacy era a question that this client cannot answer gets an error.
    let mut setting = Setting::legacy();
    setting.declared.capabilities = EVERYTHING;
    for name in ["ask_sampling", "ask_roots"] {
        let outcome = ask(&setting, name, name, 1, &Ear::default()).await;
        let answers = &outcome.answer["structuredContent"]["answers"];
        assert_eq!(answers[0]["code"], -32601, "{name}");
    }
    setting.finish().await;
}

#[tokio::test]
async fn a_client_that_declared_nothing_is_not_asked() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        let ear = Ear::that_answers(Answers::Fitting);
        let outcome = ask(&setting, "undeclared", "ask_form", 1, &ear).await;
        let holds = matches!(outcome.ended, Result | Error(-32021));
        assert!(holds, "{:?}", outcome.trouble);
        assert!(ear.questions().is_empty());
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_server_that_asks_and_asks_is_given_up() {
    let mut setting = Setting::modern();
    setting.declared.capabilities = EVERYTHING;
    let ear = Ear::that_answers(Answers::Fitting);
    let outcome = ask(&setting, "asks", "ask_form", 50, &ear).await;
    outcome.ends(Unknown(Reason::TooManyRounds));
    outcome.names_the_server("asks");
    assert_eq!(setting.server.ledger().messages_received("tools/call"), 11);
    assert_eq!(setting.executions("asks"), 0);
    let ten = ask(&setting, "ten", "ask_form", 10, &ear).await;
    assert_eq!(ten.ended, Result, "{:?}", ten.trouble);
    setting.finish().await;
}

#[tokio::test]
async fn a_round_without_questions_is_answered_with_the_state_alone() {
    let mut setting = Setting::modern();
    setting.declared.capabilities = EVERYTHING;
    let outcome = ask(&setting, "again", "ask_again", 2, &Ear::default()).await;
    outcome.ends(Result);
    setting.finish().await;
}

#[tokio::test]
async fn a_state_that_the_server_never_gave_is_refused_by_it() {
    let mut setting = Setting::modern();
    setting.declared.capabilities = EVERYTHING;
    let forged = json!({"resultType": "input_required", "requestState": "forged"});
    setting.inject(FaultRule::new(Fault::Result(forged)).on_tool("ask_form"));
    let outcome = ask(&setting, "forged", "ask_form", 1, &Ear::default()).await;
    outcome.ends(Error(-32602));
    assert!(setting.server.violations()[0].contains("forged"));
    setting.server.control().clear_violations();
    setting.finish().await;
}

#[tokio::test]
async fn a_round_that_is_lost_is_unknown_and_one_that_is_refused_can_be_sent_again() {
    let mut setting = Setting::modern();
    setting.declared.capabilities = EVERYTHING;
    let ear = Ear::that_answers(Answers::Fitting);
    let lost = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
    setting.inject(FaultRule::new(lost).on_tool("ask_form").skip(1));
    let outcome = ask(&setting, "lost", "ask_form", 1, &ear).await;
    outcome.ends(Unknown(Reason::ReplyLost));
    assert_eq!(setting.executions("lost"), 1);

    let busy = Fault::Reply(CannedReply::new(429, ""));
    setting.inject(FaultRule::new(busy).on_tool("ask_form").skip(1));
    let mut outcome = ask(&setting, "busy", "ask_form", 1, &ear).await;
    assert!(outcome.given_back.is_some(), "{:?}", outcome.trouble);
    setting.go_on("busy", &mut outcome).await;
    setting.finish().await;
}

#[tokio::test]
async fn an_answer_that_the_server_does_not_take_does_not_hold_the_call_for_ever() {
    let mut setting = Setting::legacy();
    setting.declared.capabilities = EVERYTHING;
    let session = setting.session().await;
    let deaf = Fault::Silence(FaultTiming::BeforeExecuting);
    setting.inject(FaultRule::new(deaf).on_method("(response)"));
    let ear = Ear::that_answers(Answers::Fitting);
    let request = tool("ask_form", &json!({"account": "deaf"})).with_deadlines(within_ms(200, 500));
    let call = tokio::time::timeout(Duration::from_secs(5), session.call(request, &ear));
    let outcome = setting.told("deaf", call.await.unwrap());
    outcome.ends(Unknown(Reason::Timeout));
    drop(session);
    setting.finish().await;
}

/// An answer that a server does not take is sent again: its id says what it answers. Where it is
/// never taken the call ends soon, and the server hears that nobody waits any more.
#[tokio::test]
async fn an_answer_that_is_not_taken_is_sent_again_or_ends_its_call() {
    let refused = |status| Fault::Reply(CannedReply::new(status, ""));
    let cut = || Fault::Cut(CutPoint::BeforeExecuting, ConnectionEnd::Rst);
    let mut setting = Setting::legacy();
    setting.declared.capabilities = EVERYTHING;
    let ear = Ear::that_answers(Answers::Fitting);
    for (account, fault) in [
        ("503", refused(503)),
        ("429", refused(429)),
        ("500", refused(500)),
        ("cut", cut()),
    ] {
        let rule = FaultRule::new(fault).on_method("(response)").times(2);
        setting.inject(rule);
        let outcome = ask(&setting, account, "ask_form", 1, &ear).await;
        assert_eq!(outcome.ended, Result, "{account}: {:?}", outcome.trouble);
        assert_eq!(setting.executions(account), 1, "{account}");
    }
    let ledger = setting.server.ledger();
    let given_up = || ledger.messages_received("notifications/cancelled");
    for (number, (account, fault)) in [("gone", refused(404)), ("never", refused(503))]
        .into_iter()
        .enumerate()
    {
        let rule = FaultRule::new(fault).on_method("(response)").always();
        setting.inject(rule);
        let outcome = ask(&setting, account, "ask_form", 1, &ear).await;
        let trouble = outcome.trouble.as_ref();
        assert_eq!(outcome.ended, Unknown(Reason::ReplyLost), "{trouble:?}");
        outcome.names_the_server(account);
        within(Duration::from_secs(5), || given_up() > number).await;
        setting.server.control().clear_faults();
    }
    setting.finish().await;
}

/// A session with a stub that follows this script.
async fn with_stub(
    era: Era,
    script: impl Fn(&Value) -> Vec<ReplyStep> + Send + Sync + 'static,
) -> (Stub, Session) {
    let stub = Stub::start(script).await;
    let server = stub.target(era);
    let declared = ClientProfile {
        capabilities: EVERYTHING,
        ..ClientProfile::default()
    };
    let session = Upstream::new().open(&server, &declared).await.unwrap();
    (stub, session)
}

fn final_answer() -> String {
    r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[]}}"#.to_owned()
}

#[tokio::test]
async fn the_state_of_a_round_goes_back_byte_for_byte() {
    let states = [
        r#""plain""#.to_owned(),
        r#""""#.to_owned(),
        // Escapes that could be written otherwise, and must not be.
        r#""\u0041\/\"\\\b\f\n\r\t \u00e9 é \ud83d\ude00 😀 \u2028""#.to_owned(),
        format!("\"{}\"", "0123456789abcdef\\u00e9".repeat(100 * 1024 / 22)),
    ];
    for state in states {
        let asked = format!(
            r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"resultType":"input_required","requestState" : {state} }}}}"#
        );
        let (stub, session) = with_stub(Era::Modern, move |body| {
            let is_first = body["params"].get("requestState").is_none();
            vec![ReplyStep::Json(if is_first {
                asked.clone()
            } else {
                final_answer()
            })]
        })
        .await;
        let request = tool("any", &json!({"b": 1, "a": "é"}));
        let raw = String::from_utf8(request.params.raw().to_vec()).unwrap();
        let outcome = Outcome::of(session.call(request, &()).await);
        outcome.ends(Result);
        let calls = stub.of("tools/call");
        assert_eq!(calls.len(), 2);
        let holds = calls[1].raw.contains(&format!(r#""requestState":{state}"#));
        assert!(holds, "{state:.80}");
        assert!(raw.contains(r#""arguments":{"a":"é","b":1}"#));
        let holds = calls[1].raw.contains(r#""arguments":{"a":"é","b":1}"#);
        assert!(holds, "{}", calls[1].raw);
        assert_ne!(calls[0].body["id"], calls[1].body["id"]);
    }
}

#[tokio::test]
async fn several_questions_of_a_round_are_answered_under_their_keys() {
    let asked = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","inputRequests":{
        "one":{"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{}}},
        "zwei \"ü\"":{"method":"roots/list"},
        "three":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}},
        "four":{"method":"unheard/of","params":{}}}}}"#;
    let (stub, session) = with_stub(Era::Modern, move |body| {
        let is_first = body["params"].get("inputResponses").is_none();
        vec![ReplyStep::Json(if is_first {
            asked.to_owned()
        } else {
            final_answer()
        })]
    })
    .await;
    let ear = Ear::that_answers(Answers::Fitting);
    let outcome = Outcome::of(session.call(tool("any", &json!({})), &ear).await);
    outcome.ends(Result);
    let calls = stub.of("tools/call");
    let answers = calls[1].body["params"]["inputResponses"]
        .as_object()
        .unwrap();
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert_eq!(answers["one"]["action"], "accept");
    assert_eq!(answers["zwei \"ü\""]["roots"][0]["name"], "here");
    assert_eq!(answers["three"]["role"], "assistant");
    assert!(calls[1].body["params"].get("requestState").is_none());
}

fn question(id: &str) -> ReplyStep {
    ReplyStep::Event(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{"message":"?"}}}}"#
    ))
}

#[tokio::test]
async fn several_questions_on_a_stream_are_answered_under_their_ids() {
    let (stub, session) = with_stub(Era::Legacy, |_| {
        vec![
            question("7"),
            question(r#""sieben""#),
            ReplyStep::Event(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#.to_owned()),
            ReplyStep::Event(r#"{"jsonrpc":"2.0","id":9,"method":"unheard/of"}"#.to_owned()),
            ReplyStep::Answers(4),
            ReplyStep::Event(final_answer()),
        ]
    })
    .await;
    let ear = Ear::that_answers(Answers::Fitting);
    let outcome = Outcome::of(session.call(tool("any", &json!({})), &ear).await);
    outcome.ends(Result);
    let answers = stub.answers();
    let of = |id: Value| answers.iter().find(|one| one["id"] == id).unwrap();
    assert_eq!(of(json!(7))["result"]["action"], "accept");
    assert_eq!(of(json!("sieben"))["result"]["action"], "accept");
    assert_eq!(of(json!(8))["result"], json!({}));
    assert_eq!(of(json!(9))["error"]["code"], -32601);
    let asked = ear.questions();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[2].0, ServerRequestKind::Other);
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_is_not_answered() {
    let withdrawn = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"never mind"}}"#;
    let (stub, session) = with_stub(Era::Legacy, move |_| {
        vec![
            question("5"),
            ReplyStep::Event(withdrawn.to_owned()),
            question("6"),
            ReplyStep::Answers(1),
            ReplyStep::Event(final_answer()),
        ]
    })
    .await;
    let ear = Ear::that_answers(Answers::NeverTheFirst);
    let outcome = Outcome::of(session.call(tool("any", &json!({})), &ear).await);
    outcome.ends(Result);
    assert_eq!(ear.questions().len(), 2);
    let answers = stub.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["id"], 6);
}

#[tokio::test]
async fn a_flood_of_questions_is_declined_beyond_what_anybody_could_answer() {
    let (stub, session) = with_stub(Era::Legacy, |_| {
        let mut steps: Vec<ReplyStep> = (0..200).map(|id| question(&id.to_string())).collect();
        steps.push(ReplyStep::Answers(168));
        steps.push(ReplyStep::Event(final_answer()));
        steps
    })
    .await;
    let ear = Ear::that_answers(Answers::Never);
    let outcome = Outcome::of(session.call(tool("any", &json!({})), &ear).await);
    outcome.ends(Result);
    assert_eq!(ear.questions().len(), 32);
    assert!(
        stub.answers()
            .iter()
            .all(|one| one["result"]["action"] == "decline")
    );
}
