//! `warmline end`: ends a run, of the background gateway or one that commands left.

use http::{Method, StatusCode};
use warmline::core::code::Code;
use warmline::upstream::Declared;
use warmline_gateway::LOCAL;

use crate::args;
use crate::background::{Home, VERSION, of_another_version};
use crate::conversation::Conversation;
use crate::gate::{self, Source};
use crate::kept::{Holder, Kept, Note, Notes};
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report};
use crate::run::run_around;

/// Ends the run, which must live or be kept.
pub(super) async fn run(typed: &args::End, report: &Report) -> Outcome<u8> {
    let name = &typed.run;
    warmline::Run::check_name(name).map_err(|error| {
        Problem::usage("that cannot be the name of a run").hint(error.hint().unwrap_or_default())
    })?;
    let home = Home::typed(typed.state_dir.as_deref(), typed.socket.as_deref())?;
    let path = format!("/admin/runs/{name}");
    let what = format!("waiting for calls of run {name}: they have 5 seconds");
    let asked = home.ask(Method::DELETE, &path);
    let answered = report.while_waiting(&what, asked).await?;
    match &answered {
        None => home.absent()?,
        Some(answered) if answered.version.as_deref() != Some(VERSION) => {
            return Err(of_another_version(answered.version.as_deref()));
        },
        Some(_) => {},
    }
    let is_up = answered.is_some();
    let held = answered.filter(|answered| answered.status != StatusCode::NOT_FOUND);
    if let Some(answered) = &held {
        home.understood(answered)?;
    }
    let was_kept = end_kept(name, &home, report).await?;
    let is_around = run_around()?.as_ref() == Some(name);
    if held.is_none() && !was_kept {
        if is_around {
            return Err(Problem::usage(is_ended_by_others(name))
                .because("a `warmline run` is around this program"));
        }
        let problem = unknown(name).hint(match typed.socket {
            Some(_) => "`warmline ps --socket FILE` shows those that there are".to_owned(),
            None => format!(
                "`warmline ps` shows those that there are; one of a `warmline serve` ends by the \
                 socket of its `--admin FILE` (`warmline end {name} --socket FILE`), or by `DELETE \
                 /runs/{name}` at its URL"
            ),
        });
        return Err(match is_up {
            true => problem,
            false => problem.because("no background gateway is up"),
        });
    }
    let goes_on = is_around.then_some(true);
    let fields = Fields::new().put("run", name).put("goes_on", goes_on);
    match report.is_json() {
        true => report.object("ended", &fields),
        false if is_around => report.note(&format!(
            "what commands left beside it is ended; {}",
            is_ended_by_others(name)
        )),
        false => report.note(&format!("run `{name}` is ended")),
    }
    Ok(0)
}

/// Said of a run that is around us.
fn is_ended_by_others(name: &str) -> String {
    format!("run `{name}` goes on: whoever began it ends it")
}

/// Ends what commands left of the run, with each of its servers; says whether there was something.
async fn end_kept(name: &str, home: &Home, report: &Report) -> Outcome<bool> {
    let Some(notes) = home.notes()? else {
        return Ok(false);
    };
    let mut kept = notes.kept().await?;
    kept.retain(|one| one.note.run == *name);
    let mut first = None;
    for Kept { note, .. } in &kept {
        // One that cannot be ended keeps none of the others.
        let ended = end_one(note, &notes, home, report).await;
        first = first.or(ended.err());
    }
    if let Some(problem) = first {
        return Err(problem);
    }
    Ok(!kept.is_empty())
}

/// The record is still there, so that the next command would go on with it.
fn not_ended(note: &Note) -> Problem {
    let (run, shown) = (&note.run, &note.shown);
    let what = format!("run `{run}` still has its session of `{shown}`");
    Problem::new(Code::OpenFailed, what)
        .because("it was begun otherwise than the server is reached now, or somebody took it up")
        .hint(format!(
            "once more; else end it as it was begun: `warmline request SERVER ping --run {run} --end-run`"
        ))
}

/// Ends the session that is noted, in the way of whoever held it. Where that is another one, the
/// other way leads to it: the same server with a credential is reached otherwise by a command.
async fn end_one(note: &Note, notes: &Notes, home: &Home, report: &Report) -> Outcome<()> {
    let mut ways = [Way::Commands, Way::Gateways];
    if note.holder() == Holder::Pipe {
        ways.reverse();
    }
    for way in ways {
        match way {
            Way::Commands => end_as_a_command(note, home, report).await?,
            Way::Gateways => end_as_a_gateway(note, home).await?,
        }
        if !notes.still_has(note).await? {
            return Ok(());
        }
    }
    Err(not_ended(note))
}

/// How a server is reached.
#[derive(Clone, Copy)]
enum Way {
    Commands,
    Gateways,
}

async fn end_as_a_command(note: &Note, home: &Home, report: &Report) -> Outcome<()> {
    let (target, chosen) = note.to_end(home.state())?;
    let declared = Declared::default();
    let opened = Conversation::open(&target, Some(&chosen), &declared, report);
    Box::pin(opened).await?.close().await;
    Ok(())
}

async fn end_as_a_gateway(note: &Note, home: &Home) -> Outcome<()> {
    let Some(served) = note.as_served() else {
        return Ok(());
    };
    let (mut wanted, _) = Source::of(&served)?
        .read()
        .map_err(|problem| note.pointing_home(problem))?;
    wanted.engine.store = Some(note.records().to_owned());
    let gate::Kept { warm, .. } = gate::Kept::open(home.state(), wanted)?;
    let ended = async {
        let run = warm.identity(LOCAL).named(&note.run)?;
        // Taken up, with nothing on the wire, to be ended.
        let taken_up = match run.server(note.server()) {
            Ok(server) => server.facts().await.map(drop),
            Err(error) => Err(error),
        };
        run.end().await;
        taken_up
    };
    let ended = ended.await;
    warm.close().await;
    ended.map_err(|error: warmline::Error| {
        Problem::of_trouble(error.trouble(), error.delivery()).of_server(&note.shown)
    })
}

fn unknown(name: &str) -> Problem {
    Problem::new(Code::RunUnknown, format!("no run `{name}` is live or kept"))
}
