//! The source of a gateway's configuration: targets of the command line, or files, read again when they
//! change; and which of their servers it serves.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use warmline_config::gateway_settings::{AuthMode, GatewaySettings, OpsListen};
use warmline_config::trust::TrustStore;
use warmline_config::{
    Config, ConfigError, ConfigFolders, ConfiguredTarget, Declaration, DeclaredAccess, FileOrigin,
    SkippedFile, TrustedFile, normalize_name,
};
use warmline_engine::Server;
use warmline_engine::settings::SettingsGroup as _;
use warmline_gateway::reload::LoadedConfiguration;
use warmline_upstream::{ServerTarget, TransportConfig};

use crate::hints::ProgramLookup;
use crate::logging;
use crate::output::problem::first_config_error;
use crate::output::{CliResult, Problem, Report};
use crate::target::{ConnectArgs, Target, TargetArgs, TargetSpec, parse_target, process_folders};

/// What a gateway serves, and where it keeps sessions.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// A configuration file, instead of those in the default places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder for sessions, keys and tokens
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// A variable for the program behind `--`
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Pass a variable of this environment to the program behind `--`
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
}

/// Settings that options of the command line override.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListenOverrides {
    /// Where to listen; port 0 picks a free one [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// How callers authenticate: `local`, `tokens`, `jwt`, `proxy` or `none` [default: local]
    #[arg(long, value_name = "HOW", value_parser = parse_auth)]
    pub(crate) auth: Option<AuthMode>,
    /// Where to serve `/livez`, `/readyz`, `/metrics` and `/servers`, or `none` [default: on
    /// loopback, the port after that of --listen]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_ops)]
    ops: Option<OpsListen>,
    /// A Unix socket for this user to inspect and control the gateway: `warmline ps --socket FILE`
    #[arg(long, value_name = "FILE")]
    admin: Option<PathBuf>,
}

impl ListenOverrides {
    fn apply_to(&self, gateway: &mut GatewaySettings) {
        gateway.listen = self.listen.unwrap_or(gateway.listen);
        gateway.auth = self.auth.unwrap_or(gateway.auth);
        gateway.ops = self.ops.unwrap_or(gateway.ops);
        gateway.admin = self.admin.clone().or(gateway.admin.take());
        let given = [
            (self.listen.is_some(), "gateway.listen"),
            (self.auth.is_some(), "gateway.auth"),
            (self.ops.is_some(), "ops.listen"),
            (self.admin.is_some(), "admin.socket"),
        ];
        let keys = given.iter().filter(|(is_given, _)| *is_given);
        keys.for_each(|(_, key)| gateway.mark_set_by_builder(key));
    }
}

#[derive(Debug)]
pub(crate) struct ConfigSource {
    targets: Vec<TargetSpec>,
    /// Options for the command behind `--`.
    command_args: ConnectArgs,
    config: Option<PathBuf>,
    pub(crate) overrides: ListenOverrides,
    may_be_empty: bool,
    folders: ConfigFolders,
    previous: PreviousConfig,
    undeclared: UndeclaredServers,
}

/// The last configuration. What is in use must not vanish by a mistake: some warnings of a first read
/// are errors later.
#[derive(Debug, Default)]
struct PreviousConfig {
    /// Trusted files of the working folder.
    files: Vec<PathBuf>,
    servers: Vec<String>,
    /// Servers without a missing variable.
    fully_configured: Vec<String>,
}

impl ConfigSource {
    pub(crate) fn from_args(args: &GatewayArgs) -> CliResult<Self> {
        let words = args.target.words.iter().map(|word| parse_target(word));
        let mut targets: Vec<TargetSpec> = words.collect::<CliResult<_>>()?;
        let command = &args.target.command;
        if !command.is_empty() {
            targets.push(TargetSpec::Command(command.clone()));
        }
        let options = [(&args.env, "--env"), (&args.env_pass, "--env-pass")];
        let given = options.iter().find(|(values, _)| !values.is_empty());
        if let Some((_, option)) = given.filter(|_| command.is_empty()) {
            let what = format!("`{option}` needs a command behind `--`");
            return Err(Problem::usage(what).with_hint(
                "a server of a file has its variables there: `env_pass = [\"NAME\"]`, or `env`",
            ));
        }
        Ok(Self {
            targets,
            command_args: ConnectArgs {
                env: args.env.clone(),
                env_pass: args.env_pass.clone(),
                ..ConnectArgs::default()
            },
            may_be_empty: false,
            ..Self::new(args.config.clone(), process_folders()?)
        })
    }

