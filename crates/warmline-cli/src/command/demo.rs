//! `warmline demo`: what Warmline is for, shown with its own server and nothing else.
//!
//! Each step does something the usual way and in a run, and ends with the command that repeats it.

use crate::problem::Outcome;
use crate::report::{Fields, Report, style};

mod bars;
mod restart;
mod steps;
mod times;
mod world;

use world::World;

/// Runs the demo from start to end.
pub(super) async fn run(report: &Report) -> Outcome<u8> {
    let stage = Stage { report };
    stage.line("Warmline's own server, on this machine: nothing is installed, nothing leaves it.");
    stage.line("Each step ends with the command that repeats it, against a server of your own:");
    stage.command(SERVER);
    stage.command("U=http://127.0.0.1:8400/mcp");
    let world = World::start()?;
    let shown = Box::pin(show(&stage, &world)).await;
    world.close().await;
    shown?;
    stage.line("");
    stage.line("Try your own:");
    stage.command("warmline doctor https://example.com/mcp");
    stage.command("warmline doctor -- npx -y some-server");
    Ok(0)
}

async fn show(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    steps::counting(stage, world).await?;
    steps::two_people(stage, world).await?;
    steps::paying(stage, world).await?;
    steps::killing(stage, world).await?;
    times::timing(stage, world).await?;
    restart::restarting(stage, world).await
}

/// How the server of the steps is started by hand. It is remembered by a name of its own: other jobs
/// of the same shell may come after it.
const SERVER: &str = "warmline demo-server --http 8400 --era legacy & DEMO=$!";

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

    /// One way of doing it, and a text that came of it, which may take several lines.
    fn quote(&self, step: &str, way: &str, text: &str) {
        if self.report.is_json() {
            return self.row(step, way, text, "");
        }
        let mut way = way;
        let lines = text.lines().flat_map(|line| wrapped(line, ROOM_FOR_TEXT));
        for line in lines {
            self.line(&format!("     {way:<19}  {line}"));
            way = "";
        }
    }

    fn command(&self, command: &str) {
        self.line(&format!("   {} {}", style::dim("$"), style::name(command)));
    }

    /// The rest of a command that did not fit on its line.
    fn command_goes_on(&self, command: &str) {
        self.line(&format!("     {}", style::name(command)));
    }
}

/// A text in lines that are no wider than that, where its words allow it.
fn wrapped(text: &str, width: usize) -> Vec<String> {
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

/// So wide is a text beside the way it belongs to.
const ROOM_FOR_TEXT: usize = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words() {
        assert_eq!(wrapped("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrapped("unbreakable a", 4), ["unbreakable", "a"]);
        assert_eq!(wrapped("", 4), Vec::<String>::new());
    }
}
