//! `warmline demo`: a tour of what Warmline does, with its own server.
//!
//! Each step does something the usual way and in a run, and ends with the commands that repeat it.

use std::cell::Cell;

use clap::Args;
use warmline_core::error::code::Code;

use crate::output::problem::{CliResult, Problem};
use crate::output::{JsonFields, Report, style};

mod servers;
mod steps;

use servers::DemoServers;

const EXAMPLES: &str = "\
Examples:
  warmline demo
  warmline demo --json";

/// See what Warmline is for, in a few seconds
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DemoArgs {}

/// Starts the server of the steps by hand. `$DEMO` is its process: the shell may have other jobs.
const SERVER_COMMAND: &str = "warmline demo-server --http 8400 --era legacy & DEMO=$!";

pub(super) async fn run(report: &Report) -> CliResult<u8> {
    let out = DemoOutput {
        report,
        steps: Cell::new(0),
    };
    out.print_line("Warmline's own server, on this machine: nothing is installed or sent away.");
    out.print_line("Each step ends with the commands that repeat it, with a server of your own:");
    out.print_commands(&[SERVER_COMMAND, "U=http://127.0.0.1:8400/mcp"]);
    let servers = DemoServers::start()?;
    let shown = Box::pin(run_steps(&out, &servers)).await;
    servers.warmline.close().await;
    shown.map_err(|problem| demo_failure(&problem))?;
    out.print_line("\nTry your own:");
    out.print_commands(&[
        "warmline doctor https://example.com/mcp",
        "warmline doctor -- npx -y some-server",
    ]);
    Ok(0)
}

async fn run_steps(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    steps::show_counter(out, servers).await?;
    steps::show_isolation(out, servers).await?;
    steps::show_payment(out, servers).await?;
    steps::show_healing(out, servers).await?;
    steps::show_timings(out, servers).await?;
    steps::show_restart(out, servers).await
}

/// No step fails with our own server: one that does is a bug.
fn demo_failure(problem: &Problem) -> Problem {
    let parts = problem.parts();
    let cause = parts.cause.as_ref().map(|cause| format!(": {cause}"));
    let failure = Problem::new(Code::Bug, "the demo failed with its own server")
        .with_cause(format!("{}{}", parts.message, cause.unwrap_or_default()));
    match parts.delivery {
        Some(delivery) => failure.with_delivery(delivery),
        None => failure,
    }
}

struct DemoOutput<'r> {
    report: &'r Report,
    steps: Cell<u8>,
}

impl DemoOutput<'_> {
    fn print_line(&self, text: &str) {
        if !self.report.is_json() {
            self.report.print(text);
        }
    }

    fn print_title(&self, text: &str) {
        let number = self.steps.get() + 1;
        self.steps.set(number);
        self.print_line(&format!("\n{}", style::bold(&format!("{number}  {text}"))));
    }

    /// One way of doing it, its result, and what that means.
    fn print_row(&self, step: &str, way: &str, result: &str, means: &str) {
        let fields = JsonFields::new()
            .put("step", step)
            .put("way", way)
            .put("result", result)
            .put("means", means);
        let line = format!("     {way:<19}  {result:<12}  {means}");
        self.report.print_entry("demo", &fields, line.trim_end());
    }

    fn print_quote(&self, step: &str, way: &str, text: &str) {
        if self.report.is_json() {
            return self.print_row(step, way, text, "");
        }
        let lines = text.lines().flat_map(|line| wrap_text(line, TEXT_WIDTH));
        for (number, line) in lines.enumerate() {
            let label = if number == 0 { way } else { "" };
            self.print_line(&format!("     {label:<19}  {line}"));
        }
    }

    /// Commands that can be typed. A line that begins with a blank continues the one before.
    fn print_commands(&self, commands: &[&str]) {
        for command in commands {
            let (prompt, text) = match command.strip_prefix(' ') {
                Some(rest) => ("  ".to_owned(), rest),
                None => (format!("{} ", style::dim("$")), *command),
            };
            self.print_line(&format!("   {prompt}{}", style::name(text)));
        }
    }
}

fn wrap_text(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            },
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const TEXT_WIDTH: usize = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words() {
        assert_eq!(wrap_text("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap_text("unbreakable a", 4), ["unbreakable", "a"]);
        assert_eq!(wrap_text("", 4), Vec::<String>::new());
    }
}
