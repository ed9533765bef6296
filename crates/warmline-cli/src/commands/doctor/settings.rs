//! The effective settings with their origins, and variables that nothing reads.

use warmline_config::trust::TrustStore;
use warmline_config::{AccessRule, Config, Declaration, DeclaredAccess};
use warmline_engine::settings::{
    EffectiveSetting, ServerSettings, SettingOrigin, SettingsGroup as _,
};
use warmline_gateway::options::NO_AUTH_SUMMARY;

use super::Finding;
use crate::backend::tools;
use crate::hints::unused_variables;
use crate::output::{CliResult, JsonFields, Report, one_line, pad};
use crate::target::{Target, process_folders, records_folder};

#[derive(Debug)]
pub(super) struct SettingRow {
    server: Option<String>,
    setting: EffectiveSetting,
}

pub(super) fn target_settings(target: &Target) -> Vec<SettingRow> {
    let mut rows = server_settings(None, &target.settings, &target.access);
    rows.extend(engine_settings(target.engine.effective_settings()));
    rows
}

pub(super) fn all_settings(config: &Config, store: &TrustStore) -> CliResult<Vec<SettingRow>> {
    let mut engine = config.engine_settings(store);
    engine.apply_process_environment()?;
    engine.normalize()?;
    let mut gateway = config.gateway_settings(store);
    gateway.apply_process_environment()?;
    gateway.normalize()?;
    let mut rows: Vec<SettingRow> = engine_settings(engine.effective_settings()).collect();
    rows.extend(engine_settings(gateway.effective_settings()));
    for file in config.files() {
        // Untrusted files decide nothing; another finding reports them.
        let Ok(trusted) = file.require_trusted(store) else {
            continue;
        };
        for declaration in file.declarations() {
            let mut settings = trusted.server(declaration)?.settings();
            settings.apply_process_environment()?;
            settings.normalize()?;
            let access = &declaration.access;
            rows.extend(server_settings(Some(&declaration.name), &settings, access));
        }
    }
    Ok(rows)
}

pub(super) fn no_auth_finding(rows: &[SettingRow]) -> Option<Finding> {
    let mut settings = rows.iter().map(|row| &row.setting);
    let auth = settings.find(|one| one.key == "gateway.auth" && one.value == "none")?;
    let message = format!(
        "{NO_AUTH_SUMMARY}: `gateway.auth` is `none` ({})",
        auth.origin
    );
    Some(Finding::warning("gateway", message).with_hint(
        "remove the setting, and callers need the token of this machine: `warmline url NAME` prints it",
    ))
}

fn server_settings(
    name: Option<&str>,
    settings: &ServerSettings,
    access: &DeclaredAccess,
) -> Vec<SettingRow> {
    let row = |mut setting: EffectiveSetting| {
        // Access rules say more than the tools that everybody may call.
        let rules: &[AccessRule] = match setting.key {
            "allow" => &access.allow,
            "deny" => &access.deny,
            _ => &[],
        };
        let sentences: Vec<String> = rules.iter().map(tools::rule_text).collect();
        if !sentences.is_empty() {
            setting.value = sentences.join("; ");
        }
        SettingRow {
            server: name.map(str::to_owned),
            setting,
        }
    };
    settings.effective_settings().into_iter().map(row).collect()
}

fn engine_settings(settings: Vec<EffectiveSetting>) -> impl Iterator<Item = SettingRow> {
    let state = process_folders().ok().and_then(|folders| folders.state);
    let records = state.map(|state| records_folder(&state).display().to_string());
    settings.into_iter().map(move |mut setting| {
        // Embedded engines keep records in memory by default; gateways and commands in this folder.
        let is_default = setting.key == "store.path" && setting.origin == SettingOrigin::Default;
        if let Some(folder) = records.as_ref().filter(|_| is_default) {
            setting.value.clone_from(folder);
        }
        SettingRow {
            server: None,
            setting,
        }
    })
}

pub(super) fn unused_variable_findings(servers: &[&Declaration]) -> Vec<Finding> {
    let unused = unused_variables(servers).into_iter();
    unused
        .map(|(message, hint)| Finding::warning("settings", message).with_hint(hint))
        .collect()
}

/// Prints settings that differ from the defaults; all of them with `--json` or `--verbose`.
pub(super) fn print_settings(rows: &[SettingRow], report: &Report) {
    if report.is_json() {
        for SettingRow { server, setting } in rows {
            let origin = &setting.origin;
            let is_explicit = *origin != SettingOrigin::Default;
            let fields = JsonFields::with("server", server)
                .put("key", setting.key)
                .put("value", &setting.value)
                .put("origin", origin.as_str())
                .put("from", is_explicit.then(|| origin_text(origin)));
            report.print_object("setting", &fields);
        }
        return;
    }
    let is_shown = |origin: &SettingOrigin| match origin {
        SettingOrigin::Builder | SettingOrigin::Environment(_) | SettingOrigin::File { .. } => true,
        SettingOrigin::MachineLimit | SettingOrigin::Default => report.is_verbose(),
    };
    let rows = rows.iter().filter(|row| is_shown(&row.setting.origin));
    let rows = rows.map(|SettingRow { server, setting }| {
        let server = server.as_ref().map(|server| format!("{server}: "));
        let key = format!("{}{}", server.unwrap_or_default(), setting.key);
        let origin = one_line(&origin_text(&setting.origin));
        (key, one_line(&setting.value), origin)
    });
    let rows: Vec<(String, String, String)> = rows.collect();
    let keys = rows.iter().map(|(key, ..)| key.chars().count()).max();
    let values = rows.iter().map(|(_, value, _)| value.chars().count()).max();
    let (Some(keys), Some(values)) = (keys, values) else {
        return;
    };
    report.print("\nsettings");
    for (key, value, origin) in rows {
        let (key, value) = (pad(&key, keys), pad(&value, values.min(30)));
        report.print(&format!("  {key}  {value}  {origin}"));
    }
}

fn origin_text(origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Builder => "the command line".to_owned(),
        SettingOrigin::Environment(_)
        | SettingOrigin::File { .. }
        | SettingOrigin::MachineLimit
        | SettingOrigin::Default => origin.to_string(),
    }
}
