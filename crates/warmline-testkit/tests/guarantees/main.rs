//! The map of guarantees: `docs/GUARANTEES.md` against the comments of all tests in the tree.
//!
//! A test that shows a case begins its comment with the case's number (`/// A24, P107: …`, or
//! `/// reliability I12: …` for the promises and invariants). The page has one row for each case:
//! which tests show it, or to which later part it belongs. Here the two are compared.
//!
//! `WARMLINE_BLESS=1 cargo test -p warmline-testkit --test guarantees` writes the tests into the
//! page anew; what people wrote there (`later`, `open`, `partly`) stays.
#![cfg(test)]

mod cases;
mod claims;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cases::{Case, every_case};
use claims::{Claim, Shown, claims_below};
use page::{Page, Row};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

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
    let tests = by_case(&claims);
    let text = fs::read_to_string(page_file()).unwrap();
    if std::env::var_os("WARMLINE_BLESS").is_some() {
        fs::write(page_file(), page::rewritten(&text, &tests)).unwrap();
        return;
    }
    let page = Page::read(&text);
    let mut complaints: Vec<String> = claims
        .iter()
        .flat_map(|claim| claim.complaints.clone())
        .collect();
    complaints.extend(page.complaints.iter().cloned());
    complaints.extend(against_rows(&page.rows));
    for row in &page.rows {
        let shown = tests.get(&row.case).cloned().unwrap_or_default();
        complaints.extend(against_tests(row, &shown));
    }
    assert_none(&complaints);
}

/// Every case has exactly one row, and no row has none.
fn against_rows(rows: &[Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    let cases: BTreeSet<Case> = every_case().collect();
    let mut seen = BTreeSet::new();
    for row in rows {
        if !cases.contains(&row.case) {
            complaints.push(format!("{}: there is no such case", row.case));
        }
        if !seen.insert(row.case) {
            complaints.push(format!("{}: two rows", row.case));
        }
    }
    let missing = cases.difference(&seen);
    complaints.extend(missing.map(|case| format!("{case}: no row")));
    complaints
}

/// What a row says, and what the tests say of it.
fn against_tests(row: &Row, shown: &BTreeSet<Shown>) -> Vec<String> {
    let case = row.case;
    let unwritten = shown.difference(&row.tests);
    let unshown = row.tests.difference(shown);
    let mut complaints: Vec<String> = unwritten
        .map(|test| format!("{case}: the row leaves {test} out"))
        .chain(unshown.map(|test| format!("{case}: {test} is no test that names it")))
        .collect();
    if row.tests.is_empty() && row.met.is_none() && row.later.is_none() && row.open.is_none() {
        complaints.push(format!("{case}: neither shown nor later nor open"));
    }
    if row.open.is_some() && !row.tests.is_empty() {
        complaints.push(format!("{case}: open, and shown all the same"));
    }
    if row.partly.is_some() && row.tests.is_empty() {
        complaints.push(format!("{case}: partly shown, but by no test"));
    }
    if row.open.is_some() || row.partly.is_some() {
        complaints.push(format!("{case}: not shown yet"));
    }
    complaints
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

/// What is yet to be shown, by area: for whoever writes tests (`-- --ignored --nocapture`).
#[test]
#[ignore = "a list for people"]
fn what_is_open() {
    let page = Page::read(&fs::read_to_string(page_file()).unwrap());
    let mut areas: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &page.rows {
        let place = |text: &String| text.rsplit(['(', ' ']).next().unwrap_or("").to_owned();
        if let Some(area) = &row.open {
            areas
                .entry(area.clone())
                .or_default()
                .push(row.case.to_string());
        } else if let Some(missing) = &row.partly {
            let area = place(missing).trim_end_matches(')').to_owned();
            areas
                .entry(area)
                .or_default()
                .push(format!("({})", row.case));
        }
    }
    for (area, cases) in areas {
        println!("{area} ({}): {}", cases.len(), cases.join(" "));
    }
}
