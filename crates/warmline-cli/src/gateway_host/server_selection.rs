//! Selects the servers to serve. A server that cannot be used is skipped with a warning, unless it is
//! in use already or required.

use std::collections::HashMap;
use std::path::PathBuf;

use warmline_config::trust::TrustStore;
use warmline_config::{
    Config, ConfigError, ConfiguredTarget, Declaration, DeclaredAccess, FileOrigin, SkippedFile,
    TrustedFile, normalize_name,
};
use warmline_engine::Server;
use warmline_upstream::{ServerTarget, TransportConfig};

use super::config_source::PreviousConfig;
use crate::hints::find_program::ProgramLookup;
use crate::output::problem::{CliResult, Problem};
use crate::target::{ConnectArgs, GenericVariables, Target, TargetSpec};

pub(super) struct ServerSelector<'c> {
    pub(super) config: &'c Config,
    pub(super) store: &'c TrustStore,
    pub(super) previous: &'c PreviousConfig,
    /// Options for the command behind `--`.
    pub(super) command_args: &'c ConnectArgs,
}

#[derive(Default)]
pub(super) struct SelectedServers {
    pub(super) servers: Vec<(Server, DeclaredAccess)>,
    pub(super) fully_configured: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) undeclared: UndeclaredServers,
}

/// Servers that no file declares, by their served names: the name for people, and the target.
pub(super) type UndeclaredServers = HashMap<String, (String, TargetSpec)>;

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
    pub(super) fn untrusted_file_warnings(&self) -> CliResult<Vec<String>> {
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

    pub(super) fn trusted_folder_files(&self) -> Vec<PathBuf> {
        let files = self.config.files().iter();
        let trusted = files.filter(|file| {
            file.origin() == FileOrigin::WorkingFolder && file.is_trusted(self.store)
        });
        trusted.map(|file| file.path().to_owned()).collect()
    }

    /// Every server of every trusted file, the nearest of each name.
    pub(super) fn select_all(&self, may_be_empty: bool) -> CliResult<SelectedServers> {
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

    pub(super) fn select_targets(&self, targets: &[TargetSpec]) -> CliResult<SelectedServers> {
        let generic = match targets {
            [_] => GenericVariables::Apply,
            _ => GenericVariables::Ignore,
        };
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
                    select_undeclared(spec, &ConnectArgs::default(), generic, &mut selected)?;
                },
                TargetSpec::Command(_) => {
                    select_undeclared(spec, self.command_args, generic, &mut selected)?;
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
    generic: GenericVariables,
    selected: &mut SelectedServers,
) -> CliResult<()> {
    let target = Target::resolve_among(spec, connect, generic)?;
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
