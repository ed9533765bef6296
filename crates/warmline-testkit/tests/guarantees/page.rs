//! The page: its rows, read and written anew.
//!
//! A row is `| case | what it says | what shows it |`. The last cell holds, separated by ` · `:
//! tests, a file and its functions each; `met: by what`, where no test can show it; `later: part (what)`; `open: area`; `partly: what is
//! missing (area)`.

use std::collections::{BTreeMap, BTreeSet};

use crate::cases::Case;
use crate::claims::Shown;

/// Parts that come later; a row must say which.
const LATER: &[&str] = &[
    "gateway",
    "wires",
    "eras",
    "replicas",
    "Python",
    "OAuth",
    "declarations of tools",
];

/// Areas of which tests of single parts show a part at most: what users are promised there is shown
/// by a story over the whole library ([`Shown::is_story`]).
const BY_STORIES: &[&str] = &[
    "calls",
    "closing",
    "credentials",
    "declared",
    "healing",
    "health",
    "identity",
    "opening",
    "records",
    "reuse",
    "runs",
    "tools",
];

const BETWEEN: &str = " · ";

/// All rows of the page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    pub(crate) complaints: Vec<String>,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) tests: BTreeSet<Shown>,
    /// What meets it where no test can.
    pub(crate) met: Option<String>,
    pub(crate) later: Option<String>,
    pub(crate) open: Option<String>,
    pub(crate) partly: Option<String>,
}

impl Page {
    pub(crate) fn read(text: &str) -> Self {
        let mut page = Self {
            rows: Vec::new(),
            complaints: Vec::new(),
        };
        for (case, _, cell) in text.lines().filter_map(cells_of) {
            match row_of(case, cell) {
                Ok(row) => page.rows.push(row),
                Err(complaint) => page.complaints.push(format!("{case}: {complaint}")),
            }
        }
        page
    }
}

/// Case, title and last cell of a line, if it is a row of the map.
fn cells_of(line: &str) -> Option<(Case, &str, &str)> {
    let inner = line.strip_prefix("| ")?.strip_suffix('|')?;
    let (case, rest) = inner.split_once(" | ")?;
    let (title, cell) = rest.split_once(" |")?;
    Some((Case::read(case)?, title, cell.trim()))
}

fn row_of(case: Case, cell: &str) -> Result<Row, String> {
    let mut row = Row {
        case,
        tests: BTreeSet::new(),
        met: None,
        later: None,
        open: None,
        partly: None,
    };
    for part in cell.split(BETWEEN).filter(|part| !part.is_empty()) {
        if let Some(reason) = part.strip_prefix("later: ") {
            let known = LATER.iter().any(|later| reason.starts_with(later));
            row.later = Some(reason.to_owned()).filter(|_| known);
            row.later
                .as_ref()
                .ok_or_else(|| format!("no later part: {reason}"))?;
        } else if let Some(by) = part.strip_prefix("met: ") {
            row.met = Some(by.to_owned());
        } else if let Some(area) = part.strip_prefix("open: ") {
            row.open = Some(area.to_owned());
        } else if let Some(missing) = part.strip_prefix("partly: ") {
            row.partly = Some(missing.to_owned());
        } else {
            row.tests
                .extend(tests_of(part).ok_or_else(|| format!("cannot be read: {part}"))?);
        }
    }
    Ok(row)
}

