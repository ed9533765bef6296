//! Settings: each is declared once, and each value keeps its origin.
//!
//! Sources in order of precedence: builder or command line, environment, file, default. The
//! environment is read only on request. A row of a table holds the name of a setting, its kind, its
//! help and the field that it fills; the default is that of the field.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use url::Url;

pub mod config_error;
mod engine;
pub mod environment;
mod server;
mod table;
#[cfg(test)]
mod tests;
pub mod value;

pub use config_error::{ConfigError, Excerpt, FileLocation};
pub use engine::EngineSettings;
pub use environment::first_process_path;
pub use environment::{
    ProcessVariables, RETIRED_VARIABLES, VariableSource, process_variable, run_from_env,
    try_process_variable,
};
pub use server::ServerSettings;
pub use table::{Setting, SettingField, SettingsGroup};
pub use value::{RawSettingValue, SettingKind, SettingValue, parse_address, parse_duration};
pub use warmline_core::tool_names::closest_match;

/// A source of variables: the environment of the process, or a table in tests.
pub type VariableLookup<'a> = &'a dyn VariableSource;

/// The origin of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The embedding program, or the command line.
    Builder,
    /// A variable.
    Environment(String),
    /// A line of a file.
    File {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: Option<usize>,
    },
    /// The default exceeds the memory of this machine.
    MachineLimit,
    /// The default.
    #[default]
    Default,
}

impl SettingOrigin {
    /// A location in a file as an origin.
    pub fn from_location(place: &FileLocation) -> Self {
        Self::File {
            file: place.file.clone(),
            line: place.position.map(|(line, _)| line),
        }
    }

    /// The word for its kind.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Builder => "builder",
            Self::Environment(_) => "environment",
            Self::File { .. } => "file",
            Self::MachineLimit => "machine",
            Self::Default => "default",
        }
    }
}

impl std::fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Builder => f.write_str("said by the program"),
            Self::Environment(name) => f.write_str(name),
            Self::File { file, line: None } => write!(f, "{}", file.display()),
            Self::File {
                file,
                line: Some(line),
            } => write!(f, "{}:{line}", file.display()),
            Self::MachineLimit => f.write_str("the memory of this machine"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The origins of a group's values, by key; a value without one is the default.
pub type SettingOrigins = BTreeMap<&'static str, SettingOrigin>;

/// A setting with its effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Its name in a configuration file, its table before a dot.
    pub key: &'static str,
    /// Its value as a file would write it, without secrets in URLs.
    pub value: String,
    /// The origin of the value.
    pub origin: SettingOrigin,
    /// What it means.
    pub help: &'static str,
}

/// A value for people. Of settings only URLs have room for a secret.
fn redact_value(value: SettingValue) -> SettingValue {
    let shown = |text: String| match text.split_once("://") {
        Some((scheme, _)) => redact_url(&text).unwrap_or_else(|| format!("{scheme}://…")),
        None => text,
    };
    match value {
        SettingValue::Text(text) => SettingValue::Text(shown(text)),
        SettingValue::Texts(texts) => SettingValue::Texts(texts.into_iter().map(shown).collect()),
        SettingValue::Count(_)
        | SettingValue::Time(_)
        | SettingValue::Size(_)
        | SettingValue::Switch(_)
        | SettingValue::Word(_)
        | SettingValue::Path(_)
        | SettingValue::Address(_) => value,
    }
}

/// A URL without user, password, query and fragment, and as it is where it has none of them. What
/// stands in its path tells apart who is trusted. None if it is no URL.
fn redact_url(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    let is_struck = url.query().is_some() || url.fragment().is_some();
    let is_named = !url.username().is_empty() || url.password().is_some();
    if !is_struck && !is_named {
        return Some(text.to_owned());
    }
    url.set_query(None);
    url.set_fragment(None);
    if is_named {
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
    }
    let rest = if is_struck { "?…" } else { "" };
    Some(format!("{url}{rest}"))
}

/// A path of a file starts from the folder that file lies in.
pub fn resolve_path(value: SettingValue, base: &Path) -> SettingValue {
    if let SettingValue::Path(path) = value {
        return SettingValue::Path(base.join(path));
    }
    value
}
