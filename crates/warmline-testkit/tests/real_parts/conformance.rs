//! The official conformance suite, both legs, both revisions. Client leg: the suite is the server,
//! and our side towards servers is the client (`examples/conformance_client.rs`). Server leg: the
//! suite is the client, and the gateway is the server (`server_leg.rs`).
//!
//! Every scenario of the client leg that is not about authorization must pass. Here they run one by
//! one, each with a limit; `make conformance` runs the whole set as the suite itself does. Run this file alone
//! with `cargo test -p warmline-testkit --examples --test conformance`, or the client is stale.
mod server_leg;
mod suite_runner;

use std::collections::BTreeSet;

use suite_runner::{Run, list};

/// What we play at each revision. The suite's own list says whether it is complete.
const LEGACY: &str = "2025-11-25";
const LEGACY_SCENARIOS: &[&str] = &[
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "json-schema-2020-12-preservation",
];
const MODERN: &str = "2026-07-28";
const MODERN_SCENARIOS: &[&str] = &[
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
];

/// Runs all scenarios of a revision and tells of every one that did not pass.
async fn pass(revision: &str, scenarios: &[&str]) {
    let mut failed = Vec::new();
    for scenario in scenarios {
        if let Run::Failed(said) = suite_runner::run(scenario, revision).await {
            failed.push(format!("{scenario} at {revision}:\n{said}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A151: the official suite, legacy.
#[tokio::test]
async fn every_legacy_scenario_but_authorization_passes() {
    pass(LEGACY, LEGACY_SCENARIOS).await;
}

/// A151: the official suite, modern.
#[tokio::test]
async fn every_modern_scenario_but_authorization_passes() {
    pass(MODERN, MODERN_SCENARIOS).await;
}

#[tokio::test]
async fn no_scenario_of_the_suite_is_left_out() {
    for (revision, ours) in [(LEGACY, LEGACY_SCENARIOS), (MODERN, MODERN_SCENARIOS)] {
        let theirs = list(revision).await;
        let theirs: BTreeSet<&str> = theirs
            .iter()
            .map(String::as_str)
            .filter(|name| !name.starts_with("auth/"))
            .collect();
        assert_eq!(theirs, ours.iter().copied().collect(), "at {revision}");
    }
}

/// Of the client leg nothing but authorization, of the server leg nothing but what the fixture's
/// SDK does not have.
#[test]
fn few_things_are_expected_to_fail() {
    for (revision, legs) in [
        (LEGACY, [("client", "auth/"), ("server", "no scenario")]),
        (MODERN, [("client", "auth/"), ("server", "tasks-")]),
    ] {
        let file = crate::real_parts::part(&format!("conformance/{revision}.yaml"));
        let text = std::fs::read_to_string(file).unwrap();
        let mut leg = "";
        let mut entries = 0;
        for line in text.lines() {
            if let Some((named, _)) = line
                .split_once(':')
                .filter(|_| !line.starts_with(['#', ' ']))
            {
                leg = named;
            }
            let Some(entry) = line.trim_start().strip_prefix("- ") else {
                continue;
            };
            entries += 1;
            let allowed = legs
                .iter()
                .any(|(of, start)| *of == leg && entry.starts_with(start));
            assert!(allowed, "{revision}, {leg}: {entry}");
        }
        assert!(entries > 0, "{revision}");
    }
}
