//! The first contact: inside a run the leg that keeps state is taken, and a server is asked once.

use crate::prelude::*;

use warmline_upstream::{EraSelection, FirstContact, Transport};

use super::fixture::{HANDSHAKE, PROBE, PROBE_THEN_HANDSHAKE, Scene};
use super::stdio_rows::asked;

const INSIDE: EraSelection = EraSelection::Both;
const OUTSIDE: EraSelection = EraSelection::FirstAnswering;

/// Which leg was taken, whether it keeps state, and which other one is known.
type ContactSummary = (Era, bool, Option<Era>);

/// What each process of a program was sent.
type Sent = &'static [&'static [&'static str]];

fn met(contact: &FirstContact) -> ContactSummary {
    assert_eq!(contact.facts.era, contact.session.facts().era);
    let other = contact.other_facts.as_ref().map(|other| other.era);
    (contact.facts.era, contact.facts.keeps_session, other)
}

async fn meet(scene: &Scene, legs: EraSelection) -> (ContactSummary, Vec<String>) {
    let before = scene.ledger.ledger().methods().len();
    let declared = ClientProfile::default();
    let contact = scene.upstream.first_contact(&scene.server, &declared, legs);
    let contact = contact.await.unwrap();
    let sent = scene.ledger.ledger().methods().split_off(before);
    contact.session.close().await;
    (met(&contact), sent)
}

#[tokio::test]
async fn inside_a_run_the_leg_that_keeps_state_is_taken() {
    let nothing: &[&str] = &[];
    let both: Vec<&str> = PROBE.iter().chain(HANDSHAKE).copied().collect();
    let refused: Vec<&str> = PROBE.iter().chain(&["initialize"]).copied().collect();
    let (legacy, modern) = (Era::Legacy, Era::Modern);
    // What is met, what the first contact sends, and what the second one.
    let rows: [(Personality, ContactSummary, &[&str], &[&str]); 5] = [
        (
            Personality::dual(),
            (legacy, true, Some(modern)),
            &both,
            HANDSHAKE,
        ),
        (
            Personality::dual_stateless(),
            (modern, false, Some(legacy)),
            &both,
            nothing,
        ),
        (
            Personality::modern(),
            (modern, false, None),
            &refused,
            nothing,
        ),
        (
            Personality::legacy(),
            (legacy, true, None),
            PROBE_THEN_HANDSHAKE,
            HANDSHAKE,
        ),
        (
            Personality::legacy_stateless(),
            (legacy, false, None),
            PROBE_THEN_HANDSHAKE,
            HANDSHAKE,
        ),
    ];
    for (personality, expected, first, later) in rows {
        let story = format!("{:?} {:?}", personality.legacy, personality.modern);
        let scene = Scene::new(personality);
        for sent in [first, later, later] {
            let seen = meet(&scene, INSIDE).await;
            assert_eq!(seen, (expected, strings(sent)), "{story}");
        }
        assert_eq!(scene.ledger.counts().open_sessions, 0, "{story}");
        scene.ends(&story).await;
    }
}

fn strings(sent: &[&str]) -> Vec<String> {
    sent.iter().map(|one| (*one).to_owned()).collect()
}

#[tokio::test]
async fn outside_a_run_and_where_the_era_is_said_only_one_leg_is_tried() {
    let scene = Scene::new(Personality::dual());
    let (seen, sent) = meet(&scene, OUTSIDE).await;
    assert_eq!((seen, sent), ((Era::Modern, false, None), strings(PROBE)));
    scene.ends("outside a run").await;

    for (era, keeps, sent) in [(Era::Legacy, true, HANDSHAKE), (Era::Modern, false, PROBE)] {
        let scene = Scene::new(Personality::dual()).pinned(era);
        let seen = meet(&scene, INSIDE).await;
        assert_eq!(seen, ((era, keeps, None), strings(sent)));
        scene.ends(era.as_str()).await;
    }
}

#[tokio::test]
async fn a_leg_that_is_only_away_is_tried_again_at_the_next_contact() {
    let scene =
        Scene::new(Personality::dual()).once("initialize", Fault::Reply(CannedReply::new(503, "")));
    let (seen, _) = meet(&scene, INSIDE).await;
    assert_eq!(seen, (Era::Modern, false, None));
    let (seen, sent) = meet(&scene, INSIDE).await;
    assert_eq!(seen, (Era::Legacy, true, Some(Era::Modern)));
    assert_eq!(sent, strings(HANDSHAKE), "the modern leg is remembered");
    scene.ends("away for a moment").await;
}

#[tokio::test]
async fn a_leg_that_is_gone_is_forgotten_and_the_server_met_anew() {
    let scene = Scene::new(Personality::dual());
    meet(&scene, INSIDE).await;
    let scene = scene.always(
        "initialize",
        Fault::Error {
            code: -32022,
            message: "Unsupported protocol version".to_owned(),
            data: serde_json::json!({"supported": ["2026-07-28"]}),
        },
    );
    let (seen, sent) = meet(&scene, INSIDE).await;
    assert_eq!(seen, (Era::Modern, false, None));
    let expected = strings(&["initialize", "server/discover", "initialize"]);
    assert_eq!(sent, expected);
    scene.ends("the legacy leg is gone").await;
}

#[tokio::test]
async fn over_stdio_the_legacy_leg_is_tried_in_a_second_process_and_the_first_one_ends() {
    let (both, only) = (Some(Era::Modern), None);
    let dual: Sent = &[PROBE, HANDSHAKE];
    let modern: Sent = &[PROBE, &["initialize"]];
    let legacy: Sent = &[PROBE_THEN_HANDSHAKE];
    let rows = [
        (("dual", Era::Legacy, both), dual, HANDSHAKE),
        (("modern", Era::Modern, only), modern, PROBE),
        (("legacy", Era::Legacy, only), legacy, HANDSHAKE),
    ];
    for ((personality, era, other), first, later) in rows {
        let program = Program::ledger(&["--personality", personality]);
        let (upstream, mut server) = (Upstream::new(), program.server());
        // A machine that is busy starts programs slowly, and this is not about their silence.
        server.timeouts.probe_silence = Duration::from_secs(60);
        let declared = ClientProfile::default();
        let contact = upstream.first_contact(&server, &declared, INSIDE).await;
        let contact = contact.unwrap();
        assert_eq!(met(&contact), (era, true, other), "{personality}");
        assert_eq!(contact.facts.transport, Transport::Stdio);
        let is_so = || asked(&program) == first;
        until("each process was sent its part", is_so).await;
        let again = upstream.first_contact(&server, &declared, INSIDE).await;
        let again = again.unwrap();
        assert_eq!(met(&again), (era, true, other), "{personality}");
        until("the third was sent no more than it needs", || {
            asked(&program).len() == first.len() + 1 && asked(&program)[first.len()] == later
        })
        .await;
        for contact in [contact, again] {
            contact.session.close().await;
        }
        no_task_left().await;
        program.gone().await;
    }
}
