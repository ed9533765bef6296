//! What a run does: its state is kept, isolated, reported when it is lost, and never paid for twice; and
//! what holding a session saves, as bars.

use std::future::Future;
use std::time::Duration;

use serde_json::json;
use warmline_engine::ToolResult;
use warmline_platform::clock;
use warmline_testkit::{ConnectionEnd, CutPoint, Fault, FaultRule};

use super::{DemoGateway, DemoOutput, DemoServers, SERVER_COMMAND, bug, call_counter};
use crate::output::{CliResult, JsonFields, format_duration, pad};

/// State is kept over the calls of a run, and gone without one.
pub(super) async fn show_counter(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    out.print_title("A tool that counts its calls");
    let mut alone = Vec::new();
    for _ in 0..3 {
        alone.push(call_counter(&servers.warmline.server(DemoServers::HTTP)?).await?);
    }
    let way = "a session per call";
    out.print_row("count", way, &alone.join(" "), "it starts over each time");
    let run = servers.warmline.named_run("trip")?;
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(call_counter(&run.server(DemoServers::HTTP)?).await?);
    }
    run.end().await;
    out.print_row("count", "in a run", &kept.join(" "), "it remembers");
    out.print_commands(&["warmline call $U counter --run trip    # and again"]);
    Ok(())
}

/// Two callers use the same server and the same run name, and neither sees the other's state.
pub(super) async fn show_isolation(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    out.print_title("Alice writes a note; her sub-agent and Bob read it");
    let alice = servers.warmline.identity("alice");
    let bob = servers.warmline.identity("bob").named_run("trip")?;
    let run = alice.named_run("trip")?;
    let note = json!({ "title": "colour", "text": "blue" });
    let written = run.server(DemoServers::HTTP)?;
    written.call("note_write", note).await?.ok()?;
    let title = json!({ "title": "colour" });
    let sub_agent = alice.join_run("trip")?.server(DemoServers::HTTP)?;
    let found = sub_agent.call("note_read", &title).await?.text();
    let means = "the same run, the same session";
    out.print_row("people", "Alice's sub-agent", &found, means);
    let missed = bob.server(DemoServers::HTTP)?;
    let missed = missed.call("note_read", &title).await?;
    let (result, means) = match missed.is_error() {
        true => (
            "nothing".to_owned(),
            format!("the tool says: {}", missed.text()),
        ),
        false => (missed.text(), "which is not his".to_owned()),
    };
    out.print_row("people", "Bob, in his `trip`", &result, &means);
    run.end().await;
    bob.end().await;
    out.print_commands(&[
        "warmline call $U note_write title=colour text=blue --run alice",
        "warmline call $U note_read title=colour --run alice",
        "warmline call $U note_read title=colour --run bob",
    ]);
    Ok(())
}

/// A lost answer is not mistaken for a payment that was not made.
pub(super) async fn show_payment(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    out.print_title("A payment of 10; the server pays, and its answer is lost");
    let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
    servers.http.inject(FaultRule::new(cut).on_tool("pay"));
    let run = servers.warmline.named_run("payments")?;
    let server = run.server(DemoServers::HTTP)?;
    let amount = json!({ "amount": 10 });
    let delivery = match server.call("pay", &amount).await {
        Err(error) => error.delivery().description().unwrap_or("answered"),
        Ok(_) => return Err(bug(&"the demo server did not lose its answer")),
    };
    let paid = || format!("{} × 10 paid", servers.http.ledger().executions("pay"));
    out.print_row("pay", "the server's ledger", &paid(), "");
    out.print_row("pay", "what Warmline says", delivery, "");
    server.call("pay", &amount).await.and_then(ToolResult::ok)?;
    out.print_row("pay", "a second call", &paid(), "has paid twice");
    run.end().await;
    out.print_commands(&[
        "warmline call pay amount=10 -- warmline demo-server --stdio -- \\",
        r#" --fault '{"tool":"pay","fault":{"crash":"after-executing"}}'; echo exit $?"#,
    ]);
    Ok(())
}

