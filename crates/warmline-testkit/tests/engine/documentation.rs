//! The page of session errors against the code.

use crate::prelude::*;

use std::fs;
use std::path::PathBuf;

use warmline_core::protocol::session_gone::{
    SessionGoneForm, SessionGoneMatching, SessionGoneRemedy,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the page calls a remedy.
const fn helps(remedy: SessionGoneRemedy) -> &'static str {
    match remedy {
        SessionGoneRemedy::Reopen => "a new session",
        SessionGoneRemedy::ReopenOnce => "a new session, once",
        SessionGoneRemedy::GoStateless => "going on without one",
        SessionGoneRemedy::Open => "a first session",
        SessionGoneRemedy::DropSession => "nothing: the session is dropped",
        SessionGoneRemedy::Wait => "ending the old one, once; else an error",
    }
}

/// A160: the page lists every form of a session error that the code reads, what each says of the
/// request and what is done about it; neither has one that the other lacks.
#[test]
fn the_page_of_session_errors_is_the_table_of_the_code() {
    let page = root().join("docs/reference/session-errors.md");
    let page = fs::read_to_string(page).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let expected: Vec<[String; 4]> = SessionGoneForm::ALL
        .into_iter()
        .map(|dialect| {
            let breadth = match dialect.matching() {
                SessionGoneMatching::Sure => "always",
                SessionGoneMatching::Wide => "`dialects = \"wide\"`",
            };
            let delivery = match dialect.delivery() {
                Delivery::Unknown => "unknown",
                Delivery::Refused => "refused",
                Delivery::Unsent | Delivery::Answered => "neither",
            };
            [
                format!("`{}`", dialect.as_str()),
                breadth.to_owned(),
                delivery.to_owned(),
                helps(dialect.remedy()).to_owned(),
            ]
        })
        .collect();
    let written: Vec<[String; 4]> = rows
        .iter()
        .map(|row| [0, 2, 3, 4].map(|cell| row.get(cell).copied().unwrap_or("").to_owned()))
        .collect();
    assert_eq!(written, expected);
    let holds = rows.iter().all(|row| !row[1].is_empty());
    assert!(holds, "each is described");
}
