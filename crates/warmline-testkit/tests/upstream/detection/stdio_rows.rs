//! Rows Q1 to Q7: over stdio silence and an early end are answers too.

use crate::prelude::*;

use warmline_upstream::{Timeouts, Transport};

use super::fixture::{HANDSHAKE, PROBE, PROBE_THEN_HANDSHAKE, PROBE_TWICE, evidence};

/// A server is slow when it takes longer than this; the usual limit is seconds.
const IMPATIENT: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    handshake: Duration::from_secs(30),
    start: Duration::from_secs(60),
    probe_silence: Duration::from_millis(50),
    connection_idle: Duration::from_secs(15),
};

async fn open(program: &Program, times: Timeouts, era: Option<Era>) -> Result<Session, Diagnostic> {
    let server = ServerTarget {
        era,
        timeouts: times,
        ..program.server()
    };
    Upstream::new()
        .open(&server, &ClientProfile::default())
        .await
}

/// Opens, compares the version and what each process was sent, and ends it.
async fn opens(
    story: &str,
    program: Program,
    times: Timeouts,
    version: Version,
    sent: &[&[&str]],
) -> String {
    let session = open(&program, times, None)
        .await
        .unwrap_or_else(|trouble| panic!("{story}: {trouble:?}"));
    let facts = session.facts();
    assert_eq!(
        (facts.version, facts.era),
        (version, version.era()),
        "{story}: {}",
        evidence(&session)
    );
    assert_eq!(facts.transport, Transport::Stdio);
    assert!(facts.keeps_session, "a process keeps what it likes");
    let evidence = evidence(&session);
    // A notice may still be on its way.
    until(
        &format!(
            "{story} was sent {sent:?}, not {:?}: {evidence}",
            asked(&program)
        ),
        || asked(&program) == sent,
    )
    .await;
    session.close().await;
    drop(session);
    ends(&program).await;
    evidence
}

/// What each process of a program was sent, in order.
pub(crate) fn asked(program: &Program) -> Vec<Vec<String>> {
    let lives = program.lives().into_iter();
    lives
        .map(|life| {
            let received = life.iter().filter(|line| line["phase"] == "received");
            let methods = received.map(|line| line["method"].as_str().unwrap_or_default());
            methods.map(str::to_owned).collect()
        })
        .collect()
}

/// The census: no task and no process is left.
async fn ends(program: &Program) {
    no_task_left().await;
    program.gone().await;
}

