//! `warmline serve`: a gateway in front of servers.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use warmline_config::gateway_settings::{AuthMode, OpsListen};
use warmline_core::error::code::Code;
use warmline_engine::metrics::{Counter, ServerCondition};
use warmline_gateway::options::{NO_AUTH_EXPLANATION, NO_AUTH_SUMMARY, start_error_setting};
use warmline_gateway::reload::RunningConfiguration;
use warmline_gateway::{Gateway, GatewayOptions, StartError};

use crate::gateway_host::{
    ConfigSource, ConfigWatch, GatewayArgs, GatewayHost, ListenOverrides, log_warning,
    raise_descriptor_limit, run_until_stopped, shutdown,
};
use crate::logging;
use crate::output::{CliResult, JsonFields, Problem, Report, pad_first, pluralize, style};
use crate::signals::{Signal, Signals};
use crate::target::state_folder;

const LONG_HELP: &str = "\
Run a gateway for your agents that keeps sessions with MCP servers open.

Without a target it serves every server of the configuration; with names only those; URLs and a
command need no file. Each server has its own URL, /servers/NAME/mcp, for clients of both eras;
/runs/RUN/servers/NAME/mcp is the same inside a run, for clients that open a session per call;
/mcp is all servers in one.

Callers send a token. On loopback the token of this machine is enough: it is made at the first
start, and `warmline url NAME` prints it with a snippet to paste.

SIGHUP, or a changed file, reloads the configuration: as a whole or not at all. SIGTERM and SIGINT
let calls finish (24 seconds in all), a second signal closes at once. Exit 3 if calls were cut.";

const USAGE: &str = "\
warmline serve [TARGET]… [OPTIONS]
       warmline serve [TARGET]… [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline serve
  warmline serve github browser --listen 127.0.0.1:9000
  warmline serve https://example.com/mcp
  warmline serve --auth none -- npx -y some-server
  warmline serve --env-pass BRAVE_API_KEY -- npx -y some-server
  warmline serve --config /etc/warmline/warmline.toml --json";

/// Run a gateway for your agents that keeps sessions with MCP servers open
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    overrides: ListenOverrides,
}

pub(super) async fn run(args: &ServeArgs, report: &Report) -> CliResult<u8> {
    let mut signals = Signals::register();
    let mut source = ConfigSource::from_args(&args.gateway)?;
    source.overrides = args.overrides.clone();
    let is_from_files = source.is_files_only();
    let mut watch = ConfigWatch::new(source);
    let Some((config, warnings)) = watch.read_first(&mut signals).await? else {
        return Ok(0);
    };
    let log_lost = logging::start_for_service(&config.gateway);
    for warning in &warnings {
        report_warning(warning, report);
    }
    raise_descriptor_limit();
    let state = state_folder(args.gateway.state_dir.as_deref())?;
    let (running, limits) = (RunningConfiguration::new(&config), config.engine.limits);
    let host = GatewayHost::open(&state, config)?;
    let lock = try_lock_state_folder(&state, report);
    let listening = host.listen_or_stop(log_lost, report, &mut watch, &mut signals);
    let listening = listening.await.map_err(|problem| adapt_hint(problem, args));
    let Some(gateway) = listening? else {
        return Ok(shutdown::shut_down_unstarted(&host.warmline, limits, &mut signals).await);
    };
    // Before its URL is printed.
    let reload_requests = gateway.reload_requests();
    StartupMessage::new(&host, &gateway, &args.gateway, is_from_files).print(report);
    if !host.settings.watch {
        watch.stop_watching();
    }
    run_until_stopped(
        (&gateway, reload_requests),
        watch,
        &running,
        |config| GatewayOptions::from_settings(&config.gateway, &config.access, &host.tokens),
        &mut signals,
        std::future::pending(),
    )
    .await;
    let exit = shutdown::shut_down(gateway, limits, &mut signals, Some(report)).await;
    drop(lock);
    Ok(exit)
}

impl GatewayHost {
    /// Listens, once every required server answered; none if it is stopped meanwhile.
    async fn listen_or_stop(
        &self,
        log_lost: Option<Arc<Counter>>,
        report: &Report,
        watch: &mut ConfigWatch,
        signals: &mut Signals,
    ) -> CliResult<Option<Gateway>> {
        let mut listening = pin!(self.start_listening(log_lost, report));
        loop {
            tokio::select! {
                gateway = listening.as_mut() => return gateway.map(Some),
                signal = signals.next_signal() => match signal {
                    Signal::Interrupt | Signal::Terminate => return Ok(None),
                    Signal::Hangup => watch.start_read(),
                },
            }
        }
    }

