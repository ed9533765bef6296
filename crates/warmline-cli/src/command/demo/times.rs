//! What holding a session saves, as bars.

use std::time::Duration;

use serde_json::json;
use warmline::ToolResult;

use super::Stage;
use super::bars::{Bar, bars};
use super::world::{World, unanswered};
use crate::clock;
use crate::problem::Outcome;
use crate::report::Fields;

/// Times the same calls in each way.
pub(super) async fn timing(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(5, &format!("{CALLS} calls, and the first call of a run"));
    let waiting = |what: &str| format!("timing {what}");
    let mut many = Vec::new();
    for (alone, held, server) in [
        ("a process per call", "one process, held", World::PROGRAM),
        (
            "an HTTP session per call",
            "one HTTP session, held",
            World::WEB,
        ),
    ] {
        let timed = Box::pin(per_call(world, server));
        let took = stage.report.while_waiting(&waiting(alone), timed).await?;
        many.push(Bar::new(alone, took));
        let timed = Box::pin(in_a_run(world, server));
        let took = stage.report.while_waiting(&waiting(held), timed).await?;
        many.push(Bar::new(held, took));
    }
    let mut first = Vec::new();
    for (label, server) in [
        ("first call, cold", World::PROGRAM),
        ("first call, from a spare", World::SPARED),
    ] {
        let timed = Box::pin(first_call(world, server));
        let took = stage.report.while_waiting(&waiting(label), timed).await?;
        first.push(Bar::new(label, took));
    }
    tell(stage, &many, CALLS);
    tell(stage, &first, 1);
    stage.line("     (real servers take 0.4 to 6 s to start, and TLS shakes hands: it adds up)");
    stage.command("warmline demo --json");
    Ok(())
}

fn tell(stage: &Stage<'_>, measured: &[Bar], calls: u32) {
    if stage.report.is_json() {
        for bar in measured {
            let micros = bar.took.as_micros();
            let fields = Fields::new().put("step", "time").put("way", &bar.label);
            let fields = fields.put("calls", calls).put("took_us", micros);
            stage.report.object("demo", &fields);
        }
    }
    for line in bars(measured) {
        stage.line(&format!("     {line}"));
    }
}

/// The usual way: a session for every call.
async fn per_call(world: &World, server: &str) -> Outcome<Duration> {
    let server = world.warm.server(server).map_err(|e| unanswered(&e))?;
    let begun = clock::now();
    for _ in 0..CALLS {
        let said = server.call("counter", json!({})).await;
        said.and_then(ToolResult::ok).map_err(|e| unanswered(&e))?;
    }
    Ok(begun.elapsed())
}

/// The same calls in one run. Opening its session and ending it count too.
async fn in_a_run(world: &World, server: &str) -> Outcome<Duration> {
    let begun = clock::now();
    let run = world.warm.begin();
    let server = run.server(server).map_err(|e| unanswered(&e))?;
    for _ in 0..CALLS {
        let said = server.call("counter", json!({})).await;
        said.and_then(ToolResult::ok).map_err(|e| unanswered(&e))?;
    }
    run.end().await;
    Ok(begun.elapsed())
}

/// The first answer in a run that has just begun: the middle of a few. A server that has spares
/// gets one beforehand.
async fn first_call(world: &World, server: &str) -> Outcome<Duration> {
    let mut took = Vec::new();
    for _ in 0..FIRST_CALLS {
        if server == World::SPARED {
            world.spare().await?;
        }
        let run = world.warm.begin();
        let begun = clock::now();
        let server = run.server(server).map_err(|e| unanswered(&e))?;
        let said = server.call("counter", json!({})).await;
        said.and_then(ToolResult::ok).map_err(|e| unanswered(&e))?;
        took.push(begun.elapsed());
        run.end().await;
    }
    took.sort_unstable();
    Ok(took.get(FIRST_CALLS / 2).copied().unwrap_or_default())
}

/// How many calls are timed.
const CALLS: u32 = 10;
/// How many first calls are timed.
const FIRST_CALLS: usize = 3;
