//! Calls and notices, dropped half-way on a session that goes on: no later call gets their answer.

use serde_json::{Value, json};
use warmline_core::era::Era;
use warmline_core::exchange::Deadlines;
use warmline_testkit::sweep::{self, CancelPoint, DropTiming, drop_at};
use warmline_testkit::{ConnectionEnd, CutPoint, Fault, Personality, ReplyFormat, SseFormat};
use warmline_upstream::ListKind;

use super::fixture::{Scene, echoes, play, result, send, tool};

/// A server that is started when its turn comes.
pub(crate) type Starts = fn() -> Scene;

/// Every way a call can travel.
pub(crate) const WAYS: [(&str, Starts); 7] = [
    ("legacy HTTP", || {
        Scene::http(Personality::legacy(), Some(Era::Legacy))
    }),
    ("legacy HTTP by stream", || {
        let streams = ReplyFormat::Sse(SseFormat::python());
        Scene::http(Personality::legacy().reply(streams), Some(Era::Legacy))
    }),
    ("legacy HTTP by resumable stream", || {
        let streams = ReplyFormat::Sse(SseFormat::rmcp());
        Scene::http(Personality::legacy().reply(streams), Some(Era::Legacy))
    }),
    ("modern HTTP", || {
        Scene::http(Personality::modern(), Some(Era::Modern))
    }),
    ("modern HTTP by stream", || {
        let streams = ReplyFormat::Sse(SseFormat::plain());
        Scene::http(Personality::modern().reply(streams), Some(Era::Modern))
    }),
    ("legacy stdio", || Scene::stdio(&[], Some(Era::Legacy))),
    ("modern stdio", || Scene::stdio(&[], Some(Era::Modern))),
];

/// The transport of 2024-11-05, whose server here knows only how to give arguments back.
pub(crate) const TWO_ENDPOINTS: (&str, Starts) = ("two endpoints", Scene::two_endpoints);

/// Drops a call at each of its points; the session goes on, and in the end the call succeeds.
async fn call_is_swept(story: &str, mut scene: Scene, name: &str, arguments: Value) -> Value {
    let session = scene.rest().await;
    let calling = || send(&session, tool(name, &arguments), &());
    let swept = sweep::sweep_future(calling, async |point| {
        echoes(&session).await;
        scene
            .settles(&format!("{story}, {name} dropped at {point:?}"))
            .await;
        let retired = session.retired_reason();
        assert_eq!(retired, None, "{story}, {name} dropped at {point:?}");
    })
    .await;
    let answer = result(swept.output.unwrap());
    session.close().await;
    drop(session);
    scene.ends().await;
    answer
}

/// reliability P3, reliability P26: every cut point of a call.
#[test]
fn a_call_may_be_dropped_anywhere_and_nobody_gets_its_answer() {
    play(async {
        for (story, start) in WAYS.into_iter().chain([TWO_ENDPOINTS]) {
            let scene = start();
            let mine = json!({"mine": story});
            let answer = Box::pin(call_is_swept(story, scene, "echo", mine.clone())).await;
            assert_eq!(answer["structuredContent"]["arguments"], mine, "{story}");
        }
    });
}

/// reliability P26: the same with progress.
#[test]
fn a_call_that_tells_of_its_progress_may_be_dropped_anywhere() {
    play(async {
        for (story, start) in WAYS {
            let scene = start();
            let answer =
                Box::pin(call_is_swept(story, scene, "progress", json!({"steps": 2}))).await;
            assert_eq!(answer["content"][0]["text"], "2 steps", "{story}");
        }
    });
}

/// reliability P26: the same with a stream that breaks.
#[test]
fn a_call_whose_stream_is_taken_up_again_may_be_dropped_anywhere() {
    play(async {
        let streams = ReplyFormat::Sse(SseFormat::resumable());
        let scene = Scene::http(Personality::legacy().reply(streams), Some(Era::Legacy));
        let scene = scene.always(
            "progress",
            Fault::Cut(CutPoint::AfterEvents(1), ConnectionEnd::Fin),
        );
        let swept = call_is_swept("resumed", scene, "progress", json!({"steps": 2}));
        let answer = Box::pin(swept).await;
        assert_eq!(answer["content"][0]["text"], "2 steps");
    });
}