    async fn start_listening(
        &self,
        log_lost: Option<Arc<Counter>>,
        report: &Report,
    ) -> CliResult<Gateway> {
        let mut options =
            GatewayOptions::from_settings(&self.settings, &self.accesses, &self.tokens)?;
        options.lost_log_lines = log_lost;
        let address = options.listen;
        let started = match Gateway::start(self.warmline.clone(), options.clone()).await {
            // Nobody asked for these pages: the gateway starts without them.
            Err(StartError::Ops((taken, _))) if self.settings.ops == OpsListen::Beside => {
                let what = format!("{taken} is in use: no ops pages are served; set `ops.listen`");
                report_warning(&what, report);
                options.ops = None;
                Gateway::start(self.warmline.clone(), options).await
            },
            started => started,
        };
        started.map_err(|error| self.start_problem(&error, address))
    }

    fn start_problem(&self, error: &StartError, address: SocketAddr) -> Problem {
        if let StartError::RequiredServer(error) = error {
            return Problem::from_diagnostic(error.diagnostic(), error.delivery())
                .with_hint("nothing starts without this server, because of `required = true`");
        }
        if let Some(error) = start_error_setting(&self.settings, error) {
            return Problem::from(error);
        }
        let (what, hint) = if let StartError::Socket(..) = error {
            let hint = "another gateway may listen there, or the folder does not exist";
            ("cannot listen on a socket".to_owned(), hint.to_owned())
        } else {
            let (address, option) = if let StartError::Ops((address, _)) = error {
                (*address, "--ops")
            } else {
                (address, "--listen")
            };
            let hint = "another program may listen there; to use a free port:";
            let hint = format!("{hint} {option} 127.0.0.1:0");
            (format!("cannot listen on `{address}`"), hint)
        };
        Problem::new(Code::ConfigBadValue, what)
            .with_cause(error.to_string())
            .with_hint(hint)
    }
}

/// Adapts a hint to the options that were given: commands use the same folder, and an option is
/// corrected by an option.
fn adapt_hint(problem: Problem, args: &ServeArgs) -> Problem {
    let Some(mut hint) = problem.parts().hint.clone() else {
        return problem;
    };
    if let Some(folder) = &args.gateway.state_dir {
        hint = hint.replace(NEW_TOKEN_COMMAND, &new_token_command(Some(folder)));
    }
    if args.overrides.listen.is_some() || args.overrides.auth.is_some() {
        hint = hint.replace(
            "set `gateway.auth = \"tokens\"`",
            "serve with `--auth tokens`",
        );
    }
    problem.with_hint(hint)
}

const NEW_TOKEN_COMMAND: &str = "warmline token new NAME";

fn new_token_command(state_dir: Option<&Path>) -> String {
    let Some(folder) = state_dir.map(|folder| folder.display().to_string()) else {
        return NEW_TOKEN_COMMAND.to_owned();
    };
    let folder = shell_words::quote(&folder);
    format!("{NEW_TOKEN_COMMAND} --state-dir {folder}")
}

/// Warns about the configuration: in the log if programs read it.
fn report_warning(warning: &str, report: &Report) {
    match logging::is_json() {
        true => log_warning(warning),
        false => report.warn_on_stderr(warning),
    }
}

/// Locks the state folder. Two `serve` on one store may end each other's sessions: that is a warning
/// and no error, because both run for a moment when one replaces the other.
fn try_lock_state_folder(state: &Path, report: &Report) -> Option<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.mode(0o600).open(state.join("serve.lock")).ok()?;
    match file.try_lock() {
        Ok(()) => {
            // For people only: the lock holds without it.
            let written = file.set_len(0).and_then(|()| file.rewind());
            drop(written.and_then(|()| writeln!(file, "{}", std::process::id())));
            return Some(file);
        },
        Err(TryLockError::Error(error)) => {
            tracing::debug!(%error, "cannot tell whether another gateway uses the state folder");
            return None;
        },
        Err(TryLockError::WouldBlock) => {},
    }
    let mut text = String::new();
    let pid = match file.take(MAX_PID_BYTES).read_to_string(&mut text) {
        Ok(_) => text.trim().parse::<u32>().ok(),
        Err(_) => None,
    };
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let warning = format!(
        "another `warmline serve`{pid} uses the state folder {}: each may end sessions that the \
         other holds. Stop one of them, or give it its own folder with --state-dir",
        state.display()
    );
    report_warning(&warning, report);
    None
}

const MAX_PID_BYTES: u64 = 32;

/// What a gateway prints when it listens: its URLs, and how callers authenticate.
struct StartupMessage<'g> {
    host: &'g GatewayHost,
    gateway: &'g Gateway,
    args: &'g GatewayArgs,
    is_from_files: bool,
    servers: Vec<String>,
    disabled: Vec<String>,
}

