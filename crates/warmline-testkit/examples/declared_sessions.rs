//! For a runtime whose capabilities declare what they need and leave the rest to it: whether a
//! server needs sessions is written down as `auto`, `true` or `false`, where it is and which token
//! it gets comes from two environment variables, and no capability knows any of it.
//!
//! ```text
//! cargo run -p warmline-testkit --example declared_sessions
//! MCP_SERVER_URL=http://127.0.0.1:3000/mcp cargo run -p warmline-testkit --example declared_sessions
//! ```
//!
//! With `MCP_SERVER_URL` it calls that server as each declaration says. Without it, it brings
//! servers of three kinds, starts itself once for each of them with nothing but the variables
//! set, and looks up in their ledgers what reached them.

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::collections::BTreeSet;
use std::error::Error;
use std::process::Command;

use serde_json::json;
use warmline::{Server, Warmline};
use warmline_config::trust::TrustStore;
use warmline_config::{Config, ConfigFolders};
use warmline_engine::settings::{ProcessVariables, process_variable};
use warmline_testkit::{ExecutionPhase, LedgerServer, Personality};

type Failure = Box<dyn Error + Send + Sync>;

/// Three capabilities that differ in one word. Each names the variables itself, though these are
/// the names that such declarations mean anyway. The URL is where they would go without them.
const DECLARED: &str = r#"[
  { "mcp_metadata": { "server_name": "auto", "server_url": "https://mcp.example.com/", "tool_name": "counter" },
    "mcp_requires_session": "auto",
    "mcp_server_url_override_env": "MCP_SERVER_URL", "mcp_auth_env_var": "MCP_AUTH_TOKEN" },
  { "mcp_metadata": { "server_name": "true", "server_url": "https://mcp.example.com/", "tool_name": "counter" },
    "mcp_requires_session": "true",
    "mcp_server_url_override_env": "MCP_SERVER_URL", "mcp_auth_env_var": "MCP_AUTH_TOKEN" },
  { "mcp_metadata": { "server_name": "false", "server_url": "https://mcp.example.com/", "tool_name": "counter" },
    "mcp_requires_session": "false",
    "mcp_server_url_override_env": "MCP_SERVER_URL", "mcp_auth_env_var": "MCP_AUTH_TOKEN" }
]"#;

const TOKEN: &str = "of-the-user";

fn main() -> Result<(), Failure> {
    if process_variable("MCP_SERVER_URL").is_some() {
        let runtime = tokio::runtime::Runtime::new()?;
        return runtime.block_on(call_as_declared());
    }
    each_kind_of_server()?;
    println!("the same declarations served a local, a stateless and a session server");
    Ok(())
}

/// The runtime: reads the declarations, and calls twice in a run. Nothing here names a server's
/// place, a token or a session.
async fn call_as_declared() -> Result<(), Failure> {
    let warm = Warmline::builder().servers(declared()?).build()?;
    for name in warm.server_names() {
        let called = warm
            .run(async |run| {
                let server = run.server(&name)?;
                let first = server.call("counter", json!({})).await?.ok()?;
                let second = server.call("counter", json!({})).await?.ok()?;
                Ok::<_, warmline::Error>([first.text(), second.text()])
            })
            .await;
        match called {
            Ok([first, second]) => println!("{name}: {first} {second}"),
            Err(error) => println!("{name}: {} ({})", error.code().as_str(), error.delivery()),
        }
    }
    warm.close().await;
    Ok(())
}

/// The servers of the declarations, with the variables that they name filled in.
fn declared() -> Result<Vec<Server>, Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("capabilities.json");
    std::fs::write(&file, DECLARED)?;
    // A file that is given by its name is trusted; what lies about in a folder would not be.
    let config = Config::read(Some(&file), &ConfigFolders::from_process()?)?;
    let nothing_else = TrustStore::in_state_folder(None);
    Ok(config.servers(&nothing_else, &ProcessVariables, &None)?)
}

fn each_kind_of_server() -> Result<(), Failure> {
    local_without_token_and_sessions()?;
    remote_without_sessions()?;
    remote_with_sessions()
}

/// Only its URL is needed.
fn local_without_token_and_sessions() -> Result<(), Failure> {
    let server = LedgerServer::start(Personality::modern())?;
    let said = start_again_with(&[("MCP_SERVER_URL", &server.url())])?;
    println!("local, modern:\n{said}");
    let one = r#"{"count":1}"#;
    let holds = said.contains(&format!("auto: {one} {one}"));
    assert!(holds, "it keeps nothing, and needs nothing");
    assert_eq!(server.counts().sessions, 0);
    let found = shown_to(&server);
    assert_eq!(found, BTreeSet::from([None]), "no token, no header");
    Ok(())
}

/// A token, and no session: `auto` finds out, `false` never asks.
fn remote_without_sessions() -> Result<(), Failure> {
    let server = LedgerServer::start(Personality::legacy_stateless().token(TOKEN))?;
    let url = server.url();
    let said = start_again_with(&[("MCP_SERVER_URL", &url), ("MCP_AUTH_TOKEN", TOKEN)])?;
    println!("remote, without sessions:\n{said}");
    let one = r#"{"count":1}"#;
    for word in ["auto", "false"] {
        assert!(said.contains(&format!("{word}: {one} {one}")));
    }
    let with_session = server.ledger().count(|entry| entry.session.is_some());
    assert_eq!(with_session, 0, "no session header was ever sent");
    let found = shown_to(&server);
    assert_eq!(found, BTreeSet::from([Some(format!("Bearer {TOKEN}"))]));
    Ok(())
}

/// A token and a session: `auto` finds out and keeps it, `true` begins with a handshake, `false`
/// is told that it cannot be done so, and what was told is sure not to have run.
fn remote_with_sessions() -> Result<(), Failure> {
    let server = LedgerServer::start(Personality::legacy().token(TOKEN))?;
    let url = server.url();
    let said = start_again_with(&[("MCP_SERVER_URL", &url), ("MCP_AUTH_TOKEN", TOKEN)])?;
    println!("remote, with sessions:\n{said}");
    for word in ["auto", "true"] {
        let kept = format!(r#"{word}: {{"count":1}} {{"count":2}}"#);
        assert!(said.contains(&kept));
    }
    assert!(said.contains("false: "));
    assert!(!said.contains("unknown"));
    let executed = server.ledger().executions("counter");
    assert_eq!(executed, 4, "nothing was tried out by a call");
    assert_eq!(server.counts().initializes, 2, "`false` never asks for one");
    assert_eq!(
        server.counts().sessions,
        server.ledger().messages_received("DELETE") as u64
    );
    let arguments = server
        .ledger()
        .count(|entry| entry.arguments.to_string().contains(TOKEN));
    assert_eq!(arguments, 0, "the token is no argument of a tool");
    Ok(())
}

/// This program once more, with these variables and none else that it reads.
fn start_again_with(variables: &[(&str, &str)]) -> Result<String, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .env_remove("MCP_AUTH_TOKEN")
        .envs(variables.iter().copied())
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    if output.status.success() {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("it ended with {}:\n{said}\n{why}", output.status).into())
}

/// The credentials that tools were called with.
fn shown_to(server: &LedgerServer) -> BTreeSet<Option<String>> {
    let entries = server.ledger().entries().into_iter();
    let calls =
        entries.filter(|entry| entry.phase == ExecutionPhase::Received && entry.tool.is_some());
    calls.map(|entry| entry.credential).collect()
}
