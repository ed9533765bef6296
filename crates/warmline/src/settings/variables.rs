//! The environment as a source of settings: Warmline's names, and those of other programs.

use std::path::PathBuf;

use warmline_core::code::Code;

use super::kind::Said;
use super::{
    ConfigError, Lookup, Setting, Value, hinted, nearest, of_engine, of_gateway, of_server,
};
use crate::upstream::environment::{NoText, text_of};

/// A variable of this process, if it is set and is text. What decides something is asked for with
/// [`process_text`].
pub fn process_variable(name: &str) -> Option<String> {
    process_text(name).ok().flatten()
}

/// A variable of this process, if it is set.
///
/// # Errors
/// `config-bad-value`, where it is set and is no text: nobody can do what it says.
pub fn process_text(name: &str) -> Result<Option<String>, ConfigError> {
    text_of(name).map_err(|NoText| {
        // Not a word of it: it may be a secret.
        ConfigError::new(
            Code::ConfigBadValue,
            format!("the variable `{name}` is no text"),
        )
        .because("it is set to bytes that are not UTF-8")
        .hint(format!("write `{name}` in UTF-8, or unset it"))
    })
}

/// Where variables are looked up: in this process, or in what a test says. A function that knows
/// the texts of some names is such a place.
pub trait Variables {
    /// The text of a variable, if it is set.
    ///
    /// # Errors
    /// `config-bad-value`, naming it, where it is set and is no text.
    fn text(&self, name: &str) -> Result<Option<String>, ConfigError>;
}

impl<F: Fn(&str) -> Option<String>> Variables for F {
    fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        Ok(self(name))
    }
}

/// The variables of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessVariables;

impl Variables for ProcessVariables {
    fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        process_text(name)
    }
}

/// The first of the paths that a variable of this process names; text or not.
pub(crate) fn process_path(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os(name)?;
    std::env::split_paths(&paths).next()
}

/// The run that whoever started this process wants it to join, if there is one.
///
/// # Errors
/// As [`process_text`].
pub fn run_from_env() -> Result<Option<String>, ConfigError> {
    Ok(process_text(RUN)?.filter(|name| !name.is_empty()))
}

/// What the environment says of a setting, and the variable that said it. Warmline's own name
/// wins over another program's.
pub(super) fn value<T>(
    setting: &Setting<T>,
    lookup: Lookup<'_>,
) -> Result<Option<(Value, String)>, ConfigError> {
    let own = setting.variable();
    if let Some(text) = lookup.text(&own)? {
        return read(setting, &own, &Said::Variable(&text)).map(|value| Some((value, own)));
    }
    let Some(other) = setting.elsewhere else {
        return Ok(None);
    };
    match lookup.text(other)? {
        None => Ok(None),
        Some(text) => read(setting, other, &Said::Elsewhere(&text))
            .map(|value| Some((value, other.to_owned()))),
    }
}

fn read<T>(setting: &Setting<T>, variable: &str, said: &Said<'_>) -> Result<Value, ConfigError> {
    setting.kind.read(said).map_err(|wrong| {
        let what = format!("the variable `{variable}` {}", wrong.what);
        let why = format!("it sets `{}`: {}", setting.key, setting.help);
        hinted(
            ConfigError::new(Code::ConfigBadValue, what).because(why),
            wrong.hint,
        )
    })
}

/// A variable that looks like one of ours, or was one of another program's, and that nobody reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its name.
    pub variable: String,
    /// What was probably meant.
    pub meant: Option<String>,
}

/// Variables that nobody reads although their names sound as if: slips of the hand in names that
/// begin with `WARMLINE_`, and those that are [`RETIRED`].
pub fn stray_variables() -> Vec<Stray> {
    stray(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

pub(super) fn stray(names: impl Iterator<Item = String>) -> Vec<Stray> {
    let known: Vec<String> = known_variables().collect();
    let known = || known.iter().filter_map(|name| name.strip_prefix(PREFIX));
    let mut strays: Vec<Stray> = names
        .filter_map(|variable| {
            if RETIRED.contains(&variable.as_str()) {
                return Some(Stray {
                    variable,
                    meant: None,
                });
            }
            let own = variable.strip_prefix(PREFIX)?;
            if known().any(|name| name == own) {
                return None;
            }
            let meant = nearest(own, known()).map(|name| format!("{PREFIX}{name}"));
            Some(Stray { variable, meant })
        })
        .collect();
    strays.sort_by(|one, other| one.variable.cmp(&other.variable));
    strays
}

fn known_variables() -> impl Iterator<Item = String> {
    let server = of_server::TABLE.iter().map(Setting::variable);
    let engine = of_engine::TABLE.iter().map(Setting::variable);
    let gateway = of_gateway::TABLE.iter().map(Setting::variable);
    server
        .chain(engine)
        .chain(gateway)
        .chain(OTHERS.iter().map(|name| (*name).to_owned()))
}

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "WARMLINE_";

/// Variables of older programs that speak of no server. They are never read.
pub const RETIRED: &[&str] = &["GITHUB_PAT", "MCP_USE_SESSION_MGMT"];

/// Variables of ours that are no settings.
const OTHERS: &[&str] = &[
    "WARMLINE_LOG",
    "WARMLINE_SERVERS",
    "WARMLINE_TOKEN",
    "WARMLINE_URL",
    RUN,
];

/// The name of the run that this process belongs to.
const RUN: &str = "WARMLINE_RUN";
