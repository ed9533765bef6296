//! `warmline request`: any method, its result as JSON.

use warmline::core::exchange::Reply;
use warmline::core::protocol::params::Params;

use crate::args;
use crate::ask::Person;
use crate::content::pretty;
use crate::conversation::{Conversation, Told};
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, text::seconds};
use crate::rules;
use crate::run::ChosenRun;
use crate::target::{Incomplete, Named, Target, split};
use crate::values::{GivenValues, Schema};

/// Sends a request and prints its result.
pub(super) async fn run(typed: &args::Sending, report: &'static Report) -> Outcome<u8> {
    let (aim, method, words) = split(&typed.words, &typed.command, Named::Method)?;
    let (Some(aim), Some(method)) = (&aim, method) else {
        let typed = Incomplete {
            named: Named::Method,
            words: &typed.words,
            together: &typed.together,
            connect: &typed.connect,
        };
        return Err(typed.problem(aim.as_ref()));
    };
    if method.starts_with("notifications/") {
        return Err(Problem::usage(format!(
            "`{method}` is a notification: nobody answers it"
        )));
    }
    let given = GivenValues::read(words, typed.values.args.as_deref())?;
    let raw = given.arguments(&Schema::nothing())?;
    let params = Params::parse(raw).map_err(|error| {
        Problem::usage("these values make no request").because(error.to_string())
    })?;
    let run = ChosenRun::of(&typed.together, &typed.connect)?;
    let target = Target::find_in(run.as_ref(), aim, &typed.connect)?;
    let tool = params.name().filter(|_| method == "tools/call");
    tool.map_or(Ok(()), |tool| rules::admit(&target, &tool))?;
    let person = Person::new(report, &target.server.name, &typed.answers)?;
    let conversation =
        Conversation::open(&target, run.as_ref(), &person.declared(), report).await?;
    let outcome = conversation.ask(method, params, &person).await;
    let outcome = outcome.and_then(|told| answer(&conversation, method, &told, report));
    conversation.close().await;
    outcome
}

fn answer(
    conversation: &Conversation<'_>,
    method: &str,
    told: &Told,
    report: &Report,
) -> Outcome<u8> {
    let result = conversation.result(told, method, method)?;
    if !report.is_json() {
        report.answer(&pretty(&result));
        let line = format!(
            "{} · {method} · {}",
            conversation.name(),
            seconds(told.took)
        );
        report.cost(&format!("{line:>78}"));
        return Ok(0);
    }
    let facts = conversation.facts();
    let fields = Fields::new()
        .put("server", conversation.name())
        .put("method", method)
        .put("era", facts.era.word())
        .put("run", conversation.run())
        .put("warm", conversation.run().map(|_| conversation.is_warm()))
        .put("generation", conversation.generation())
        .put("state_lost", conversation.lost_state(&result))
        .put("declined", &told.declined)
        .put("open_ms", facts.opened_in.as_millis())
        .put("call_ms", told.took.as_millis());
    let fields = match &told.reply {
        Reply::Result(raw) => fields.raw("result", raw),
        Reply::Error(raw) => fields.raw("error", raw),
    };
    report.reply(&fields);
    Ok(0)
}
