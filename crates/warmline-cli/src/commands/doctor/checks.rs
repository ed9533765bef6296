//! Checks that start nothing and contact nothing: of one target, and of every configured server.

use http::header::AUTHORIZATION;
use warmline_config::trust::TrustStore;
use warmline_config::{
    Config, ConfigFolders, Declaration, FileOrigin, PLACEHOLDER, TrustedDeclaration, is_cleartext,
    process_variable,
};
use warmline_upstream::{
    HttpConfig, ServerTarget, StdioConfig, TransportConfig, withheld_variables,
};

use super::{DoctorReport, Finding, FindingState, settings};
use crate::hints::ProgramLookup;
use crate::output::{CliResult, pluralize};
use crate::target::{ConnectArgs, Target, TargetNote, TargetSource, folders_and_trust};

pub(super) fn source_findings(target: &Target) -> Vec<Finding> {
    let mut findings = match &target.source {
        TargetSource::CommandLine | TargetSource::EnclosingGateway => {
            let message = format!("command line: {}", target.display_address());
            vec![Finding::ok("config", message)]
        },
        TargetSource::Configured {
            location, origin, ..
        } => {
            let trust = match *origin == FileOrigin::WorkingFolder {
                true => "trusted as it is, by `warmline trust` or `add --here`".to_owned(),
                false => format!("not needed for a {} file", origin.as_str()),
            };
            vec![
                Finding::ok("config", format!("{location}, no unknown keys")),
                Finding::ok("trust", trust),
            ]
        },
    };
    findings.extend(target.notes.iter().map(|note| match note {
        TargetNote::Origin(text) => Finding::ok("config", text.clone()),
        TargetNote::Warning(text) => Finding::warning("config", text.clone()),
    }));
    findings
}

pub(super) fn offline_findings(server: &ServerTarget) -> Vec<Finding> {
    let unseen = |question, message: String| {
        Finding::new(question, FindingState::NotChecked, message + " (--offline)")
    };
    match &server.transport {
        TransportConfig::Stdio(stdio) => vec![
            program_finding(stdio),
            unseen("start", "it was not started".to_owned()),
        ],
        TransportConfig::Http(http) => {
            let host = http.url.host_str().unwrap_or_default();
            vec![unseen("connect", format!("{host} was not contacted"))]
        },
    }
}

pub(super) fn program_finding(stdio: &StdioConfig) -> Finding {
    match ProgramLookup::find(stdio) {
        ProgramLookup::Found(path) => Finding::ok("program", path),
        ProgramLookup::Unknown(why) => Finding::warning("program", why),
        ProgramLookup::Missing(why) => Finding::new("program", FindingState::Broken, why)
            .with_hint(
                "install it, or give its full path as `command`; the PATH of the login shell was \
                 not searched",
            ),
    }
}

pub(super) fn connect_finding(http: &HttpConfig) -> Finding {
    let host = http.url.host_str().unwrap_or_default();
    let port = http.url.port_or_known_default().unwrap_or_default();
    Finding::ok("connect", format!("{host} port {port} answered"))
}

/// Variables that the program does not get. Names that look like secrets are listed, or all of them.
pub(super) fn environment_findings(server: &ServerTarget, lists_all: bool) -> Vec<Finding> {
    let TransportConfig::Stdio(stdio) = &server.transport else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if stdio.args.iter().any(|arg| arg == PLACEHOLDER) {
        let message = format!("`{PLACEHOLDER}` stands where `warmline init` left a secret out");
        findings.push(Finding::warning("arguments", message).with_hint("put the value there"));
    }
    let unset = unset_variable_finding(stdio);
    findings.push(unset.unwrap_or_else(|| withheld_variable_finding(server, stdio, lists_all)));
    findings
}

