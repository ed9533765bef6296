//! The target: a URL, a name from a configuration file, or a command behind `--`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warmline_config::trust::TrustStore;
use warmline_config::{
    Config, ConfigFile, ConfigFolders, Declaration, DeclaredAccess, FileOrigin, normalize_name,
    parse_url, redact_command, redact_url,
};
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_core::exchange::Deadlines;
use warmline_engine::settings::{
    EngineSettings, ServerSettings, SettingsGroup as _, try_process_variable,
};
use warmline_upstream::{ServerTarget, TransportConfig};

use crate::output::problem::first_config_error;
use crate::output::{CliResult, Problem};

mod args;

pub(crate) use args::{
    ConnectArgs, EraChoice, ExpectedName, TargetArgs, URL_VARIABLE, extra_word_error, parse_target,
    positive_duration, redact_word,
};

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) server: ServerTarget,
    pub(crate) deadlines: Deadlines,
    pub(crate) settings: ServerSettings,
    /// Access rules of its declaration, for a gateway.
    pub(crate) access: DeclaredAccess,
    pub(crate) engine: EngineSettings,
    pub(crate) source: TargetSource,
    /// Where the token comes from, in words.
    pub(crate) token_source: Option<String>,
    pub(crate) notes: Vec<TargetNote>,
    /// Whether variables that name no server apply to it.
    pub(crate) takes_generic_variables: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum TargetNote {
    /// Where a part of it comes from.
    Origin(String),
    /// Something that the user may not have meant.
    Warning(String),
}

#[derive(Clone, Debug)]
pub(crate) enum TargetSource {
    CommandLine,
    /// The gateway of the enclosing `warmline run` serves it.
    EnclosingGateway,
    Configured {
        location: String,
        origin: FileOrigin,
        /// Its address as written in the file: no variable is expanded.
        unexpanded_address: String,
    },
}

