//! `warmline run`: a run around any program, with its own gateway.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use tokio::process::{Child, Command};
use warmline_core::error::code::Code;
use warmline_core::pool_key::Digest;
use warmline_engine::metrics::{SampleValue, Snapshot};
use warmline_engine::settings::run_from_env;
use warmline_gateway::auth::token_store::{self, LOCAL_IDENTITY};
use warmline_gateway::{Auth, BearerToken, Gateway, GatewayOptions, StartError};
use warmline_store::keyring::random_bytes;

use super::stdio::record_leftover_sessions;
use crate::backend::selected_run::check_run_name;
use crate::gateway_host::{ConfigSource, GatewayArgs, GatewayHost};
use crate::output::{CliResult, JsonFields, Problem, Report, format_duration, pluralize};
use crate::signals::{Signal, Signals};
use crate::target::{TargetArgs, state_folder};

const LONG_HELP: &str = "\
Start a program whose calls share sessions until it ends.

The program gets its own gateway, described by these variables:
  WARMLINE_URL      the prefix of URLs: $WARMLINE_URL/servers/NAME/mcp is a server inside the
                    run, $WARMLINE_URL/mcp is all of them in one
  WARMLINE_TOKEN    the token: `Authorization: Bearer $WARMLINE_TOKEN`
  WARMLINE_RUN      the name of the run
  WARMLINE_SERVERS  the names of its servers; `warmline call NAME …` inside the program goes there
Its exit code is passed on, and one line tells what was saved. Exit 127 if there is no such program,
126 if it cannot be executed, 128 plus the number of the signal that ended it.";

const USAGE: &str = "warmline run [TARGET]… [OPTIONS] -- PROGRAM…";

const EXAMPLES: &str = "\
Examples:
  warmline run -- python agent.py
  warmline run github browser --name trip -- node agent.mjs
  warmline run https://example.com/mcp -- sh -c 'curl $WARMLINE_URL/mcp …'";

/// Start a program whose calls share sessions until it ends
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct RunArgs {
    /// Names or URLs of servers; none means every configured one
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    words: Vec<String>,
    /// The program, with its arguments
    #[arg(last = true, value_name = "PROGRAM", hide = true)]
    command: Vec<OsString>,
    /// The name of the run; default is that of `WARMLINE_RUN`, which goes on afterwards, or a new one
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A configuration file, instead of those in the default places
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder for sessions and keys
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
}

pub(super) async fn run(args: &RunArgs, report: &Report) -> CliResult<u8> {
    let mut signals = Signals::register();
    let (name, is_inherited) = run_name(args)?;
    // The program gets all variables; its servers get those of their files.
    let mut source = ConfigSource::from_args(&GatewayArgs {
        target: TargetArgs {
            words: args.words.clone(),
            command: Vec::new(),
        },
        config: args.config.clone(),
        ..GatewayArgs::default()
    })?;
    let config = source.read_beside_program(report)?;
    let state = state_folder(args.state_dir.as_deref())?;
    let host = GatewayHost::open(&state, config)?;
    let token = token_store::generate_token();
    let gateway = start_gateway(&host, &token).await?;
    let url = format!("http://{}/runs/{name}", gateway.address());
    let variables = [
        ("WARMLINE_URL", url),
        ("WARMLINE_RUN", name.clone()),
        ("WARMLINE_SERVERS", host.warmline.server_names().join(" ")),
        ("WARMLINE_TOKEN", token),
    ];
    let child = match start_program(&args.command, variables) {
        Ok(child) => child,
        Err(problem) => {
            gateway.drain();
            host.warmline.close().await;
            return Err(problem);
        },
    };
    let status = wait_for_program(child, &mut signals).await;
    let savings = Savings::from_snapshot(&host.warmline.snapshot());
    let failed = gateway.requests_failed();
    gateway.drain();
    if is_inherited {
        // The run goes on: closing leaves its sessions to their records.
        record_leftover_sessions(&name, args.config.as_deref(), &state, &source, &host);
    } else if let Ok(run) = host.warmline.identity(LOCAL_IDENTITY).join_run(&name) {
        run.end().await;
    }
    host.warmline.close().await;
    savings.print(&name, failed, report);
    let what = "cannot tell how the program ended";
    status
        .map(exit_code)
        .map_err(Problem::caused(Code::Bug, what))
}

/// The name of the run: of the command line, of the environment, or a new one. A run of the
/// environment is inherited: it does not end with the program.
fn run_name(args: &RunArgs) -> CliResult<(String, bool)> {
    let inherited = match args.name {
        Some(_) => None,
        None => run_from_env()?,
    };
    let is_inherited = inherited.is_some();
    match args.name.clone().or(inherited) {
        Some(name) => {
            check_run_name(&name, "")?;
            Ok((name, is_inherited))
        },
        // The store outlives us: a name that could be guessed would get our session.
        None => Ok((
            format!("run-{}", Digest::new(random_bytes()).to_hex()),
            false,
        )),
    }
}

