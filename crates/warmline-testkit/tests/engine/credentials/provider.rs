//! Tokens that expire, are refused and are renewed, under sessions that stay.

use crate::prelude::*;

use warmline_core::exchange::ServerRequestReply;
use warmline_engine::credentials::{BoxFuture, CredentialProvider, Token, TokenRequest};
use warmline_engine::identity::IdentityName;
use warmline_upstream::ClientProfile;

use crate::credentials::fixture::{
    Counting, count, count_in, declared, engine, executed, guarded, sessions, shown, stateful,
};

/// A103, A104, A119, P53, P55, P56: a token that expired in a long session is renewed after one
/// 401; the call is sent again once, in the same session.
#[tokio::test]
async fn a_refused_token_is_renewed_once_and_the_session_stays() {
    let ledger = guarded("token-1");
    let provider = Counting::default();
    let warm = engine(declared(&ledger).provider(provider.clone()));
    let run = warm.begin_run();
    assert_eq!(count_in(&run).await, 1);
    ledger.control().require_token("token-2");
    assert_eq!(count_in(&run).await, 2, "state was kept");
    assert_eq!(provider.asked(), 2);
    assert_eq!(sessions(&ledger, "counter").len(), 1);
    assert_eq!(ledger.ledger().messages_received("initialize"), 1);
    let tokens: Vec<_> = executed(&ledger, "counter")
        .into_iter()
        .filter_map(|line| line.credential)
        .collect();
    assert_eq!(tokens, ["Bearer token-1", "Bearer token-2"]);
    run.end().await;
    assert_eq!(
        ledger.counts().open_sessions,
        0,
        "DELETE shows the new token"
    );
}

/// P54: a hundred calls are refused at once; one refresh, and each is executed once.
#[tokio::test]
async fn a_hundred_refused_calls_make_one_refresh() {
    let ledger = guarded("token-1");
    let provider = Counting::default();
    let warm = engine(declared(&ledger).provider(provider.clone()));
    let run = warm.begin_run();
    count_in(&run).await;
    ledger.control().require_token("token-2");
    let server = run.server("lamp").unwrap();
    let calls = (0..100).map(|number| {
        server
            .call("pay", json!({ "amount": number }))
            .into_future()
    });
    for paid in join_all(calls).await {
        paid.unwrap().ok().unwrap();
    }
    assert_eq!(provider.asked(), 2);
    assert_eq!(ledger.ledger().executions("pay"), 100);
    assert_eq!(shown(&ledger, "pay").len(), 1);
    run.end().await;
}

/// A104: a token with an end is renewed before it; the very next request carries the new one.
#[tokio::test]
async fn a_token_at_its_end_is_renewed_before_the_call() {
    let ledger = stateful();
    let provider = Counting::lasting(Duration::ZERO);
    let warm = engine(declared(&ledger).provider(provider.clone()));
    let run = warm.begin_run();
    for number in 1..=3 {
        assert_eq!(count_in(&run).await, number);
    }
    let found = shown(&ledger, "counter").len();
    assert_eq!(found, 3, "each call had a fresh one");
    assert_eq!(sessions(&ledger, "counter").len(), 1, "in one session");
    run.end().await;
}

/// P38, A104: the token ended after the last call; the session is ended with the next one.
#[tokio::test]
async fn a_session_is_ended_with_a_fresh_token() {
    let ledger = stateful();
    let warm = engine(declared(&ledger).provider(Counting::lasting(Duration::ZERO)));
    let run = warm.begin_run();
    count_in(&run).await;
    let last = executed(&ledger, "counter")
        .pop()
        .unwrap()
        .credential
        .unwrap();
    let number: usize = last.trim_start_matches("Bearer token-").parse().unwrap();
    ledger
        .control()
        .require_token(&format!("token-{}", number + 1));
    run.end().await;
    assert_eq!(ledger.counts().open_sessions, 0);
}

/// reliability D51: a server that refuses every token ends the call after one refresh.
#[tokio::test]
async fn a_server_that_refuses_every_token_is_asked_twice_and_no_more() {
    let ledger = stateful();
    let provider = Counting::default();
    let warm = engine(declared(&ledger).provider(provider.clone()));
    let run = warm.begin_run();
    count_in(&run).await;
    let refuse = Fault::Reply(CannedReply::new(401, "Unauthorized"));
    ledger.inject(FaultRule::new(refuse).on_tool("pay").always());
    let server = run.server("lamp").unwrap();
    let error = server
        .call("pay", json!({ "amount": 1 }))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::CredentialRefused);
    assert_eq!(error.delivery(), Delivery::Refused);
    assert_eq!(provider.asked(), 2);
    assert_eq!(ledger.control().faults_applied(), 2);
    assert_eq!(ledger.ledger().executions("pay"), 0);
    ledger.control().clear_faults();
    assert_eq!(count_in(&run).await, 2, "the session is still there");
    run.end().await;
}

