//! `warmline tools TARGET TOOL`: one tool with its arguments and an example.

use serde_json::Value;

use super::print_definition;
use crate::backend::{CommandSession, Tool};
use crate::output::problem::CliResult;
use crate::output::text::{collapse_whitespace, one_line, pad};
use crate::output::{Report, sanitize, style};
use crate::values::Schema;

pub(super) fn print_tool(
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
            Some(true) => Some("may run twice"),
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

        The server says: destroys nothing, may run twice.

        Example:
          warmline call book 'class=first class' day=1 'with:={}' -- sh train.sh
        ");
        assert_eq!(
            example_command(&tool, "train"),
            "warmline call train book 'class=first class' day=1 'with:={}'"
        );
    }
}
