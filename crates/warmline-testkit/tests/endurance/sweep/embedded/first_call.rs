//! The first call of all: the server is found out, a session is opened, the call is sent.

use serde_json::json;
use warmline_testkit::{Personality, ReplyFormat, SseFormat};

use super::super::fixture::play;
use super::{Act, Acting, Afterwards, SCENE, Stage, Stand, Starts, echo, nothing};

const WAYS: [(&str, Starts); 5] = [
    ("legacy HTTP", || Stage::http(Personality::legacy())),
    ("legacy HTTP by stream", || {
        Stage::http(Personality::legacy().reply(ReplyFormat::Sse(SseFormat::python())))
    }),
    ("HTTP of both eras", || Stage::http(Personality::dual())),
    ("legacy stdio", || {
        Stage::stdio(&["--personality", "legacy"])
    }),
    ("stdio of both eras", || {
        Stage::stdio(&["--personality", "dual"])
    }),
];

fn first_call(stand: Stand) -> Acting {
    Box::pin(async move { echo(&stand.ledger).await })
}

fn first_lease(stand: Stand) -> Acting {
    Box::pin(async move {
        let lease = stand.run.lease(SCENE).await.unwrap();
        let called = lease.call("echo", json!({})).await;
        assert!(!called.unwrap().is_error());
    })
}

fn first_tools(stand: Stand) -> Acting {
    Box::pin(async move {
        stand.ledger.tools().await.unwrap();
    })
}

fn first_facts(stand: Stand) -> Acting {
    Box::pin(async move {
        stand.ledger.info().await.unwrap();
    })
}

fn first_outside(stand: Stand) -> Acting {
    Box::pin(async move { echo(&stand.warm.server(SCENE).unwrap()).await })
}

fn first_once(stand: Stand) -> Acting {
    Box::pin(async move { echo(&stand.warm.once(stand.declared)).await })
}

/// A28, reliability P26: every cut point of a first contact leaves nothing, and the next caller
/// is served.
#[test]
fn a_first_call_may_be_left_anywhere() {
    let acts: [(&str, Act); 6] = [
        ("a call", first_call),
        ("a lease", first_lease),
        ("the tools", first_tools),
        ("facts", first_facts),
        ("a call outside of a run", first_outside),
        ("a call to a server that is declared nowhere", first_once),
    ];
    play(async {
        for (way, start) in WAYS {
            // How a server is found out does not depend on who asks first.
            let of_this_way = if ["legacy HTTP", "legacy stdio"].contains(&way) {
                &acts[..]
            } else {
                &acts[..2]
            };
            for (name, act) in of_this_way {
                let story = format!("{way}, {name} first");
                let stage = start();
                Box::pin(stage.fresh(&story, nothing, *act, Afterwards::SameRun)).await;
            }
        }
    });
}

/// A28, reliability P26: the same where spares are kept.
#[test]
fn a_first_call_with_spares_may_be_left_anywhere() {
    play(async {
        for (way, start) in [WAYS[0], WAYS[3]] {
            let story = format!("{way}, with a spare");
            let stage = start().declare(|server| server.spares(1));
            Box::pin(stage.fresh(&story, nothing, first_call, Afterwards::SameRun)).await;
        }
    });
}
