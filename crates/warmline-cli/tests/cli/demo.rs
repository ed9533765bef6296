//! `demo` and `demo-server`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::warmline::Warmline;

#[test]
fn the_demo_shows_state_kept_payments_told_and_times() {
    let told = Warmline::new().run(&["demo"]);
    assert_eq!((told.exit, told.stderr.as_str()), (0, ""), "{told}");
    for line in [
        "     a session per call   1 1 1",
        "     one session, held    1 2 3",
        "     a session per call   gone",
        "     one session, held    kept",
        "     the server's ledger  1 × 10 paid",
        "     what Warmline says   may have been executed, check before calling again",
        "     whoever calls again  2 × 10 paid",
    ] {
        assert!(told.stdout.contains(line), "{line}\n{told}");
    }
    assert!(
        told.stdout.lines().all(|line| line.chars().count() <= 80),
        "{told}"
    );
    assert!(!told.stdout.contains('\u{1b}'), "{told}");
}

#[test]
fn the_demo_speaks_to_programs_too() {
    let told = Warmline::new().run(&["demo", "--json"]);
    assert_eq!(told.exit, 0, "{told}");
    assert!(
        told.stdout
            .lines()
            .all(|line| line.starts_with(r#"{"kind":"demo","step":"#)),
        "{told}"
    );
    assert_eq!(told.stdout.matches("took_us").count(), 4, "{told}");
}

#[test]
fn the_demo_server_says_where_it_listens_and_takes_calls() {
    let warmline = Warmline::new();
    for (words, has_kind) in [
        (&["demo-server", "--http"][..], false),
        (&["demo-server", "--http", "--json"], true),
    ] {
        let mut command = warmline.command(words);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = match has_kind {
            true => serde_json::from_str::<serde_json::Value>(&line).unwrap()["url"]
                .as_str()
                .unwrap()
                .to_owned(),
            false => line.trim().to_owned(),
        };
        let told = warmline.run(&["call", &url, "pay", "amount=1"]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(told.exit, 0, "{told}");
    }
}

#[test]
fn the_commands_that_the_demo_prints_do_what_it_shows() {
    let warmline = Warmline::new();
    let fault = r#"{"tool":"pay","fault":{"crash":"after-executing"}}"#;
    let told = warmline.run(&[
        "call",
        "pay",
        "amount=10",
        "--",
        crate::warmline::BINARY,
        "demo-server",
        "--stdio",
        "--",
        "--fault",
        fault,
    ]);
    assert_eq!(told.exit, 4, "{told}");
    let told = warmline.run(&["demo-server", "--stdio", "--", "--nonsense", "1"]);
    assert_eq!(told.exit, 2, "{told}");
}