    /// The files of the user and the system, or a named one, without those of the working folder.
    pub(crate) fn from_user_files(config: Option<PathBuf>) -> CliResult<Self> {
        let mut folders = process_folders()?;
        // The user's folder holds no project files.
        let user = folders.user.clone();
        folders.working = user.unwrap_or_else(|| folders.system.clone());
        Ok(Self::new(config, folders))
    }

    fn new(config: Option<PathBuf>, folders: ConfigFolders) -> Self {
        Self {
            targets: Vec::new(),
            command_args: ConnectArgs::default(),
            config,
            overrides: ListenOverrides::default(),
            may_be_empty: true,
            folders,
            previous: PreviousConfig::default(),
            undeclared: UndeclaredServers::new(),
        }
    }

    /// Whether files alone decide what is served, and where.
    pub(crate) fn is_files_only(&self) -> bool {
        let mut targets = self.targets.iter();
        targets.all(|target| matches!(target, TargetSpec::Name(_)))
            && self.overrides.listen.is_none()
    }

    /// How the command line or a file names a server that is served.
    pub(crate) fn served_target(&self, name: &str) -> (String, TargetSpec) {
        match self.undeclared.get(name) {
            Some(served) => served.clone(),
            None => (name.to_owned(), TargetSpec::Name(name.to_owned())),
        }
    }

    /// Files that are used, or would be if they existed.
    pub(crate) fn watched_paths(&self) -> Vec<PathBuf> {
        match &self.config {
            Some(given) => vec![given.clone()],
            None => {
                let places = self.folders.candidate_files().into_iter();
                places.map(|(path, _)| path).collect()
            },
        }
    }

    /// Reads the configuration, starts the log, and prints warnings to stderr: stdout belongs to
    /// another program.
    pub(crate) fn read_beside_program(
        &mut self,
        report: &Report,
    ) -> CliResult<LoadedConfiguration> {
        let (config, warnings) = self.read()?;
        logging::start_for_stdio(&config.gateway);
        for warning in warnings {
            report.warn_on_stderr(&warning);
        }
        Ok(config)
    }

    /// Reads the configuration. Returns it with warnings.
    pub(crate) fn read(&mut self) -> CliResult<(LoadedConfiguration, Vec<String>)> {
        let store = TrustStore::in_state_folder(self.folders.state.as_deref());
        let config = Config::read_skipping_untrusted(self.config.as_deref(), &self.folders, &store);
        let config = config.map_err(first_config_error)?;
        let selector = ServerSelector {
            config: &config,
            store: &store,
            previous: &self.previous,
            command_args: &self.command_args,
        };
        let mut warnings = selector.untrusted_file_warnings()?;
        let mut selected = match self.targets.as_slice() {
            [] => selector.select_all(self.may_be_empty)?,
            targets => selector.select_targets(targets)?,
        };
        warnings.append(&mut selected.warnings);
        let files = selector.trusted_folder_files();
        let mut engine = config.engine_settings(&store);
        engine.apply_process_environment()?;
        engine.normalize()?;
        let mut gateway = config.gateway_settings(&store);
        gateway.apply_process_environment()?;
        self.overrides.apply_to(&mut gateway);
        gateway.normalize()?;
        self.undeclared = selected.undeclared;
        let access = selected.servers.iter();
        let access = access.filter(|(_, access)| !access.is_empty());
        let access = access.map(|(server, access)| (server.name().to_owned(), access.clone()));
        let access = access.collect();
        let servers = selected.servers.into_iter().map(|(server, _)| server);
        let servers: Vec<Server> = servers.collect();
        self.previous = PreviousConfig {
            files,
            servers: servers.iter().map(|one| one.name().to_owned()).collect(),
            fully_configured: selected.fully_configured,
        };
        let loaded = LoadedConfiguration {
            servers,
            engine,
            gateway,
            access,
        };
        Ok((loaded, warnings))
    }
}

