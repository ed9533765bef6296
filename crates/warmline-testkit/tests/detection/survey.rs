//! The survey: both legs of a server, each told apart, and nothing left of either.

use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline::upstream::{Declared, Leg, Survey, Upstream};
use warmline_testkit::{Canned, Fault, Personality};

use super::program::Program;
use super::scene::Scene;
use super::stdio_rows::asked;
use super::tasks::no_task_left;

/// What a leg shows, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// It works and keeps something for a session.
    Session,
    /// It works and keeps nothing.
    NoSession,
    /// The server said it has no such leg.
    Nothing,
    /// It could not be found out, for this reason.
    Failed(Reason),
    /// Nobody tried.
    NotTried,
}

fn shows(leg: &Leg, era: Era) -> Shows {
    match leg {
        Leg::Speaks(facts) => {
            assert_eq!(facts.era, era);
            if facts.keeps_session {
                Shows::Session
            } else {
                Shows::NoSession
            }
        },
        Leg::DoesNot(_) => Shows::Nothing,
        Leg::Failed(trouble) => Shows::Failed(trouble.reason),
        Leg::NotTried => Shows::NotTried,
    }
}

fn both(survey: &Survey) -> (Shows, Shows) {
    (
        shows(&survey.legacy, Era::Legacy),
        shows(&survey.modern, Era::Modern),
    )
}

#[tokio::test]
async fn both_legs_are_told_apart_over_http() {
    let rows: [(Personality, Shows, Shows); 5] = [
        (Personality::dual(), Shows::Session, Shows::NoSession),
        (
            Personality::dual_stateless(),
            Shows::NoSession,
            Shows::NoSession,
        ),
        (Personality::legacy(), Shows::Session, Shows::Nothing),
        (
            Personality::legacy_stateless(),
            Shows::NoSession,
            Shows::Nothing,
        ),
        (Personality::modern(), Shows::Nothing, Shows::NoSession),
    ];
    for (personality, legacy, modern) in rows {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality);
        let survey = Upstream::new()
            .survey(&scene.server, &Declared::default())
            .await;
        assert_eq!(both(&survey), (legacy, modern), "{story}: {survey:?}");
        let counts = scene.ledger.counts();
        assert_eq!(counts.open_sessions, 0, "{story}: what was opened is ended");
        scene.ends(&story).await;
    }
}

#[tokio::test]
async fn a_leg_that_cannot_be_asked_is_not_called_missing() {
    for (status, reason) in [(401, Reason::Unauthorized), (503, Reason::Unavailable)] {
        let scene = Scene::new(Personality::dual())
            .always("server/discover", Fault::Reply(Canned::new(status, "")))
            .always("initialize", Fault::Reply(Canned::new(status, "")));
        let survey = Upstream::new()
            .survey(&scene.server, &Declared::default())
            .await;
        let failed = Shows::Failed(reason);
        assert_eq!(both(&survey), (failed, failed), "{survey:?}");
        scene.ends("no verdict").await;
    }
    let scene = Scene::new(Personality::dual());
    scene.ledger.stop();
    let survey = Upstream::new()
        .survey(&scene.server, &Declared::default())
        .await;
    assert_eq!(
        both(&survey),
        (Shows::NotTried, Shows::Failed(Reason::ConnectRefused))
    );
    no_task_left().await;
}

#[tokio::test]
async fn both_legs_are_told_apart_over_stdio_each_in_a_process_of_its_own() {
    let rows: [(&str, Shows, Shows); 3] = [
        ("dual", Shows::Session, Shows::Session),
        ("legacy", Shows::Session, Shows::Nothing),
        ("modern", Shows::Nothing, Shows::Session),
    ];
    for (personality, legacy, modern) in rows {
        let program = Program::ledger(&["--personality", personality]);
        let survey = Upstream::new()
            .survey(&program.server(), &Declared::default())
            .await;
        assert_eq!(both(&survey), (legacy, modern), "{personality}: {survey:?}");
        no_task_left().await;
        program.gone().await;
        let lives = asked(&program);
        assert_eq!(lives.len(), 2, "{personality}: {lives:?}");
        assert_eq!(lives[0], ["server/discover"], "{personality}");
        assert_eq!(lives[1][0], "initialize", "{personality}");
    }
}
