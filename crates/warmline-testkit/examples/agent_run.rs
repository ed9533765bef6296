//! For whoever writes an agent framework and wants `agent.run()` to be one run: the agent and all
//! its sub-agents share warm, private sessions, although nobody hands a session to anybody, and
//! nothing of them is left when the run is over.
//!
//! ```text
//! cargo run -p warmline-testkit --example agent_run
//! ```
//!
//! It brings its own stateful servers: a planner over HTTP in this process, and a notebook over
//! stdio, which is this very program started once more.

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Value, json};
use warmline::{InCurrentRun as _, Run, Server, ServerHandle, Warmline};
use warmline_engine::relay::RelayHandle as _;
use warmline_testkit::demo_server::{self, DemoServerOptions, Transport};
use warmline_testkit::{ExecutionPhase, LedgerServer, Personality};

type Failure = Box<dyn Error + Send + Sync>;

/// Started with this word, the program is the notebook.
const AS_NOTEBOOK: &str = "notebook";

fn main() -> Result<ExitCode, Failure> {
    warmline::warden::run_if_asked(); // first line: children die with us, whatever kills us
    let runtime = tokio::runtime::Runtime::new()?;
    if std::env::args().nth(1).as_deref() == Some(AS_NOTEBOOK) {
        let options = DemoServerOptions::new(Transport::Stdio, Personality::legacy());
        runtime.block_on(demo_server::run(options, |_, _| {}))?;
    } else {
        runtime.block_on(show())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show() -> Result<(), Failure> {
    let planner = LedgerServer::start(Personality::legacy())?;
    let this = std::env::current_exe()?;
    let this = this.to_str().ok_or("the path of this program is no text")?;
    let warm = Warmline::builder()
        .server(Server::http("planner", planner.url()))
        .server(Server::stdio("notebook", [this, AS_NOTEBOOK]))
        .build()?;

    forgets_without_a_run(&warm).await?;
    let steps = warm.run(agent).await?;
    one_session_served_all(&planner, steps)?;
    runs_are_apart(&warm).await?;
    a_run_that_fails_is_closed_too(&warm).await?;

    let left = warm.snapshot();
    assert!(left.runs.is_empty() && left.sessions.is_empty());
    let notebooks = left.server("notebook").ok_or("nothing was counted")?;
    assert_eq!(notebooks.count("children", &[]), 0);
    assert_eq!(planner.violations(), Vec::<String>::new());
    warm.close().await;
    assert_eq!(planner.counts().open_sessions, 0);
    println!("over:        no session, no process and no run is left");
    Ok(())
}

/// What most frameworks do: a session per call. The notebook is a new process each time.
async fn forgets_without_a_run(warm: &Warmline) -> Result<(), Failure> {
    let notebook = warm.server("notebook")?;
    write(&notebook, "plan", "buy bread").await?;
    let read = notebook
        .call("note_read", json!({ "title": "plan" }))
        .await?;
    assert!(read.is_error());
    println!("without run: {}", read.text());
    Ok(())
}

/// The root agent: lists tools, plans, asks its sub-agents, and reads what they found.
async fn agent(run: Run) -> Result<u64, Failure> {
    let (planner, notebook) = (run.server("planner")?, run.server("notebook")?);
    // The list comes from the run's own session: list and first call cost one handshake.
    let tools = planner.tools().await?;
    planner.tool("counter").await?;
    println!("in a run:    {} tools, one handshake so far", tools.len());
    step(&planner).await?;

    // One turn of a model: its tool calls run side by side, sub-agents among them.
    let spawned = tokio::spawn(researcher("c").in_current_run());
    let (third, ..) = tokio::try_join!(step(&planner), researcher("a"), researcher("b"))?;
    assert!(third > 1);
    spawned.await??;

    for topic in ["a", "b", "c"] {
        let found = notebook
            .call("note_read", json!({ "title": topic }))
            .await?;
        println!("in a run:    {}", found.ok()?.text());
    }
    Ok(step(&planner).await?)
}

/// A sub-agent, built from nothing: it is handed no client, no session and no run.
async fn researcher(topic: &str) -> warmline::Result<()> {
    let run = Run::current()?;
    assert!(!run.is_root(), "a sub-agent joins, and closes nothing");
    let (planner, notebook) = (run.server("planner")?, run.server("notebook")?);
    let (first, second) = tokio::try_join!(step(&planner), step(&planner))?;
    let found = format!("{topic} was looked into, in two steps of the same plan");
    assert_ne!(first, second, "both count in the session of the run");
    write(&notebook, topic, &found).await
}

/// One more step in the planner's session, which counts them.
async fn step(planner: &ServerHandle) -> warmline::Result<u64> {
    let counted: Value = planner
        .call("counter", json!({}))
        .await?
        .ok()?
        .structured()?;
    Ok(counted["count"].as_u64().unwrap_or_default())
}

async fn write(notebook: &ServerHandle, title: &str, text: &str) -> warmline::Result<()> {
    let note = json!({ "title": title, "text": text });
    notebook.call("note_write", note).await?.ok()?;
    Ok(())
}

/// What the server says about it: not what we believe.
fn one_session_served_all(planner: &LedgerServer, steps: u64) -> Result<(), Failure> {
    assert_eq!(
        steps, 9,
        "one count over the agent and its three sub-agents"
    );
    let mut sessions: Vec<_> = planner
        .ledger()
        .entries()
        .into_iter()
        .filter(|entry| entry.phase == ExecutionPhase::Commit)
        .map(|entry| entry.session.ok_or("a call without a session"))
        .collect::<Result<_, _>>()?;
    sessions.dedup();
    assert_eq!(sessions.len(), 1);
    assert_eq!(planner.counts().initializes, 1);
    assert_eq!(planner.ledger().messages_received("DELETE"), 1);
    println!("afterwards:  {steps} steps in 1 session, opened once, ended once");
    Ok(())
}

/// Two runs at the same time, of the same caller: neither sees the other's notes.
async fn runs_are_apart(warm: &Warmline) -> Result<(), Failure> {
    let (monday, tuesday) = (warm.named_run("monday")?, warm.named_run("tuesday")?);
    write(&monday.server("notebook")?, "plan", "wash").await?;
    let other = tuesday.server("notebook")?;
    let read = other.call("note_read", json!({ "title": "plan" })).await?;
    assert!(read.is_error());
    println!("two runs:    {} in the other one", read.text());
    monday.end().await;
    tuesday.end().await;
    Ok(())
}

/// The body fails: its error is what the caller gets, and its sessions are closed all the same.
async fn a_run_that_fails_is_closed_too(warm: &Warmline) -> Result<(), Failure> {
    let failed: Result<(), Failure> = warm
        .run(async |run| {
            step(&run.server("planner")?).await?;
            Err("the model gave up".into())
        })
        .await;
    let why = failed.err().ok_or("the run did not fail")?.to_string();
    assert_eq!(why, "the model gave up");
    assert!(Run::try_current().is_none());
    assert!(warm.snapshot().sessions.is_empty());
    println!("a failure:   {why}, and its sessions are closed");
    Ok(())
}
