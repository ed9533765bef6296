//! `warmline tools`: what a server can do, one line each; or one of its tools, in full.

use crate::args::{self, Answers};
use crate::ask::Person;
use crate::conversation::{Conversation, Tool, summary};
use crate::problem::{Outcome, Problem};
use crate::report::text::{count, cut, one_line, one_sentence, padded};
use crate::report::{Fields, Report, style};
use crate::run::ChosenRun;
use crate::target::{Aim, Named, Target, split, too_many};

mod one;

/// Lists the tools of a server, or tells all of one.
pub(super) async fn run(typed: &args::Tools, report: &'static Report) -> Outcome<u8> {
    let (aim, tool, rest) = split(&typed.words, &typed.command, Named::Tool)?;
    let Some(aim) = aim else {
        return Err(Problem::usage("no target is named")
            .hint("give a URL, a name, or a command behind `--`"));
    };
    if let [extra, ..] = rest {
        return Err(too_many(extra, &typed.command).hint("name a server, and one tool at most"));
    }
    let run = ChosenRun::of(&typed.together, &typed.connect)?;
    let target = Target::find_in(run.as_ref(), &aim, &typed.connect)?;
    // A server may list other tools to whoever can be asked something, as calls can be.
    let person = Person::new(report, &target.server.name, &Answers::default())?;
    let conversation =
        Conversation::open(&target, run.as_ref(), &person.declared(), report).await?;
    let tools = conversation.tools().await;
    let told = tools.and_then(|tools| match tool {
        Some(tool) => one::tell(&conversation, tool, &tools, report),
        None => {
            tell(&conversation, &aim, &tools, report);
            Ok(())
        },
    });
    conversation.close().await;
    told.map(|()| 0)
}

fn tell(conversation: &Conversation<'_>, aim: &Aim, tools: &[Tool], report: &Report) {
    if report.is_json() {
        return tools
            .iter()
            .for_each(|tool| tell_definition(conversation, tool, report));
    }
    let head = format!(
        "{} · {} · {}",
        style::name(conversation.name()),
        count(tools.len(), "tool"),
        summary(conversation.facts())
    );
    report.note(&head);
    for line in lines(tools, report.width()) {
        report.data(&line);
    }
    if !tools.is_empty() {
        let again = match aim {
            Aim::Command(_) => format!("TOOL {}", conversation.again()),
            Aim::Url(_) | Aim::Name(_) => format!("{} TOOL", conversation.again()),
        };
        report.cost(&format!("  one of them in full: warmline tools {again}"));
    }
    let met = conversation.how_it_was_met().replace("cold · ", "");
    report.cost(&format!("{:>78}", met.trim_start_matches(" · ")));
}

/// A tool for programs: as its server defines it.
fn tell_definition(conversation: &Conversation<'_>, tool: &Tool, report: &Report) {
    let fields = Fields::new()
        .put("server", conversation.name())
        .put("tool", tool.name());
    report.object("tool", &fields.put("definition", &tool.0));
}

/// Name, arguments, hint and description of each tool. A name has to be typed and is never cut; what
/// stands last gives way to the width of the terminal first.
fn lines(tools: &[Tool], width: usize) -> Vec<String> {
    let widest = |of: &dyn Fn(&Tool) -> usize, most: usize| {
        tools.iter().map(of).max().unwrap_or(0).min(most)
    };
    let name_width = widest(&|tool| one_line(tool.name()).chars().count(), NAMES);
    // Where there is little room, what has to be typed stays, and what it is.
    let hint_width = if width < WIDE {
        0
    } else {
        widest(&|tool| tool.repeats().len(), 13)
    };
    let room = width.saturating_sub(2 + name_width + 2);
    let most = if width < NARROW { room } else { room / 3 };
    let args_width = widest(&|tool| arguments(tool).chars().count(), most.min(ARGUMENTS));
    let line = |tool: &Tool| {
        let mut line = format!("  {}", padded(&one_line(tool.name()), name_width));
        let arguments = arguments(tool);
        // For programs nothing is cut, and a long one stands out of its column.
        let arguments = match width == usize::MAX {
            true => arguments,
            false => cut(&arguments, args_width),
        };
        for (text, column) in [
            (arguments, args_width),
            (tool.repeats().to_owned(), hint_width),
        ] {
            if column > 0 {
                line.push_str(&format!("  {}", padded(&text, column)));
            }
        }
        let left = width.saturating_sub(line.chars().count() + 2);
        if width >= NARROW && left >= LEAST {
            line.push_str(&format!("  {}", cut(&one_sentence(tool.about()), left)));
        }
        line.trim_end().to_owned()
    };
    let styled = |tool: &Tool| {
        let name = one_line(tool.name());
        line(tool).replacen(&name, &style::name(&name), 1)
    };
    tools.iter().map(styled).collect()
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

/// Below this width descriptions give way.
const NARROW: usize = 72;
/// Below this width hints give way.
const WIDE: usize = 100;
/// The widest columns of names and arguments: what is longer stands out.
const NAMES: usize = 32;
const ARGUMENTS: usize = 40;
/// Less of a description than this says nothing.
const LEAST: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<Tool> {
        let long = "a_name_that_is_much_longer_than_every_column_for_names";
        vec![
            Tool(json!({
                "name": "pay",
                "title": "Pay",
                "description": "Pays an amount.\n\nAnd tells it to nobody at all, whatever becomes of it.",
                "annotations": {"readOnlyHint": true},
                "inputSchema": {"properties": {"amount": {}, "to": {"default": "me"}}, "required": ["amount", "to"]},
            })),
            Tool(json!({"name": long, "title": "Only a title"})),
        ]
    }

    fn plain(width: usize) -> Vec<String> {
        let styled = lines(&tools(), width);
        styled
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect()
    }

    #[test]
    fn a_name_is_never_cut_and_a_description_gives_way() {
        let long = "  a_name_that_is_much_longer_than_every_column_for_names";
        #[rustfmt::skip]
        let table = [
            (110, "  pay                               amount [to]  read-only  Pays an amount. And tells it to nobody at all, wh…"),
            (80,  "  pay                               amount [to]  Pays an amount. And tells it t…"),
            (48,  "  pay                               amount [to]"),
            (40,  "  pay                               amo…"),
        ];
        for (width, line) in table {
            let lines = plain(width);
            assert_eq!(lines[0], line);
            assert!(lines[1].starts_with(long), "{lines:?}");
            assert!(lines[0].chars().count() <= width);
        }
    }

    #[test]
    fn nothing_is_cut_for_a_program() {
        assert_eq!(
            plain(usize::MAX),
            [
                "  pay                               amount [to]  read-only  Pays an amount. And tells it to nobody at all, whatever becomes of it.",
                "  a_name_that_is_much_longer_than_every_column_for_names                          Only a title",
            ]
        );
    }
}
