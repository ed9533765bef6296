//! The page: its rows, and how they are written again.
//!
//! A row is `| case | what it says | what shows it |`. The last cell holds, separated by ` · `:
//! tests, a file and its functions each; `met: by what`, where no test can show it; `later: part
//! (what)`, where it is not built yet. What people wrote behind `met` and `later` stays.

use std::collections::{BTreeMap, BTreeSet};

use crate::guarantees::cases::Case;
use crate::guarantees::claims::Shown;

const BETWEEN: &str = " · ";

/// Case, title and last cell of a line, if it is a row of the map.
pub(crate) fn cells_of(line: &str) -> Option<(Case, &str, &str)> {
    let inner = line.strip_prefix("| ")?.strip_suffix('|')?;
    let (case, rest) = inner.split_once(" | ")?;
    let (title, cell) = rest.split_once(" |")?;
    Some((Case::read(case)?, title, cell.trim()))
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

/// The last cell with these tests.
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
    for kind in ["met: ", "later: "] {
        let written = old.split(BETWEEN).find(|part| part.starts_with(kind));
        parts.extend(written.map(str::to_owned));
    }
    parts.join(BETWEEN)
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

    #[test]
    fn what_people_wrote_stays_when_the_page_is_written_anew() {
        let shown = |name: &str| Shown {
            file: "a.rs".to_owned(),
            name: name.to_owned(),
        };
        let case = Case::read("A24").unwrap();
        let tests = BTreeMap::from([(case, BTreeSet::from([shown("x"), shown("y")]))]);
        for (old, new) in [
            ("| A24 | t |  |", "| A24 | t | `a.rs`: `x`, `y` |"),
            (
                "| A24 | t | `old.rs`: `z` · met: so · later: gateway |",
                "| A24 | t | `a.rs`: `x`, `y` · met: so · later: gateway |",
            ),
            ("| A25 | t | `old.rs`: `z` |", "| A25 | t |  |"),
            ("Some text | with a bar", "Some text | with a bar"),
        ] {
            assert_eq!(rewritten(old, &tests).trim_end(), new);
        }
    }
}
