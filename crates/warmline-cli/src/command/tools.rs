//! `warmline tools`: what a server can do, one line each.

use warmline::upstream::Declared;

use crate::args::{self, Answers};
use crate::ask::Person;
use crate::conversation::{Conversation, Tool, summary};
use crate::problem::{Outcome, Problem};
use crate::report::text::{count, cut, first_line, one_line, padded};
use crate::report::{Fields, Report, sanitised, style};
use crate::run::ChosenRun;
use crate::target::{Named, Target, split};

/// Lists the tools of a server.
pub(super) async fn run(typed: &args::Tools, report: &'static Report) -> Outcome<u8> {
    let (Some(aim), _, _) = split(&typed.words, &typed.command, Named::Nothing)? else {
        return Err(Problem::usage("no target is named")
            .hint("give a URL, a name, or a command behind `--`"));
    };
    let run = ChosenRun::of(&typed.together, &typed.connect)?;
    let target = Target::find_in(run.as_ref(), &aim, &typed.connect)?;
    // A run's session serves calls too, and those can be asked something.
    let declared = match &run {
        Some(_) => Person::new(report, &target.server.name, &Answers::default())?.declared(),
        None => Declared::default(),
    };
    let conversation = Conversation::open(&target, run.as_ref(), &declared, report).await?;
    let tools = conversation.tools().await;
    let facts = conversation.facts().clone();
    let name = conversation.name().to_owned();
    let met = conversation.how_it_was_met().replace("cold · ", "");
    conversation.close().await;
    let tools = tools?;
    if report.is_json() {
        for tool in &tools {
            let fields = Fields::new().put("server", &name).put("tool", tool.name());
            report.object("tool", &fields.put("definition", &tool.0));
        }
        return Ok(0);
    }
    let head = format!(
        "{} · {} · {}",
        style::name(&name),
        count(tools.len(), "tool"),
        summary(&facts)
    );
    report.note(&head);
    for line in lines(&tools, report.width()) {
        report.data(&line);
    }
    report.cost(&format!("{:>78}", met.trim_start_matches(" · ")));
    Ok(0)
}

/// Name, title, arguments and hint of each tool, in columns that fit the terminal.
fn lines(tools: &[Tool], width: usize) -> Vec<String> {
    let widest = |of: &dyn Fn(&Tool) -> usize, most: usize| {
        tools.iter().map(of).max().unwrap_or(0).min(most)
    };
    let name_width = widest(&|tool| one_line(tool.name()).chars().count(), 32);
    // Where there is little room, what has to be typed stays.
    let hint_width = if width < NARROW {
        0
    } else {
        widest(&|tool| tool.repeats().len(), 13)
    };
    let room = width.saturating_sub(2 + name_width + 2 + 2 + hint_width + 2);
    // Arguments are short and say what to type; the title gets what they leave, at least half.
    let most = if width < NARROW { room } else { room / 2 };
    let args_width = widest(&|tool| arguments(tool).chars().count(), most);
    let title_width = match room - args_width {
        0..8 => 0,
        left => widest(&|tool| title(tool, 60).chars().count(), left),
    };
    let line = |tool: &Tool| {
        let line = format!(
            "  {}  {}{}{}",
            style::name(&padded(
                &cut(&one_line(tool.name()), name_width),
                name_width
            )),
            column(&title(tool, title_width), title_width),
            column(&cut(&arguments(tool), args_width), args_width),
            if hint_width == 0 { "" } else { tool.repeats() }
        );
        line.trim_end().to_owned()
    };
    tools.iter().map(line).collect()
}

/// A column and the gap behind it; one without width is left out.
fn column(text: &str, width: usize) -> String {
    match width {
        0 => String::new(),
        _ => format!("{}  ", padded(text, width)),
    }
}

fn title(tool: &Tool, width: usize) -> String {
    first_line(&sanitised(tool.title()), width)
}

/// Names of the arguments, those that are needed first, the others in brackets.
fn arguments(tool: &Tool) -> String {
    let schema = tool.schema();
    let required = schema.required();
    let needed = required.iter().map(|name| one_line(name));
    let optional = schema
        .names()
        .into_iter()
        .filter(|name| !required.contains(name));
    needed
        .chain(optional.map(|name| format!("[{}]", one_line(name))))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Below this width titles and hints give way.
const NARROW: usize = 72;
