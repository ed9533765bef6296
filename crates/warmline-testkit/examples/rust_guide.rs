//! The program of `docs/guide/rust.md`. A test compares it with the guide and runs it.
//! It starts `warmline demo-server`, which has to be on the `PATH`.
//!
//! ```text
//! cargo run -p warmline-testkit --example rust_guide
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::error::Error;

use serde_json::json;
use warmline::{Delivery, Run, Secret, Server, Warmline};

fn main() -> Result<(), Box<dyn Error>> {
    warmline::warden::run_if_asked(); // first line: children die with us, whatever kills us
    tokio::runtime::Runtime::new()?.block_on(agent())
}

async fn agent() -> Result<(), Box<dyn Error>> {
    let notes = Server::stdio("notes", ["warmline", "demo-server", "--stdio"]);
    let github = Server::http("github", "https://example.com/mcp");
    let warm = Warmline::builder() // cheap to clone; connects nothing until the first call
        .server(notes.spares(1)) // one more is started ahead, for the next run
        .server(github.bearer(Secret::env("GITHUB_TOKEN")))
        .build()?;
    let alice = warm.identity("acme/alice"); // optional; without it: this process

    // Sessions live exactly as long as this run; sub-agents share them.
    let read = alice.run(async |run| {
        let plan = json!({ "title": "plan", "text": "look first" });
        run.server("notes")?.call("note_write", plan).await?.ok()?;
        tokio::try_join!(sub_agent("a"), sub_agent("b"))
    });
    match read.await {
        Ok((a, b)) => println!("{a}\n{b}"),
        Err(error) if error.delivery().is_safe_to_retry() => {
            println!("it was not executed: {error:#}");
        },
        Err(error) if error.delivery() == Delivery::Unknown => {
            println!("it may have been executed: {error:#}");
        },
        Err(error) => println!("{}", error.report()), // all that is known, with a hint
    }
    warm.close().await;
    Ok(())
}

/// Nobody hands it a session: it is in the run that is current, so it reads the same notes.
async fn sub_agent(name: &str) -> warmline::Result<String> {
    let notes = Run::current()?.server("notes")?;
    let found = notes.call("note_read", json!({ "title": "plan" })).await?;
    Ok(format!("{name}: {}", found.ok()?.text()))
}
