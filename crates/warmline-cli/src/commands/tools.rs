//! `warmline tools`: lists the tools of a server, or shows one of them.

use clap::Args;
use serde_json::Value;

use crate::backend::selected_run::{RunSelectionArgs, SelectedRun};
use crate::backend::{CommandSession, Tool, facts_summary};
use crate::output::{
    CliResult, JsonFields, Problem, Report, collapse_whitespace, one_line, pad, pluralize,
    sanitize, style, truncate,
};
use crate::prompt::{PromptListener, ServerRequestArgs};
use crate::target::{ConnectArgs, ExpectedName, TargetArgs, TargetSpec, extra_word_error};
use crate::values::Schema;

const USAGE: &str = "\
warmline tools TARGET [TOOL] [OPTIONS]
       warmline tools [TOOL] [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline tools https://example.com/mcp
  warmline tools github create_issue
  warmline tools github --json
  warmline tools -- npx -y some-server";

/// List the tools of a server, or show one of them
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct ToolsArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    run_selection: RunSelectionArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) async fn run(args: &ToolsArgs, report: &'static Report) -> CliResult<u8> {
    let (spec, tool, rest) = args.target.split(ExpectedName::Tool)?;
    let Some(spec) = spec else {
        return Err(Problem::usage("no target given")
            .with_hint("give a URL, a name, or a command behind `--`"));
    };
    if let [extra, ..] = rest {
        return Err(extra_word_error(extra, &args.target.command)
            .with_hint("give a server, and at most one tool"));
    }
    let run = SelectedRun::from_args(&args.run_selection, &args.connect)?;
    let target = SelectedRun::resolve_target(run.as_ref(), &spec, &args.connect)?;
    // Servers may list other tools to clients that answer questions, as calls do.
    let listener = PromptListener::new(report, &target.server.name, &ServerRequestArgs::default())?;
    let profile = listener.client_profile();
    let session = CommandSession::open(&target, run.as_ref(), &profile, report).await?;
    let tools = session.list_tools().await;
    let printed = tools.and_then(|tools| match tool {
        Some(tool) => print_tool(&session, tool, &tools, report),
        None => {
            print_tools(&session, &spec, &tools, report);
            Ok(())
        },
    });
    session.close().await;
    printed.map(|()| 0)
}

fn print_tools(session: &CommandSession<'_>, spec: &TargetSpec, tools: &[Tool], report: &Report) {
    if report.is_json() {
        return tools
            .iter()
            .for_each(|tool| print_definition(session, tool, report));
    }
    let (name, count) = (style::name(session.name()), pluralize(tools.len(), "tool"));
    let facts = facts_summary(&session.opened.facts);
    report.print_note(&format!("{name} · {count} · {facts}"));
    for line in tool_lines(tools, report.stdout_width()) {
        report.print(&line);
    }
    if !tools.is_empty() {
        let target = session.target_argument();
        let example = match spec {
            TargetSpec::Command(_) => format!("TOOL {target}"),
            TargetSpec::Url(_) | TargetSpec::Name(_) => format!("{target} TOOL"),
        };
        report.print_cost(&format!("  for one of them: warmline tools {example}"));
    }
    let cost = session.session_summary().replace("cold · ", "");
    report.print_cost(&format!("{:>78}", cost.trim_start_matches(" · ")));
}

fn print_definition(session: &CommandSession<'_>, tool: &Tool, report: &Report) {
    let fields = JsonFields::with("server", session.name())
        .put("tool", tool.name())
        .put("definition", &tool.0);
    report.print_object("tool", &fields);
}

