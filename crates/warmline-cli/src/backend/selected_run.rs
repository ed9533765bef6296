//! The run a command belongs to: its name, where it is kept, and what happens to it afterwards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::header::AUTHORIZATION;
use url::Url;
use warmline_config::{ConfiguredTarget, bearer_value, normalize_name};
use warmline_core::error::code::Code;
use warmline_core::exchange::Deadlines;
use warmline_engine::Run;
use warmline_engine::settings::{run_from_env, try_process_variable};
use warmline_upstream::{ServerTarget, SizeLimits, Timeouts, TransportConfig};

use crate::hints::did_you_mean;
use crate::leftover_runs::{LeftoverRun, SessionHolder};
use crate::output::{CliResult, Problem};
use crate::target::{
    ConnectArgs, Target, TargetSource, TargetSpec, process_folders, records_folder, state_folder,
};

/// The run a command belongs to.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Runs")]
pub(crate) struct RunSelectionArgs {
    /// The run of this command: commands that name the same run share a session, and the state
    /// that the server keeps in it. `WARMLINE_RUN` names one too
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// End the run afterwards: its session is closed
    #[arg(long)]
    pub(crate) end_run: bool,
    /// The folder that keeps runs between commands
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Clone)]
pub(crate) struct SelectedRun {
    pub(crate) name: String,
    /// Whether the run ends with the command; otherwise the next command may resume it.
    pub(crate) ends: bool,
    state_dir: Option<PathBuf>,
    /// The leftover run to end, whose record says where it is and what it calls the server.
    leftover: Option<LeftoverRun>,
    pub(crate) connect_args: ConnectArgs,
    /// What tells one caller from another beside the user: headers of the command line, by their
    /// value or their variable. Callers with different headers never share a session.
    pub(crate) caller_discriminators: Vec<String>,
    enclosing_gateway: Option<EnclosingGateway>,
}

#[derive(Clone)]
struct EnclosingGateway {
    url: String,
    token: String,
    servers: Vec<String>,
}

pub(crate) fn check_run_name(name: &str, origin: &str) -> CliResult<()> {
    Run::check_name(name).map_err(|error| {
        let shown: String = name.chars().take(40).collect();
        let what = format!("`{}`{origin} is not a run name", shown.escape_debug());
        Problem::usage(what).with_hint(error.hint().unwrap_or_default())
    })
}

impl SelectedRun {
    pub(crate) fn from_args(
        args: &RunSelectionArgs,
        connect: &ConnectArgs,
    ) -> CliResult<Option<Self>> {
        let (origin, name) = match (&args.run, run_from_env()?) {
            (Some(name), _) => (" of --run", name.clone()),
            (None, Some(name)) => (" of WARMLINE_RUN", name),
            (None, None) if args.end_run => {
                return Err(
                    Problem::usage("`--end-run` needs a run").with_hint("name it with --run NAME")
                );
            },
            (None, None) => return Ok(None),
        };
        check_run_name(&name, origin)?;
        let enclosing = find_enclosing_gateway(&name)?;
        Ok(Some(Self {
            name,
            ends: args.end_run,
            state_dir: args.state_dir.clone(),
            leftover: None,
            connect_args: connect.clone(),
            caller_discriminators: caller_discriminators(connect),
            enclosing_gateway: enclosing.filter(|_| is_served_by_gateway(args, connect)),
        }))
    }

    /// Resolves the target of a command. A name that the enclosing gateway serves is that server,
    /// whatever files declare.
    pub(crate) fn resolve_target(
        run: Option<&Self>,
        spec: &TargetSpec,
        connect: &ConnectArgs,
    ) -> CliResult<Target> {
        let gateway = run.and_then(|run| run.enclosing_gateway.as_ref());
        let (TargetSpec::Name(name), Some(gateway)) = (spec, gateway) else {
            return Target::resolve(spec, connect);
        };
        if let Some(target) = gateway.target(name) {
            return target.with_overrides(connect);
        }
        Target::resolve(spec, connect).map_err(|problem| {
            let is_unknown = problem.parts().code == Code::ServerUnknown;
            let hint = did_you_mean(name, gateway.servers.iter().map(String::as_str));
            match hint.filter(|_| is_unknown) {
                Some(hint) => problem.with_hint(hint),
                None => problem,
            }
        })
    }

    pub(crate) fn for_ending(note: &LeftoverRun, state: &Path, connect_args: ConnectArgs) -> Self {
        Self {
            name: note.run.clone(),
            ends: true,
            state_dir: Some(state.to_owned()),
            leftover: Some(note.clone()),
            caller_discriminators: match note.holder {
                SessionHolder::Command => caller_discriminators(&connect_args),
                SessionHolder::Gateway | SessionHolder::StdioClient => Vec::new(),
            },
            connect_args,
            enclosing_gateway: None,
        }
    }

