//! `warmline call`: call a tool; its answer is the output.

use clap::Args;
use serde_json::Value;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_core::message::params::Params;

use crate::backend::selected_run::{RunSelectionArgs, SelectedRun};
use crate::backend::{CommandSession, TimedReply, tools};
use crate::output::tool_content::{is_tool_error, render_result};
use crate::output::{CliResult, Problem, Report, format_duration};
use crate::prompt::{PromptListener, ServerRequestArgs};
use crate::target::{
    ConnectArgs, ExpectedName, Target, TargetArgs, TargetSpec, redact_word, unknown_name_hint,
};
use crate::values::{ArgumentValues, Schema};

const LONG_HELP: &str = "\
Call a tool and print its answer.

The answer goes to stdout, everything else to stderr. The exit code tells what happened to the
call: 0 success, 1 the tool returned an error, 2 usage or configuration error, 3 not executed and
safe to call again, 4 may have been executed.

Values:
  KEY=VALUE    typed by the tool's schema: 10 is a number if the schema asks for one. Where it
               allows text, or says nothing, the value is text. Repeat KEY=VALUE for the items
               of a list.
  KEY:=JSON    exactly this JSON; KEY:=@FILE reads it from a file
  KEY=@FILE    the text of a file (parsed as JSON if the schema does not allow text)
  --args JSON  all values as one object; alone, it is sent without reading the tool's schema

With --run NAME the session stays open for the next command that names the run, with all state
that the server keeps in it: a page, a transaction, a counter. Over HTTP this works with servers
that issue session ids. While `warmline up` holds the sessions it works with every server, also
with programs. Otherwise a note says that nothing is kept. If the server has forgotten the session,
a new one is opened and the answer starts with a notice about it.";

const USAGE: &str = "\
warmline call TARGET TOOL [KEY=VALUE]… [OPTIONS]
       warmline call TOOL [KEY=VALUE]… [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline call https://example.com/mcp add a=1 b=2
  warmline call github create_issue title='Lamp stays on' labels=bug labels=lamp
  warmline call notes save text=@draft.md 'meta:={\"draft\":true}'
  warmline call echo message=hi -- npx -y some-server
  warmline call https://example.com/mcp whoami --header-env 'Authorization=MY_AUTH'
  warmline call https://example.com/mcp open_page url=https://example.com --run trip
  warmline call github list_issues owner=acme repo=lamp --json | jq .call_ms";

/// Call a tool and print its answer
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    values: ValueArgs,
    #[command(flatten)]
    run_selection: RunSelectionArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    pub(super) server_requests: ServerRequestArgs,
}

/// Values given as a whole.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Values")]
struct ValueArgs {
    /// All values as one JSON object: text, `@file`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Show the values of arguments with --verbose
    #[arg(long)]
    show_values: bool,
}

pub(super) struct Invocation<'a> {
    pub(super) name: &'a str,
    pub(super) values: ArgumentValues,
    pub(super) target: Target,
    pub(super) run: Option<SelectedRun>,
}

pub(super) async fn run(args: &CallArgs, report: &'static Report) -> CliResult<u8> {
    let invocation = args.parse(ExpectedName::Tool)?;
    let (target, tool) = (&invocation.target, invocation.name);
    tools::check_tool_allowed(target, tool)?;
    let listener = PromptListener::new(report, &target.server.name, &args.server_requests)?;
    let profile = listener.client_profile();
    let session = CommandSession::open(target, invocation.run.as_ref(), &profile, report).await?;
    let outcome = async {
        let params = call_params(&session, &invocation, args.values.show_values, report).await?;
        let reply = session.send_request("tools/call", params, &listener);
        print_result(&session, tool, &reply.await?, report)
    };
    let outcome = outcome.await;
    session.close().await;
    outcome
}

/// The parameters of the call, checked against the tool's schema. `--args` alone is not checked.
async fn call_params(
    session: &CommandSession<'_>,
    Invocation { name, values, .. }: &Invocation<'_>,
    show_values: bool,
    report: &Report,
) -> CliResult<Params> {
    // Whatever goes wrong here, the call was not sent.
    let unsent = |problem: Problem| problem.with_delivery(Delivery::Unsent);
    let tools = match values.is_json_only() {
        true => None,
        false => match session.list_tools().await {
            Ok(tools) => Some(tools),
            // A server that lists nothing may still have the tool.
            Err(problem) if problem.parts().delivery == Some(Delivery::Answered) => {
                report.warn("the server lists no tools, so values are sent as text");
                None
            },
            Err(problem) => return Err(unsent(problem)),
        },
    };
    let schema = match &tools {
        Some(tools) => session.find_tool(name, tools)?.schema(),
        None => Schema::UNCONSTRAINED,
    };
    for note in values.check_names(name, schema).map_err(unsent)? {
        report.warn(&note);
    }
    let arguments = values.to_json(schema).map_err(unsent)?;
    let arguments = String::from_utf8_lossy(&arguments);
    if report.is_verbose() {
        report_arguments(&arguments, show_values, report);
    }
    let raw = format!(
        "{{\"name\":{},\"arguments\":{arguments}}}",
        Value::from(*name)
    );
    parse_params(raw)
}

