//! Closing, dropped half-way: a child is gone all the same, and a URL owes nothing.

use warmline::upstream::Upstream;
use warmline_testkit::sweep::{Point, When, drop_at};

use super::calls::{TWO_ENDPOINTS, WAYS};
use super::scene::play;

/// reliability P25, reliability P26: every cut point of a close.
#[test]
fn closing_may_be_dropped_anywhere() {
    play(async {
        for (story, start) in WAYS.into_iter().chain([TWO_ENDPOINTS]) {
            let scene = start();
            let mut polls = 0;
            let mut closed = None;
            while closed.is_none() {
                for when in [When::AtOnce, When::Woken] {
                    let point = Point { polls, when };
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
