//! An era that the configuration says is not asked about.

use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline_testkit::{ModernLeg, Personality};

use super::scene::{End, HANDSHAKE, LEGACY, MODERN, PROBE, Scene};

#[tokio::test]
async fn the_legacy_era_is_greeted_without_a_probe() {
    for personality in [
        Personality::legacy(),
        Personality::legacy_stateless(),
        Personality::dual(),
    ] {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality).pinned(Era::Legacy);
        scene.plays(&story, LEGACY, HANDSHAKE).await.unwrap();
    }
}

#[tokio::test]
async fn the_modern_era_is_asked_for_and_nobody_is_greeted() {
    for personality in [
        Personality::modern(),
        Personality::dual(),
        Personality::dual_stateless(),
    ] {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality).pinned(Era::Modern);
        scene.plays(&story, MODERN, PROBE).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_without_the_said_era_is_an_error_and_the_other_era_is_not_tried() {
    let refusing = Personality::legacy().modern_leg(ModernLeg::RefusedByVersion);
    for personality in [
        Personality::legacy(),
        Personality::legacy_stateless(),
        refusing,
    ] {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality).pinned(Era::Modern);
        let trouble = scene
            .plays(&story, End::Fails(Reason::Version), PROBE)
            .await
            .unwrap_err();
        assert!(trouble.hint.unwrap().contains("legacy"), "{story}");
    }
    let scene = Scene::new(Personality::modern()).pinned(Era::Legacy);
    let end = End::Fails(Reason::Version);
    scene
        .plays("modern only", end, &["initialize"])
        .await
        .unwrap_err();
}