fn unset_variable_finding(stdio: &StdioConfig) -> Option<Finding> {
    let is_unset = |name: &&str| !stdio.env.contains_key(*name) && process_variable(name).is_none();
    let names = stdio.env_pass.iter().map(String::as_str);
    let unset: Vec<&str> = names.filter(is_unset).collect();
    let first = unset.first()?;
    let message = format!("`env_pass` names {}, which is not set", unset.join(", "));
    let hint = format!("set {first} where Warmline is started, or remove it from `env_pass`");
    Some(Finding::warning("environment", message).with_hint(hint))
}

fn withheld_variable_finding(
    server: &ServerTarget,
    stdio: &StdioConfig,
    lists_all: bool,
) -> Finding {
    let withheld = withheld_variables(stdio);
    let mut names: Vec<&str> = withheld.iter().map(String::as_str).collect();
    let wanted = names.iter().copied();
    let wanted = wanted.filter(|name| matches_server_name(name, server));
    let wanted: Vec<&str> = wanted.collect();
    if let [first, ..] = wanted.as_slice() {
        let message = format!(
            "the program does not get {}, which may be meant for it",
            wanted.join(", ")
        );
        return Finding::warning("environment", message).with_hint(format!(
            "pass it on with `--env-pass {first}`, or `env_pass = [\"{first}\"]`"
        ));
    }
    let count = match names.len() {
        0 => "every variable is passed on".to_owned(),
        1 => "1 variable is not passed on".to_owned(),
        many => format!("{many} variables are not passed on"),
    };
    names.sort_unstable();
    if !lists_all {
        names.retain(|name| looks_secret(name));
    }
    let message = match (names.as_slice(), lists_all) {
        ([], _) => count,
        (all, true) => format!("{count}: {}", all.join(", ")),
        ([one], false) => format!("{count}; {one} looks like a secret"),
        (many, false) => format!("{count}; {} look like secrets", many.join(", ")),
    };
    Finding::ok("environment", message)
}

/// Whether a secret seems to be meant for this server: they share a word.
fn matches_server_name(variable: &str, server: &ServerTarget) -> bool {
    let lower = variable.to_ascii_lowercase();
    let mut words = server.name.split(['-', '.', ':', '_']);
    looks_secret(variable)
        && words.any(|word| {
            let is_telling = word.len() >= 4 && !COMMON_WORDS.contains(&word);
            is_telling && lower.split('_').any(|part| part == word)
        })
}

fn looks_secret(variable: &str) -> bool {
    let variable = variable.to_ascii_uppercase();
    let mut parts = variable.split('_');
    parts.any(|part| SECRET_WORDS.split(' ').any(|word| word == part))
}

const SECRET_WORDS: &str = "TOKEN KEY APIKEY SECRET PASSWORD PASSWD PAT CREDENTIALS DSN";

/// Words of server names that do not identify a server.
const COMMON_WORDS: &[&str] = &["server", "mcp", "stdio", "http"];

pub(super) fn sent_value_findings(target: &Target) -> Vec<Finding> {
    let list = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("{name}: …")).collect();
        names.join(", ")
    };
    match &target.server.transport {
        TransportConfig::Stdio(stdio) => {
            let mut names: Vec<&str> = stdio.env.keys().map(String::as_str).collect();
            names.extend(stdio.env_pass.iter().map(String::as_str));
            names.sort_unstable();
            names.dedup();
            let message = match names.as_slice() {
                [] => "the default variables (PATH, HOME, LANG …) · no secrets".to_owned(),
                names => format!("the default variables, and {}", list(names)),
            };
            vec![Finding::ok("would send", message)]
        },
        TransportConfig::Http(http) => {
            let headers = http.headers.iter();
            let names: Vec<&str> = headers.map(|(name, _)| name.as_str()).collect();
            let message = match names.as_slice() {
                [] => "no headers of yours · no secrets".to_owned(),
                names => list(names),
            };
            let mut findings = vec![Finding::ok("would send", message)];
            let has_token = http.headers.iter().any(|(name, _)| name == AUTHORIZATION);
            if has_token && is_cleartext(&http.url) {
                let message = "the token is sent in cleartext: the URL says `http`";
                let finding = Finding::warning("would send", message);
                findings.push(finding.with_hint("use the `https` URL of the server"));
            }
            findings
        },
    }
}

