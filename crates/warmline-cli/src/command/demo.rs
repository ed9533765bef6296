//! `warmline demo`: what Warmline is for, shown with its own server and nothing else.
//!
//! Each step does the same thing twice, the usual way and with a session that is held, and ends
//! with the command that repeats it.

use warmline_testkit::personality::Personality;
use warmline_testkit::{CutAt, End, Fault, LedgerServer, Rule};

use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, style};

mod bars;
mod world;

use bars::{Bar, bars};
use world::{Heard, World};

/// Runs the demo from start to end.
pub(super) async fn run(report: &Report) -> Outcome<u8> {
    let stage = Stage { report };
    stage.line("Warmline's own server, on this machine: nothing is installed, nothing leaves it.");
    let program = World::stdio()?;
    let http = LedgerServer::start(Personality::legacy()).map_err(|error| {
        Problem::new(
            warmline::core::code::Code::CannotReach,
            "the demo server cannot listen",
        )
        .because(error.to_string())
    })?;
    let web = World::http(&http.url())?;
    counting(&stage, &program).await?;
    noting(&stage, &web).await?;
    paying(&stage, &web, &http).await?;
    timing(&stage, &program, &web).await?;
    stage.line("");
    stage.line("Try your own:");
    stage.command("warmline doctor https://example.com/mcp");
    stage.command("warmline doctor -- npx -y some-server");
    Ok(0)
}

/// Where the demo is told: as text, or as objects.
struct Stage<'r> {
    report: &'r Report,
}

impl Stage<'_> {
    fn line(&self, text: &str) {
        if !self.report.is_json() {
            self.report.data(text);
        }
    }

    fn title(&self, number: u8, text: &str) {
        self.line(&format!("\n{}", style::bold(&format!("{number}  {text}"))));
    }

    /// One way of doing it, what came of it, and what that means.
    fn row(&self, step: &str, way: &str, result: &str, means: &str) {
        if self.report.is_json() {
            let fields = Fields::new()
                .put("step", step)
                .put("way", way)
                .put("result", result);
            return self.report.object("demo", &fields.put("means", means));
        }
        let line = format!("     {way:<19}  {result:<12}  {means}");
        self.line(line.trim_end());
    }

    fn command(&self, command: &str) {
        self.line(&format!("   {} {}", style::dim("$"), style::name(command)));
    }
}

async fn counting(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(1, "A tool that counts its calls, in a process (stdio)");
    let mut per_call = Vec::new();
    for _ in 0..3 {
        let session = world.open().await?;
        per_call.push(
            world
                .call(&session, "counter", "{}")
                .await?
                .number("/structuredContent/count"),
        );
        session.close().await;
    }
    stage.row(
        "count",
        "a session per call",
        &numbers(&per_call),
        "it begins anew each time",
    );
    let session = world.open().await?;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(
            world
                .call(&session, "counter", "{}")
                .await?
                .number("/structuredContent/count"),
        );
    }
    session.close().await;
    stage.row(
        "count",
        "one session, held",
        &numbers(&held),
        "it remembers",
    );
    stage.command("warmline call counter -- warmline demo-server --stdio");
    Ok(())
}

async fn noting(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(
        2,
        "A note is written, then read (HTTP, a server that keeps sessions)",
    );
    let write = r#"{"title":"colour","text":"blue"}"#;
    let read = r#"{"title":"colour"}"#;
    let first = world.open().await?;
    world.call(&first, "note_write", write).await?;
    first.close().await;
    let second = world.open().await?;
    let lost = world.call(&second, "note_read", read).await?;
    second.close().await;
    stage.row(
        "note",
        "a session per call",
        "gone",
        &format!("the tool says: {}", lost.text()),
    );
    let session = world.open().await?;
    world.call(&session, "note_write", write).await?;
    let kept = world.call(&session, "note_read", read).await?;
    session.close().await;
    stage.row(
        "note",
        "one session, held",
        "kept",
        &format!("the tool says: {}", kept.text()),
    );
    stage.command("warmline demo-server --http 8400 --era legacy &");
    stage.command("warmline call http://127.0.0.1:8400/mcp note_write title=colour text=blue");
    stage.command("warmline call http://127.0.0.1:8400/mcp note_read title=colour");
    Ok(())
}

async fn paying(stage: &Stage<'_>, world: &World, server: &LedgerServer) -> Outcome<()> {
    stage.title(
        3,
        "A payment of 10; the server pays, and its answer is lost",
    );
    server.inject(Rule::new(Fault::Cut(CutAt::AfterExecuting, End::Rst)).on_tool("pay"));
    let session = world.open().await?;
    let pay = r#"{"amount":10}"#;
    let said = match world.attempt(&session, "pay", pay).await? {
        Heard::Lost(delivery) => delivery.sentence().unwrap_or(delivery.word()),
        Heard::Result(_) => "paid",
    };
    let paid = |count: usize| format!("{count} × 10 paid");
    stage.row(
        "pay",
        "the server's ledger",
        &paid(server.ledger().executions("pay")),
        "",
    );
    stage.row("pay", "what Warmline says", said, "");
    world.attempt(&session, "pay", pay).await?;
    let twice = server.ledger().executions("pay");
    stage.row("pay", "whoever calls again", &paid(twice), "has paid twice");
    session.close().await;
    stage.command("warmline call pay amount=10 -- warmline demo-server --stdio -- \\");
    stage.line(&format!(
        "     {}",
        style::name(&format!("--fault '{LOST}'; echo exit $?"))
    ));
    Ok(())
}

async fn timing(stage: &Stage<'_>, program: &World, web: &World) -> Outcome<()> {
    stage.title(4, &format!("{CALLS} calls, side by side"));
    let rows = [("stdio", program), ("HTTP", web)];
    let mut measured = Vec::new();
    for (transport, world) in rows {
        let waiting = format!("calling over {transport}");
        let per_call = Box::pin(world.time_per_call(CALLS));
        let per_call = stage.report.while_waiting(&waiting, per_call).await?;
        let held = Box::pin(world.time_held(CALLS));
        let held = stage.report.while_waiting(&waiting, held).await?;
        measured.push(Bar {
            label: format!("{transport}, a session per call"),
            took: per_call,
        });
        measured.push(Bar {
            label: format!("{transport}, held"),
            took: held,
        });
    }
    if stage.report.is_json() {
        for bar in &measured {
            let micros = bar.took.as_micros();
            let fields = Fields::new().put("step", "time").put("way", &bar.label);
            stage
                .report
                .object("demo", &fields.put("calls", CALLS).put("took_us", micros));
        }
    }
    for line in bars(&measured) {
        stage.line(&format!("     {line}"));
    }
    stage.line("     (real servers take 0.4 to 6 s to start, and TLS shakes hands: it adds up)");
    stage.command("warmline demo --json");
    Ok(())
}

fn numbers(numbers: &[i64]) -> String {
    numbers
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// How many calls are timed.
const CALLS: u32 = 10;
/// The rule that loses the answer of a payment that was made.
const LOST: &str = r#"{"tool":"pay","fault":{"crash":"after-executing"}}"#;
