//! `warmline request`: send any method; its result is printed as JSON.

use clap::Args;

use super::call::{CallArgs, parse_params};
use crate::backend::{CommandSession, TimedReply, tools};
use crate::output::tool_content::pretty_json;
use crate::output::{CliResult, Problem, Report, format_duration};
use crate::prompt::PromptListener;
use crate::target::ExpectedName;
use crate::values::Schema;

const LONG_HELP: &str = "\
Send any MCP request and print its result as JSON.

KEY=VALUE is text, KEY:=JSON is exactly this JSON, KEY=@FILE is the text of a file, KEY:=@FILE
its JSON; --args gives all parameters as one object.";

const USAGE: &str = "\
warmline request TARGET METHOD [KEY=VALUE]… [OPTIONS]
       warmline request METHOD [KEY=VALUE]… [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline request https://example.com/mcp resources/list
  warmline request notes resources/read uri=note://today
  warmline request notes prompts/get name=summary 'arguments:={\"day\":\"today\"}'
  warmline request tools/list -- npx -y some-server";

/// Send any MCP request and print its result
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    request: CallArgs,
}

pub(super) async fn run(
    RequestArgs { request: args }: &RequestArgs,
    report: &'static Report,
) -> CliResult<u8> {
    let invocation = args.parse(ExpectedName::Method)?;
    let (target, method) = (&invocation.target, invocation.name);
    if method.starts_with("notifications/") {
        let what = format!("`{method}` is a notification: it gets no answer");
        return Err(Problem::usage(what));
    }
    let params = parse_params(invocation.values.to_json(Schema::UNCONSTRAINED)?)?;
    if let Some(tool) = params.name().filter(|_| method == "tools/call") {
        tools::check_tool_allowed(target, &tool)?;
    }
    let listener = PromptListener::new(report, &target.server.name, &args.server_requests)?;
    let profile = listener.client_profile();
    let session = CommandSession::open(target, invocation.run.as_ref(), &profile, report).await?;
    let outcome = session.send_request(method, params, &listener).await;
    let outcome = outcome.and_then(|reply| print_result(&session, method, &reply, report));
    session.close().await;
    outcome.map(|()| 0)
}

fn print_result(
    session: &CommandSession<'_>,
    method: &str,
    reply: &TimedReply,
    report: &Report,
) -> CliResult<()> {
    let result = session.parse_result(reply, method, method)?;
    if report.is_json() {
        let opened = &session.opened;
        let is_warm = opened.run_name.as_ref().map(|_| opened.is_warm);
        let fields = session.reply_fields(("method", method), is_warm, reply, &result);
        report.print_reply(&reply.put_raw(fields));
        return Ok(());
    }
    report.print_answer(&pretty_json(&result));
    let (name, elapsed) = (session.name(), format_duration(reply.elapsed));
    let cost = format!("{name} · {method} · {elapsed}");
    report.print_cost(&format!("{cost:>78}"));
    Ok(())
}
