//! `warmline end`: ends a run of the background gateway, or one that commands left.

use clap::Args;
use http::{Method, StatusCode};
use warmline_core::error::code::Code;
use warmline_gateway::LOCAL_IDENTITY;
use warmline_upstream::ClientProfile;

use crate::backend::CommandSession;
use crate::backend::selected_run::{SelectedRun, check_run_name, enclosing_run};
use crate::background::{BackgroundGateway, GatewayLocationArgs, check_version};
use crate::gateway_host::{ConfigSource, GatewayHost};
use crate::leftover_runs::{LeftoverRun, LeftoverRunStore, SessionHolder};
use crate::output::{CliResult, JsonFields, Problem, Report};

const LONG_HELP: &str = "\
End a run: close its sessions, in the background gateway and those that commands left.

No new call is accepted; calls in flight have 5 seconds. The state that programs and servers keep
for the run is lost.";

const EXAMPLES: &str = "\
Examples:
  warmline end trip
  warmline ps";

/// End a run: close its sessions
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct EndArgs {
    /// The name of the run, or its fingerprint from `ps`
    run: String,
    #[command(flatten)]
    location: GatewayLocationArgs,
}

pub(super) async fn run(args: &EndArgs, report: &Report) -> CliResult<u8> {
    let name = &args.run;
    check_run_name(name, "")?;
    let gateway = BackgroundGateway::from_args(&args.location)?;
    let what = format!("waiting for calls of run {name}: they have 5 seconds");
    let path = format!("/admin/runs/{name}");
    let ending = gateway.request(Method::DELETE, &path);
    let response = report.with_progress(&what, ending).await?;
    match &response {
        None => gateway.check_absence_allowed()?,
        Some(response) => check_version(response.version.as_deref())?,
    }
    let is_up = response.is_some();
    let was_live = match response.filter(|response| response.status != StatusCode::NOT_FOUND) {
        Some(response) => gateway.parse_response(&response).map(|_| true)?,
        None => false,
    };
    let was_kept = end_leftover_runs(name, &gateway, report).await?;
    let is_enclosing = enclosing_run()?.as_ref() == Some(name);
    let goes_on = format!("run `{name}` goes on: only the `warmline run` that began it ends it");
    if !was_live && !was_kept {
        if is_enclosing {
            return Err(Problem::usage(goes_on));
        }
        let problem = Problem::new(Code::RunUnknown, format!("no run `{name}` is live or kept"));
        let problem = problem.with_hint(match args.location.socket {
            Some(_) => "`warmline ps --socket FILE` lists the runs".to_owned(),
            None => format!(
                "`warmline ps` lists the runs; to end one of a `warmline serve --admin FILE`: \
                 `warmline end {name} --socket FILE`, or `DELETE /runs/{name}` at its URL"
            ),
        });
        return Err(match is_up {
            true => problem,
            false => problem.with_cause("no background gateway is up"),
        });
    }
    let fields = JsonFields::with("run", name);
    let fields = fields.put("goes_on", is_enclosing.then_some(true));
    let text = match is_enclosing {
        true => format!("ended what commands left; {goes_on}"),
        false => format!("run `{name}` is ended"),
    };
    report.print_outcome("ended", &fields, &text);
    Ok(0)
}

/// Ends what commands left of the run, with each of its servers. Returns whether there was anything.
async fn end_leftover_runs(
    name: &str,
    gateway: &BackgroundGateway,
    report: &Report,
) -> CliResult<bool> {
    let Some(notes) = gateway.leftover_runs()? else {
        return Ok(false);
    };
    let mut resumable = notes.list_resumable().await?;
    resumable.retain(|run| run.leftover.run == *name);
    let mut first = Ok(!resumable.is_empty());
    for run in &resumable {
        // One that cannot be ended keeps none of the others.
        let ended = end_leftover_run(&run.leftover, &notes, gateway, report).await;
        first = first.and_then(|was_kept| ended.map(|()| was_kept));
    }
    first
}

/// Ends a session as its holder would. If the record then still exists, the session belongs to the
/// other kind of holder: a server with a credential is reached differently by a command.
async fn end_leftover_run(
    note: &LeftoverRun,
    notes: &LeftoverRunStore,
    gateway: &BackgroundGateway,
    report: &Report,
) -> CliResult<()> {
    let is_command = note.holder != SessionHolder::StdioClient;
    for as_command in [is_command, !is_command] {
        match as_command {
            true => end_as_command(note, gateway, report).await?,
            false => end_as_gateway(note, gateway).await?,
        }
        if !notes.has_record(note).await? {
            return Ok(());
        }
    }
    let (run, server) = (&note.run, &note.display_name);
    let what = format!("run `{run}` still has its session of `{server}`");
    Err(Problem::new(Code::OpenFailed, what)
        .with_cause("the server is reached differently now, or another command resumed the run")
        .with_hint(format!(
            "try again; or end it with the options that began it: `warmline request SERVER ping --run {run} --end-run`"
        )))
}

async fn end_as_command(
    note: &LeftoverRun,
    gateway: &BackgroundGateway,
    report: &Report,
) -> CliResult<()> {
    let (target, connect) = note.resolve_target()?;
    let run = SelectedRun::for_ending(note, gateway.state_folder(), connect);
    let profile = ClientProfile::default();
    let opened = CommandSession::open(&target, Some(&run), &profile, report);
    Box::pin(opened).await?.close().await;
    Ok(())
}

async fn end_as_gateway(note: &LeftoverRun, gateway: &BackgroundGateway) -> CliResult<()> {
    let Some(args) = note.to_gateway_args() else {
        return Ok(());
    };
    let config = ConfigSource::from_args(&args)?.read();
    let (mut config, _) = config.map_err(|problem| note.with_folder_hint(problem))?;
    config.engine.store = Some(note.records.clone());
    let warmline = GatewayHost::open(gateway.state_folder(), config)?.warmline;
    let ended = async {
        let run = warmline.identity(LOCAL_IDENTITY).named_run(&note.run)?;
        // Resumed without a request, to be ended.
        let resumed = match run.server(&note.server) {
            Ok(server) => server.info().await.map(drop),
            Err(error) => Err(error),
        };
        run.end().await;
        resumed
    };
    let ended: warmline_engine::Result<()> = ended.await;
    warmline.close().await;
    ended.map_err(|error| Problem::from(error).with_server(&note.display_name))
}
