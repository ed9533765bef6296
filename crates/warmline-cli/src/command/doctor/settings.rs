//! The settings that count, each with its origin, and variables that nobody reads.

use warmline::config::{Access, AccessRule, Config, Declaration};
use warmline::settings::{Effective, Origin, ServerSettings};
use warmline::trust::TrustStore;
use warmline_gateway::settings::NOBODY_IS_ASKED;

use super::Finding;
use crate::problem::Outcome;
use crate::report::text::{one_line, padded};
use crate::report::{Fields, Report};
use crate::rules;
use crate::target::{Target, folders, records_in};
use crate::unread::{self, Unread};

/// A setting, and the server it is of; none for all servers together.
#[derive(Debug)]
pub(super) struct Row {
    server: Option<String>,
    setting: Effective,
}

/// Everything that is decided about a target.
pub(super) fn of_target(target: &Target) -> Vec<Row> {
    let server = of_server(None, &target.settings, &target.access);
    server.chain(of_engine(target.engine.effective())).collect()
}

/// Everything that is decided about the servers of trusted files, and for all of them together.
pub(super) fn of_all(config: &Config, store: &TrustStore) -> Outcome<Vec<Row>> {
    let mut engine = config.engine(store);
    engine.take_process_environment()?;
    engine.settle()?;
    let mut gateway = config.gateway(store);
    gateway.take_process_environment()?;
    gateway.settle()?;
    let mut rows: Vec<Row> = of_engine(engine.effective()).collect();
    rows.extend(of_engine(gateway.effective()));
    for file in config.files() {
        // What a file that is not trusted decides counts for nothing, and is told elsewhere.
        let Ok(trusted) = file.trusted(store) else {
            continue;
        };
        for declaration in file.declarations() {
            let mut settings = trusted.settings(declaration)?;
            settings.take_process_environment()?;
            settings.settle()?;
            let access = &declaration.access;
            rows.extend(of_server(Some(&declaration.name), &settings, access));
        }
    }
    Ok(rows)
}

/// A gateway that asks nobody who they are is told of.
pub(super) fn asks_nobody(rows: &[Row]) -> Option<Finding> {
    let mut settings = rows.iter().map(|row| &row.setting);
    let auth = settings.find(|one| one.key == "gateway.auth" && one.value == "none")?;
    let says = format!(
        "{NOBODY_IS_ASKED}: `gateway.auth` is `none` ({})",
        auth.origin
    );
    Some(Finding::look("gateway", says).hint(
        "take the line out, and callers show the token of this machine: `warmline url NAME` prints it",
    ))
}

fn of_server(
    name: Option<&str>,
    settings: &ServerSettings,
    access: &Access,
) -> impl Iterator<Item = Row> {
    let server = name.map(str::to_owned);
    let sentences = |rules: &[AccessRule]| {
        let sentences: Vec<String> = rules.iter().map(rules::sentence).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    };
    let (allow, deny) = (sentences(&access.allow), sentences(&access.deny));
    settings.effective().into_iter().map(move |mut setting| {
        let about_callers = match setting.key {
            "allow" => &allow,
            "deny" => &deny,
            _ => &None,
        };
        // Rules about callers say more than the tools that anybody at all may call.
        if let Some(sentences) = about_callers {
            setting.value.clone_from(sentences);
        }
        Row {
            server: server.clone(),
            setting,
        }
    })
}

fn of_engine(settings: Vec<Effective>) -> impl Iterator<Item = Row> {
    let usual = folders().ok().and_then(|folders| folders.state);
    let usual = usual.map(|state| records_in(&state).display().to_string());
    settings.into_iter().map(move |mut setting| {
        // What programs keep in memory that embed the engine, gateways and commands keep there.
        let is_usual = setting.key == "store.path" && setting.origin == Origin::Default;
        if let Some(folder) = usual.as_ref().filter(|_| is_usual) {
            setting.value.clone_from(folder);
        }
        Row {
            server: None,
            setting,
        }
    })
}

/// Variables that sound as if somebody read them, given the servers that are configured.
pub(super) fn strays(servers: &[&Declaration]) -> Vec<Finding> {
    let unread = unread::variables(servers).into_iter();
    unread
        .map(|Unread { says, hint }| Finding::look("settings", says).hint(hint))
        .collect()
}

/// Those that differ from the defaults; all of them to programs, and to whoever wants to know all.
pub(super) fn tell(rows: &[Row], report: &Report) {
    if report.is_json() {
        return rows
            .iter()
            .for_each(|row| report.object("setting", &fields(row)));
    }
    let shown: Vec<&Row> = rows
        .iter()
        .filter(|row| report.is_verbose() || is_decided(&row.setting.origin))
        .collect();
    if shown.is_empty() {
        return;
    }
    let names: Vec<String> = shown.iter().map(|row| name(row)).collect();
    let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let keys = widest(&mut names.iter().map(|name| name.chars().count()));
    let values = widest(&mut shown.iter().map(|row| row.setting.value.chars().count())).min(30);
    report.data("\nsettings");
    for (name, row) in names.iter().zip(shown) {
        report.data(&format!(
            "  {}  {}  {}",
            padded(name, keys),
            padded(&one_line(&row.setting.value), values),
            one_line(&origin(&row.setting.origin))
        ));
    }
}

/// Whether somebody decided so, and not the machine.
fn is_decided(origin: &Origin) -> bool {
    match origin {
        Origin::Builder | Origin::Environment(_) | Origin::File { .. } => true,
        Origin::Machine | Origin::Default => false,
    }
}

fn name(row: &Row) -> String {
    match &row.server {
        Some(server) => format!("{server}: {}", row.setting.key),
        None => row.setting.key.to_owned(),
    }
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Builder => "the command line".to_owned(),
        Origin::Environment(_) | Origin::File { .. } | Origin::Machine | Origin::Default => {
            origin.to_string()
        },
    }
}

fn fields(row: &Row) -> Fields {
    let said = Some(&row.setting.origin).filter(|origin| **origin != Origin::Default);
    let from = said.map(origin);
    Fields::new()
        .put("server", &row.server)
        .put("key", row.setting.key)
        .put("value", &row.setting.value)
        .put("origin", row.setting.origin.word())
        .put("from", from)
}
