//! Runs the examples as they stand: each ends by itself, with a good exit code, and says what it
//! is there to show.
//!
//! Examples hold themselves to what they claim: a claim that is not true is an exit code that is
//! not zero. Whoever runs this file alone runs `cargo build -p warmline-testkit --examples` first,
//! or the examples are stale.
use crate::external_program;
use crate::prelude::*;

use std::os::unix::fs::PermissionsExt;

/// Far more than any of them takes, on a machine with much else to do.
const WITHIN: Duration = Duration::from_secs(60);

/// Runs one example and gives back what it said.
async fn run(name: &str) -> String {
    run_with(name, None).await
}

/// The same, with a folder of programs that it finds first.
async fn run_with(name: &str, programs: Option<&Path>) -> String {
    let mut command = Command::new(external_program::example(name));
    if let Some(programs) = programs {
        let ours = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&ours));
        command.env("PATH", std::env::join_paths(folders).unwrap());
    }
    command
        .env_remove("MCP_SERVER_URL")
        .env_remove("MCP_AUTH_TOKEN")
        .env_remove("RUST_BACKTRACE");
    let ended = external_program::run(&mut command, WITHIN).await;
    let Some(output) = ended.output else {
        panic!("{name} did not end within {WITHIN:?}");
    };
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{name}: {status}\n{said}\n{complained}");
    assert_eq!(complained, "", "{name} complained");
    assert!(!ended.left_something, "{name} left a process behind");
    said
}

#[track_caller]
fn says(said: &str, line: &str) {
    let holds = said.lines().any(|one| one.contains(line));
    assert!(holds, "no `{line}` in:\n{said}");
}

/// A4, A6, A7, A14, A15, A17, A19, A38, A39: a run of an agent with sub-agents and parallel calls is
/// one session with each server, and nothing is left of it.
#[tokio::test]
async fn an_agent_and_its_sub_agents_share_the_sessions_of_their_run() {
    let output = run("agent_run").await;
    says(&output, "without run: there is no note plan");
    says(&output, "9 steps in 1 session, opened once, ended once");
    says(&output, "no session, no process and no run is left");
}

/// A82, A89, A90, A92, A95, A100, A106, S16: a pool by identity under load, with breakers for a dead
/// server and for a bad token.
#[tokio::test]
async fn a_pool_by_identity_holds_its_limits_under_load() {
    let output = run("identity_pool").await;
    says(
        &output,
        "24 sessions, at most 4 of a tenant, none shared by two",
    );
    says(&output, "careful opens a session and is served");
    says(&output, "the server is back, and calls pass");
}

/// A115, A116, A117, A120, A121, A137, A139, A203: a lazy client that is resolved at its first call,
/// heals on 404, and resumes its session after a restart.
#[tokio::test]
async fn a_lazy_client_heals_and_goes_on_after_a_restart() {
    let output = run("lazy_client").await;
    says(&output, "20 calls at once, looked up once, one handshake");
    says(
        &output,
        "tools/call, initialize, notifications/initialized, tools/call",
    );
    says(
        &output,
        "the first call is the first request, and its count is 3",
    );
}

/// A167, A168, A169, A173, A176, A177, A178, A189, A195: declared sessions, with nothing but two
/// environment variables.
#[tokio::test]
async fn declarations_and_two_variables_are_enough_for_any_server() {
    let output = run("declared_sessions").await;
    says(
        &output,
        "the same declarations served a local, a stateless and a session server",
    );
}

/// The program in the guide to the library is an example that compiles and runs.
#[tokio::test]
async fn the_program_of_the_rust_guide_compiles_and_runs() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let guide = std::fs::read_to_string(format!("{root}/docs/guide/rust.md")).unwrap();
    let program = include_str!("../../examples/rust_guide.rs");
    let program = program.split_once("\nuse ").unwrap().1;
    assert!(
        guide.contains(&format!("```rust\nuse {program}```\n")),
        "docs/guide/rust.md and examples/rust_guide.rs differ"
    );
    // What the guide has on the `PATH`.
    let programs = tempfile::tempdir().unwrap();
    let stand_in = programs.path().join("warmline");
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let script = format!("#!/bin/sh\nshift\nexec '{ledger}' \"$@\"\n");
    std::fs::write(&stand_in, script).unwrap();
    std::fs::set_permissions(&stand_in, PermissionsExt::from_mode(0o755)).unwrap();
    let output = run_with("rust_guide", Some(programs.path())).await;
    assert_eq!(output, "a: look first\nb: look first\n");
}
