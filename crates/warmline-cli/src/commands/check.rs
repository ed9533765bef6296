//! `warmline check`: checks configuration files without using them.

use std::path::{Path, PathBuf};

use clap::Args;
use warmline_config::trust::TrustStore;
use warmline_config::{
    Config, ConfigError, ConfigFile, ConfigFolders, Declaration, FileOrigin, PLACEHOLDER,
    process_variable,
};
use warmline_engine::settings::{EffectiveSetting, SettingOrigin, SettingsGroup as _};
use warmline_gateway::options::{self, AccessByServer};

use crate::backend::tools;
use crate::hints::unused_variables;
use crate::output::{CliResult, JsonFields, Problem, Report, pad_first, pluralize, style};
use crate::target::folders_and_trust;

const LONG_HELP: &str = "\
Check configuration files without using them.

Nothing is started or contacted. It checks the file and the settings of the environment; variables
that a file names as ${NAME} must be set. An error names file, line and column, and the nearest
valid word; all independent errors are reported at once. A note points to secrets in plain text.
Exit 2 if there is an error.";

const EXAMPLES: &str = "\
Examples:
  warmline check
  warmline check warmline.toml
  warmline check ~/.cursor/mcp.json --json";

/// Check configuration files without using them
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The file; default is every file in the default places
    file: Option<PathBuf>,
    /// The same as FILE
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &CheckArgs, report: &Report) -> CliResult<u8> {
    let (folders, store) = folders_and_trust()?;
    let files: Vec<(PathBuf, FileOrigin)> = match args.file.as_ref().or(args.config.as_ref()) {
        Some(file) => vec![(file.clone(), FileOrigin::Explicit)],
        None => folders.existing_files(),
    };
    if files.is_empty() {
        return Err(Problem::usage("there is no configuration file to check")
            .with_hint("`warmline init` writes one; or name a file"));
    }
    let mut exit = 0;
    let mut servers: Vec<Declaration> = Vec::new();
    for (path, origin) in files {
        match check_file(&path, &folders, &store) {
            Ok((config, checked)) => {
                for file in config.files() {
                    print_file(file, origin, &store, report);
                    warn_about_file(file, &store, report);
                    servers.extend(file.declarations().iter().cloned());
                }
                checked.print(report);
            },
            Err(problems) => {
                for problem in problems {
                    report.print_problem(&problem);
                    exit = problem.exit_code();
                }
            },
        }
    }
    let servers: Vec<&Declaration> = servers.iter().collect();
    for (message, hint) in unused_variables(&servers) {
        report.warn(&format!("{message}: {hint}"));
    }
    Ok(exit)
}

/// Checks one file alone, trusted or not. Returns all errors, as far as they are independent.
fn check_file(
    path: &Path,
    folders: &ConfigFolders,
    store: &TrustStore,
) -> Result<(Config, CheckedSettings), Vec<Problem>> {
    let (mut errors, rest) = ConfigFile::find_errors_and_declarations(path);
    if !errors.is_empty() {
        errors.extend(rest.iter().flat_map(|file| {
            let servers = file.declarations().iter();
            servers.filter_map(|server| check_server(file, server, store).err())
        }));
        errors.sort_by_key(|error| error.location.as_ref().and_then(|place| place.position));
        return Err(errors.into_iter().map(Problem::from).collect());
    }
    let config = Config::read(Some(path), folders).map_err(|error| vec![error.into()])?;
    let checked = check_settings(&config, store)?;
    Ok((config, checked))
}

/// What a file decides beside its servers.
struct CheckedSettings {
    settings: Vec<EffectiveSetting>,
    /// Access rules in words, by server.
    rules: Vec<(String, String)>,
}

fn check_settings(config: &Config, store: &TrustStore) -> Result<CheckedSettings, Vec<Problem>> {
    let mut engine = config.engine_settings(store);
    let mut gateway = config.gateway_settings(store);
    let applied = engine.apply_process_environment();
    let engine_error = applied.and_then(|()| engine.normalize()).err();
    let applied = gateway.apply_process_environment();
    let gateway_error = applied.and_then(|()| gateway.normalize()).err();
    let mut errors: Vec<ConfigError> = engine_error.into_iter().chain(gateway_error).collect();
    let (mut accesses, mut rules) = (AccessByServer::new(), Vec::new());
    for file in config.files() {
        for declaration in file.declarations() {
            errors.extend(check_server(file, declaration, store).err());
            let (name, access) = (&declaration.name, &declaration.access);
            accesses.insert(name.clone(), access.clone());
            for (word, list) in [("allow", &access.allow), ("deny", &access.deny)] {
                rules.extend(list.iter().map(|rule| {
                    let sentence = format!("{word} {}", tools::rule_text(rule));
                    (name.clone(), sentence)
                }));
            }
        }
    }
    let together = options::check_settings(&gateway, &accesses);
    errors.extend(together.and_then(|()| options::check_files(&gateway)).err());
    if !errors.is_empty() {
        return Err(errors.into_iter().map(Problem::from).collect());
    }
    let settings = gateway.effective_settings().into_iter();
    let settings = settings.chain(engine.effective_settings());
    let settings = settings.filter(|one| matches!(one.origin, SettingOrigin::File { .. }));
    Ok(CheckedSettings {
        settings: settings.collect(),
        rules,
    })
}