impl<'g> StartupMessage<'g> {
    fn new(
        host: &'g GatewayHost,
        gateway: &'g Gateway,
        args: &'g GatewayArgs,
        is_from_files: bool,
    ) -> Self {
        let statuses = gateway.warmline().snapshot().server_statuses;
        let names = |is_off: bool| {
            let statuses = statuses.iter();
            let named = statuses.filter(|one| (one.state == ServerCondition::Off) == is_off);
            named.map(|one| one.server.to_string()).collect()
        };
        Self {
            host,
            gateway,
            args,
            is_from_files,
            servers: names(false),
            disabled: names(true),
        }
    }

    fn print(&self, report: &Report) {
        if report.is_json() {
            return self.print_json(report);
        }
        let base = self.base_url();
        let servers = pluralize(self.servers.len(), "server");
        report.print(&format!(
            "{} · {servers}; sessions are not shared with other machines",
            style::bold(&format!("listening on {base}"))
        ));
        let named = self.servers.iter();
        let named = named.map(|name| (name.clone(), self.server_url(name)));
        let mut lines: Vec<(String, String)> = named.collect();
        let mut add = |what: &str, more: String| lines.push((what.to_owned(), more));
        add("all in one", format!("{base}/mcp"));
        add("in a run", format!("{base}/runs/RUN/servers/NAME/mcp"));
        if !self.disabled.is_empty() {
            add("disabled", self.disabled.join(", "));
        }
        if let Some(ops) = self.gateway.ops_address() {
            let pages = format!("http://{ops}/metrics /livez /readyz /servers");
            add("ops pages", pages);
        }
        if let Some(admin) = &self.host.settings.admin {
            let how = format!("warmline ps --socket {}", admin.display());
            add("inspect", how);
        }
        for (what, more) in pad_first(lines) {
            report.print(&format!("  {what}  {}", style::name(&more)));
        }
        report.print(&self.auth_hint());
    }

    fn auth_hint(&self) -> String {
        match self.host.settings.auth {
            AuthMode::Local => format!(
                "callers send a token: `{}` prints it with a snippet to paste",
                style::name(&self.url_command())
            ),
            AuthMode::Tokens => format!(
                "callers send a token: `{}` makes one",
                style::name(&new_token_command(self.args.state_dir.as_deref()))
            ),
            AuthMode::Jwt => "callers send a JWT that was issued for this gateway".to_owned(),
            AuthMode::Proxy => "a trusted proxy names the callers".to_owned(),
            AuthMode::None => format!(
                "{}: `auth = \"none\"`. {NO_AUTH_EXPLANATION}",
                style::warning(NO_AUTH_SUMMARY)
            ),
        }
    }

    fn url_command(&self) -> String {
        let name = match self.servers.as_slice() {
            [only] => only,
            _ => "NAME",
        };
        let mut words = vec!["warmline".to_owned(), "url".to_owned(), name.to_owned()];
        let GatewayArgs {
            config, state_dir, ..
        } = self.args;
        for (option, path) in [("--config", config), ("--state-dir", state_dir)] {
            let path = path.as_ref().map(|path| path.display().to_string());
            words.extend(path.into_iter().flat_map(|path| [option.to_owned(), path]));
        }
        if !self.is_from_files || self.host.settings.listen != self.gateway.address() {
            words.extend(["--at".to_owned(), self.base_url()]);
        }
        shell_words::join(words)
    }

    fn print_json(&self, report: &Report) {
        let entry = |name: &String| json!({ "name": name, "url": self.server_url(name) });
        let servers: Vec<_> = self.servers.iter().map(entry).collect();
        let settings = &self.host.settings;
        let token = Some(self.host.tokens.local_token_file().display().to_string());
        let ops = self.gateway.ops_address();
        let fields = JsonFields::with("url", self.base_url())
            .put("all_in_one", format!("{}/mcp", self.base_url()))
            .put("servers", servers)
            .put(
                "switched_off",
                Some(&self.disabled).filter(|off| !off.is_empty()),
            )
            .put("admin", &settings.admin)
            .put("ops", ops.map(|ops| format!("http://{ops}")))
            .put("auth", settings.auth.as_str())
            .put(
                "token_file",
                token.filter(|_| settings.auth == AuthMode::Local),
            )
            .put("replicas", 1)
            .put("pid", std::process::id());
        report.print_object("listening", &fields);
    }

    fn base_url(&self) -> String {
        let (scheme, address) = (self.host.settings.scheme(), self.gateway.address());
        format!("{scheme}://{address}")
    }

    fn server_url(&self, name: &str) -> String {
        format!("{}/servers/{name}/mcp", self.base_url())
    }
}