/// A killed server gets a new session, and the model is told what was lost.
pub(super) async fn show_healing(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    out.print_title("The server is killed in the middle of a run, and comes back");
    let run = servers.warmline.named_run("long")?;
    let server = run.server(DemoServers::HTTP)?;
    let before = [call_counter(&server).await?, call_counter(&server).await?];
    out.print_row("heal", "before", &before.join(" "), "");
    let executed = servers.http.ledger().executions("counter");
    servers.http.restart().map_err(|error| bug(&error))?;
    let started = clock::now();
    let healed = server.call("counter", json!({})).await?;
    let elapsed = format_duration(started.elapsed());
    let times = match servers.http.ledger().executions("counter") - executed {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let means = format!("in {elapsed}; it was executed {times}");
    out.print_row("heal", "the next call", "healed", &means);
    out.print_quote("heal", "what the model gets", &healed.text());
    run.end().await;
    out.print_commands(&[
        "warmline call $U counter --run trip",
        "kill $DEMO; wait $DEMO",
        &format!("{SERVER_COMMAND}; sleep 1"),
        "warmline call $U counter --run trip",
    ]);
    Ok(())
}

/// Client and server both keep their sessions when the gateway between them is replaced.
pub(super) async fn show_restart(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    out.print_title("The gateway stops in the middle of a run, and starts again");
    let folder = tempfile::tempdir().map_err(|error| bug(&error))?;
    let first = DemoGateway::start(folder.path(), &servers.http, None).await?;
    let address = first.address();
    let client = first.client()?;
    let run = client.begin_run();
    let server = run.server(DemoServers::HTTP)?;
    let before = [call_counter(&server).await?, call_counter(&server).await?];
    out.print_row("restart", "before", &before.join(" "), "");
    let sessions = servers.http.counts().initializes;
    first.shut_down().await;
    let started = clock::now();
    let second = DemoGateway::start(folder.path(), &servers.http, Some(address)).await?;
    let after = call_counter(&server).await?;
    let session = match servers.http.counts().initializes - sessions {
        0 => "the same",
        _ => "another",
    };
    let elapsed = format_duration(started.elapsed());
    let means = format!("{elapsed} later, in {session} session");
    out.print_row("restart", "the next call", &after, &means);
    run.end().await;
    client.close().await;
    second.shut_down().await;
    let serve = "warmline serve $U --auth none & GATEWAY=$!; sleep 1";
    out.print_commands(&[
        "G=http://127.0.0.1:8484/runs/trip/servers/127-0-0-1-8400/mcp",
        serve,
        "warmline call $G counter",
        "kill -9 $GATEWAY; wait $GATEWAY",
        serve,
        "warmline call $G counter",
    ]);
    Ok(())
}

type Bar = (&'static str, Duration);

const BAR_WIDTH: usize = 32;
const TIMED_CALLS: u32 = 10;
const TIMED_FIRST_CALLS: usize = 3;

pub(super) async fn show_timings(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    use DemoServers as S;

    out.print_title(&format!("{TIMED_CALLS} calls, and the first call of a run"));
    let (mut many, mut first) = (Vec::new(), Vec::new());
    for (label, server, in_run) in [
        ("a process per call", S::STDIO, false),
        ("one process, held", S::STDIO, true),
        ("an HTTP session per call", S::HTTP, false),
        ("one HTTP session, held", S::HTTP, true),
    ] {
        many.push(out.time(label, time_calls(servers, server, in_run)).await?);
    }
    for (label, server) in [
        ("first call, cold", S::STDIO),
        ("first call, from a spare", S::STDIO_WITH_SPARE),
    ] {
        first.push(out.time(label, time_first_call(servers, server)).await?);
    }
    out.print_bars(&many, TIMED_CALLS);
    out.print_bars(&first, 1);
    out.print_line("     (real servers take 0.4 to 6 s to start, plus the TLS handshake)");
    out.print_commands(&["warmline demo --json"]);
    Ok(())
}

impl DemoOutput<'_> {
    async fn time(
        &self,
        label: &'static str,
        timing: impl Future<Output = CliResult<Duration>>,
    ) -> CliResult<Bar> {
        let what = format!("timing {label}");
        let timing = self.report.with_progress(&what, Box::pin(timing));
        Ok((label, timing.await?))
    }

    fn print_bars(&self, bars: &[Bar], calls: u32) {
        if self.report.is_json() {
            for (label, duration) in bars {
                let fields = JsonFields::with("step", "time")
                    .put("way", label)
                    .put("calls", calls)
                    .put("took_us", duration.as_micros());
                self.report.print_object("demo", &fields);
            }
        }
        for line in draw_bars(bars) {
            self.print_line(&format!("     {line}"));
        }
    }
}

fn draw_bars(bars: &[Bar]) -> Vec<String> {
    let longest = bars.iter().map(|(_, duration)| duration.as_micros()).max();
    let widest = bars.iter().map(|(label, _)| label.chars().count()).max();
    let draw = |(label, duration): &Bar| {
        let share = duration.as_micros() * BAR_WIDTH as u128 / longest.unwrap_or_default().max(1);
        let length = usize::try_from(share).unwrap_or_default().max(1);
        let label = pad(label, widest.unwrap_or_default());
        let bar = pad(&"█".repeat(length), BAR_WIDTH);
        format!("{label}  {bar}  {}", format_duration(*duration))
    };
    bars.iter().map(draw).collect()
}

/// Calls with a session each, or in one run: with opening and ending its session.
async fn time_calls(servers: &DemoServers, server: &str, in_run: bool) -> CliResult<Duration> {
    let started = clock::now();
    let run = in_run.then(|| servers.warmline.begin_run());
    let server = match &run {
        Some(run) => run.server(server)?,
        None => servers.warmline.server(server)?,
    };
    for _ in 0..TIMED_CALLS {
        call_counter(&server).await?;
    }
    if let Some(run) = run {
        run.end().await;
    }
    Ok(started.elapsed())
}

/// The median time of the first call of a run. A server with spares opens one beforehand.
async fn time_first_call(servers: &DemoServers, server: &str) -> CliResult<Duration> {
    let mut times = Vec::new();
    for _ in 0..TIMED_FIRST_CALLS {
        if server == DemoServers::STDIO_WITH_SPARE {
            servers.wait_for_spare().await?;
        }
        let run = servers.warmline.begin_run();
        let started = clock::now();
        call_counter(&run.server(server)?).await?;
        times.push(started.elapsed());
        run.end().await;
    }
    times.sort_unstable();
    let median = times.get(TIMED_FIRST_CALLS / 2);
    Ok(median.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_to_scale_and_never_vanish() {
        let bar = |label, ms| (label, Duration::from_millis(ms));
        let lines = draw_bars(&[bar("slow", 400), bar("half", 200), bar("fast", 1)]);
        let lengths: Vec<usize> = lines.iter().map(|line| line.matches('█').count()).collect();
        assert_eq!(lengths, [32, 16, 1]);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{lines:?}"
        );
    }
}
