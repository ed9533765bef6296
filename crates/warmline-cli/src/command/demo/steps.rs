//! What a run does: state is kept, kept apart, told of when it is lost, and never paid for twice.

use serde_json::{Value, json};
use warmline::{Error, ToolResult};
use warmline_testkit::{CutAt, End, Fault, Rule};

use super::world::{World, bug, unanswered};
use super::{SERVER, Stage};
use crate::clock;
use crate::problem::Outcome;
use crate::report::text::seconds;

/// State is kept over the calls of a run, and gone without one.
pub(super) async fn counting(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(1, "A tool that counts its calls");
    let mut alone = Vec::new();
    for _ in 0..3 {
        let said = world.warm.server(World::WEB).map_err(|e| unanswered(&e))?;
        let said = said.call("counter", json!({})).await;
        alone.push(count(said)?);
    }
    stage.row(
        "count",
        "a session per call",
        &alone.join(" "),
        "it begins anew each time",
    );
    let run = world.named("trip")?;
    let mut kept = Vec::new();
    for _ in 0..3 {
        let server = run.server(World::WEB).map_err(|e| unanswered(&e))?;
        kept.push(count(server.call("counter", json!({})).await)?);
    }
    run.end().await;
    stage.row("count", "in a run", &kept.join(" "), "it remembers");
    stage.command("warmline call $U counter --run trip    # and again");
    Ok(())
}

/// The same server, the same name of a run, and neither sees the other's.
pub(super) async fn two_people(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(2, "Alice writes a note; her sub-agent and Bob read it");
    let colour = json!({ "title": "colour" });
    let (alice, bob) = (world.warm.identity("alice"), world.warm.identity("bob"));
    let of_alice = alice.named("trip").map_err(|e| unanswered(&e))?;
    let of_bob = bob.named("trip").map_err(|e| unanswered(&e))?;
    let write = json!({ "title": "colour", "text": "blue" });
    let server = of_alice.server(World::WEB).map_err(|e| unanswered(&e))?;
    let wrote = server.call("note_write", write).await;
    wrote.and_then(ToolResult::ok).map_err(|e| unanswered(&e))?;
    let helper = alice.join("trip").map_err(|e| unanswered(&e))?;
    let server = helper.server(World::WEB).map_err(|e| unanswered(&e))?;
    let found = server.call("note_read", &colour).await;
    let found = found.map_err(|e| unanswered(&e))?.text();
    stage.row(
        "people",
        "Alice's sub-agent",
        &found,
        "the same run, the same session",
    );
    let server = of_bob.server(World::WEB).map_err(|e| unanswered(&e))?;
    let missed = server.call("note_read", &colour).await;
    let missed = missed.map_err(|e| unanswered(&e))?;
    let (result, means) = match missed.is_error() {
        true => (
            "nothing".to_owned(),
            format!("the tool says: {}", missed.text()),
        ),
        false => (missed.text(), "which is not his".to_owned()),
    };
    stage.row("people", "Bob, in his `trip`", &result, &means);
    of_alice.end().await;
    of_bob.end().await;
    stage.command("warmline call $U note_write title=colour text=blue --run alice");
    stage.command("warmline call $U note_read title=colour --run alice");
    stage.command("warmline call $U note_read title=colour --run bob");
    Ok(())
}

/// An answer that is lost is not taken for a payment that was not made.
pub(super) async fn paying(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(
        3,
        "A payment of 10; the server pays, and its answer is lost",
    );
    let lost = Rule::new(Fault::Cut(CutAt::AfterExecuting, End::Rst)).on_tool("pay");
    world.http.inject(lost);
    let run = world.named("payments")?;
    let server = run.server(World::WEB).map_err(|e| unanswered(&e))?;
    let pay = json!({ "amount": 10 });
    let said = match server.call("pay", &pay).await {
        Err(error) => error.delivery().sentence().unwrap_or("answered"),
        Ok(_) => return Err(bug("the demo server did not lose its answer")),
    };
    let paid = || format!("{} × 10 paid", world.http.ledger().executions("pay"));
    stage.row("pay", "the server's ledger", &paid(), "");
    stage.row("pay", "what Warmline says", said, "");
    let again = server.call("pay", &pay).await;
    again.and_then(ToolResult::ok).map_err(|e| unanswered(&e))?;
    stage.row("pay", "whoever calls again", &paid(), "has paid twice");
    run.end().await;
    stage.command("warmline call pay amount=10 -- warmline demo-server --stdio -- \\");
    stage.command_goes_on(&format!("--fault '{LOST}'; echo exit $?"));
    Ok(())
}

/// A server that is killed is met again, and the model is told what it lost.
pub(super) async fn killing(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(
        4,
        "The server is killed in the middle of a run, and comes back",
    );
    let run = world.named("long")?;
    let server = run.server(World::WEB).map_err(|e| unanswered(&e))?;
    let mut before = Vec::new();
    for _ in 0..2 {
        before.push(count(server.call("counter", json!({})).await)?);
    }
    stage.row("heal", "before", &before.join(" "), "");
    let executed = world.http.ledger().executions("counter");
    world
        .http
        .restart()
        .map_err(|error| bug(&error.to_string()))?;
    let begun = clock::now();
    let healed = server.call("counter", json!({})).await;
    let healed = healed.map_err(|e| unanswered(&e))?;
    let took = begun.elapsed();
    let times = world.http.ledger().executions("counter") - executed;
    stage.row(
        "heal",
        "the next call",
        "healed",
        &format!("in {}; it was executed {}", seconds(took), often(times)),
    );
    stage.quote("heal", "what the model gets", &healed.text());
    run.end().await;
    stage.command("warmline call $U counter --run trip");
    stage.command("kill $DEMO; wait $DEMO");
    stage.command(&format!("{SERVER}; sleep 1"));
    stage.command("warmline call $U counter --run trip");
    Ok(())
}

fn often(times: usize) -> String {
    match times {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    }
}

/// What the counter says.
pub(super) fn count(said: Result<ToolResult, Error>) -> Outcome<String> {
    let said = said.and_then(|result| result.structured::<Value>());
    let said = said.map_err(|error| unanswered(&error))?;
    Ok(said.get("count").map(Value::to_string).unwrap_or_default())
}

/// The rule that loses the answer of a payment that was made.
const LOST: &str = r#"{"tool":"pay","fault":{"crash":"after-executing"}}"#;
