//! The rows by which an era is found out, for whoever sees `(P9)` in the output of `doctor`.
//!
//! They stand in `docs/reference/rows.md` with all others; a test holds both together.

use crate::report::{Fields, Report, style};

/// A row: its number, what a server answers to `server/discover`, and what follows from it.
pub(super) struct Row {
    number: &'static str,
    answer: &'static str,
    so: &'static str,
}

#[rustfmt::skip]
const ROWS: [(&str, &str, &str); 24] = [
    ("P1", "200, a discovery that shares a modern version with us", "modern"),
    ("P2", "200, a discovery with legacy versions only", "legacy: `initialize`"),
    ("P3", "200, something else", "legacy"),
    ("P4", "`-32022` that names a modern version we speak", "modern: asked once more"),
    ("P5", "`-32022` that names legacy versions only", "legacy, at the best of them"),
    ("P6", "`-32022` that names only modern versions we do not speak", "an error; no `initialize`"),
    ("P7", "`-32022` without a usable list", "legacy"),
    ("P8", "`-32020` or `-32021`", "modern, but it refuses our probe: an error"),
    ("P9", "400 with any other body", "legacy"),
    ("P10", "404 with `-32601`", "legacy"),
    ("P11", "404 or 405 with any other body", "legacy; if `initialize` fares no better, the two-endpoint transport of 2024-11-05"),
    ("P12", "any other 4xx", "legacy"),
    ("P13", "401, 403", "no verdict"),
    ("P14", "429, 5xx, 3xx, 407, 408", "no verdict"),
    ("P15", "no connection, or no answer in time", "no verdict"),
    ("P16", "200 with an event stream", "read to the response, then as above"),
    ("P17", "202", "a broken server"),
    ("Q1", "a discovery that shares a modern version", "modern"),
    ("Q2", "`-32022` with a modern version we speak", "modern: asked once more"),
    ("Q3", "`-32022`, or a discovery, with legacy versions only", "legacy"),
    ("Q4", "any other error", "legacy"),
    ("Q5", "silence", "`initialize` goes out as well; the answers decide"),
    ("Q6", "the process ends", "legacy, in a new process"),
    ("Q7", "that `initialize` gets `-32022`", "it was only slow: asked once more"),
];

impl Row {
    /// The row of this number, as people paste it.
    pub(super) fn find(word: &str) -> Option<Self> {
        let word = word.trim().trim_matches(['(', ')']);
        let mut rows = ROWS.iter();
        let (number, answer, so) = rows.find(|(number, ..)| number.eq_ignore_ascii_case(word))?;
        Some(Self { number, answer, so })
    }

    pub(super) fn page(&self, report: &Report) {
        let by = match self.number.starts_with('P') {
            true => "over HTTP",
            false => "over stdio",
        };
        if report.is_json() {
            let fields = Fields::new()
                .put("row", self.number)
                .put("answer", self.answer)
                .put("so", self.so);
            return report.object("row", &fields);
        }
        report.data(&format!(
            "{}\n  how the era of a server is found out {by}: what it answers to `server/discover`\n\n  \
             answer: {}\n  so: {}",
            style::bold(self.number),
            self.answer,
            self.so
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_reference() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/rows.md");
        let page = std::fs::read_to_string(page).unwrap();
        let of_eras = |line: &&str| line.starts_with("| P") || line.starts_with("| Q");
        let rows: Vec<&str> = page.lines().filter(of_eras).collect();
        let ours = ROWS.map(|(number, answer, so)| format!("| {number} | {answer} | {so} |"));
        assert_eq!(ours.to_vec(), rows);
    }

    #[test]
    fn a_row_is_found_as_it_is_pasted() {
        for word in ["P9", "(P9)", "p9"] {
            assert_eq!(Row::find(word).map(|row| row.number), Some("P9"));
        }
        assert!(Row::find("P99").is_none());
    }
}