    /// The plain name of the server: that of the run's record, or the one it would have there.
    pub(crate) fn server_name_for(&self, target: &Target) -> String {
        let known = self.leftover.as_ref().map(|note| note.server.clone());
        let known = known.or_else(|| normalize_name(&target.server.name));
        known.unwrap_or_else(|| "server".to_owned())
    }

    pub(crate) fn configured_server(&self, target: &Target) -> ConfiguredTarget {
        let mut server = target.server.clone();
        server.name = self.server_name_for(target);
        ConfiguredTarget {
            target: server,
            settings: target.settings.clone(),
        }
    }

    pub(crate) fn state_folder(&self) -> CliResult<Option<PathBuf>> {
        match &self.state_dir {
            Some(folder) => Ok(Some(folder.clone())),
            None => Ok(process_folders()?.state),
        }
    }

    /// The state folder, which holds the secrets that seal records, and the folder of records.
    pub(crate) fn storage(&self, target: &Target) -> CliResult<(PathBuf, PathBuf)> {
        let state = state_folder(self.state_dir.as_deref())?;
        let set = target.engine.store.clone();
        let records = match &self.leftover {
            Some(note) => Some(note.records.clone()),
            None => set.filter(|_| self.state_dir.is_none()),
        };
        let records = records.unwrap_or_else(|| records_folder(&state));
        Ok((state, records))
    }
}

/// The run of the enclosing `warmline run`, whose gateway holds it and ends it with the program.
pub(crate) fn enclosing_run() -> CliResult<Option<String>> {
    let Some(name) = run_from_env()? else {
        return Ok(None);
    };
    Ok(find_enclosing_gateway(&name)?.map(|_| name))
}

fn find_enclosing_gateway(run: &str) -> CliResult<Option<EnclosingGateway>> {
    let url = try_process_variable("WARMLINE_URL")?;
    let token = try_process_variable("WARMLINE_TOKEN")?;
    let servers = try_process_variable("WARMLINE_SERVERS")?.unwrap_or_default();
    let url = url.filter(|url| url.ends_with(&format!("/runs/{run}")));
    Ok(url.zip(token).map(|(url, token)| EnclosingGateway {
        url,
        token,
        servers: servers.split(' ').map(str::to_owned).collect(),
    }))
}

/// Whether no option was given that the enclosing gateway does not know.
fn is_served_by_gateway(args: &RunSelectionArgs, connect: &ConnectArgs) -> bool {
    let has_headers = !connect.header.is_empty() || !connect.header_env.is_empty();
    let has_variables = !connect.env.is_empty() || !connect.env_pass.is_empty();
    let has_files = connect.config.is_some() || connect.ca_file.is_some();
    let has_folders = connect.cwd.is_some() || args.state_dir.is_some();
    !has_headers && !has_variables && !has_files && !has_folders
}

fn caller_discriminators(connect: &ConnectArgs) -> Vec<String> {
    let headers = connect.header.iter();
    let headers = headers.map(|header| format!("header {header}"));
    let variables = connect.header_env.iter().map(|name| format!("env {name}"));
    headers.chain(variables).collect()
}

impl EnclosingGateway {
    fn target(&self, name: &str) -> Option<Target> {
        let served = |name: &String| self.servers.contains(name);
        let plain = || normalize_name(name).filter(served);
        let name = Some(name.to_owned()).filter(served).or_else(plain)?;
        let url = Url::parse(&format!("{}/servers/{name}/mcp", self.url)).ok()?;
        let mut server = ServerTarget::http(name, url);
        if let TransportConfig::Http(http) = &mut server.transport {
            let token = bearer_value(&self.token)?;
            http.headers.push((AUTHORIZATION, token));
        }
        let mut target = Target::from_command_line(server);
        target.source = TargetSource::EnclosingGateway;
        target.takes_generic_variables = false;
        // The gateway applies the limits of the server: ours are never tighter.
        target.settings.timeouts = Timeouts {
            handshake: MAX_WAIT,
            ..Timeouts::default()
        };
        target.settings.policy.deadlines = Deadlines {
            idle: MAX_WAIT,
            total: MAX_WAIT,
        };
        target.settings.size_limits = SizeLimits {
            reply: MAX_RESPONSE_BYTES,
            event: MAX_RESPONSE_BYTES,
            ..SizeLimits::default()
        };
        Some(target)
    }
}

const MAX_WAIT: Duration = Duration::from_secs(24 * 3_600);
const MAX_RESPONSE_BYTES: usize = 256 << 20;
