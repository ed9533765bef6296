//! `warmline up`: starts the background gateway of this user.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use warmline_core::error::code::Code;
use warmline_platform::clock;

use crate::background::{BackgroundGateway, GatewayInfo, check_version};
use crate::gateway_host::ConfigSource;
use crate::output::{CliResult, JsonFields, Problem, Report, style};
use crate::target::{positive_duration, state_folder};

mod daemon;

const LONG_HELP: &str = "\
Start a background gateway that holds sessions between commands.

While it is up, `call`, `request` and `tools` with --run go through it. It holds the sessions, so
that a program keeps its page, its transaction or its counter from one command to the next. A
gateway that is up already is left alone.

Commands hand their target to it with all options: names of the configuration, URLs and commands
behind `--`. Targets of untrusted files are refused. A program starts in the working folder of the
command that used it first in its run, with the few variables that the command itself would pass
(`--env-pass NAME` passes more); later commands of the run use the same process, from any folder.

It listens on a socket in a folder that only this user can enter, and nowhere else. It exits after
30 minutes without a run or a request; its programs end with it.";

const EXAMPLES: &str = "\
Examples:
  warmline up
  warmline call browser_navigate url=https://example.com --run trip -- npx -y @playwright/mcp
  warmline call browser_snapshot --run trip -- npx -y @playwright/mcp
  warmline ps
  warmline end trip
  warmline down";

/// Start a background gateway that holds sessions between commands
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Exit after this time without a run or a request [default: 30min]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) idle: Option<Duration>,
    /// A configuration file, instead of those of the user and the system
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The state folder of the gateway
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Run the gateway in this process
    #[arg(long = "stay", hide = true)]
    pub(crate) run_as_daemon: bool,
}

const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) async fn run(args: &UpArgs, report: &Report) -> CliResult<u8> {
    let state = state_folder(args.state_dir.as_deref())?;
    let state = std::path::absolute(&state).unwrap_or(state);
    let gateway = BackgroundGateway::in_state_folder(&state);
    gateway.ensure_folder()?;
    if args.run_as_daemon {
        return daemon::run(args, &state, &gateway).await;
    }
    if let Some(info) = gateway.info().await? {
        check_version(Some(&info.version))?;
        print_info("up already", &info, &gateway, report);
        return Ok(0);
    }
    // Errors of the configuration are reported here, where the user sees them.
    let (_, warnings) = ConfigSource::from_user_files(args.config.clone())?.read()?;
    for warning in warnings {
        report.warn_on_stderr(&warning);
    }
    let log_start = fs::metadata(gateway.log_path()).map_or(0, |log| log.len());
    let spawn = || spawn_gateway(args, &state, &gateway);
    let starting = start_and_wait(&gateway, spawn, log_start);
    let starting = report.with_progress("starting the background gateway", starting);
    print_info("up", &starting.await?, &gateway, report);
    Ok(0)
}

fn spawn_gateway(args: &UpArgs, state: &Path, gateway: &BackgroundGateway) -> CliResult<Child> {
    let failed =
        |error: io::Error| Problem::caused(Code::Bug, "cannot start the background gateway")(error);
    let log = gateway.open_log()?;
    let stderr = log.try_clone().map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["up", "--stay", "--state-dir"]).arg(state);
    if let Some(idle) = args.idle {
        command.arg("--idle").arg(format!("{}ms", idle.as_millis()));
    }
    if let Some(config) = &args.config {
        let config = std::path::absolute(config).unwrap_or_else(|_| config.clone());
        command.arg("--config").arg(config);
    }
    command.stdin(Stdio::null()).stdout(log).stderr(stderr);
    command.spawn().map_err(failed)
}

/// Starts a gateway and waits until one answers: this one, or another that was faster.
async fn start_and_wait(
    gateway: &BackgroundGateway,
    spawn: impl Fn() -> CliResult<Child>,
    log_start: u64,
) -> CliResult<GatewayInfo> {
    let by = clock::after(START_TIMEOUT);
    let mut child = spawn()?;
    loop {
        if let Ok(Some(info)) = gateway.info().await {
            return Ok(info);
        }
        match child.try_wait().ok().flatten() {
            Some(status) if !status.success() => return Err(start_error(gateway, log_start)),
            // It gave way to another, which was about to exit.
            Some(_) if gateway.try_lock()?.is_some() => child = spawn()?,
            Some(_) | None if clock::now() > by => return Err(start_error(gateway, log_start)),
            Some(_) | None => clock::sleep(POLL_INTERVAL).await,
        }
    }
}

/// The problem of a gateway that did not start, with its last log lines.
fn start_error(gateway: &BackgroundGateway, log_start: u64) -> Problem {
    let read_log = || {
        let mut log = fs::File::open(gateway.log_path()).ok()?;
        log.seek(SeekFrom::Start(log_start)).ok()?;
        let mut text = String::new();
        log.take(4096).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    Problem::new(Code::OpenFailed, "the background gateway did not start")
        .with_location(gateway.log_path().display().to_string())
        .with_cause(read_log().unwrap_or_else(|| "it logged nothing".to_owned()))
}

fn print_info(how: &str, info: &GatewayInfo, gateway: &BackgroundGateway, report: &Report) {
    let log = gateway.log_path().display().to_string();
    if report.is_json() {
        let fields = JsonFields::with("pid", info.pid)
            .put("version", &info.version)
            .put("socket", gateway.socket_path().display().to_string())
            .put("log", log);
        return report.print_object("up", &fields);
    }
    let (how, pid) = (style::bold(how), info.pid);
    report.print(&format!("{how} · pid {pid} · log {log}"));
    let commands = ["warmline call … --run NAME", "warmline ps", "warmline down"];
    let [call, ps, down] = commands.map(style::name);
    report.print_note(&format!(
        "`{call}` goes through it; `{ps}` shows it, `{down}` stops it"
    ));
}
