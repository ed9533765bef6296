//! The map of guarantees: `docs/GUARANTEES.md` against the comments of all tests in the tree.
//!
//! A test that shows a case begins its comment with the case's number (`/// A24, P107: …`, or
//! `/// reliability I12: …` for the promises and invariants). The page has one row for each case:
//! which tests show it, or to which later part it belongs. Here the two are compared.
//!
//! `WARMLINE_BLESS=1 cargo test -p warmline-testkit --test project guarantees` writes the tests into the
//! page again; what people wrote there (`met`, `later`) stays.
mod cases;
mod claims;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::root;

use cases::{Case, every_case};
use claims::{Claim, Shown, claims_below};

fn page_file() -> PathBuf {
    root().join("docs/GUARANTEES.md")
}

fn every_claim() -> Vec<Claim> {
    claims_below(&root().join("crates"))
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(
        complaints.is_empty(),
        "docs/GUARANTEES.md and the tests disagree (WARMLINE_BLESS=1 writes the tests into it):\n{}",
        complaints.join("\n")
    );
}

/// Which tests show which case.
fn by_case(claims: &[Claim]) -> BTreeMap<Case, BTreeSet<Shown>> {
    let mut tests: BTreeMap<Case, BTreeSet<Shown>> = BTreeMap::new();
    for claim in claims {
        for case in &claim.cases {
            tests.entry(*case).or_default().insert(claim.test.clone());
        }
    }
    tests
}

#[test]
fn the_page_and_the_comments_of_the_tests_agree() {
    let claims = every_claim();
    let text = fs::read_to_string(page_file()).unwrap();
    let written = page::rewritten(&text, &by_case(&claims));
    if std::env::var_os("WARMLINE_BLESS").is_some() {
        fs::write(page_file(), &written).unwrap();
    } else {
        let pairs = text.lines().zip(written.lines());
        let stale = pairs.filter(|(old, new)| old != new);
        let stale = stale.map(|(old, new)| format!("{old}\n  is by now\n{new}"));
        assert_none(&stale.collect::<Vec<_>>());
    }
    let mut complaints: Vec<String> = claims
        .iter()
        .flat_map(|claim| claim.complaints.clone())
        .collect();
    let cases: BTreeSet<Case> = every_case().collect();
    let mut seen = BTreeSet::new();
    for (case, _, shown) in written.lines().filter_map(page::cells_of) {
        if !cases.contains(&case) {
            complaints.push(format!("{case}: there is no such case"));
        }
        if !seen.insert(case) {
            complaints.push(format!("{case}: two rows"));
        }
        if shown.is_empty() {
            complaints.push(format!("{case}: neither shown nor met nor later"));
        }
    }
    let missing = cases.difference(&seen);
    complaints.extend(missing.map(|case| format!("{case}: no row")));
    assert_none(&complaints);
}

#[test]
fn what_the_page_says_beside_the_map_names_tests_that_exist() {
    let names: BTreeSet<String> = every_claim()
        .into_iter()
        .map(|claim| claim.test.name)
        .collect();
    let text = fs::read_to_string(page_file()).unwrap();
    let unknown: Vec<String> = page::tests_beside_the_map(&text)
        .into_iter()
        .filter(|name| !names.contains(name))
        .map(|name| format!("{name}: no such test"))
        .collect();
    assert_none(&unknown);
}