fn parse_address(written: &str) -> Result<SocketAddr, String> {
    warmline_engine::settings::parse_address(written).ok_or_else(|| {
        "write an IP address and a port: 127.0.0.1:8484, [::1]:8484, or a port alone".to_owned()
    })
}

fn parse_auth(written: &str) -> Result<AuthMode, String> {
    AuthMode::parse(written).ok_or_else(|| "write local, tokens, jwt, proxy or none".to_owned())
}

fn parse_ops(written: &str) -> Result<OpsListen, String> {
    if written == "none" {
        return Ok(OpsListen::None);
    }
    let address = parse_address(written).map(OpsListen::Address);
    address.map_err(|hint| format!("{hint}; `none` disables the pages"))
}

/// Selects the servers to serve. A server that cannot be used is skipped with a warning, unless it is in
/// use already or required.
struct ServerSelector<'c> {
    config: &'c Config,
    store: &'c TrustStore,
    previous: &'c PreviousConfig,
    /// Options for the command behind `--`.
    command_args: &'c ConnectArgs,
}

#[derive(Default)]
struct SelectedServers {
    servers: Vec<(Server, DeclaredAccess)>,
    fully_configured: Vec<String>,
    warnings: Vec<String>,
    undeclared: UndeclaredServers,
}

/// Servers that no file declares, by their served names: the name for people, and the target.
type UndeclaredServers = HashMap<String, (String, TargetSpec)>;

impl SelectedServers {
    fn contains(&self, name: &str) -> bool {
        self.servers.iter().any(|(known, _)| known.name() == name)
    }

    /// Warns of a missing program. The server is served all the same: the login shell may find it.
    fn check_program(&mut self, server: &ServerTarget) {
        if let TransportConfig::Stdio(stdio) = &server.transport
            && let ProgramLookup::Missing(why) = ProgramLookup::find(stdio)
        {
            let warning = format!("`{}` may not start: {why}", server.name);
            self.warnings.push(warning);
        }
    }
}

