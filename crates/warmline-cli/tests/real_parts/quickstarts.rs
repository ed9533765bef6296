//! The Python programs of the README and of the guide to frameworks, as printed.

use super::fixture::{World, counts};
use super::real_parts::python_command;

const PAGES: &str = concat!(
    include_str!("../../../../README.md"),
    include_str!("../../../../docs/guide/frameworks.md")
);
/// Where the pages have the gateway, and where they have the server.
const GATEWAY: &str = "http://127.0.0.1:8484";
const SERVER: &str = "http://127.0.0.1:8400/mcp";

/// Runs a quickstart twice: as it stands, and with the one line as it was. Only addresses of this
/// machine differ from what is printed.
fn keeps_its_state(library: &str, environment: &str) {
    let world = World::new(&["--auth", "none"]);
    let client = python_command(environment, "python").with("-");
    let quickstart = quickstart(library);
    let with_us = quickstart.replace(GATEWAY, &world.gateway);
    assert_eq!(counts(&client, &with_us), [1, 2, 3], "{library}");
    let without_us = as_it_was(&quickstart).replace(SERVER, &world.direct());
    assert_eq!(counts(&client, &without_us), [1, 1, 1], "{library}");
}

/// The one program that uses this library.
fn quickstart(library: &str) -> String {
    let blocks = PAGES.split("```python\n").skip(1);
    let programs = blocks.filter_map(|block| block.split_once("```"));
    let found: Vec<&str> = programs
        .map(|(program, _)| program)
        .filter(|program| program.contains(&format!("from {library}")))
        .collect();
    assert_eq!(found.len(), 1, "{library}");
    found.concat()
}

/// The program with the URL that its comment names in the place of ours.
fn as_it_was(quickstart: &str) -> String {
    let changed: Vec<&str> = quickstart
        .lines()
        .filter(|line| line.contains(GATEWAY))
        .collect();
    let [line] = changed[..] else {
        panic!("one line is changed, not {changed:?}");
    };
    let (ours, was) = line.split_once("  # was ").unwrap();
    assert_eq!(was, SERVER);
    let (before, rest) = ours.split_once(GATEWAY).unwrap();
    let (_, behind) = rest.split_once('"').unwrap();
    quickstart.replace(line, &format!("{before}{was}\"{behind}"))
}

/// It opens a session for every call.
#[test]
fn langchain_keeps_its_state_with_one_line_changed() {
    keeps_its_state("langchain_mcp_adapters", "langchain");
}

/// It holds a session for a turn; the run goes on with the next one.
#[test]
fn openai_agents_keeps_its_state_with_one_line_changed() {
    keeps_its_state("agents", "agents");
}

/// It holds a session for a turn; the run goes on with the next one.
#[test]
fn pydantic_ai_keeps_its_state_with_one_line_changed() {
    keeps_its_state("pydantic_ai", "agents");
}
