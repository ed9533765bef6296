//! Runs, left half-way: their bodies, their ends, and the end of the engine.

use warmline::InCurrentRun;
use warmline_engine::events::EventItem;
use warmline_testkit::Personality;

use super::super::fixture::play;
use super::{Act, Acting, Afterwards, Preparing, SCENE, Stage, Stand, Starts, echo, nothing};

const WAYS: [(&str, Starts); 3] = [
    ("legacy HTTP", || Stage::http(Personality::legacy())),
    ("modern HTTP", || Stage::http(Personality::modern())),
    ("legacy stdio", || {
        Stage::stdio(&["--personality", "legacy"])
    }),
];

fn body(stand: Stand) -> Acting {
    Box::pin(async move {
        stand
            .warm
            .run(async |run| {
                let ledger = run.server(SCENE).unwrap();
                tokio::join!(echo(&ledger), echo(&ledger).in_current_run());
            })
            .await;
    })
}

fn end(stand: Stand) -> Acting {
    Box::pin(async move { stand.run.end().await })
}

/// Left while it is called: the call is cut, the end waits for it.
fn end_beside_a_call(stand: Stand) -> Acting {
    Box::pin(async move {
        let calling = stand.ledger.call("echo", serde_json::json!({}));
        let (called, ()) = tokio::join!(calling.into_future(), stand.run.end());
        // Whichever came first.
        drop(called);
    })
}

fn detached(stand: Stand) -> Acting {
    Box::pin(async move {
        let run = stand.warm.named_run("detached").unwrap();
        echo(&run.server(SCENE).unwrap()).await;
        run.detach();
        let joined = stand.warm.join_run("detached").unwrap();
        echo(&joined.server(SCENE).unwrap()).await;
        joined.end().await;
    })
}

fn close(stand: Stand) -> Acting {
    Box::pin(async move { stand.warm.close().await })
}

fn news(stand: Stand) -> Acting {
    Box::pin(async move {
        let mut events = stand.warm.events();
        let began = tokio::spawn(async move { stand.warm.begin_run().end().await });
        while let Some(heard) = events.next().await {
            assert!(matches!(heard, EventItem::Event(_)), "{heard:?}");
            if format!("{heard:?}").contains("RunEnded") {
                break;
            }
        }
        began.await.unwrap();
    })
}

fn has_a_session<'a>(_: &'a Stage, stand: &'a Stand) -> Preparing<'a> {
    Box::pin(echo(&stand.ledger))
}

/// reliability P26, reliability I20: every cut point of a run's life and of its end.
#[test]
fn a_run_may_be_left_anywhere() {
    let acts: [(&str, super::Prepare, Act, Afterwards); 7] = [
        ("a body", nothing, body, Afterwards::SameRun),
        ("an end", has_a_session, end, Afterwards::AnotherRun),
        ("an end of nothing", nothing, end, Afterwards::AnotherRun),
        (
            "an end beside a call",
            has_a_session,
            end_beside_a_call,
            Afterwards::AnotherRun,
        ),
        ("a detached run", nothing, detached, Afterwards::SameRun),
        ("closing", has_a_session, close, Afterwards::Closing),
        ("events", nothing, news, Afterwards::SameRun),
    ];
    play(async {
        for (way, start) in WAYS {
            for (name, prepare, act, then) in acts {
                let story = format!("{way}, {name}");
                Box::pin(start().fresh(&story, prepare, act, then)).await;
            }
        }
    });
}
