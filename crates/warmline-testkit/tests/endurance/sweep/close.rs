//! Closing, dropped half-way: a child is gone all the same, and a URL owes nothing.

use warmline_testkit::sweep::{CancelPoint, DropTiming, drop_at};
use warmline_upstream::Upstream;

use super::calls::{TWO_ENDPOINTS, WAYS};
use super::fixture::play;

/// reliability P25, reliability P26: every cut point of a close.
#[test]
fn closing_may_be_dropped_anywhere() {
    play(async {
        for (story, start) in WAYS.into_iter().chain([TWO_ENDPOINTS]) {
            let scene = start();
            let mut polls = 0;
            let mut closed = None;
            while closed.is_none() {
                for when in [DropTiming::AfterPoll, DropTiming::OnWake] {
                    let point = CancelPoint {
                        polls,
                        timing: when,
                    };
                    let upstream = Upstream::new();
                    let session = scene.open(&upstream).await;
                    closed = drop_at(point, session.close()).await;
                    drop(session);
                    scene
                        .settles(&format!("{story}, dropped at {point:?}"))
                        .await;
                    scene.opens_and_works(&upstream).await;
                    drop(upstream);
                    scene
                        .settles(&format!("{story}, used after {point:?}"))
                        .await;
                }
                polls += 1;
                assert!(polls < 100, "{story}: it must end");
            }
            scene.ends().await;
        }
    });
}
