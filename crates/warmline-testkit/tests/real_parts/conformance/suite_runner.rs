//! Starts the suite, waits for it within a limit, and reads what it found.

use crate::prelude::*;

use crate::external_program;

/// How long a client may take, in the suite's own words; a lost answer must not cost minutes.
const CLIENT_MILLISECONDS: &str = "20000";
/// How long the suite may take around it: some of its servers wait a minute before they stop.
const SUITE_WITHIN: Duration = Duration::from_secs(100);

/// How a scenario went.
#[derive(Debug)]
pub(crate) enum Run {
    Passed,
    /// With all that the suite said.
    Failed(String),
}

/// Runs one scenario at one revision.
pub(crate) async fn run(scenario: &str, revision: &str) -> Run {
    let client = external_program::example("conformance_client");
    let arguments = ["client", "--scenario", scenario, "--spec-version", revision];
    let limits = [
        "--timeout",
        CLIENT_MILLISECONDS,
        "--command",
        &text(&client),
    ];
    let (code, said) = conformance(&[&arguments[..], &limits[..]].concat()).await;
    // A scenario that does not apply is skipped with a good exit code: that is not a pass.
    let passed = code == Some(0) && said.contains("OVERALL: PASSED");
    if passed {
        Run::Passed
    } else {
        Run::Failed(said)
    }
}

/// The client scenarios that the suite runs for a revision, scored or not.
pub(crate) async fn list(revision: &str) -> Vec<String> {
    let (code, said) = conformance(&["list", "--requirements", revision]).await;
    assert_eq!(code, Some(0), "{said}");
    let mut in_client = false;
    let mut names = Vec::new();
    for line in said.lines() {
        match line.trim().strip_prefix("- ") {
            Some(name) => match name.split_once(" [") {
                Some((name, "client]")) => names.push(name.to_owned()),
                None if in_client => names.push(name.to_owned()),
                Some(_) | None => {},
            },
            None if line.ends_with(':') => in_client = line.starts_with("Client scenarios"),
            None if line.contains("Client scenarios") => in_client = true,
            None => {},
        }
    }
    names
}

/// Runs the suite, with all that it starts.
pub(crate) async fn conformance(arguments: &[&str]) -> (Option<i32>, String) {
    let suite = "node/node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let mut command = Command::new(part("node/node_modules/.bin/node"));
    command.arg(part(suite)).args(arguments);
    let Some(output) = external_program::run(&mut command, SUITE_WITHIN)
        .await
        .output
    else {
        return (
            None,
            format!("the suite did not end within {SUITE_WITHIN:?}"),
        );
    };
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}
