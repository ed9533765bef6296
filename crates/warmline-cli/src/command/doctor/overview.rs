//! Every configured server, looked at without starting or contacting it.

use warmline::config::{Config, ConfigFile, Declaration, Folders};
use warmline::settings::ProcessVariables;
use warmline::trust::TrustStore;

use super::{Examined, Finding, State, program, settings};
use crate::args::Connect;
use crate::problem::{Outcome, Problem};
use crate::report::text::count;
use crate::target::folders;

/// Files first, then their servers.
pub(super) fn look(connect: &Connect) -> Outcome<Examined> {
    let folders = folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let config = match Config::read_to_use(connect.config.as_deref(), &folders, &store) {
        Ok(config) => config,
        Err(error) => {
            let broken = Finding::of_problem("config", Problem::from(error).parts());
            return Ok(Examined {
                findings: vec![broken],
                ..Examined::default()
            });
        },
    };
    let mut findings = files(&config, &folders, &store);
    let servers: Vec<&Declaration> = config.declarations().map(|(_, one)| one).collect();
    findings.extend(settings::strays(&servers));
    let settings = match settings::of_all(&config, &store) {
        Ok(rows) => {
            findings.extend(settings::asks_nobody(&rows));
            rows
        },
        Err(problem) => {
            findings.push(Finding::of_problem("settings", problem.parts()));
            Vec::new()
        },
    };
    Ok(Examined { findings, settings })
}

fn files(config: &Config, folders: &Folders, store: &TrustStore) -> Vec<Finding> {
    let broken = config.left_out().iter().map(|left| left.error.clone());
    let mut findings: Vec<Finding> = broken
        .map(|error| Finding::of_problem("config", Problem::from(error).parts()))
        .collect();
    if config.files().is_empty() && findings.is_empty() {
        let places: Vec<String> = std::iter::once(&folders.working)
            .chain(&folders.user)
            .chain([&folders.system])
            .map(|folder| folder.display().to_string())
            .collect();
        return vec![
            Finding::look(
                "config",
                format!("no configuration file in {}", places.join(", ")),
            )
            .hint(
                "name a target: `warmline doctor URL`, or `warmline doctor -- COMMAND`; \
                 `warmline add NAME URL` or `warmline init` writes a file",
            ),
        ];
    }
    for file in config.files() {
        findings.push(describe(file));
        match file.trusted(store) {
            Ok(trusted) => findings.extend(file.declarations().iter().map(|declaration| {
                match trusted.server(declaration, &ProcessVariables) {
                    // Whoever switched it off knows that it cannot be used.
                    Err(_) if declaration.is_off() => Finding::off(&declaration.name),
                    Ok(configured) => server(declaration, &configured.server),
                    Err(error) => {
                        Finding::of_problem(&declaration.name, Problem::from(error).parts())
                    },
                }
            })),
            Err(error) => findings.push(Finding::of_problem("trust", Problem::from(error).parts())),
        }
    }
    findings
}

fn describe(file: &ConfigFile) -> Finding {
    let servers = count(file.declarations().len(), "server");
    Finding::ok(
        "config",
        format!("{}: {servers}, no unknown keys", file.path().display()),
    )
}

fn server(declaration: &Declaration, server: &warmline::upstream::Server) -> Finding {
    let broken = program::look_without_starting(server)
        .into_iter()
        .find(|finding| finding.state == State::Broken);
    match broken {
        Some(finding) => Finding {
            question: declaration.name.clone(),
            ..finding
        },
        None => Finding::unseen(&declaration.name, declaration.outline().reaches),
    }
}
