//! `warmline call`: the answer is the output.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::Reply;
use warmline::core::protocol::params::Params;

use crate::args;
use crate::ask::Person;
use crate::content::{is_error, rendered};
use crate::conversation::{Conversation, Told, Tool};
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, text::seconds};
use crate::rules;
use crate::run::ChosenRun;
use crate::target::{Incomplete, Named, Target, split};
use crate::values::{GivenValues, Schema};

/// Calls a tool, prints its answer, and says by the exit code what became of the call.
pub(super) async fn run(typed: &args::Sending, report: &'static Report) -> Outcome<u8> {
    let (aim, tool, words) = split(&typed.words, &typed.command, Named::Tool)?;
    let (Some(aim), Some(tool)) = (&aim, tool) else {
        let typed = Incomplete {
            named: Named::Tool,
            words: &typed.words,
            together: &typed.together,
            connect: &typed.connect,
        };
        return Err(typed.problem(aim.as_ref()));
    };
    let given = GivenValues::read(words, typed.values.args.as_deref())?;
    let run = ChosenRun::of(&typed.together, &typed.connect)?;
    let target = Target::find_in(run.as_ref(), aim, &typed.connect)?;
    rules::admit(&target, tool)?;
    let person = Person::new(report, &target.server.name, &typed.answers)?;
    let conversation =
        Conversation::open(&target, run.as_ref(), &person.declared(), report).await?;
    let outcome = call(&conversation, tool, &given, &person, typed, report).await;
    conversation.close().await;
    outcome
}

async fn call(
    conversation: &Conversation<'_>,
    tool: &str,
    given: &GivenValues,
    person: &Arc<Person>,
    typed: &args::Sending,
    report: &Report,
) -> Outcome<u8> {
    let schema = schema(conversation, tool, given, report).await?;
    for note in given.check_names(tool, &schema).map_err(unsent)? {
        report.caution(&note);
    }
    let arguments = given.arguments(&schema).map_err(unsent)?;
    tell_arguments(&arguments, typed.values.show_values, report);
    let params = params(tool, &arguments)?;
    let told = conversation.ask("tools/call", params, person).await?;
    answer(conversation, tool, &told, report)
}

/// The schema of the tool's arguments. `--args` alone is sent without asking for it.
async fn schema(
    conversation: &Conversation<'_>,
    tool: &str,
    given: &GivenValues,
    report: &Report,
) -> Outcome<Schema> {
    if given.is_exact() {
        return Ok(Schema::nothing());
    }
    let tools = match conversation.tools().await {
        Ok(tools) => tools,
        // A server that lists nothing may still have the tool. One that is gone has not.
        Err(problem) if problem.parts().delivery == Some(Delivery::Answered) => {
            report.caution("the server lists no tools, so values are sent as texts");
            return Ok(Schema::nothing());
        },
        Err(problem) => return Err(nothing_called(problem)),
    };
    conversation.listed(tool, &tools).map(Tool::schema)
}

/// A list that failed has executed nothing, whatever became of its request.
fn nothing_called(problem: Problem) -> Problem {
    problem.delivered(Delivery::Unsent)
}

fn unsent(problem: Problem) -> Problem {
    problem.delivered(Delivery::Unsent)
}

/// The account shows names of arguments; values only where somebody asked for them.
fn tell_arguments(arguments: &Bytes, show: bool, report: &Report) {
    if !report.is_verbose() {
        return;
    }
    if show {
        report.account(&format!(
            "  arguments: {}",
            String::from_utf8_lossy(arguments)
        ));
        return;
    }
    let value: Value = serde_json::from_slice(arguments).unwrap_or_default();
    let names: Vec<String> = value
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys().map(|name| format!("{name}=…")))
        .collect();
    report.account(&match names.is_empty() {
        true => "  no arguments".to_owned(),
        false => format!(
            "  arguments: {} (values with --show-values)",
            names.join(" ")
        ),
    });
}

fn params(tool: &str, arguments: &Bytes) -> Outcome<Params> {
    let name = Value::from(tool).to_string();
    let raw = format!(
        "{{\"name\":{name},\"arguments\":{}}}",
        String::from_utf8_lossy(arguments)
    );
    Params::parse(Bytes::from(raw))
        .map_err(|error| Problem::usage("these values make no request").because(error.to_string()))
}

/// Prints what came back. A tool that said no is an error with its own exit code.
fn answer(
    conversation: &Conversation<'_>,
    tool: &str,
    told: &Told,
    report: &Report,
) -> Outcome<u8> {
    let subject = format!("tools/call {tool}");
    let result = conversation.result(told, "tools/call", &subject)?;
    let failed = is_error(&result);
    if report.is_json() {
        report.reply(&fields(conversation, tool, told, &result));
        return Ok(u8::from(failed));
    }
    if failed {
        let text = rendered(&result);
        let problem = Problem::new(
            Code::ToolFailed,
            format!("`{tool}` of `{}` said no", conversation.name()),
        );
        let problem = if text.is_empty() {
            problem
        } else {
            problem.because(text)
        };
        return Err(problem.at(subject).delivered(Delivery::Answered));
    }
    report.answer(&rendered(&result));
    report.cost(&cost(conversation, told));
    Ok(0)
}

fn cost(conversation: &Conversation<'_>, told: &Told) -> String {
    let line = format!(
        "{}{} · call {}",
        conversation.name(),
        conversation.how_it_was_met(),
        seconds(told.took)
    );
    format!("{line:>78}")
}

fn fields(conversation: &Conversation<'_>, tool: &str, told: &Told, result: &Value) -> Fields {
    let facts = conversation.facts();
    let fields = Fields::new()
        .put("server", conversation.name())
        .put("tool", tool)
        .put("era", facts.era.word())
        .put("run", conversation.run())
        .put("warm", conversation.is_warm())
        .put("generation", conversation.generation())
        .put("state_lost", conversation.lost_state(result))
        .put("declined", &told.declined)
        .put("open_ms", facts.opened_in.as_millis())
        .put("call_ms", told.took.as_millis())
        .put("delivery", "answered")
        .put("is_error", is_error(result));
    match &told.reply {
        Reply::Result(raw) => fields.raw("result", raw),
        Reply::Error(raw) => fields.raw("error", raw),
    }
}
