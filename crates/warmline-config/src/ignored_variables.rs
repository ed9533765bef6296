//! Environment variables that look like settings and are none.

use warmline_core::tool_names::closest_match;
use warmline_engine::settings::environment::{RETIRED_VARIABLES, RUN_VARIABLE, VARIABLE_PREFIX};
use warmline_engine::settings::{EngineSettings, ServerSettings, Setting, SettingsGroup as _};

use crate::GatewaySettings;

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
