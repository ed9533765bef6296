//! A client goes to several URLs in turn, in a process of its own, and tells what it saw.

use crate::prelude::*;

use crate::external_program;

/// How long a client may take for all its visits, on a machine with much else to do.
const WITHIN: Duration = Duration::from_secs(90);

/// What a client saw at one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientReport {
    /// The version it negotiated, where its library tells.
    pub(crate) version: Option<String>,
    pub(crate) tools: Vec<String>,
    /// What the counter said at each call.
    pub(crate) counts: Vec<u64>,
}

/// Lets a client go to these URLs.
pub(crate) async fn visits(
    client: &Program,
    variables: &[(&str, &str)],
    urls: &[String],
) -> Vec<ClientReport> {
    visits_with("counter", client, variables, urls).await
}

/// The same, with a counter of another name.
pub(crate) async fn visits_with(
    tool: &str,
    client: &Program,
    variables: &[(&str, &str)],
    urls: &[String],
) -> Vec<ClientReport> {
    let said = run(tool, client, variables, urls).await;
    let visits: Vec<ClientReport> = said.lines().map(visit).collect();
    assert_eq!(visits.len(), urls.len(), "{client:?} said:\n{said}");
    visits
}

/// Runs a client with a tool and these URLs as its last arguments; gives what it printed.
pub(crate) async fn run(
    tool: &str,
    client: &Program,
    variables: &[(&str, &str)],
    urls: &[String],
) -> String {
    let mut command = Command::new(&client.path);
    command
        .args(&client.args)
        .arg(tool)
        .args(urls)
        .envs(variables.iter().copied());
    output(&mut command).await
}

/// What a program printed that must end well and in time.
pub(crate) async fn output(command: &mut Command) -> String {
    // No client has anybody else to tell, none goes through a proxy to this machine, and none is
    // to leave files in the tree.
    command
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENAI_AGENTS_DISABLE_TRACING", "1");
    let ended = external_program::run(command, WITHIN).await;
    let output = ended
        .output
        .unwrap_or_else(|| panic!("{command:?} did not end within {WITHIN:?}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    let holds = output.status.success();
    assert!(holds, "{command:?}:\n{said}\n{complained}");
    said
}

fn visit(line: &str) -> ClientReport {
    let seen: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let texts = |member: &str| -> Vec<String> {
        let all = seen[member].as_array().unwrap();
        all.iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect()
    };
    ClientReport {
        version: seen["version"].as_str().map(str::to_owned),
        tools: texts("tools"),
        counts: counts(&texts("said")),
    }
}

/// The counts in the counter's results.
pub(crate) fn counts(said: &[String]) -> Vec<u64> {
    let count = |text: &String| {
        let result: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        result["count"].as_u64().unwrap_or_else(|| panic!("{text}"))
    };
    said.iter().map(count).collect()
}