async fn start_gateway(host: &GatewayHost, token: &str) -> CliResult<Gateway> {
    let token = BearerToken::from_text(host.warmline.vault(), LOCAL_IDENTITY, token);
    let options = GatewayOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: Auth::tokens(vec![token]),
        ..GatewayOptions::from_settings_without_listener(&host.settings, &host.accesses)?
    };
    let started = Gateway::start(host.warmline.clone(), options).await;
    started.map_err(|error| {
        if let StartError::RequiredServer(error) = &error {
            return Problem::from_diagnostic(error.diagnostic(), error.delivery());
        }
        let what = "cannot listen on a port of this machine";
        Problem::new(Code::OpenFailed, what).with_cause(error.to_string())
    })
}

fn start_program(words: &[OsString], variables: [(&str, String); 4]) -> CliResult<Child> {
    let [program, args @ ..] = words else {
        return Err(
            Problem::usage("no program behind `--`").with_hint("`warmline run -- python agent.py`")
        );
    };
    let mut command = Command::new(program);
    let spawned = command.args(args).envs(variables).spawn();
    spawned.map_err(|error| start_error(program, &error))
}

/// The problem of a program that did not start, with the exit code of a shell.
fn start_error(program: &OsStr, error: &io::Error) -> Problem {
    let path = Path::new(program);
    let (is_path, shown) = (path.components().count() > 1, program.display());
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    if is_missing && !(is_path && path.exists()) {
        let why = match is_path {
            true => "there is no such file",
            false => "no folder of PATH has it",
        };
        return Problem::usage(format!("there is no program `{shown}`"))
            .with_cause(why)
            .with_hint("check the spelling, or give the full path")
            .with_exit_code(127);
    }
    let problem = Problem::usage(format!("cannot execute the program `{shown}`"));
    let problem = match is_missing {
        true => problem
            .with_cause("its interpreter does not exist")
            .with_hint("check its first line, which names the interpreter"),
        false => problem
            .with_cause(error.to_string())
            .with_hint("make the file executable: `chmod +x`"),
    };
    problem.with_exit_code(126)
}

/// Waits for the program. The first signal is forwarded to it; the second kills it.
async fn wait_for_program(mut child: Child, signals: &mut Signals) -> io::Result<ExitStatus> {
    let mut received = 0;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            signal = signals.next_signal() => {
                received += u8::from(signal != Signal::Hangup);
                match received {
                    0 | 1 => forward_signal(signal, &child),
                    _ => child.start_kill()?,
                }
            },
        }
    }
}

/// Forwards a signal. Ctrl-C on a terminal reached the program already.
fn forward_signal(signal: Signal, child: &Child) {
    let signal = match signal {
        Signal::Interrupt if io::stdin().is_terminal() => return,
        Signal::Interrupt | Signal::Terminate => rustix::process::Signal::TERM,
        Signal::Hangup => rustix::process::Signal::HUP,
    };
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
        // It may have ended meanwhile.
        rustix::process::kill_process(id, signal).ok();
    }
}

/// What the run cost, and what a session per request would have cost.
#[derive(Default)]
struct Savings {
    requests: u64,
    sessions: u64,
    /// The time to open a session for each of the other requests.
    saved_time: Duration,
}

impl Savings {
    fn from_snapshot(snapshot: &Snapshot) -> Self {
        let mut all = Self::default();
        for server in &snapshot.servers {
            let requests = server.count("attempts_total", &[]);
            let mut samples = server.samples.iter();
            let opened = samples.find(|sample| sample.name == "open_seconds");
            if let Some(SampleValue::Histogram(opened)) = opened.map(|sample| &sample.value) {
                let each = opened.sum.checked_div(opened.count).unwrap_or_default();
                let others = requests.saturating_sub(opened.count);
                all.sessions += opened.count;
                all.saved_time += Duration::from_micros(each * others);
            }
            all.requests += requests;
        }
        all
    }

    fn print(&self, name: &str, failed: u64, report: &Report) {
        let text = match (self.requests, failed) {
            (0, 0) => format!("run `{name}`: nothing was called through `WARMLINE_URL`"),
            (0, _) => format!(
                "run `{name}`: {} failed, and no server received one",
                pluralize(failed, "request")
            ),
            _ => format!(
                "run `{name}`: {} in {}; a session per request would have taken {} more to open",
                pluralize(self.requests, "request"),
                pluralize(self.sessions, "session"),
                format_duration(self.saved_time)
            ),
        };
        let saved = u64::try_from(self.saved_time.as_millis()).ok();
        let fields = JsonFields::with("run", name)
            .put("requests", self.requests)
            .put("sessions", self.sessions)
            .put("failed", Some(failed).filter(|failed| *failed > 0))
            .put("saved_ms", saved);
        report.print_notice_to_stderr(&text, &fields);
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = match status.signal() {
        Some(signal) => signal.saturating_add(128),
        None => status.code().unwrap_or(1),
    };
    u8::try_from(code & 0xff).unwrap_or(1)
}
