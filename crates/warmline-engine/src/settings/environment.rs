//! The environment as a source of settings: Warmline's names, and those of other programs.

use std::path::PathBuf;

use warmline_core::error::code::Code;

use super::value::RawSettingValue;
use super::{ConfigError, Setting, SettingValue, VariableLookup};
use warmline_upstream::environment::{NotUnicode, variable_text};

/// A variable of this process, if it is set and UTF-8. Settings use [`try_process_variable`].
pub fn process_variable(name: &str) -> Option<String> {
    try_process_variable(name).ok().flatten()
}

/// A variable of this process, if it is set.
///
/// # Errors
/// `config-bad-value`, where it is not UTF-8.
pub fn try_process_variable(name: &str) -> Result<Option<String>, ConfigError> {
    variable_text(name).map_err(|NotUnicode| {
        // Without its value, which may be a secret.
        ConfigError::new(
            Code::ConfigBadValue,
            format!("the variable `{name}` is no text"),
        )
        .with_cause("it is set to bytes that are not UTF-8")
        .with_hint(format!("write `{name}` in UTF-8, or unset it"))
    })
}

/// A source of variables: this process, or a function in tests.
pub trait VariableSource {
    /// The text of a variable, if it is set.
    ///
    /// # Errors
    /// `config-bad-value` names it, where it is not UTF-8.
    fn var(&self, name: &str) -> Result<Option<String>, ConfigError>;
}

impl<F: Fn(&str) -> Option<String>> VariableSource for F {
    fn var(&self, name: &str) -> Result<Option<String>, ConfigError> {
        Ok(self(name))
    }
}

/// The variables of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessVariables;

impl VariableSource for ProcessVariables {
    fn var(&self, name: &str) -> Result<Option<String>, ConfigError> {
        try_process_variable(name)
    }
}

/// The first path in a variable of this process.
pub fn first_process_path(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os(name)?;
    std::env::split_paths(&paths).next()
}

/// The run that the parent process named.
///
/// # Errors
/// As [`try_process_variable`].
pub fn run_from_env() -> Result<Option<String>, ConfigError> {
    Ok(try_process_variable(RUN_VARIABLE)?.filter(|name| !name.is_empty()))
}

/// The value of a setting in the environment, and its variable. Warmline's own name comes first.
pub(super) fn value_from_environment<T>(
    setting: &Setting<T>,
    lookup: VariableLookup<'_>,
) -> Result<Option<(SettingValue, String)>, ConfigError> {
    let own = setting.variable();
    if let Some(text) = lookup.var(&own)? {
        return parse_variable(setting, &own, &RawSettingValue::Variable(&text))
            .map(|value| Some((value, own)));
    }
    let Some(other) = setting.foreign_variable else {
        return Ok(None);
    };
    match lookup.var(other)? {
        None => Ok(None),
        Some(text) => parse_variable(setting, other, &RawSettingValue::ForeignVariable(&text))
            .map(|value| Some((value, other.to_owned()))),
    }
}

fn parse_variable<T>(
    setting: &Setting<T>,
    variable: &str,
    said: &RawSettingValue<'_>,
) -> Result<SettingValue, ConfigError> {
    setting.kind.parse(said).map_err(|wrong| {
        let why = format!("it sets `{}`: {}", setting.key, setting.help);
        let error = wrong.into_error(&format!("the variable `{variable}`"));
        error.with_cause(why)
    })
}

/// The prefix of our variables.
pub const VARIABLE_PREFIX: &str = "WARMLINE_";

/// Variables of older programs that name no server. They are never read.
pub const RETIRED_VARIABLES: &[&str] = &["GITHUB_PAT", "MCP_USE_SESSION_MGMT"];

/// The name of the run that this process belongs to.
pub const RUN_VARIABLE: &str = "WARMLINE_RUN";