/// A100, P57, P58: a hundred calls side by side, each with headers of its own, and a provider
/// that is asked every time: each header reaches the server with its call and sticks nowhere.
#[tokio::test]
async fn headers_of_a_call_reach_the_server_with_that_call_alone() {
    let ledger = stateful();
    let provider = Counting::lasting(Duration::ZERO);
    let warm = engine(declared(&ledger).provider(provider));
    let run = warm.begin_run();
    let server = run.server("lamp").unwrap();
    count(&server).await;
    let calls = (0..100).map(|number| {
        server
            .call("echo", json!({ "number": number.to_string() }))
            .header("X-Correlation-ID", &number.to_string())
            .header("traceparent", &format!("00-{number}"))
            .into_future()
    });
    for echoed in join_all(calls).await {
        echoed.unwrap().ok().unwrap();
    }
    let lines = executed(&ledger, "echo");
    assert_eq!(lines.len(), 100);
    for line in lines {
        let number = line.arguments["number"].as_str().unwrap();
        assert_eq!(line.extra_headers["x-correlation-id"], number);
        assert_eq!(line.extra_headers["traceparent"], format!("00-{number}"));
    }
    count(&server).await;
    for line in executed(&ledger, "counter") {
        let holds = !line.extra_headers.contains_key("x-correlation-id");
        assert!(holds, "nothing sticks");
    }
    let bad = server.call("echo", json!({})).header("a b", "c").await;
    assert!(bad.unwrap_err().delivery().is_safe_to_retry());
    run.end().await;
}

const PEOPLE: [&str; 3] = ["alice", "bob", "carol"];

/// Gives everybody a token that says whose it is.
#[derive(Debug)]
struct ForEach;

impl CredentialProvider for ForEach {
    fn fetch<'a>(&'a self, asked: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
        let is_whose = |name: &&str| asked.identity == Some(&IdentityName::named(name));
        let whose = PEOPLE.into_iter().find(is_whose).unwrap();
        let token = Token::new(format!("token-of-{whose}"));
        Box::pin(std::future::ready(Ok(token)))
    }

    fn label(&self) -> String {
        "for each".to_owned()
    }

    fn is_per_identity(&self) -> bool {
        true
    }
}

/// P20: users who each show a token of their own have a session each, which is kept: no call opens
/// another.
#[tokio::test]
async fn users_with_tokens_of_their_own_keep_a_session_each() {
    let ledger = stateful();
    let warm = engine(declared(&ledger).provider(ForEach));
    let runs = PEOPLE.map(|name| warm.identity(name).begin_run());
    for expected in 1..=5 {
        for run in &runs {
            assert_eq!(count_in(run).await, expected);
        }
    }
    assert_eq!(sessions(&ledger, "counter").len(), 3);
    assert_eq!(shown(&ledger, "counter").len(), 3);
    assert_eq!(ledger.ledger().messages_received("initialize"), 3);
    for run in runs {
        run.end().await;
    }
}

/// P53, A104: a person takes a while to answer, and the token does not last as long: the answer is
/// shown with the next one, and its call goes on.
#[tokio::test]
async fn an_answer_is_sent_with_a_fresh_token() {
    let asking = ClientProfile {
        capabilities: Bytes::from_static(br#"{"elicitation":{}}"#),
        ..ClientProfile::default()
    };
    let ledger = guarded("token-1");
    let provider = Counting::default();
    let server = declared(&ledger).provider(provider.clone());
    let builder = Warmline::builder().server(server).client_profile(asking);
    let warm = builder.build().unwrap();
    let run = warm.begin_run();
    let control = ledger.control();
    let asked = run
        .server("lamp")
        .unwrap()
        .call("ask_form", json!({ "rounds": 1 }))
        .on_request(move |_| {
            control.require_token("token-2");
            async { ServerRequestReply::Result(Bytes::from_static(br#"{"action":"decline"}"#)) }
        });
    asked.await.unwrap().ok().unwrap();
    assert_eq!(provider.asked(), 2);
    assert_eq!(ledger.ledger().executions("ask_form"), 1);
    run.end().await;
}

/// P53, A104: a notification that a server refuses for its token is told with the next one.
#[tokio::test]
async fn a_notification_is_told_with_a_fresh_token() {
    let ledger = guarded("token-1");
    let provider = Counting::default();
    let warm = engine(declared(&ledger).provider(provider.clone()));
    let run = warm.begin_run();
    count_in(&run).await;
    ledger.control().require_token("token-2");
    let server = run.server("lamp").unwrap();
    let changed = "notifications/roots/list_changed";
    server.notify(changed, b"{}").await.unwrap();
    assert_eq!(provider.asked(), 2);
    assert_eq!(count_in(&run).await, 2);
    run.end().await;
}
