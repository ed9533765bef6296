//! Calls in which the server asks, dropped half-way: while it asks, while somebody thinks, while
//! the answer is on its way.

use bytes::Bytes;
use serde_json::json;
use warmline_core::exchange::{ServerRequest, ServerRequestReply};
use warmline_testkit::sweep;
use warmline_upstream::{Listener, ReplyFuture};

use super::calls::WAYS;
use super::fixture::{echoes, play, result, tool};

/// Thinks for a moment, then answers.
struct Person;

impl Listener for Person {
    fn on_request(&self, _: ServerRequest) -> ReplyFuture<'_> {
        Box::pin(async {
            tokio::task::yield_now().await;
            let answer = json!({"action": "accept", "content": {"name": "Ada"}});
            ServerRequestReply::Result(Bytes::from(answer.to_string()))
        })
    }
}

/// reliability P26: every cut point of a call that asks.
#[test]
fn a_call_with_questions_may_be_dropped_anywhere() {
    play(async {
        // What a question looks like does not depend on the ids of a stream.
        let ways = WAYS
            .iter()
            .filter(|(story, _)| !story.contains("resumable"));
        for (story, start) in ways {
            let mut scene = start();
            let session = scene.rest().await;
            let asking = || session.call(tool("ask_form", &json!({"rounds": 2})), &Person);
            let swept = sweep::sweep_future(asking, async |point| {
                echoes(&session).await;
                scene
                    .settles(&format!("{story}, dropped at {point:?}"))
                    .await;
                let retired = session.retired_reason();
                assert_eq!(retired, None, "{story}, dropped at {point:?}");
            })
            .await;
            let answers = result(swept.output.unwrap());
            let answers = &answers["structuredContent"]["answers"];
            assert_eq!(answers.as_array().unwrap().len(), 2, "{story}: {answers}");
            assert_eq!(answers[1]["content"]["name"], "Ada", "{story}");
            session.close().await;
            drop(session);
            scene.ends().await;
        }
    });
}