/// Checks a server against its file and the environment.
fn check_server(
    file: &ConfigFile,
    declaration: &Declaration,
    store: &TrustStore,
) -> Result<(), ConfigError> {
    let trusted = file.require_trusted(store)?.server(declaration)?;
    let mut settings = trusted.settings();
    settings.apply_process_environment()?;
    settings.normalize()?;
    // This finds unset variables.
    trusted.to_server_with_environment()?;
    Ok(())
}

impl CheckedSettings {
    fn print(&self, report: &Report) {
        if report.is_json() {
            for EffectiveSetting { key, value, .. } in &self.settings {
                let fields = JsonFields::with("key", key).put("value", value);
                report.print_object("setting", &fields);
            }
            for (server, rule) in &self.rules {
                let fields = JsonFields::with("server", server).put("rule", rule);
                report.print_object("rule", &fields);
            }
            return;
        }
        let settings = self.settings.iter();
        let settings = settings.map(|one| (one.key.to_owned(), &one.value));
        let rules = self.rules.iter();
        let rules = rules.map(|(server, rule)| (format!("servers.{server}"), rule));
        for (key, value) in pad_first(settings.chain(rules).collect()) {
            report.print(&format!("  {}  {value}", style::name(&key)));
        }
    }
}

/// Warns of keys that are probably misspelt, of secrets in plain text, and of unset tokens. None of
/// them is an error for sure.
fn warn_about_file(file: &ConfigFile, store: &TrustStore, report: &Report) {
    for miss in file.near_misses() {
        report.warn(&format!(
            "`{}` of `{}` in {} has no meaning here: did you mean `{}`?",
            miss.key.escape_debug(),
            miss.server.escape_debug(),
            file.path().display(),
            miss.suggestion
        ));
    }
    for declaration in file.declarations() {
        let trusted = file.require_trusted(store);
        let unset = trusted.and_then(|file| Ok(file.server(declaration)?.missing_variables()));
        for variable in unset.unwrap_or_default() {
            report.warn(&format!(
                "`{}` has no token to send: `{variable}` is not set here",
                declaration.original_name.escape_debug()
            ));
        }
        warn_about_gaps(declaration, report);
        warn_about_secrets(declaration, report);
    }
}

/// Warns of placeholders, and of variables that the program will miss.
fn warn_about_gaps(declaration: &Declaration, report: &Report) {
    let server = declaration.original_name.escape_debug();
    if declaration.has_placeholders() {
        report.warn(&format!(
            "`{server}` still has a `{PLACEHOLDER}`: put the value there; for secrets better use `env_pass` (docs/guide/configuration.md, Secrets)"
        ));
    }
    let unset = |name: &&String| process_variable(name).is_none();
    for variable in declaration.env_pass.iter().filter(unset) {
        report.warn(&format!(
            "`{server}` passes `{variable}` on, and it is not set here"
        ));
    }
}

pub(super) fn warn_about_secrets(declaration: &Declaration, report: &Report) {
    for secret in declaration.plaintext_secrets() {
        report.warn(&format!(
            "`{}` of `{}` in {} is a secret in plain text: {}",
            secret.name.escape_debug(),
            declaration.original_name.escape_debug(),
            secret.location,
            secret.suggestion
        ));
    }
}

fn print_file(file: &ConfigFile, origin: FileOrigin, store: &TrustStore, report: &Report) {
    let is_trusted =
        origin != FileOrigin::WorkingFolder || store.is_trusted(file.path(), file.digest());
    let servers = file.declarations().len();
    let path = file.path().display().to_string();
    let fields = JsonFields::with("file", &path)
        .put("servers", servers)
        .put("trusted", is_trusted);
    let trust = match (is_trusted, store.was_trusted_before(file.path())) {
        (true, _) => "",
        (false, true) => " · changed since it was trusted: `warmline trust`",
        (false, false) => " · not trusted yet: `warmline trust`",
    };
    let (ok, servers) = (style::success("ok"), pluralize(servers, "server"));
    let text = format!("{ok}  {path} · {servers}{trust}");
    report.print_entry("check", &fields, &text);
}