/// reliability P26: every cut point of a list.
#[test]
fn a_list_may_be_dropped_on_any_of_its_pages() {
    play(async {
        let paged = Personality::legacy().page_size(8);
        let mut scene = Scene::http(paged, Some(Era::Legacy));
        let session = scene.rest().await;
        let listing = || Box::pin(session.list(ListKind::Tools, Deadlines::default()));
        let swept = sweep::sweep_future(listing, async |point| {
            echoes(&session).await;
            scene.settles(&format!("a list dropped at {point:?}")).await;
        })
        .await;
        let tools = swept.output.unwrap().unwrap();
        assert!(tools.len() > 8, "{} tools", tools.len());
        session.close().await;
        drop(session);
        scene.ends().await;
    });
}

/// reliability P3, reliability P26, reliability I18: each of the two is dropped at each of its
/// points, or left alone.
#[test]
fn two_calls_side_by_side_may_each_be_dropped_anywhere() {
    const MOST_POLLS: usize = 5;
    play(async {
        for (story, start) in WAYS {
            let mut scene = start();
            let session = scene.rest().await;
            let until_point = async |polls, name: &str, arguments: Value| {
                let when = DropTiming::AfterPoll;
                let calling = send(&session, tool(name, &arguments), &());
                drop_at(
                    CancelPoint {
                        polls,
                        timing: when,
                    },
                    calling,
                )
                .await
            };
            for (one, two) in (0..MOST_POLLS * MOST_POLLS).map(|n| (n / MOST_POLLS, n % MOST_POLLS))
            {
                let (first, second) = tokio::join!(
                    until_point(one, "echo", json!({"n": one})),
                    until_point(two, "progress", json!({"steps": 1})),
                );
                if let Some(first) = first {
                    assert_eq!(
                        result(first)["structuredContent"]["arguments"]["n"],
                        one,
                        "{story}"
                    );
                }
                if let Some(second) = second {
                    assert_eq!(result(second)["content"][0]["text"], "1 steps", "{story}");
                }
                echoes(&session).await;
                scene
                    .settles(&format!("{story}, dropped at {one} and {two}"))
                    .await;
            }
            session.close().await;
            drop(session);
            scene.ends().await;
        }
    });
}

/// P71, reliability I18: the answers of calls that nobody waits for are no reason to mistrust a
/// server.
#[test]
fn many_dropped_calls_do_not_cost_the_session() {
    const MANY: usize = 40;
    play(async {
        for (story, start) in WAYS.into_iter().chain([TWO_ENDPOINTS]) {
            let mut scene = start();
            let session = scene.rest().await;
            for number in 0..MANY {
                let point = CancelPoint {
                    polls: 1 + number % 2,
                    timing: DropTiming::OnWake,
                };
                let calling = send(&session, tool("echo", &json!({"number": number})), &());
                drop(drop_at(point, calling).await);
            }
            echoes(&session).await;
            assert_eq!(session.retired_reason(), None, "{story}");
            scene.settles(story).await;
            session.close().await;
            drop(session);
            scene.ends().await;
        }
    });
}

/// reliability P26: every cut point of a notice.
#[test]
fn a_notice_may_be_dropped_anywhere() {
    play(async {
        for (story, start) in WAYS {
            // A modern server over HTTP takes no notices.
            if story.starts_with("modern HTTP") {
                continue;
            }
            let mut scene = start();
            let session = scene.rest().await;
            let telling = || session.notify("notifications/roots/list_changed", b"{}");
            let swept = sweep::sweep_future(telling, async |point| {
                echoes(&session).await;
                scene
                    .settles(&format!("{story}, dropped at {point:?}"))
                    .await;
            })
            .await;
            swept.output.unwrap().unwrap();
            session.close().await;
            drop(session);
            scene.ends().await;
        }
    });
}
