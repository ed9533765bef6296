//! The environment as a source of settings: Warmline's names, and those of other programs.

use warmline_core::code::Code;

use super::kind::Said;
use super::{
    ConfigError, Lookup, Setting, Value, hinted, nearest, of_engine, of_gateway, of_server,
};

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
    let Some(value) = std::env::var_os(name) else {
        return Ok(None);
    };
    value.into_string().map(Some).map_err(|value| {
        let what = format!("the variable `{name}` is no text");
        let shown: String = value.to_string_lossy().chars().take(40).collect();
        ConfigError::new(Code::ConfigBadValue, what)
            .because(format!("it is not UTF-8: `{}`", shown.escape_debug()))
            .hint("write it in UTF-8, or unset it")
    })
}

/// The run that whoever started this process wants it to join, if there is one.
///
/// # Errors
/// As [`process_text`].
pub fn run_from_env() -> Result<Option<String>, ConfigError> {
    Ok(process_text(RUN)?.filter(|name| !name.is_empty()))
}

/// Whether all that this process says of a setting is text.
pub(super) fn is_text<T>(setting: &Setting<T>) -> Result<(), ConfigError> {
    process_text(&setting.variable())?;
    setting.elsewhere.map_or(Ok(None), process_text).map(drop)
}

/// What the environment says of a setting, and the variable that said it. Warmline's own name
/// wins over another program's.
pub(super) fn value<T>(
    setting: &Setting<T>,
    lookup: Lookup<'_>,
) -> Result<Option<(Value, String)>, ConfigError> {
    let own = setting.variable();
    if let Some(text) = lookup(&own) {
        return read(setting, &own, &Said::Variable(&text)).map(|value| Some((value, own)));
    }
    let Some(other) = setting.elsewhere else {
        return Ok(None);
    };
    match lookup(other) {
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
const OTHERS: &[&str] = &["WARMLINE_LOG", "WARMLINE_TOKEN", "WARMLINE_URL", RUN];

/// The name of the run that this process belongs to.
const RUN: &str = "WARMLINE_RUN";
