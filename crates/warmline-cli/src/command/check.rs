//! `warmline check`: are the configuration files right? Nothing in them is used.

use std::path::{Path, PathBuf};

use warmline::config::{
    Config, ConfigError, ConfigFile, Declaration, Folders, NearMiss, Origin, PLACEHOLDER,
    PlainSecret, process_variable,
};
use warmline::settings::{Effective, Origin as Decided, ProcessVariables};
use warmline::trust::TrustStore;
use warmline_gateway::settings::{self, Accesses};

use crate::args;
use crate::problem::{Outcome, Problem};
use crate::report::text::{count, padded};
use crate::report::{Fields, Report, style};
use crate::rules;
use crate::target::folders;
use crate::unread::{self, Unread};

/// Looks at each file; every one that is wrong is told.
pub(super) fn run(typed: &args::Check, report: &Report) -> Outcome<u8> {
    let folders = folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let files: Vec<(PathBuf, Origin)> = match typed.file.as_ref().or(typed.config.as_ref()) {
        Some(file) => vec![(file.clone(), Origin::Given)],
        None => folders.files(),
    };
    if files.is_empty() {
        return Err(Problem::usage("there is no configuration file to look at")
            .hint("`warmline init` writes one; or name a file"));
    }
    let mut exit = 0;
    let mut servers: Vec<Declaration> = Vec::new();
    for (path, origin) in files {
        match looked_at(&path, &folders, &store) {
            Ok((config, understood)) => {
                for file in config.files() {
                    tell(file, origin, &store, report);
                    caution(file, &store, report);
                    servers.extend(file.declarations().iter().cloned());
                }
                understood.tell(report);
            },
            Err(problems) => {
                for problem in problems {
                    report.problem(&problem);
                    exit = problem.exit();
                }
            },
        }
    }
    let servers: Vec<&Declaration> = servers.iter().collect();
    for Unread { says, hint } in unread::variables(&servers) {
        report.caution(&format!("{says}: {hint}"));
    }
    Ok(exit)
}

/// One file alone, as if it had been given: whether it is trusted is another question. Everything
/// that is wrong with it is told at once, as far as it can be told apart.
fn looked_at(
    path: &Path,
    folders: &Folders,
    store: &TrustStore,
) -> Result<(Config, Understood), Vec<Problem>> {
    let (mut faults, rest) = ConfigFile::faults_and_rest(path);
    if !faults.is_empty() {
        let rest = rest.iter().flat_map(|file| {
            let servers = file.declarations().iter();
            servers.filter_map(|server| usable(file, server, store).err())
        });
        faults.extend(rest);
        faults.sort_by_key(|fault| fault.place.as_ref().and_then(|place| place.at));
        return Err(faults.into_iter().map(Problem::from).collect());
    }
    let config = Config::read(Some(path), folders).map_err(|error| vec![error.into()])?;
    let understood = settled(&config, store)?;
    Ok((config, understood))
}

/// What a file decides beside its servers, as it was understood.
struct Understood {
    settings: Vec<Effective>,
    rules: Vec<(String, String)>,
}

/// Whether what is decided can be decided together, and what it is.
fn settled(config: &Config, store: &TrustStore) -> Result<Understood, Vec<Problem>> {
    let mut problems: Vec<Problem> = Vec::new();
    let (mut engine, mut gateway) = (config.engine(store), config.gateway(store));
    let decided = engine.take_process_environment();
    problems.extend(
        decided
            .and_then(|()| engine.settle())
            .err()
            .map(Problem::from),
    );
    let decided = gateway.take_process_environment();
    problems.extend(
        decided
            .and_then(|()| gateway.settle())
            .err()
            .map(Problem::from),
    );
    let (mut accesses, mut said) = (Accesses::new(), Vec::new());
    for file in config.files() {
        for declaration in file.declarations() {
            let looked = usable(file, declaration, store);
            problems.extend(looked.err().map(Problem::from));
            let access = &declaration.access;
            accesses.insert(declaration.name.clone(), access.clone());
            let lists = ["allow", "deny"].iter().zip([&access.allow, &access.deny]);
            let all = lists.flat_map(|(word, list)| list.iter().map(move |rule| (word, rule)));
            said.extend(all.map(|(word, rule)| {
                let sentence = format!("{word} {}", rules::sentence(rule));
                (declaration.name.clone(), sentence)
            }));
        }
    }
    let together = settings::check(&gateway, &accesses);
    let together = together.and_then(|()| settings::check_files(&gateway));
    problems.extend(together.err().map(Problem::from));
    if !problems.is_empty() {
        return Err(problems);
    }
    let all = gateway.effective().into_iter().chain(engine.effective());
    let decided = all.filter(|one| matches!(one.origin, Decided::File { .. }));
    Ok(Understood {
        settings: decided.collect(),
        rules: said,
    })
}