pub(super) fn parse_params(raw: impl Into<bytes::Bytes>) -> CliResult<Params> {
    let what = "these values make no request";
    Params::parse(raw.into()).map_err(Problem::caused(Code::UsageBadArgument, what))
}

/// Reports the names of arguments; the values only on request.
fn report_arguments(arguments: &str, show_values: bool, report: &Report) {
    if show_values {
        return report.print_verbose(&format!("  arguments: {arguments}"));
    }
    let value: Value = serde_json::from_str(arguments).unwrap_or_default();
    let names = value.as_object().into_iter();
    let names = names.flat_map(serde_json::Map::keys);
    let names: Vec<String> = names.map(|name| format!("{name}=…")).collect();
    report.print_verbose(&match names.join(" ") {
        none if none.is_empty() => "  no arguments".to_owned(),
        names => format!("  arguments: {names} (values with --show-values)"),
    });
}

/// Prints the result. An error of the tool has its own exit code.
fn print_result(
    session: &CommandSession<'_>,
    tool: &str,
    reply: &TimedReply,
    report: &Report,
) -> CliResult<u8> {
    let subject = format!("tools/call {tool}");
    let result = session.parse_result(reply, "tools/call", &subject)?;
    let is_error = is_tool_error(&result);
    if report.is_json() {
        let fields =
            session.reply_fields(("tool", tool), Some(session.opened.is_warm), reply, &result);
        let fields = fields.put("delivery", "answered").put("is_error", is_error);
        report.print_reply(&reply.put_raw(fields));
        return Ok(u8::from(is_error));
    }
    let text = render_result(&result);
    if is_error {
        let what = format!("`{tool}` of `{}` returned an error", session.name());
        let problem = Problem::new(Code::ToolFailed, what)
            .with_location(subject)
            .with_delivery(Delivery::Answered);
        return Err(match text.is_empty() {
            true => problem,
            false => problem.with_cause(text),
        });
    }
    report.print_answer(&text);
    let (summary, elapsed) = (session.session_summary(), format_duration(reply.elapsed));
    let cost = format!("{}{summary} · call {elapsed}", session.name());
    report.print_cost(&format!("{cost:>78}"));
    Ok(0)
}

impl CallArgs {
    pub(super) fn parse(&self, expected: ExpectedName) -> CliResult<Invocation<'_>> {
        let (spec, name, values) = self.target.split(expected)?;
        let (Some(spec), Some(name)) = (&spec, name) else {
            return Err(self.incomplete_error(spec.as_ref(), expected));
        };
        let values = ArgumentValues::parse(values, self.values.args.as_deref())?;
        let run = SelectedRun::from_args(&self.run_selection, &self.connect)?;
        Ok(Invocation {
            name,
            values,
            target: SelectedRun::resolve_target(run.as_ref(), spec, &self.connect)?,
            run,
        })
    }

    fn incomplete_error(&self, spec: Option<&TargetSpec>, expected: ExpectedName) -> Problem {
        let (noun, command) = match expected {
            ExpectedName::Tool => ("tool", "call"),
            ExpectedName::Method | ExpectedName::Nothing => ("method", "request"),
        };
        let Some(spec) = spec else {
            return Problem::usage(format!("no target and no {noun} given"))
                .with_hint(format!("see `warmline help {command}`"));
        };
        if let TargetSpec::Name(name) = spec
            && let Some(unknown) = self.missing_server_problem(name, command)
        {
            return unknown;
        }
        if expected != ExpectedName::Tool {
            return Problem::usage("no method given")
                .with_hint("name one, such as `tools/list` or `resources/list`");
        }
        let (after, target) = match spec {
            TargetSpec::Name(name) => (format!(" after `{name}`"), name.as_str()),
            TargetSpec::Url(_) => (" after the URL".to_owned(), "URL"),
            TargetSpec::Command(_) => (String::new(), "-- COMMAND"),
        };
        Problem::usage(format!("no tool given{after}"))
            .with_hint(format!("`warmline tools {target}` lists the tools"))
    }

    /// The problem of a first word that names no server: the server may be what is missing.
    fn missing_server_problem(&self, name: &str, command: &str) -> Option<Problem> {
        let spec = TargetSpec::Name(name.to_owned());
        let run = SelectedRun::from_args(&self.run_selection, &self.connect).ok()?;
        let unknown = SelectedRun::resolve_target(run.as_ref(), &spec, &self.connect).err()?;
        if unknown.parts().code != Code::ServerUnknown {
            return None;
        }
        if unknown_name_hint(name).is_some() || unknown.is_near_miss() {
            return Some(unknown);
        }
        let words: Vec<String> = self.target.words.iter().map(|w| redact_word(w)).collect();
        let words = words.join(" ");
        Some(unknown.with_hint(format!(
            "the server comes first: `warmline {command} SERVER {words}`"
        )))
    }
}
