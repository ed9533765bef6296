//! Openings, dropped half-way: no process, no connection and no task stays behind.

use std::cell::RefCell;

use warmline_core::era::Era;
use warmline_testkit::{Personality, ReplyFormat, SseFormat, sweep};
use warmline_upstream::{EraSelection, Upstream};

use super::fixture::{Scene, echoes, play};

/// Drops an opening at each of its points. Whoever opens next over the same connections is served.
async fn opening_is_swept(story: &str, scene: Scene, least_points: usize) {
    let last = RefCell::new(Upstream::new());
    let opening = || {
        // A new one each time, because one that has opened remembers what it learnt.
        let upstream = Upstream::new();
        last.replace(upstream.clone());
        let (server, declared) = (&scene.server, &scene.declared);
        async move { upstream.open(server, declared).await }
    };
    let swept = sweep::sweep_future(opening, async |point| {
        let upstream = last.borrow().clone();
        scene
            .settles(&format!("{story}, dropped at {point:?}"))
            .await;
        scene.opens_and_works(&upstream).await;
        scene
            .settles(&format!("{story}, used after {point:?}"))
            .await;
    })
    .await;
    let session = swept.output.unwrap().unwrap();
    echoes(&session).await;
    session.close().await;
    drop((session, last));
    scene.settles(story).await;
    let holds = swept.points >= least_points;
    assert!(holds, "{story}: only {} points", swept.points);
    scene.ends().await;
}

/// A28, reliability P26: every cut point of an opening leaves nothing.
#[test]
fn an_opening_over_http_may_be_dropped_anywhere() {
    play(async {
        let streams = || ReplyFormat::Sse(SseFormat::python());
        let rows: [(&str, Personality, Option<Era>); 6] = [
            ("legacy", Personality::legacy(), Some(Era::Legacy)),
            (
                "legacy by stream",
                Personality::legacy().reply(streams()),
                Some(Era::Legacy),
            ),
            ("modern", Personality::modern(), Some(Era::Modern)),
            (
                "modern by stream",
                Personality::modern().reply(streams()),
                Some(Era::Modern),
            ),
            ("found out to be legacy", Personality::legacy(), None),
            ("found out to be modern", Personality::dual(), None),
        ];
        for (story, personality, era) in rows {
            Box::pin(opening_is_swept(story, Scene::http(personality, era), 2)).await;
        }
    });
}

/// A28, reliability P26: the same over HTTP+SSE.
#[test]
fn an_opening_over_two_endpoints_may_be_dropped_anywhere() {
    play(async {
        let scene = Scene::two_endpoints();
        Box::pin(opening_is_swept("two endpoints", scene, 5)).await;
    });
}

/// A28, reliability P26: the same over stdio.
#[test]
fn an_opening_over_stdio_may_be_dropped_anywhere() {
    play(async {
        let crash = r#"{"method":"server/discover","fault":{"crash":"before-executing"}}"#;
        let rows: [(&str, &[&str], Option<Era>); 5] = [
            ("legacy", &["--personality", "legacy"], Some(Era::Legacy)),
            ("modern", &["--personality", "modern"], Some(Era::Modern)),
            ("found out to be legacy", &["--personality", "legacy"], None),
            ("found out to be modern", &["--personality", "dual"], None),
            (
                "exits on the probe",
                &["--personality", "legacy", "--fault", crash],
                None,
            ),
        ];
        for (story, args, era) in rows {
            Box::pin(opening_is_swept(story, Scene::stdio(args, era), 1)).await;
        }
    });
}

/// A28, reliability P26: every cut point of a first contact that meets both legs.
#[test]
fn a_first_contact_may_be_dropped_anywhere() {
    play(async {
        for scene in [
            Scene::http(Personality::dual(), None),
            Scene::stdio(&[], None),
        ] {
            let (server, declared) = (&scene.server, &scene.declared);
            let meeting = || async move {
                let upstream = Upstream::new();
                upstream
                    .first_contact(server, declared, EraSelection::Both)
                    .await
            };
            let swept = sweep::sweep_future(meeting, async |point| {
                scene.settles(&format!("dropped at {point:?}")).await;
                scene.opens_and_works(&Upstream::new()).await;
                scene.settles(&format!("used after {point:?}")).await;
            });
            let contact = Box::pin(swept).await.output.unwrap().unwrap();
            assert_eq!(contact.facts.era, Era::Legacy, "{contact:?}");
            echoes(&contact.session).await;
            contact.session.close().await;
            drop(contact);
            scene.settles("the contact").await;
            scene.ends().await;
        }
    });
}