impl TargetSource {
    /// A variable overrides the URL of the file.
    fn set_variable_url(&mut self, variable: &str, url: &str) {
        if let Self::Configured {
            unexpanded_address, ..
        } = self
        {
            *unexpanded_address = format!("{} (from {variable})", redact_url(url));
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetSpec {
    Url(String),
    Name(String),
    Command(Vec<OsString>),
}

impl Target {
    pub(crate) fn resolve(spec: &TargetSpec, connect: &ConnectArgs) -> CliResult<Self> {
        Self::resolve_among(spec, connect, true)
    }

    /// The same for a target that may be one of several: then variables that name no server are ignored.
    pub(crate) fn resolve_among(
        spec: &TargetSpec,
        connect: &ConnectArgs,
        is_only: bool,
    ) -> CliResult<Self> {
        let mut target = match spec {
            TargetSpec::Url(url) => Self::from_url(url)?,
            TargetSpec::Command(words) => Self::from_command(words)?,
            TargetSpec::Name(name) => Self::from_config(name, connect)?,
        };
        target.takes_generic_variables &= is_only;
        target.with_overrides(connect)
    }

    pub(crate) fn with_overrides(mut self, connect: &ConnectArgs) -> CliResult<Self> {
        self.settings.apply_process_environment()?;
        self.engine.apply_process_environment()?;
        self.apply_connect_args(connect)?;
        self.settings.normalize()?;
        self.engine.normalize()?;
        self.settings.apply_to(&mut self.server);
        self.deadlines = self.settings.policy.deadlines;
        Ok(self)
    }

    /// Limits each step, without marking the settings as explicit. A program keeps its own time to
    /// start: a slow one is not broken.
    pub(crate) fn limit_timeouts(&mut self, limit: Duration) {
        let times = &mut self.server.timeouts;
        (times.connect, times.handshake) = (limit, limit);
        self.deadlines = Deadlines {
            idle: limit,
            total: limit,
        };
    }

    /// The address for people: as typed or written, without anything secret.
    pub(crate) fn display_address(&self) -> String {
        if let TargetSource::Configured {
            unexpanded_address, ..
        } = &self.source
        {
            return unexpanded_address.clone();
        }
        match &self.server.transport {
            TransportConfig::Http(http) => redact_url(http.url.as_str()),
            TransportConfig::Stdio(stdio) => {
                let args = stdio.args.iter().map(String::as_str);
                redact_command(std::iter::once(stdio.program.as_str()).chain(args))
            },
        }
    }

    pub(crate) fn to_argument(&self) -> String {
        match (&self.source, &self.server.transport) {
            (TargetSource::Configured { .. } | TargetSource::EnclosingGateway, _) => {
                self.server.name.clone()
            },
            (TargetSource::CommandLine, TransportConfig::Http(_)) => self.display_address(),
            (TargetSource::CommandLine, TransportConfig::Stdio(_)) => {
                format!("-- {}", self.display_address())
            },
        }
    }

    /// The path of its URL, if it contains variables: it may be a secret.
    pub(crate) fn secret_path(&self) -> Option<String> {
        let TransportConfig::Http(http) = &self.server.transport else {
            return None;
        };
        let has_variables = matches!(&self.source, TargetSource::Configured { .. })
            && self.display_address().contains("${");
        (has_variables && http.url.path().len() > 1).then(|| http.url.path().to_owned())
    }

    fn from_url(url: &str) -> CliResult<Self> {
        let parsed = parse_url(url).map_err(|why| {
            Problem::usage(format!("`{}` is not the URL of a server", redact_url(url)))
                .with_cause(why)
        })?;
        let host = parsed.host_str().unwrap_or_default();
        let name = match parsed.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Ok(Self::from_command_line(ServerTarget::http(name, parsed)))
    }

    fn from_command(words: &[OsString]) -> CliResult<Self> {
        let texts: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
        let Some([program, args @ ..]) = texts.as_deref() else {
            return Err(Problem::usage("the command behind `--` is not text"));
        };
        let name = command_name(program, args);
        let server = ServerTarget::stdio(name, *program, args.iter().copied());
        Ok(Self::from_command_line(server))
    }

    fn from_config(name: &str, connect: &ConnectArgs) -> CliResult<Self> {
        let (folders, store) = folders_and_trust()?;
        let config = Config::read_skipping_untrusted(connect.config.as_deref(), &folders, &store)
            .map_err(first_config_error)?;
        let (file, declaration) = config.find_server(name, &store).map_err(|error| {
            let mut problem = Problem::from(error);
            if let Some(hint) = unknown_name_hint(name) {
                problem = problem.with_hint(hint);
            }
            problem
        })?;
        let trusted = file.require_trusted(&store)?.server(declaration)?;
        let configured = trusted.to_target()?;
        let token_from = trusted.token_source();
        let among_headers = || format!("`headers` in {}", declaration.location);
        let token_from = token_from.or_else(|| has_headers(&configured.target).then(among_headers));
        let mut target = Self {
            token_source: token_from,
            settings: configured.settings,
            access: declaration.access.clone(),
            engine: config.engine_settings(&store),
            source: TargetSource::Configured {
                location: declaration.location.to_string(),
                origin: file.origin(),
                unexpanded_address: declaration.summary().target,
            },
            takes_generic_variables: false,
            ..Self::from_command_line(configured.target)
        };
        if let Some(variable) = &declaration.url_env
            && let Some(url) = try_process_variable(variable)?.filter(|url| !url.is_empty())
        {
            target.source.set_variable_url(variable, &url);
        }
        if config.declarations().count() == 1 {
            target.takes_generic_variables = true;
            target.apply_generic_url(declaration)?;
        }
        let shadowed = shadowed_declarations(&config, file, declaration, &store);
        let skipped = config.skipped_files().iter().map(|skipped| {
            let path = skipped.path.display();
            TargetNote::Warning(format!(
                "{path} is not trusted, has an error, and is not used"
            ))
        });
        target.notes.extend(shadowed.into_iter().chain(skipped));
        Ok(target)
    }

    pub(crate) fn from_command_line(server: ServerTarget) -> Self {
        Self {
            server,
            deadlines: Deadlines::default(),
            settings: ServerSettings::default(),
            access: DeclaredAccess::default(),
            engine: EngineSettings::default(),
            source: TargetSource::CommandLine,
            token_source: None,
            notes: Vec::new(),
            takes_generic_variables: true,
        }
    }

    fn apply_connect_args(&mut self, connect: &ConnectArgs) -> CliResult<()> {
        let name = self.server.name.clone();
        match &mut self.server.transport {
            TransportConfig::Http(http) => {
                args::apply_http_args(http, connect, &name, &mut self.token_source)?;
            },
            TransportConfig::Stdio(stdio) => args::apply_stdio_args(stdio, connect, &name)?,
        }
        let is_plain = matches!(&self.server.transport, TransportConfig::Http(http) if http.url.scheme() == "http");
        if is_plain && connect.ca_file.is_some() {
            let unused = "`--ca-file` has no effect: a URL with `http://` has no certificate";
            self.notes.push(TargetNote::Warning(unused.to_owned()));
        }
        if self.takes_generic_variables {
            self.apply_generic_token()?;
        }
        match connect.era {
            EraChoice::Auto => {},
            EraChoice::Legacy => self.settings.era = Some(Era::Legacy),
            EraChoice::Modern => self.settings.era = Some(Era::Modern),
        }
        if connect.era != EraChoice::Auto {
            self.settings.mark_set_by_builder("era");
        }
        if let Some(limit) = connect.timeout {
            let times = &mut self.settings.timeouts;
            (times.connect, times.handshake, times.start) = (limit, limit, limit);
            self.settings.policy.deadlines = Deadlines {
                idle: limit,
                total: limit,
            };
            TIMEOUT_SETTINGS
                .iter()
                .for_each(|key| self.settings.mark_set_by_builder(key));
        }
        Ok(())
    }
}

pub(crate) fn has_headers(server: &ServerTarget) -> bool {
    match &server.transport {
        TransportConfig::Http(http) => !http.headers.is_empty(),
        TransportConfig::Stdio(_) => false,
    }
}

const TIMEOUT_SETTINGS: [&str; 5] = [
    "connect_timeout",
    "handshake_timeout",
    "start_timeout",
    "call_idle_timeout",
    "call_timeout",
];

pub(crate) fn process_folders() -> CliResult<ConfigFolders> {
    let what = "cannot read the working folder";
    ConfigFolders::from_process().map_err(Problem::caused(Code::ConfigUnreadable, what))
}

/// The folders of configuration files, and which of their files are trusted.
pub(crate) fn folders_and_trust() -> CliResult<(ConfigFolders, TrustStore)> {
    let folders = process_folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    Ok((folders, store))
}

/// The state folder: as typed, or the default.
pub(crate) fn state_folder(typed: Option<&Path>) -> CliResult<PathBuf> {
    match typed {
        Some(typed) => Ok(typed.to_owned()),
        None => process_folders()?.state.ok_or_else(|| {
            Problem::usage("there is no state folder: this user has no home folder")
                .with_hint("name one with --state-dir FOLDER")
        }),
    }
}

pub(crate) fn records_folder(state: &Path) -> PathBuf {
    state.join("sessions")
}

fn command_name(program: &str, args: &[&str]) -> String {
    let stem = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        let file = file.trim_end_matches(".js");
        file.trim_end_matches(".py").to_owned()
    };
    let starter = stem(program);
    let started = match starter.as_str() {
        "npx" | "pnpx" | "bunx" | "uvx" | "node" | "python" | "python3" => {
            let package = args.iter().find(|word| !word.starts_with('-'));
            package.map(|word| strip_package_version(word).to_owned())
        },
        _ => None,
    };
    let plain = started.as_deref().map(|word| match word.rsplit_once('/') {
        // `@someone/mcp` needs its scope; `@someone/server-time` does not.
        Some((scope, "mcp" | "server" | "mcp-server")) if scope.starts_with('@') => word.to_owned(),
        _ => stem(word),
    });
    let name = plain.as_deref().and_then(normalize_name);
    let name = name.or_else(|| normalize_name(&starter));
    name.unwrap_or_else(|| "server".to_owned())
}

fn strip_package_version(package: &str) -> &str {
    match package.rsplit_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        _ => package,
    }
}

/// A hint for an unknown name that is a command or a host.
pub(crate) fn unknown_name_hint(name: &str) -> Option<String> {
    if name.contains(' ') {
        return Some("put a command last, behind `--`, without quotes".to_owned());
    }
    let host = name.split(['/', ':']).next().unwrap_or_default();
    let is_host = host == "localhost" || (host.contains('.') && !host.starts_with('.'));
    is_host.then(|| format!("a URL begins with `https://` or `http://`: `http://{name}`"))
}

fn shadowed_declarations(
    config: &Config,
    used: &ConfigFile,
    declaration: &Declaration,
    store: &TrustStore,
) -> Vec<TargetNote> {
    let name = &declaration.original_name;
    config
        .declarations()
        .filter(|(file, other)| other.name == declaration.name && file.path() != used.path())
        .map(|(file, _)| {
            let other = file.path().display();
            match file.is_trusted(store) {
                true => {
                    TargetNote::Origin(format!("`{name}` is also declared in {other}, not used"))
                },
                false => TargetNote::Warning(format!(
                    "`{name}` is also declared in {other}, which is not trusted; {} is used",
                    used.path().display()
                )),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hurry_leaves_a_program_the_time_to_start() {
        let words = ["sh".into(), "-c".into(), "exit".into()];
        let mut target = Target::from_command(&words).unwrap();
        let allowed = target.server.timeouts.start;
        let limit = allowed / 2;
        target.limit_timeouts(limit);
        let times = &target.server.timeouts;
        assert_eq!((times.start, times.handshake), (allowed, limit));
    }

    #[test]
    fn a_command_is_named_after_what_it_starts() {
        #[rustfmt::skip]
        let table: [(&str, &[&str], &str); 9] = [
            ("npx", &["-y", "@playwright/mcp@latest"], "playwright-mcp"),
            ("npx", &["-y", "@modelcontextprotocol/server-everything"], "server-everything"),
            ("npx", &["-y", "@modelcontextprotocol/server-time@1.2.3"], "server-time"),
            ("npx", &["-y", "some-server"],            "some-server"),
            ("uvx", &["mcp-server-git"],               "mcp-server-git"),
            ("python3", &["/opt/things/server.py"],    "server"),
            ("/usr/bin/thing", &["--stdio"],           "thing"),
            ("node", &[],                              "node"),
            ("…", &[],                                 "server"),
        ];
        for (program, args, name) in table {
            assert_eq!(command_name(program, args), name);
        }
    }
}