impl ServerSelector<'_> {
    /// Warns of files of the working folder that are not trusted as they are now, and skipped. For
    /// one in use that is an error: its servers must not vanish.
    fn untrusted_file_warnings(&self) -> CliResult<Vec<String>> {
        let mut warnings = Vec::new();
        for file in self.config.files() {
            let Err(error) = file.require_trusted(self.store) else {
                continue;
            };
            let path = file.path();
            if self.previous.files.iter().any(|known| known == path) {
                return Err(error.into());
            }
            let why = match self.store.was_trusted_before(path) {
                true => "changed since it was trusted",
                false => "is not trusted",
            };
            let path = path.display();
            warnings.push(format!("{path} {why}, and is not used: `warmline trust`"));
        }
        for SkippedFile { path, error, .. } in self.config.skipped_files() {
            if self.previous.files.contains(path) {
                return Err(error.clone().into());
            }
            let path = path.display();
            warnings.push(format!(
                "{path} is not trusted, has an error, and is not used: `warmline check`"
            ));
        }
        Ok(warnings)
    }

    fn trusted_folder_files(&self) -> Vec<PathBuf> {
        let files = self.config.files().iter();
        let trusted = files.filter(|file| {
            file.origin() == FileOrigin::WorkingFolder && file.is_trusted(self.store)
        });
        trusted.map(|file| file.path().to_owned()).collect()
    }

    /// Every server of every trusted file, the nearest of each name.
    fn select_all(&self, may_be_empty: bool) -> CliResult<SelectedServers> {
        let mut selected = SelectedServers::default();
        let mut known: Vec<&str> = Vec::new();
        let mut first = None;
        for file in self.config.files() {
            let Ok(trusted) = file.require_trusted(self.store) else {
                continue;
            };
            for declaration in file.declarations() {
                if known.contains(&declaration.name.as_str()) {
                    continue;
                }
                known.push(&declaration.name);
                let outcome = self.select_declared(trusted, declaration, &mut selected)?;
                first = first.or(outcome.err());
            }
        }
        match first {
            _ if !selected.servers.is_empty() || may_be_empty => Ok(selected),
            Some(error) => Err(error.into()),
            None => Err(self.nothing_to_serve_error()),
        }
    }

    /// Selects a server. One with an unset variable is skipped with a warning, unless it is
    /// required or in use.
    fn select_declared(
        &self,
        trusted: TrustedFile<'_>,
        declaration: &Declaration,
        selected: &mut SelectedServers,
    ) -> CliResult<Result<(), ConfigError>> {
        let name = &declaration.name;
        let trusted = trusted.server(declaration)?;
        let policy = trusted.settings().policy;
        let unset = trusted.missing_variables();
        let unset: Vec<String> = unset.iter().map(|name| format!("`{name}`")).collect();
        let missing = match unset.as_slice() {
            [one] => format!("{one} is not set"),
            all => format!("{} are not set", all.join(", ")),
        };
        let is_in_use = self.previous.servers.contains(name);
        match trusted.to_server_with_environment() {
            Ok(server) => {
                if policy.enabled && !unset.is_empty() {
                    if self.previous.fully_configured.contains(name) {
                        // The error names the missing token.
                        trusted.to_target()?;
                    }
                    let warning = format!("`{name}` has no token to send: {missing}");
                    selected.warnings.push(warning);
                } else {
                    selected.fully_configured.push(name.clone());
                }
                let access = declaration.access.clone();
                selected.servers.push((server, access));
                if policy.enabled
                    && let Ok(configured) = trusted.to_target()
                {
                    selected.check_program(&configured.target);
                }
                Ok(Ok(()))
            },
            Err(error) if unset.is_empty() || policy.required || is_in_use => Err(error.into()),
            Err(error) => {
                let warning = format!("`{name}` is left out: {missing}");
                selected.warnings.push(warning);
                Ok(Err(error))
            },
        }
    }

    fn nothing_to_serve_error(&self) -> Problem {
        let files = self.config.files().iter();
        let untrusted = files.filter_map(|file| file.require_trusted(self.store).err());
        let skipped = self.config.skipped_files().iter();
        let broken = skipped.map(|skipped| skipped.error.clone());
        match untrusted.chain(broken).next() {
            Some(error) => error.into(),
            None => Problem::usage("nothing to serve: no server is configured").with_hint(
                "`warmline add NAME URL` adds one, or `warmline add NAME -- COMMAND`; `warmline \
                 init` imports those of desktop clients",
            ),
        }
    }

    fn select_targets(&self, targets: &[TargetSpec]) -> CliResult<SelectedServers> {
        let is_only = targets.len() == 1;
        let mut selected = SelectedServers::default();
        for spec in targets {
            match spec {
                TargetSpec::Name(name) => {
                    let (file, declaration) = self.config.find_server(name, self.store)?;
                    let trusted = file.require_trusted(self.store)?;
                    if !selected.contains(&declaration.name) {
                        // A named server is never skipped.
                        self.select_declared(trusted, declaration, &mut selected)??;
                    }
                },
                TargetSpec::Url(_) => {
                    select_undeclared(spec, &ConnectArgs::default(), is_only, &mut selected)?;
                },
                TargetSpec::Command(_) => {
                    select_undeclared(spec, self.command_args, is_only, &mut selected)?;
                },
            }
        }
        Ok(selected)
    }
}

/// Selects a server that no file declares, under a unique name.
fn select_undeclared(
    spec: &TargetSpec,
    connect: &ConnectArgs,
    is_only: bool,
    selected: &mut SelectedServers,
) -> CliResult<()> {
    let target = Target::resolve_among(spec, connect, is_only)?;
    let mut server = target.server;
    let served = (server.name.clone(), spec.clone());
    let plain = normalize_name(&server.name).unwrap_or_else(|| "server".to_owned());
    let short: String = plain.chars().take(20).collect();
    let numbered = (2..).map(|number: usize| format!("{short}-{number}"));
    let mut names = std::iter::once(plain.clone()).chain(numbered);
    server.name = names.find(|name| !selected.contains(name)).unwrap_or(plain);
    selected.undeclared.insert(server.name.clone(), served);
    selected.check_program(&server);
    let configured = ConfiguredTarget {
        target: server,
        settings: target.settings,
    };
    let server = Server::from(configured);
    selected.servers.push((server, DeclaredAccess::default()));
    Ok(())
}
