//! Calls on a session that a run holds: found, waited for, healed, with a credential renewed.

use std::sync::Mutex;

use serde_json::json;
use warmline::CallEvent;
use warmline_core::exchange::Diagnostic;
use warmline_engine::credentials::{CredentialProvider, Token, TokenRequest};
use warmline_engine::relay::RelayHandle as _;
use warmline_store::BoxFuture;
use warmline_testkit::{Personality, ReplyFormat, SseFormat};
use warmline_upstream::ListKind;

use super::super::fixture::play;
use super::{Act, Acting, Preparing, SCENE, Stage, Stand, Starts, echo, nothing};

/// Every way a call can travel.
const WAYS: [(&str, Starts); 5] = [
    ("legacy HTTP", || Stage::http(Personality::legacy())),
    ("legacy HTTP by stream", || {
        Stage::http(Personality::legacy().reply(ReplyFormat::Sse(SseFormat::python())))
    }),
    ("modern HTTP", || Stage::http(Personality::modern())),
    ("legacy stdio", || {
        Stage::stdio(&["--personality", "legacy"])
    }),
    ("modern stdio", || {
        Stage::stdio(&["--personality", "modern"])
    }),
];

fn call(stand: Stand) -> Acting {
    Box::pin(async move { echo(&stand.ledger).await })
}

fn events(stand: Stand) -> Acting {
    Box::pin(async move {
        let mut events = stand.ledger.call("progress", json!({"steps": 2})).events();
        while let Some(event) = events.next().await {
            if let CallEvent::Done(result) = event {
                assert_eq!(result.unwrap().text(), "2 steps");
                return;
            }
        }
        panic!("the events ended without a result");
    })
}

fn request(stand: Stand) -> Acting {
    Box::pin(async move {
        let listed = stand.ledger.request("tools/list", json!({})).await.unwrap();
        assert!(!listed.is_empty());
    })
}

fn lists(stand: Stand) -> Acting {
    Box::pin(async move {
        assert!(!stand.ledger.list(ListKind::Tools).await.unwrap().is_empty());
        stand.ledger.forget_tools();
        stand.ledger.tools().await.unwrap();
        stand.ledger.tool("echo").await.unwrap();
    })
}

fn exposed(stand: Stand) -> Acting {
    Box::pin(async move {
        stand.ledger.forget_tools();
        let called = stand.ledger.call_by_exposed_name("echo", json!({})).await;
        assert!(!called.unwrap().is_error());
    })
}

fn lease(stand: Stand) -> Acting {
    Box::pin(async move {
        let lease = stand.run.lease(SCENE).await.unwrap();
        let called = lease.call("echo", json!({})).await;
        assert!(!called.unwrap().is_error());
        lease.request("tools/list", json!({})).await.unwrap();
    })
}

fn facts_and_more(stand: Stand) -> Acting {
    Box::pin(async move {
        stand.ledger.info().await.unwrap();
        // There is no such thing in the modern era, and the server says so.
        drop(stand.ledger.set_log_level("debug").await);
        stand.run.scope(echo(&stand.ledger)).await;
    })
}

fn outside(stand: Stand) -> Acting {
    Box::pin(async move {
        echo(&stand.warm.identity("another").server(SCENE).unwrap()).await;
    })
}

fn once(stand: Stand) -> Acting {
    Box::pin(async move {
        let apart = stand.warm.once(stand.declared);
        echo(&apart).await;
    })
}

/// reliability P26, reliability I18: every cut point of everything a held session is used for.
#[test]
fn what_is_called_on_a_held_session_may_be_left_anywhere() {
    let acts: [(&str, Act); 9] = [
        ("a call", call),
        ("a call with events", events),
        ("a request", request),
        ("lists", lists),
        ("a call by its exposed name", exposed),
        ("a lease", lease),
        ("facts and a log level", facts_and_more),
        ("a call outside of the run", outside),
        ("a call to a server that is declared nowhere", once),
    ];
    play(async {
        for (way, start) in WAYS {
            // A child that was started for somebody who left waits for the next: see `openings`.
            let most = if way.contains("stdio") { 7 } else { acts.len() };
            for (name, act) in acts.into_iter().take(most) {
                let story = format!("{way}, {name}");
                let stage = start();
                Box::pin(stage.held(&story, nothing, act)).await;
            }
        }
    });
}

/// The session is held alone by somebody else, for a moment.
fn somebody_is_first<'a>(_: &'a Stage, stand: &'a Stand) -> Preparing<'a> {
    Box::pin(async {
        let lease = stand.run.lease(SCENE).await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            drop(lease);
        });
    })
}

/// reliability P26, reliability I17: whoever waits in line may leave it.
#[test]
fn a_call_in_line_may_be_left_anywhere() {
    play(async {
        for (way, start) in WAYS.into_iter().filter(|(way, _)| way.contains("legacy")) {
            for (name, act) in [("a call", call as Act), ("a lease", lease)] {
                let story = format!("{way}, {name} in line");
                Box::pin(start().held(&story, somebody_is_first, act)).await;
            }
        }
    });
}

fn sessions_are_forgotten<'a>(stage: &'a Stage, _: &'a Stand) -> Preparing<'a> {
    Box::pin(async { stage.ledger().control().forget_sessions() })
}

/// reliability P26, reliability I8: a call that heals may be left anywhere, the next one heals.
#[test]
fn a_call_that_heals_may_be_left_anywhere() {
    play(async {
        for (way, start) in &WAYS[..2] {
            for (name, act) in [("a call", call as Act), ("lists", lists)] {
                let story = format!("{way}, {name} after a restart");
                Box::pin(start().held(&story, sessions_are_forgotten, act)).await;
            }
        }
    });
}

/// A provider whose token changes when the server wants another.
#[derive(Debug)]
struct Changing;

/// The one of the story that is played: acts are plain functions.
static TOKEN: Mutex<u32> = Mutex::new(0);

impl CredentialProvider for Changing {
    fn fetch<'a>(&'a self, _: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(Token::new(format!("token-{}", TOKEN.lock().unwrap())))
        })
    }

    fn label(&self) -> String {
        "changing".to_owned()
    }
}

fn the_token_changes<'a>(stage: &'a Stage, _: &'a Stand) -> Preparing<'a> {
    Box::pin(async {
        let mut token = TOKEN.lock().unwrap();
        *token += 1;
        stage
            .ledger()
            .control()
            .require_token(&format!("token-{token}"));
    })
}

/// reliability P26: a call whose credential is refused may be left anywhere.
#[test]
fn a_call_that_renews_its_credential_may_be_left_anywhere() {
    play(async {
        let current = format!("token-{}", TOKEN.lock().unwrap());
        for personality in [Personality::legacy(), Personality::modern()] {
            let stage = Stage::http(personality.token(&current))
                .declare(|server| server.provider(Changing));
            Box::pin(stage.held("a token that changes", the_token_changes, call)).await;
            *TOKEN.lock().unwrap() = 0;
        }
    });
}