fn discover_gets(fault: &str) -> String {
    format!(r#"{{"method":"server/discover","fault":{fault}}}"#)
}

fn unsupported(supported: &str) -> String {
    discover_gets(&format!(
        r#"{{"error":{{"code":-32022,"message":"no","data":{{"supported":{supported}}}}}}}"#
    ))
}

const MODERN: Version = Version::V2026_07_28;
const LEGACY: Version = Version::V2025_11_25;

/// E23, E24, P116, P117: the same rows over stdio.
#[tokio::test]
async fn the_answer_to_the_probe_tells_the_era() {
    let ours = unsupported(r#"["2026-07-28"]"#);
    let not_found = discover_gets(r#"{"error":{"code":-32601,"message":"Method not found"}}"#);
    let no_params =
        discover_gets(r#"{"error":{"code":-32602,"message":"Invalid request parameters"}}"#);
    let no_discover = discover_gets(r#"{"result":{"tools":[]}}"#);
    let rows: [(&str, &[&str], Version, &[&str]); 9] = [
        ("Q1", &["--personality", "modern"], MODERN, PROBE),
        ("Q1", &["--personality", "dual"], MODERN, PROBE),
        (
            "Q2",
            &["--personality", "modern", "--fault", &ours],
            MODERN,
            PROBE_TWICE,
        ),
        (
            "Q3",
            &["--personality", "legacy", "--modern", "refused"],
            LEGACY,
            PROBE_THEN_HANDSHAKE,
        ),
        (
            "Q3",
            &["--told-versions", "2025-11-25,2025-06-18"],
            LEGACY,
            PROBE_THEN_HANDSHAKE,
        ),
        (
            "Q4",
            &["--personality", "legacy"],
            LEGACY,
            PROBE_THEN_HANDSHAKE,
        ),
        ("Q4", &["--fault", &not_found], LEGACY, PROBE_THEN_HANDSHAKE),
        ("Q4", &["--fault", &no_params], LEGACY, PROBE_THEN_HANDSHAKE),
        (
            "Q4",
            &["--fault", &no_discover],
            LEGACY,
            PROBE_THEN_HANDSHAKE,
        ),
    ];
    for (row, args, version, sent) in rows {
        let story = format!("{row} {args:?}");
        let program = Program::ledger(args);
        let evidence = opens(&story, program, Timeouts::default(), version, &[sent]).await;
        let holds = evidence.contains(&format!("({row})"));
        assert!(holds, "{story}: {evidence}");
    }
}

/// E23, P117: no `initialize` for a modern server.
#[tokio::test]
async fn a_server_of_versions_that_nobody_speaks_is_not_greeted() {
    let later = unsupported(r#"["2027-03-01"]"#);
    for args in [&["--fault", &later], &["--told-versions", "2027-03-01"]] {
        let program = Program::ledger(args);
        let trouble = open(&program, Timeouts::default(), None).await.unwrap_err();
        assert_eq!(trouble.reason, Reason::Version, "{trouble:?}");
        assert!(trouble.cause.unwrap().contains("2027-03-01"));
        ends(&program).await;
        assert_eq!(asked(&program), [PROBE]);
    }
}

#[tokio::test]
async fn a_server_that_never_comes_to_terms_is_not_greeted() {
    let always = r#"{"method":"server/discover","times":null,"fault":{"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}}"#;
    let program = Program::ledger(&["--fault", always]);
    let trouble = open(&program, Timeouts::default(), None).await.unwrap_err();
    assert_eq!(trouble.reason, Reason::Version, "{trouble:?}");
    ends(&program).await;
    assert_eq!(asked(&program), [PROBE_TWICE]);
}

/// P116: silence to the probe is no verdict.
#[tokio::test]
async fn a_server_that_stays_silent_gets_initialize_as_well() {
    let silent = discover_gets(r#"{"silence":"before-executing"}"#);
    let program = Program::ledger(&["--personality", "legacy", "--fault", &silent]);
    let evidence = opens("Q5", program, IMPATIENT, LEGACY, &[PROBE_THEN_HANDSHAKE]).await;
    assert!(evidence.contains("silence"), "{evidence}");
}

/// P116: a server that dies of the probe is met all the same.
#[tokio::test]
async fn a_server_that_exits_on_the_probe_is_started_anew_and_greeted_first() {
    let crash = discover_gets(r#"{"crash":"before-executing"}"#);
    let cut = discover_gets(r#"{"cut":["before-executing","fin"]}"#);
    for fault in [&crash, &cut] {
        let program = Program::ledger(&["--personality", "legacy", "--fault", fault]);
        opens(
            "Q6",
            program,
            Timeouts::default(),
            LEGACY,
            &[PROBE, HANDSHAKE],
        )
        .await;
    }
}

#[tokio::test]
async fn a_server_that_became_modern_by_the_late_probe_is_asked_once_more() {
    // Its answer to the probe is slow, its refusal of `initialize` is not.
    let slow = discover_gets(r#"{"delay":[60000,"before-executing"]}"#);
    let sent: &[&str] = &["server/discover", "initialize", "server/discover"];
    for kind in [&["--personality", "modern"][..], &["--lock-era"]] {
        let program = Program::ledger(&[kind, &["--fault", &slow]].concat());
        let evidence = opens("Q7", program, IMPATIENT, MODERN, &[sent]).await;
        assert!(evidence.contains("(Q7)"), "{evidence}");
    }
}

/// P102: what is sent after both questions depends on which answer is there first; the era does
/// not.
#[tokio::test]
async fn a_server_that_starts_slowly_is_met_in_the_era_it_speaks() {
    let rows: [(&str, Version); 4] = [
        ("legacy", LEGACY),
        ("legacy-stateless", LEGACY),
        ("modern", MODERN),
        ("dual", MODERN),
    ];
    for (personality, version) in rows {
        let program = Program::ledger(&["--start-delay-ms", "400", "--personality", personality]);
        let session = open(&program, IMPATIENT, None).await.unwrap();
        assert_eq!(session.facts().version, version, "{}", evidence(&session));
        session.close().await;
        drop(session);
        ends(&program).await;
        let sent = asked(&program);
        assert_eq!(sent.len(), 1, "{personality}: one process");
        let expected = ["server/discover", "initialize"];
        assert_eq!(sent[0][..2], expected, "{personality}");
    }
}

/// P102: starting has a limit of its own.
#[tokio::test]
async fn a_server_that_needs_ten_seconds_to_start_is_met_with_the_usual_limits() {
    let met = |personality| async move {
        let program = Program::ledger(&["--start-delay-ms", "10000", "--personality", personality]);
        let session = open(&program, Timeouts::default(), None).await.unwrap();
        let (version, took) = (session.facts().version, session.facts().open_duration);
        assert!(took >= Duration::from_secs(10), "{took:?}");
        let heard = |method: &str| asked(&program).concat().iter().any(|one| one == method);
        if version == LEGACY {
            let is_so = || heard("notifications/initialized");
            until("the handshake is over", is_so).await;
        }
        session.close().await;
        drop(session);
        program.gone().await;
        (version, asked(&program))
    };
    let (legacy, dual) = tokio::join!(met("legacy"), met("dual"));
    let owned = |sent: &[&str]| vec![sent.iter().map(ToString::to_string).collect::<Vec<_>>()];
    assert_eq!(legacy, (LEGACY, owned(PROBE_THEN_HANDSHAKE)));
    assert_eq!(dual, (MODERN, owned(&["server/discover", "initialize"])));
    no_task_left().await;
}

/// A86, P62: a handshake that is never answered ends with what stderr said.
#[tokio::test]
async fn a_server_that_never_answers_is_given_up_with_its_last_words() {
    let times = Timeouts {
        start: Duration::from_millis(400),
        ..IMPATIENT
    };
    let never = ["--start-delay-ms", "600000", "--stderr-bytes", "1000"];
    for era in [None, Some(Era::Legacy), Some(Era::Modern)] {
        let program = Program::ledger(&never);
        let trouble = open(&program, times, era).await.unwrap_err();
        let found = (trouble.reason, trouble.code);
        assert_eq!(found, (Reason::SilentServer, Code::OpenFailed));
        let why = trouble.cause.unwrap_or_default();
        assert!(why.contains("this is a line on stderr"), "{era:?}: {why}");
        ends(&program).await;
    }
}

#[tokio::test]
async fn the_said_era_is_not_asked_about_over_stdio_either() {
    let rows: [(&str, Era, &[&str]); 3] = [
        ("dual", Era::Legacy, HANDSHAKE),
        ("legacy", Era::Legacy, HANDSHAKE),
        ("dual", Era::Modern, PROBE),
    ];
    for (personality, era, sent) in rows {
        let program = Program::ledger(&["--personality", personality]);
        let session = open(&program, Timeouts::default(), Some(era))
            .await
            .unwrap();
        assert_eq!(session.facts().era, era);
        until("all was heard", || asked(&program) == [sent]).await;
        session.close().await;
        drop(session);
        ends(&program).await;
        assert_eq!(asked(&program), [sent], "{personality} {era}");
    }
    let program = Program::ledger(&["--personality", "legacy"]);
    let trouble = open(&program, Timeouts::default(), Some(Era::Modern))
        .await
        .unwrap_err();
    assert_eq!(trouble.reason, Reason::Version);
    ends(&program).await;
    assert_eq!(asked(&program), [PROBE]);
}

/// A28, P62: a child that never opened is gone.
#[tokio::test]
async fn a_child_that_stops_in_the_handshake_is_given_up_and_gone() {
    let times = Timeouts {
        start: Duration::from_millis(300),
        ..IMPATIENT
    };
    let program = Program::script("hear; kill -STOP $$; hear");
    let trouble = open(&program, times, None).await.unwrap_err();
    assert_eq!(trouble.reason, Reason::SilentServer, "{trouble:?}");
    ends(&program).await;
}
