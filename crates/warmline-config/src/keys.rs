//! The names that are known: keys of `warmline.toml` that are no settings, and environment variables. Settings
//! are rows of the tables in [`settings`](warmline_engine::settings).

use warmline_core::tool_names::closest_match;
use warmline_engine::settings::environment::{RETIRED_VARIABLES, RUN_VARIABLE, VARIABLE_PREFIX};
use warmline_engine::settings::{EngineSettings, ServerSettings, Setting, SettingsGroup};

use crate::GatewaySettings;

/// Keys of `[servers.NAME]` that say what the server is.
pub(crate) const SERVER: &[&str] = &[
    "auth_env",
    "ca_file",
    "command",
    "credential",
    "cwd",
    "env",
    "env_pass",
    "folder",
    "headers",
    "id",
    "kind",
    "labels",
    "slug",
    "tools",
    "url",
    "url_env",
];

/// Keys of `[servers.NAME.tools.TOOL]`.
pub(crate) const TOOL: &[&str] = &[
    "call_idle_timeout",
    "call_timeout",
    "repeatable",
    "session_per",
];

/// Keys of `credential` that name its source; one of them.
pub(crate) const CREDENTIAL: &[&str] = &["command", "env", "file", "header"];

/// Keys of `credential` that say how it is sent.
pub(crate) const CREDENTIAL_HEADER: &[&str] = &["as", "form"];

/// Keys of a rule in `allow` and `deny`.
pub(crate) const RULE: &[&str] = &["claim", "has", "identity", "tools"];

/// The table that declares servers.
pub(crate) const SERVERS_TABLE: &str = "servers";

/// Every key of `[servers.NAME]`.
pub(crate) fn server_keys() -> impl Iterator<Item = &'static str> {
    let keys = SERVER.iter().copied();
    keys.chain(top_level_names::<ServerSettings>())
}

/// Every table of a file.
pub(crate) fn top_level_keys() -> impl Iterator<Item = &'static str> {
    std::iter::once(SERVERS_TABLE)
        .chain(top_level_names::<EngineSettings>())
        .chain(top_level_names::<GatewaySettings>())
}

/// The names of a group's settings up to the first dot.
pub(crate) fn top_level_names<T: SettingsGroup>() -> impl Iterator<Item = &'static str> {
    T::TABLE.iter().map(|setting| head(setting.key))
}

/// The keys of a table of settings, and the tables within it.
pub(crate) fn keys_within<T: SettingsGroup>(table: &str) -> impl Iterator<Item = &'static str> {
    T::TABLE.iter().filter_map(move |setting| {
        let rest = setting.key.strip_prefix(table)?.strip_prefix('.')?;
        Some(head(rest))
    })
}

fn head(key: &'static str) -> &'static str {
    key.split_once('.').map_or(key, |(head, _)| head)
}

/// A variable that looks like a setting, or was one of another program, and is never read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredVariable {
    /// Its name.
    pub variable: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// Variables of this process that are never read although they look like settings: misspelt names
/// that begin with `WARMLINE_`, and [`RETIRED_VARIABLES`].
pub fn ignored_variables() -> Vec<IgnoredVariable> {
    find_ignored_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

pub(crate) fn find_ignored_variables(names: impl Iterator<Item = String>) -> Vec<IgnoredVariable> {
    let server = ServerSettings::TABLE.iter().map(Setting::variable);
    let engine = EngineSettings::TABLE.iter().map(Setting::variable);
    let gateway = GatewaySettings::TABLE.iter().map(Setting::variable);
    let others = NON_SETTING_VARIABLES.iter().map(|name| (*name).to_owned());
    let known: Vec<String> = server.chain(engine).chain(gateway).chain(others).collect();
    let known = || {
        known
            .iter()
            .filter_map(|name| name.strip_prefix(VARIABLE_PREFIX))
    };
    let ignored = names.filter_map(|variable| {
        let suggestion = match variable.strip_prefix(VARIABLE_PREFIX) {
            Some(own) if known().any(|name| name == own) => return None,
            Some(own) => closest_match(own, known()),
            None if RETIRED_VARIABLES.contains(&variable.as_str()) => None,
            None => return None,
        };
        let suggestion = suggestion.map(|name| format!("{VARIABLE_PREFIX}{name}"));
        Some(IgnoredVariable {
            variable,
            suggestion,
        })
    });
    let mut ignored: Vec<IgnoredVariable> = ignored.collect();
    ignored.sort_by(|one, other| one.variable.cmp(&other.variable));
    ignored
}

/// Variables of ours that are no settings.
const NON_SETTING_VARIABLES: &[&str] = &[
    "WARMLINE_LOG",
    "WARMLINE_SERVERS",
    "WARMLINE_TOKEN",
    "WARMLINE_URL",
    RUN_VARIABLE,
];
