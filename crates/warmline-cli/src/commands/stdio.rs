//! `warmline stdio`: an MCP server over stdio, in front of others.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use serde_json::json;
use warmline_core::error::code::Code;
use warmline_engine::Warmline;
use warmline_gateway::{Auth, GatewayOptions, LOCAL_IDENTITY, StdioClient, options};
use warmline_upstream::Transport;

use crate::backend::selected_run::check_run_name;
use crate::gateway_host::shutdown::{CutCallCounter, ShutdownTimes, close_engine_fast};
use crate::gateway_host::{ConfigSource, GatewayArgs, GatewayHost};
use crate::leftover_runs::{self, LeftoverRun, RunSessionInfo, SessionHolder};
use crate::output::{CliResult, Problem, Report};
use crate::signals::Signals;
use crate::target::{ConnectArgs, state_folder};

const LONG_HELP: &str = "\
Serve your servers over stdio, for desktop clients that start a program.

With one target it is that server; with several, or with none and several configured, all of
them in one. It speaks both eras, message by message. Sessions are opened at first use, replaced
when a server forgets them, and end with the client; with --run those over HTTP are kept.
Programs always end with the client, and a note says so: `warmline serve` keeps programs.";

const USAGE: &str = "\
warmline stdio [TARGET]… [OPTIONS]
       warmline stdio [TARGET]… [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline stdio github
  warmline stdio github --run trip
  warmline stdio -- npx -y some-server
In the file of a desktop client:
  {\"mcpServers\": {\"github\": {\"command\": \"warmline\", \"args\": [\"stdio\", \"github\"]}}}";

/// Serve your servers over stdio, for desktop clients that start a program
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct StdioArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// The run of this client: state on servers over HTTP is kept for the next client or command
    /// that names it. By default the client has its own run
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

pub(super) async fn run(args: &StdioArgs, report: &Report) -> CliResult<u8> {
    if let Some(run) = &args.run {
        check_run_name(run, "")?;
    }
    let mut source = ConfigSource::from_args(&args.gateway)?;
    let config = source.read_beside_program(report)?;
    if let Some(run) = &args.run {
        let servers = config.servers.iter();
        let programs = servers.filter(|one| one.is_program() && one.policy().enabled);
        programs.for_each(|one| report.warn_on_stderr(&not_kept_warning(one.name(), run)));
    }
    let state = state_folder(args.gateway.state_dir.as_deref())?;
    let times = ShutdownTimes::within(config.engine.limits.drain);
    let host = GatewayHost::open(&state, config)?;
    options::check_settings(&host.settings, &host.accesses)?;
    let options = GatewayOptions {
        // Only the program that started us can write to the pipe.
        auth: Auth::None,
        rules: options::access_rules(&host.settings, &host.accesses)?,
        max_request: host.settings.max_request,
        list_share: host.settings.list_share,
        ..GatewayOptions::default()
    };
    let mut client =
        StdioClient::new(host.warmline.clone(), options).with_drain_timeout(times.calls);
    if let Some(audit) = options::audit_options(&host.settings) {
        client = client.with_audit(audit).map_err(|error| {
            Problem::new(Code::ConfigBadValue, "cannot write the audit")
                .with_cause(error.to_string())
                .with_hint("set another `audit.file`, or remove it")
        })?;
    }
    if let [server] = host.warmline.server_names().as_slice() {
        client = client.for_server(server);
    }
    if let Some(run) = &args.run {
        client = client.in_run(run);
    }
    if report.is_stdin_terminal() {
        report.warn_on_stderr(&terminal_warning(&args.gateway));
    }
    let record = || {
        if let Some(run) = &args.run {
            record_leftover_sessions(run, args.gateway.config.as_deref(), &state, &source, &host);
        }
    };
    Ok(serve_client(client, &host.warmline, record, &times).await)
}

/// Notes the sessions of a named run for `ps` and `end`, while they are known: it leaves them to the next
/// client or command. The run is kept without the notes too.
pub(super) fn record_leftover_sessions(
    run: &str,
    config: Option<&Path>,
    state: &Path,
    source: &ConfigSource,
    host: &GatewayHost,
) {
    let warmline = &host.warmline;
    let sessions = warmline.snapshot().sessions;
    // Only sessions over HTTP have a record.
    let recorded = sessions
        .iter()
        .filter(|one| one.run.is_some() && one.transport == Transport::Http.as_str());
    let servers: BTreeSet<&str> = recorded.map(|one| &*one.server).collect();
    for server in servers {
        let session = RunSessionInfo {
            holder: SessionHolder::StdioClient,
            run,
            server,
            caller: &warmline.identity(LOCAL_IDENTITY),
            vault: warmline.vault(),
            records_folder: &host.records_folder,
        };
        let connect = ConnectArgs {
            config: config.map(Path::to_owned),
            ..ConnectArgs::default()
        };
        let (display_name, spec) = source.served_target(server);
        if let Some(note) = LeftoverRun::new(&display_name, &spec, &connect, &session) {
            leftover_runs::save(&note, state, warmline.vault());
        }
    }
}

fn terminal_warning(args: &GatewayArgs) -> String {
    let target = &args.target;
    let mut words = vec!["stdio".to_owned()];
    words.extend(target.words.iter().cloned());
    let command = target.command.iter().map(|word| word.to_string_lossy());
    let dashes = command.len().min(1);
    words.extend(std::iter::repeat_n("--".to_owned(), dashes));
    words.extend(command.map(String::from));
    let name = target.words.first().filter(|word| !word.contains("://"));
    let name = name.map_or("warmline", String::as_str);
    let entry = json!({"mcpServers": {name: {"command": "warmline", "args": words}}});
    format!(
        "waiting for messages of an MCP client on stdin; clients start this command themselves. Put \
         into the client's file:\n  {entry}\nCtrl-D ends it; to try a server by hand: `warmline \
         tools`, `warmline call`"
    )
}

fn not_kept_warning(server: &str, run: &str) -> String {
    format!(
        "`{server}` is a program and ends with this client: run `{run}` keeps nothing of it. \
         `warmline serve` keeps programs, for clients at the URL /runs/{run}/servers/{server}/mcp"
    )
}

/// Serves until the client closes its end or a signal stops us. Every call is answered first, also a
/// cut one. `record` runs before sessions are closed. Returns the exit code.
async fn serve_client(
    pipe: StdioClient,
    warm: &Warmline,
    record: impl Fn(),
    steps: &ShutdownTimes,
) -> u8 {
    let mut signals = Signals::register();
    let mut hand = pipe.shutdown_handle();
    let speaking = async {
        let speaking = Box::pin(pipe.serve(tokio::io::stdin(), tokio::io::stdout()));
        if let Err(error) = speaking.await {
            tracing::debug!(%error, "the client left in the middle of a message");
        }
    };
    let closing = async {
        let told = tokio::select! {
            () = hand.client_disconnected() => None,
            signal = signals.next_signal() => Some(signal),
        };
        let cuts = CutCallCounter::start(warm);
        if told.is_none() {
            // A client may also send a signal.
            tokio::select! {
                () = hand.finished() => {},
                _ = signals.next_signal() => {},
            }
        }
        hand.cut_calls();
        let orderly = async {
            hand.finished().await;
            record();
            warm.close_within(steps.close).await;
        };
        tokio::select! {
            () = orderly => {},
            _ = signals.next_signal() => {
                record();
                close_engine_fast(warm).await;
            },
        }
        cuts
    };
    let ((), cuts) = tokio::join!(speaking, closing);
    cuts.log_and_exit_code("ended", 0)
}
