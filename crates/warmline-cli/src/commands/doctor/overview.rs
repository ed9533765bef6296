//! Every configured server, checked without starting or contacting it.

use warmline_config::trust::TrustStore;
use warmline_config::{Config, ConfigFolders, Declaration, TrustedDeclaration};
use warmline_upstream::{ServerTarget, TransportConfig};

use super::{DoctorReport, Finding, FindingState, checks, settings};
use crate::output::problem::CliResult;
use crate::output::text::pluralize;
use crate::target::{ConnectArgs, folders_and_trust};

/// Files first, then their servers.
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
        let places = std::iter::once(&folders.working)
            .chain(&folders.user)
            .chain([&folders.system]);
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
            match trusted
                .server(declaration)
                .and_then(TrustedDeclaration::to_target)
            {
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
        let mut program = checks::program_finding(stdio);
        if program.state == FindingState::Broken {
            program.question.clone_from(name);
            return program;
        }
    }
    Finding::new(name, FindingState::NotChecked, declaration.summary().target)
}