/// Name, arguments, hint and description of each tool. A name has to be typed and is never cut; the
/// last columns are cut first.
fn tool_lines(tools: &[Tool], width: usize) -> Vec<String> {
    let widest = |of: &dyn Fn(&Tool) -> String, most: usize| {
        let widths = tools.iter().map(|tool| of(tool).chars().count());
        widths.max().unwrap_or(0).min(most)
    };
    let name = |tool: &Tool| one_line(tool.name());
    let hint = |tool: &Tool| tool.repeat_hint().to_owned();
    let name_width = widest(&name, MAX_NAME_WIDTH);
    let hint_width = match width < MIN_WIDTH_FOR_HINTS {
        true => 0,
        false => widest(&hint, 13),
    };
    let room = width.saturating_sub(2 + name_width + 2);
    let most = match width < MIN_WIDTH_FOR_DESCRIPTION {
        true => room,
        false => room / 3,
    };
    let args_width = widest(&argument_summary, most.min(MAX_ARGUMENTS_WIDTH));
    let line = |tool: &Tool| {
        let mut line = format!("  {}", pad(&name(tool), name_width));
        let mut arguments = argument_summary(tool);
        // Nothing is cut for programs.
        if width < usize::MAX {
            arguments = truncate(&arguments, args_width);
        }
        for (text, column) in [(arguments, args_width), (hint(tool), hint_width)] {
            if column > 0 {
                line.push_str(&format!("  {}", pad(&text, column)));
            }
        }
        let left = width.saturating_sub(line.chars().count() + 2);
        if width >= MIN_WIDTH_FOR_DESCRIPTION && left >= MIN_DESCRIPTION_WIDTH {
            let summary = truncate(&collapse_whitespace(tool.summary()), left);
            line.push_str(&format!("  {summary}"));
        }
        let styled = style::name(&name(tool));
        line.trim_end().replacen(&name(tool), &styled, 1)
    };
    tools.iter().map(line).collect()
}

/// Names of the arguments, required ones first, the others in brackets.
fn argument_summary(tool: &Tool) -> String {
    let schema = tool.schema();
    let required = schema.required();
    let needed = required.iter().map(|name| one_line(name));
    let optional = schema.names().into_iter();
    let optional = optional.filter(|name| !required.contains(name));
    let names = needed.chain(optional.map(|name| format!("[{}]", one_line(name))));
    names.collect::<Vec<_>>().join(" ")
}

/// Narrower terminals show no descriptions.
const MIN_WIDTH_FOR_DESCRIPTION: usize = 72;
/// Narrower terminals show no hints.
const MIN_WIDTH_FOR_HINTS: usize = 100;
/// Longer names and arguments stand out of their columns.
const MAX_NAME_WIDTH: usize = 32;
const MAX_ARGUMENTS_WIDTH: usize = 40;
const MIN_DESCRIPTION_WIDTH: usize = 8;

/// `warmline tools TARGET TOOL`: one tool with its arguments and an example.
fn print_tool(
    session: &CommandSession<'_>,
    name: &str,
    tools: &[Tool],
    report: &Report,
) -> CliResult<()> {
    let tool = session.find_tool(name, tools)?;
    if report.is_json() {
        print_definition(session, tool, report);
    } else {
        let example = example_command(tool, &session.target_argument());
        report.print(&tool_page(tool, &example));
    }
    Ok(())
}

/// Text of the server is indented: it cannot look like ours.
fn tool_page(tool: &Tool, example: &str) -> String {
    let mut head = style::name(&one_line(tool.name()));
    if let Some(title) = tool.title().filter(|title| *title != tool.name()) {
        head.push_str(&format!(" · {}", one_line(title)));
    }
    let mut parts = vec![head];
    parts.extend(tool.description().map(|text| indent(&sanitize(text))));
    let schema = tool.schema();
    parts.push(match schema.names().is_empty() {
        true => "It takes no arguments.".to_owned(),
        false => format!("Arguments:\n{}", argument_lines(schema).join("\n")),
    });
    parts.push(format!("The server says: {}.", hint_text(tool)));
    parts.push(format!("Example:\n  {example}"));
    parts.join("\n\n")
}

