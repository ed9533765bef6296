//! `warmline check`: are the configuration files right? Nothing in them is used.

use std::path::PathBuf;

use warmline::config::{Config, ConfigFile, Origin};
use warmline::trust::TrustStore;

use crate::args;
use crate::problem::{Outcome, Problem};
use crate::report::text::count;
use crate::report::{Fields, Report, style};
use crate::target::folders;

/// Looks at each file; every one that is wrong is told.
pub(super) fn run(typed: &args::Check, report: &Report) -> Outcome<u8> {
    let folders = folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let files: Vec<(PathBuf, Origin)> = match &typed.file {
        Some(file) => vec![(file.clone(), Origin::Given)],
        None => folders.files(),
    };
    if files.is_empty() {
        return Err(Problem::usage("there is no configuration file to look at")
            .hint("`warmline init` writes one; or name a file"));
    }
    let mut exit = 0;
    for (path, origin) in files {
        // One file alone, as if it had been given: whether it is trusted is another question.
        let looked = Config::read(Some(&path), &folders)
            .map_err(Problem::from)
            .and_then(|config| settled(&config, &store).map(|()| config));
        match looked {
            Ok(config) => {
                for file in config.files() {
                    tell(file, origin, &store, report);
                }
            },
            Err(problem) => {
                report.problem(&problem);
                exit = problem.exit();
            },
        }
    }
    Ok(exit)
}

/// Whether what is decided can be decided together.
fn settled(config: &Config, store: &TrustStore) -> Outcome<()> {
    let mut engine = config.engine(store);
    engine.take_process_environment()?;
    engine.settle()?;
    let mut gateway = config.gateway(store);
    gateway.take_process_environment()?;
    gateway.settle()?;
    warmline_gateway::settings::check(&gateway)?;
    for file in config.files() {
        let trusted = file.trusted(store)?;
        for declaration in file.declarations() {
            let mut settings = trusted.settings(declaration)?;
            settings.take_process_environment()?;
            settings.settle()?;
        }
    }
    Ok(())
}

fn tell(file: &ConfigFile, origin: Origin, store: &TrustStore, report: &Report) {
    let is_trusted = origin != Origin::Folder || store.holds(file.path(), file.digest());
    let servers = file.declarations().len();
    if report.is_json() {
        let fields = Fields::new()
            .put("file", file.path().display().to_string())
            .put("servers", servers)
            .put("trusted", is_trusted);
        return report.object("check", &fields);
    }
    let trust = match is_trusted {
        true => "",
        false => " · not trusted yet: `warmline trust`",
    };
    report.data(&format!(
        "{}  {} · {}{trust}",
        style::good("ok"),
        file.path().display(),
        count(servers, "server")
    ));
}
