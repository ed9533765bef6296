//! The shape of the house: who may use whom, between crates and inside them, and the few files
//! that may touch sockets, time, locks, the environment and the terminal.
//!
//! Each rule is a line of a table in `rules.rs`. A rule that could not fail would say nothing, so
//! each kind is also tried on a planted line.
#![cfg(test)]

mod crates;
mod rules;
mod source;

use std::path::{Path, PathBuf};

use rules::{Apart, Layers, OnlyIn, against_apart, against_layers, against_only_in};
use source::{Source, sources};

fn crate_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(
        complaints.is_empty(),
        "the shape is broken:\n{}",
        complaints.join("\n")
    );
}

#[test]
fn modules_of_the_core_use_only_what_stands_below_them() {
    assert_none(&against_layers(
        &sources(&crate_folder("warmline-core")),
        &rules::CORE,
    ));
}

#[test]
fn modules_of_the_library_use_only_what_stands_below_them() {
    assert_none(&against_layers(
        &sources(&crate_folder("warmline")),
        &rules::WARMLINE,
    ));
}

#[test]
fn transports_do_not_know_drivers() {
    let sources = sources(&crate_folder("warmline"));
    let complaints = rules::UPSTREAM
        .iter()
        .flat_map(|rule| against_apart(&sources, rule));
    assert_none(&complaints.collect::<Vec<_>>());
}

/// reliability I36: timers use one door.
#[test]
fn sockets_time_locks_and_the_environment_have_one_door_each() {
    let sources = sources(&crate_folder("warmline"));
    let complaints = rules::SEAMS
        .iter()
        .flat_map(|rule| against_only_in(&sources, rule));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn the_core_has_no_door_to_the_outside() {
    let sources = sources(&crate_folder("warmline-core"));
    let complaints = rules::CORE_FENCE
        .iter()
        .flat_map(|rule| against_only_in(&sources, rule));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn the_command_line_prints_in_one_file() {
    let sources = sources(&crate_folder("warmline-cli"));
    let complaints = rules::CLI
        .iter()
        .flat_map(|rule| against_only_in(&sources, rule));
    assert_none(&complaints.collect::<Vec<_>>());
}

/// No refusal goes out without its lines in the log and in the audit: one file makes them all.
#[test]
fn the_gateway_refuses_in_one_file() {
    let sources = sources(&crate_folder("warmline-gateway"));
    let complaints = rules::GATEWAY
        .iter()
        .flat_map(|rule| against_only_in(&sources, rule));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn a_planted_line_that_uses_a_higher_module_is_found() {
    const PLANTED: Layers = Layers(&[&["low"], &["high"]]);
    for (file, text) in [
        ("low.rs", "use crate::high::Thing;"),
        ("low.rs", "use crate::{high, low};"),
        (
            "low/deep.rs",
            "pub(crate) use super::super::high::{\n    Thing,\n    Other,\n};",
        ),
        ("low.rs", "fn f() { let x = crate::high::thing(); }"),
    ] {
        let found = against_layers(&[Source::new(file, text)], &PLANTED);
        assert!(!found.is_empty(), "not found: {text}");
    }
    for (file, text) in [
        ("high.rs", "use crate::low::Thing;"),
        (
            "low.rs",
            "// use crate::high::Thing;\nconst A: &str = \"crate::high::x\";",
        ),
        (
            "low.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::high::Thing;\n}",
        ),
    ] {
        assert_none(&against_layers(&[Source::new(file, text)], &PLANTED));
    }
    let unplaced = against_layers(&[Source::new("new.rs", "")], &PLANTED);
    assert_eq!(unplaced, ["new.rs: give `new` a place in the layers"]);
}

#[test]
fn a_planted_line_that_crosses_a_wall_is_found() {
    let wall = Apart {
        parent: "upstream",
        from: &["http"],
        to: &["legacy"],
        why: "a wall",
    };
    let planted = Source::new(
        "upstream/http/body.rs",
        "\nuse super::super::legacy::Legacy;",
    );
    let found = against_apart(&[planted], &wall);
    assert_eq!(
        found,
        ["upstream/http/body.rs:2: `http` uses `legacy`: a wall"]
    );
    assert_none(&against_apart(
        &[Source::new("upstream/pipes.rs", "use super::legacy;")],
        &wall,
    ));
}

#[test]
fn a_planted_line_that_opens_a_second_door_is_found() {
    let door = OnlyIn {
        paths: &["tokio::net", "std::sync::Mutex", "Instant::now", "println!"],
        files: &["door.rs"],
        why: "a door",
    };
    for text in [
        "use tokio::net::TcpStream;",
        "use tokio::{net, sync};",
        "use std::sync::{Arc, Mutex};",
        "fn f() { let now = std::time::Instant::now(); }",
        "fn f() { println!(\"said\"); }",
        "fn f<'a>(c: char) -> bool { c == '\"' && tokio::net::lookup_host(c) }",
    ] {
        assert_eq!(
            against_only_in(&[Source::new("a.rs", text)], &door).len(),
            1,
            "{text}"
        );
        assert_none(&against_only_in(&[Source::new("door.rs", text)], &door));
    }
    let innocent = "use std::sync::Arc;\n/* tokio::net */ const A: &str = r#\"\"println!\"#;";
    assert_none(&against_only_in(&[Source::new("a.rs", innocent)], &door));
}