/// Whether a server can be used as far as its file and the environment say.
fn usable(
    file: &ConfigFile,
    declaration: &Declaration,
    store: &TrustStore,
) -> Result<(), ConfigError> {
    let trusted = file.trusted(store)?;
    let mut settings = trusted.settings(declaration)?;
    settings.take_process_environment()?;
    settings.settle()?;
    // A variable that is named and not there is told here, and not when it is too late.
    trusted.served(declaration, &ProcessVariables, &None)?;
    Ok(())
}

impl Understood {
    fn tell(&self, report: &Report) {
        if report.is_json() {
            return self.tell_programs(report);
        }
        let settings = self.settings.iter();
        let settings = settings.map(|one| (one.key.to_owned(), &one.value));
        let rules = self.rules.iter();
        let rules = rules.map(|(server, sentence)| (format!("servers.{server}"), sentence));
        let lines: Vec<(String, &String)> = settings.chain(rules).collect();
        let widest = lines.iter().map(|(key, _)| key.chars().count()).max();
        for (key, said) in lines {
            let key = padded(&key, widest.unwrap_or_default());
            report.data(&format!("  {}  {said}", style::name(&key)));
        }
    }

    fn tell_programs(&self, report: &Report) {
        for one in &self.settings {
            let fields = Fields::new().put("key", one.key).put("value", &one.value);
            report.object("setting", &fields);
        }
        for (server, sentence) in &self.rules {
            let fields = Fields::new().put("server", server).put("rule", sentence);
            report.object("rule", &fields);
        }
    }
}

/// Keys that are probably misspelt, secrets that everybody can read, and tokens that are not here.
/// The keys may be another program's own, and the tokens elsewhere: nothing is wrong for sure.
fn caution(file: &ConfigFile, store: &TrustStore, report: &Report) {
    for NearMiss {
        server, key, meant, ..
    } in file.near_misses()
    {
        report.caution(&format!(
            "`{}` of `{}` in {} says nothing here: did you mean `{meant}`?",
            key.escape_debug(),
            server.escape_debug(),
            file.path().display()
        ));
    }
    for declaration in file.declarations() {
        let unset = file.trusted(store).ok();
        let unset = unset.and_then(|file| file.unset(declaration, &ProcessVariables).ok());
        for variable in unset.into_iter().flatten() {
            report.caution(&format!(
                "`{}` has no token to show here: `{variable}` is not set",
                declaration.written.escape_debug()
            ));
        }
        caution_of_gaps(declaration, report);
        caution_of_secrets(declaration, report);
    }
}

/// What is still to be filled in, and what the program will miss.
fn caution_of_gaps(declaration: &Declaration, report: &Report) {
    let server = declaration.written.escape_debug();
    if declaration.has_placeholders() {
        report.caution(&format!(
            "`{server}` has a `{PLACEHOLDER}` still: put in what belongs there; a secret is better passed on, or filled in by a shell (docs/CONFIG.md, Secrets)"
        ));
    }
    let unset = |name: &&String| process_variable(name).is_none();
    for variable in declaration.passed_on().iter().filter(unset) {
        report.caution(&format!(
            "`{server}` passes `{variable}` on, and it is not set here"
        ));
    }
}

/// Secrets that everybody can read who reads the file.
pub(super) fn caution_of_secrets(declaration: &Declaration, report: &Report) {
    for PlainSecret {
        name,
        place,
        instead,
        ..
    } in declaration.plain_secrets()
    {
        report.caution(&format!(
            "`{}` of `{}` in {place} is a secret in plain text: {instead}",
            name.escape_debug(),
            declaration.written.escape_debug(),
        ));
    }
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
    let trust = match (is_trusted, store.knows(file.path())) {
        (true, _) => "",
        (false, true) => " · changed since it was trusted: `warmline trust`",
        (false, false) => " · not trusted yet: `warmline trust`",
    };
    report.data(&format!(
        "{}  {} · {}{trust}",
        style::good("ok"),
        file.path().display(),
        count(servers, "server")
    ));
}
