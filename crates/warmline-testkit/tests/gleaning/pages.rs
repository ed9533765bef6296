//! Pages and the public interface against the code.

use std::fs;
use std::path::{Path, PathBuf};

use warmline::core::delivery::Delivery;
use warmline::core::protocol::gone::{Breadth, Dialect, Remedy};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the page calls a remedy.
const fn helps(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Reopen => "a new session",
        Remedy::ReopenOnce => "a new session, once",
        Remedy::GoStateless => "going on without one",
        Remedy::Open => "a first session",
        Remedy::DropSession => "nothing: the session is dropped",
        Remedy::Wait => "ending the old one, once; else it is told",
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
    let expected: Vec<[String; 4]> = Dialect::ALL
        .into_iter()
        .map(|dialect| {
            let breadth = match dialect.breadth() {
                Breadth::Sure => "always",
                Breadth::Wide => "`dialects = \"wide\"`",
            };
            let delivery = match dialect.delivery() {
                Delivery::Unknown => "unknown",
                Delivery::Refused => "refused",
                Delivery::Unsent | Delivery::Answered => "neither",
            };
            [
                format!("`{}`", dialect.word()),
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
    assert!(
        rows.iter().all(|row| !row[1].is_empty()),
        "each is described"
    );
}

/// The lines of a file of the library that make something public.
fn public(file: &str, kind: &str) -> Vec<String> {
    let file = root().join("crates/warmline/src").join(file);
    let text = fs::read_to_string(file).unwrap();
    let start = format!("pub {kind} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    lines
        .map(|line| line.trim_end_matches(';').to_owned())
        .collect()
}

/// A159: what carries bytes is private: no module of a driver or a transport, no connection and no
/// child of ours can be named from outside.
#[test]
fn nothing_that_carries_bytes_is_public() {
    let modules = [
        "clock",
        "config",
        "credentials",
        "events",
        "identity",
        "metrics",
        "private",
        "resolve",
        "seal",
        "settings",
        "store",
        "tools",
        "trust",
        "upstream",
    ];
    assert_eq!(public("lib.rs", "mod"), modules);
    assert_eq!(public("upstream.rs", "mod"), ["warden"]);
    let carriers = [
        "http",
        "connections",
        "legacy",
        "modern",
        "pipes",
        "two_endpoints",
        "stream",
        "answer",
        "calls",
        "voice",
        "letterhead",
        "way",
        "tls",
        "process",
        "detect",
        "greeting",
        "pool",
        "call",
        "connect",
        "route",
    ];
    let mut said = public("lib.rs", "use");
    said.extend(public("upstream.rs", "use"));
    for carrier in carriers {
        let names = |one: &&String| one.split([':', ' ', '{', ',']).any(|word| word == carrier);
        let shown: Vec<&String> = said.iter().filter(names).collect();
        assert!(shown.is_empty(), "{shown:?}");
    }
}