fn indent(text: &str) -> String {
    let lines = text.trim().lines().map(|line| format!("  {line}"));
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

fn argument_lines(schema: Schema<'_>) -> Vec<String> {
    let required = schema.required();
    let others = schema.names().into_iter();
    let others = others.filter(|name| !required.contains(name));
    let rows: Vec<(String, String, String)> = required
        .iter()
        .copied()
        .chain(others)
        .map(|name| {
            let property = schema.property(name);
            let mut kind = property.kind();
            if required.contains(&name) {
                kind.push_str(", required");
            }
            if let Some(usual) = property.member_value("default") {
                kind.push_str(&format!(", default {usual}"));
            }
            let about = property.member_value("description");
            let about = about.and_then(Value::as_str).unwrap_or_default();
            (one_line(name), one_line(&kind), collapse_whitespace(about))
        })
        .collect();
    let widest = |of: &dyn Fn(&(String, String, String)) -> usize| {
        rows.iter().map(of).max().unwrap_or(0).min(MAX_COLUMN_WIDTH)
    };
    let names = widest(&|row| row.0.chars().count());
    let kinds = widest(&|row| row.1.chars().count());
    let line = |(name, kind, about): &(String, String, String)| {
        let line = format!("  {}  {}  {about}", pad(name, names), pad(kind, kinds));
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The annotations of a tool: hints of its server, not guarantees.
fn hint_text(tool: &Tool) -> String {
    let hint = |name: &str| tool.hint(name);
    let mut said: Vec<&str> = Vec::new();
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) => said.push("read-only"),
        (_, Some(true)) => said.push("may destroy something"),
        (_, Some(false)) => said.push("destroys nothing"),
        (Some(false), None) => said.push("changes things"),
        (None, None) => {},
    }
    if hint("readOnlyHint") != Some(true) {
        said.extend(match hint("idempotentHint") {
            Some(true) => Some("safe to repeat"),
            Some(false) => Some("running it twice counts twice"),
            None => None,
        });
    }
    said.extend(match hint("openWorldHint") {
        Some(true) => Some("reaches the outside world"),
        Some(false) => Some("reaches nothing outside"),
        None => None,
    });
    match said.is_empty() {
        true => "nothing about what it changes".to_owned(),
        false => said.join(", "),
    }
}

/// A command that calls the tool with its required arguments, or with one if none is required.
fn example_command(tool: &Tool, again: &str) -> String {
    let schema = tool.schema();
    let mut named = schema.required();
    if named.is_empty() {
        named = schema.names().into_iter().take(1).collect();
    }
    let given = named.into_iter().map(|name| {
        let property = schema.property(name);
        match property.kind().as_str() {
            "object" => format!("{name}:={{}}"),
            _ => format!("{name}={}", schema.placeholder(name)),
        }
    });
    let words = std::iter::once(tool.name().to_owned()).chain(given);
    let words: Vec<String> = words.map(|word| shell_quote(&one_line(&word))).collect();
    let words = words.join(" ");
    match again.starts_with("-- ") {
        true => format!("warmline call {words} {again}"),
        false => format!("warmline call {again} {words}"),
    }
}

/// Quotes a word for a shell. The placeholder of a value stays as it is.
fn shell_quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@,+…".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => shell_words::quote(word).into_owned(),
    }
}

/// Longer names and kinds stand out of their columns.
const MAX_COLUMN_WIDTH: usize = 40;

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
        let styled = tool_lines(&tools(), width);
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

    #[test]
    fn a_tool_is_told_with_all_that_a_caller_has_to_know() {
        let tool = Tool(json!({
            "name": "book",
            "title": "Book a seat",
            "description": "Books a seat.\n\nOnce a day.",
            "annotations": {"destructiveHint": false, "idempotentHint": true},
            "inputSchema": {
                "type": "object",
                "properties": {
                    "class": {"enum": ["first class", "second"], "description": "How\nto sit"},
                    "day": {"$ref": "#/$defs/day"},
                    "names": {"type": "array", "items": {"type": "string"}},
                    "rows": {"type": "array", "items": {"$ref": "#/properties/rows"}},
                    "window": {"type": "boolean", "default": true},
                    "with": {"type": "object"},
                },
                "required": ["class", "day", "window", "with"],
                "$defs": {"day": {"type": "integer", "description": "From today on"}},
            },
        }));
        let told = tool_page(&tool, &example_command(&tool, "-- sh train.sh"));
        let told = anstream::adapter::strip_str(&told).to_string();
        insta::assert_snapshot!(told, @r"
        book · Book a seat

          Books a seat.

          Once a day.

        Arguments:
          class   first class | second, required  How to sit
          day     whole number, required          From today on
          with    object, required
          names   list of text
          rows    list of list of list
          window  true | false, default true

        The server says: destroys nothing, safe to repeat.

        Example:
          warmline call book 'class=first class' day=1 'with:={}' -- sh train.sh
        ");
        assert_eq!(
            example_command(&tool, "train"),
            "warmline call train book 'class=first class' day=1 'with:={}'"
        );
    }
}