/// `` `file`: `one`, `two` ``.
fn tests_of(part: &str) -> Option<Vec<Shown>> {
    let (file, names) = part.split_once(": ")?;
    let bare = |text: &str| Some(text.strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let file = bare(file)?;
    names
        .split(", ")
        .map(|name| {
            Some(Shown {
                file: file.clone(),
                name: bare(name)?,
            })
        })
        .collect()
}

/// The page with the tests of each row written anew.
pub(crate) fn rewritten(text: &str, tests: &BTreeMap<Case, BTreeSet<Shown>>) -> String {
    let mut page = String::new();
    for line in text.lines() {
        match cells_of(line) {
            Some((case, title, cell)) => {
                let shown = tests.get(&case).cloned().unwrap_or_default();
                let cell = cell_of(cell, &shown);
                page.push_str(&format!("| {case} | {title} | {cell} |"));
            },
            None => page.push_str(line),
        }
        page.push('\n');
    }
    page
}

/// The last cell with these tests. What people wrote stays, but for what the tests decide: see
/// [`unfinished`].
fn cell_of(old: &str, tests: &BTreeSet<Shown>) -> String {
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in tests {
        let names = files.entry(&test.file).or_default();
        names.push(format!("`{}`", test.name));
    }
    let mut parts: Vec<String> = files
        .iter()
        .map(|(file, names)| format!("`{file}`: {}", names.join(", ")))
        .collect();
    let said = |word: &str| {
        let mut parts = old.split(BETWEEN);
        parts.find_map(|part| part.strip_prefix(word))
    };
    let (met, later) = (said("met: "), said("later: "));
    parts.extend(unfinished(said("open: "), said("partly: "), tests));
    parts.extend(met.map(|part| format!("met: {part}")));
    if parts.is_empty() && later.is_none() {
        parts.push("open: somewhere".to_owned());
    }
    parts.extend(later.map(|part| format!("later: {part}")));
    parts.join(BETWEEN)
}

/// What is still missing. A row without tests is open. One that was open is shown by a story, or
/// by any test where no story is needed. `partly` goes by hand, unless all it misses is a story.
fn unfinished(open: Option<&str>, partly: Option<&str>, tests: &BTreeSet<Shown>) -> Option<String> {
    if tests.is_empty() {
        return open.or(partly).map(|area| format!("open: {area}"));
    }
    let has_story = tests.iter().any(Shown::is_story);
    if let Some(missing) = partly {
        let is_done = missing.starts_with("a story (") && has_story;
        return (!is_done).then(|| format!("partly: {missing}"));
    }
    let area = open.filter(|area| BY_STORIES.contains(area) && !has_story);
    area.map(|area| format!("partly: a story ({area})"))
}

/// Names of tests in the tables beside the map: words in backticks that only a test is called.
pub(crate) fn tests_beside_the_map(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with('|') && cells_of(line).is_none())
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|word| {
            word.matches('_').count() >= 3
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(file: &str, name: &str) -> Shown {
        Shown {
            file: file.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_row_says_by_what_it_is_shown_and_what_comes_later() {
        let text = "| A24 | one | `a/b.rs`: `x`, `y` · `a/c.rs`: `z` · partly: more (pool) |\n| A69 | two | later: gateway (tickets) |\n| reliability P1 | three | open: identity |\n| case | what | shown by |\n|---|---|---|";
        let page = Page::read(text);
        assert!(page.complaints.is_empty(), "{:?}", page.complaints);
        let [first, second, third] = &page.rows[..] else {
            panic!("{:?}", page.rows);
        };
        let expected = [
            shown("a/b.rs", "x"),
            shown("a/b.rs", "y"),
            shown("a/c.rs", "z"),
        ];
        assert_eq!(first.tests, expected.into());
        assert_eq!(first.partly.as_deref(), Some("more (pool)"));
        assert_eq!(second.later.as_deref(), Some("gateway (tickets)"));
        assert_eq!(third.open.as_deref(), Some("identity"));
        for wrong in ["later: some day", "by hand", "`a.rs`: x"] {
            let page = Page::read(&format!("| A1 | one | {wrong} |"));
            assert_eq!(page.complaints.len(), 1, "{wrong}");
        }
    }

    #[test]
    fn what_people_wrote_stays_when_the_page_is_written_anew() {
        let case = |text: &str| Case::read(text).unwrap();
        let units = BTreeSet::from([shown("a.rs", "x"), shown("a.rs", "y")]);
        let story = BTreeSet::from([shown("a/tests/b.rs", "z")]);
        let tests = BTreeMap::from([(case("A24"), units), (case("A26"), story)]);
        for (old, new) in [
            ("| A24 | t | open: pool |", "| A24 | t | `a.rs`: `x`, `y` |"),
            (
                "| A24 | t | open: runs |",
                "| A24 | t | `a.rs`: `x`, `y` · partly: a story (runs) |",
            ),
            (
                "| A26 | t | `a.rs`: `x` · partly: a story (runs) |",
                "| A26 | t | `a/tests/b.rs`: `z` |",
            ),
            (
                "| A24 | t | `old.rs`: `z` |",
                "| A24 | t | `a.rs`: `x`, `y` |",
            ),
            (
                "| A24 | t | partly: m (p) · later: gateway |",
                "| A24 | t | `a.rs`: `x`, `y` · partly: m (p) · later: gateway |",
            ),
            (
                "| A25 | t | `old.rs`: `z` |",
                "| A25 | t | open: somewhere |",
            ),
            (
                "| A25 | t | `old.rs`: `z` · partly: m (p) |",
                "| A25 | t | open: m (p) |",
            ),
            (
                "| A25 | t | later: gateway |",
                "| A25 | t | later: gateway |",
            ),
            ("Some text | with a bar", "Some text | with a bar"),
        ] {
            let written = rewritten(old, &tests);
            assert_eq!(written.trim_end(), new);
            assert_eq!(rewritten(&written, &tests), written, "twice is once");
        }
    }
}
