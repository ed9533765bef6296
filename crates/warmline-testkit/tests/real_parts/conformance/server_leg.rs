//! The official suite, server leg: the suite is the client, and the gateway stands between it and
//! a server. Whatever the server passes alone it must pass through the gateway, check by check.

use crate::prelude::*;
use std::collections::BTreeMap;

use warmline_testkit::{LedgerServer, Personality};

use super::suite_runner::conformance;

/// How the checks of each scenario went, in the order in which the suite made them.
type Checks = BTreeMap<(String, String), Vec<String>>;

/// Which scenarios are run, and as which revision.
#[derive(Clone, Copy)]
enum Set {
    /// All that a revision requires, and what the suite runs beside it.
    Required(&'static str),
    /// All that there are for an older revision.
    Older(&'static str),
}

impl Set {
    fn arguments(self) -> Vec<String> {
        let of_suite = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match self {
            Self::Required(revision) => {
                let expected = part(&format!("conformance/{revision}.yaml"));
                let file = text(&expected);
                of_suite(&["--requirements", revision, "--expected-failures", &file])
            },
            Self::Older(revision) => of_suite(&["--suite", "all", "--spec-version", revision]),
        }
    }
}

/// Runs the suite against a URL; gives its verdict, and how each check went.
async fn checks(url: &str, set: Set) -> (Option<i32>, Checks) {
    let folder = TempDir::new().unwrap();
    let results = text(folder.path());
    let target = ["server", "--url", url, "-o", &results];
    let set = set.arguments();
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let (code, said) = conformance(&[&target[..], &set].concat()).await;
    let mut checks = Checks::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let made = std::fs::read(entry.path().join("checks.json")).unwrap();
        add(
            &mut checks,
            scenario(&name),
            &serde_json::from_slice(&made).unwrap(),
        );
    }
    assert!(!checks.is_empty(), "the suite made no check:\n{said}");
    (code, checks)
}

/// The scenario in the name of a folder, which ends with a time.
fn scenario(folder: &str) -> &str {
    let end = folder
        .len()
        .saturating_sub("-2026-11-16T00-13-32-073Z".len());
    let name = folder.get(..end).unwrap_or(folder);
    name.strip_prefix("server-").unwrap_or(name)
}

fn add(checks: &mut Checks, scenario: &str, made: &Value) {
    for check in made.as_array().unwrap() {
        let status = check["status"].as_str().unwrap().to_owned();
        // What the suite only tells is no check.
        if status != "INFO" {
            let name = check["id"].as_str().unwrap().to_owned();
            let what = check["errorMessage"].as_str().unwrap_or_default();
            let key = (scenario.to_owned(), name);
            checks
                .entry(key)
                .or_default()
                .push(format!("{status} {what}"));
        }
    }
}

/// Runs the suite against a server, direct and through the gateway, and compares.
async fn passes_all_it_passes_alone(url: &str, set: Set) {
    let warm = Warmline::builder()
        .server(Server::http("fixture", url))
        .build()
        .unwrap();
    let options = GatewayOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        ..GatewayOptions::default()
    };
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    let place = format!("http://{}/servers/fixture/mcp", gateway.address());
    let (alone, direct) = checks(url, set).await;
    let (behind, through) = checks(&place, set).await;
    gateway.stop().await;
    warm.close().await;
    let lost = lost(&direct, &through);
    assert!(lost.is_empty(), "lost on the way:\n{}", lost.join("\n"));
    assert_eq!(behind, alone, "the suite's own verdict");
}

/// How a check went, worst first. One that is not made is worse than any that is: what it would
/// have shown is not known.
const OUTCOMES: [&str; 5] = ["not made", "FAILURE", "WARNING", "SKIPPED", "SUCCESS"];

fn rank(outcome: &str) -> usize {
    let found = OUTCOMES.iter().position(|word| outcome.starts_with(word));
    found.unwrap_or_else(|| panic!("the suite has a new word: {outcome}"))
}

/// The checks that went worse through the gateway, or were not made there at all.
fn lost(direct: &Checks, through: &Checks) -> Vec<String> {
    let none = Vec::new();
    let mut lost = Vec::new();
    for (check, alone) in direct {
        let behind = through.get(check).unwrap_or(&none);
        for (at, alone) in alone.iter().enumerate() {
            let behind = behind.get(at).map_or("not made", String::as_str);
            if rank(behind) < rank(alone) {
                lost.push(format!(
                    "{}: {}: {behind}, and alone: {alone}",
                    check.0, check.1
                ));
            }
        }
    }
    lost
}

#[test]
fn a_check_that_goes_worse_or_is_not_made_is_lost() {
    let made = |outcomes: &[&str]| -> Checks {
        let key = ("scenario".to_owned(), "check".to_owned());
        let outcomes = outcomes.iter().map(|&outcome| outcome.to_owned());
        BTreeMap::from([(key, outcomes.collect())])
    };
    let rows: [(&[&str], &[&str], usize); 7] = [
        (&["SUCCESS "], &["SUCCESS "], 0),
        (&["SUCCESS "], &["WARNING late"], 1),
        (&["WARNING late"], &["FAILURE never"], 1),
        (&["FAILURE never"], &["SUCCESS "], 0),
        (&["SUCCESS ", "SUCCESS "], &["SUCCESS "], 1),
        (&["WARNING late"], &[], 1),
        (&["FAILURE never"], &[], 1),
    ];
    for (alone, behind, expected) in rows {
        let lost = lost(&made(alone), &made(behind));
        assert_eq!(lost.len(), expected, "{alone:?} {behind:?}");
    }
    assert_eq!(lost(&made(&["SUCCESS "]), &Checks::new()).len(), 1);
}

/// A151: the official suite, legacy, with the gateway as the server.
#[tokio::test]
async fn a_legacy_fixture_loses_nothing_behind_the_gateway() {
    let fixture = Running::announced(&node("fixture-v1.mjs"));
    passes_all_it_passes_alone(&fixture.url, Set::Required("2025-11-25")).await;
}

/// A151: the official suite, modern, with the gateway as the server.
#[tokio::test]
async fn a_modern_fixture_loses_nothing_behind_the_gateway() {
    let fixture = Running::announced(&node("fixture-v2.mjs"));
    passes_all_it_passes_alone(&fixture.url, Set::Required("2026-07-28")).await;
}

#[tokio::test]
async fn older_wires_lose_nothing_behind_the_gateway() {
    let fixture = Running::announced(&node("fixture-v1.mjs"));
    for revision in ["2025-06-18", "2025-03-26"] {
        passes_all_it_passes_alone(&fixture.url, Set::Older(revision)).await;
    }
}

/// Our own server has none of the names that the suite asks for: what it passes without them is
/// the protocol itself.
#[tokio::test]
async fn our_own_server_loses_nothing_behind_the_gateway() {
    let ledger = LedgerServer::start(Personality::dual()).unwrap();
    for revision in ["2025-11-25", "2026-07-28"] {
        passes_all_it_passes_alone(&ledger.url(), Set::Required(revision)).await;
    }
}