/// Every configured server: files first, then their servers.
pub(super) fn configured_servers(connect: &ConnectArgs) -> CliResult<DoctorReport> {
    let (folders, store) = folders_and_trust()?;
    let mut report = DoctorReport::default();
    match Config::read_skipping_untrusted(connect.config.as_deref(), &folders, &store) {
        Err(error) => report
            .findings
            .push(Finding::from_problem("config", &error.into())),
        Ok(config) => {
            report.findings = config_file_findings(&config, &folders, &store);
            let servers: Vec<&Declaration> = config.declarations().map(|(_, one)| one).collect();
            let unused = settings::unused_variable_findings(&servers);
            report.findings.extend(unused);
            match settings::all_settings(&config, &store) {
                Ok(rows) => {
                    report.findings.extend(settings::no_auth_finding(&rows));
                    report.settings = rows;
                },
                Err(problem) => {
                    let finding = Finding::from_problem("settings", &problem);
                    report.findings.push(finding);
                },
            }
        },
    }
    Ok(report)
}

fn config_file_findings(
    config: &Config,
    folders: &ConfigFolders,
    store: &TrustStore,
) -> Vec<Finding> {
    let skipped = config.skipped_files().iter();
    let skipped =
        skipped.map(|skipped| Finding::from_problem("config", &skipped.error.clone().into()));
    let mut findings: Vec<Finding> = skipped.collect();
    if config.files().is_empty() && findings.is_empty() {
        let places = std::iter::once(&folders.working).chain(&folders.user);
        let places = places.chain([&folders.system]);
        let places: Vec<String> = places.map(|place| place.display().to_string()).collect();
        let message = format!("no configuration file in {}", places.join(", "));
        findings.push(Finding::warning("config", message).with_hint(
            "give a target: `warmline doctor URL`, or `warmline doctor -- COMMAND`; `warmline add \
             NAME URL` or `warmline init` writes a file",
        ));
    }
    for file in config.files() {
        let servers = pluralize(file.declarations().len(), "server");
        let message = format!("{}: {servers}, no unknown keys", file.path().display());
        findings.push(Finding::ok("config", message));
        let trusted = match file.require_trusted(store) {
            Ok(trusted) => trusted,
            Err(error) => {
                findings.push(Finding::from_problem("trust", &error.into()));
                continue;
            },
        };
        findings.extend(file.declarations().iter().map(|declaration| {
            let name = &declaration.name;
            let server = trusted.server(declaration);
            match server.and_then(TrustedDeclaration::to_target) {
                Err(_) if declaration.is_disabled() => {
                    Finding::new(name, FindingState::Disabled, "disabled in its file")
                },
                Ok(configured) => server_finding(declaration, &configured.target),
                Err(error) => Finding::from_problem(name, &error.into()),
            }
        }));
    }
    findings
}

fn server_finding(declaration: &Declaration, server: &ServerTarget) -> Finding {
    let name = &declaration.name;
    if let TransportConfig::Stdio(stdio) = &server.transport {
        let mut program = program_finding(stdio);
        if program.state == FindingState::Broken {
            program.question.clone_from(name);
            return program;
        }
    }
    Finding::new(name, FindingState::NotChecked, declaration.summary().target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_speaks_of_a_server_by_a_word_of_its_name() {
        let server = |name: &str| ServerTarget::stdio(name, "x", [""; 0]);
        #[rustfmt::skip]
        let table = [
            ("GITHUB_TOKEN", "github",        true),
            ("GITHUB_TOKEN", "github-server", true),
            ("GITHUB_TOKEN", "gitlab",        false),
            ("GITHUB_URL",   "github",        false),
            ("SERVER_KEY",   "some-server",   false),
        ];
        for (variable, name, speaks) in table {
            assert_eq!(
                matches_server_name(variable, &server(name)),
                speaks,
                "{variable} {name}"
            );
        }
    }
}
