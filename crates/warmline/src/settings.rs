//! Settings: everything people may decide, declared once, each value with where it came from.
//!
//! Asked by: `doctor`, the reference page, and whoever builds a server or an engine.
//! Told by: an embedding program's builder, the environment, a configuration file.
//!
//! Order: builder or command line, environment, file, default. The environment is looked at only
//! when somebody asks for it. A setting stands in one table (`of_server`, `of_engine`, `of_gateway`) with its
//! name, its form, its help and the place it fills; its default is that place's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use url::Url;
use warmline_core::code::Code;

use crate::upstream::server::Server;

mod duration;
pub(crate) mod kind;
mod memory;
mod of_engine;
mod of_gateway;
mod of_server;
#[cfg(test)]
mod page;
pub(crate) mod place;
#[cfg(test)]
mod tests;
mod variables;

pub use duration::parse_duration;
pub(crate) use kind::{Kind, Said};
pub use kind::{Value, parse_address};
pub use of_engine::EngineSettings;
pub use of_gateway::{
    AuthWord, GatewaySettings, JwtSettings, LogFormat, LogLevel, OpsListen, ResourceSettings,
};
pub use of_server::ServerSettings;
pub use place::{ConfigError, Excerpt, Place};
pub(crate) use variables::process_path;
pub use variables::{
    ProcessVariables, RETIRED, Stray, Variables, process_text, process_variable, run_from_env,
    stray_variables,
};
pub use warmline_core::names::nearest;

/// Where variables come from: the environment of the process, or a table in tests.
pub type Lookup<'a> = &'a dyn Variables;

/// Where the value of a setting came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The embedding program, or the command line.
    Builder,
    /// A variable, by its name.
    Environment(String),
    /// A line of a file.
    File {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: Option<usize>,
    },
    /// Nobody said anything, and this machine cannot hold what is usual.
    Machine,
    /// Nobody said anything.
    #[default]
    Default,
}

impl Origin {
    /// A place of a file as an origin.
    pub(crate) fn of_place(place: &Place) -> Self {
        Self::File {
            file: place.file.clone(),
            line: place.at.map(|(line, _)| line),
        }
    }

    /// The word for its kind.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Builder => "builder",
            Self::Environment(_) => "environment",
            Self::File { .. } => "file",
            Self::Machine => "machine",
            Self::Default => "default",
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Builder => f.write_str("said by the program"),
            Self::Environment(name) => f.write_str(name),
            Self::File { file, line: None } => write!(f, "{}", file.display()),
            Self::File {
                file,
                line: Some(line),
            } => write!(f, "{}:{line}", file.display()),
            Self::Machine => f.write_str("the memory of this machine"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Where the values of a group of settings came from; what is not listed is as it was by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origins(BTreeMap<&'static str, Origin>);

impl Origins {
    /// Says where a value came from.
    pub(crate) fn put(&mut self, key: &'static str, origin: Origin) {
        self.0.insert(key, origin);
    }

    /// Where a value came from.
    pub(crate) fn of(&self, key: &str) -> Origin {
        self.0.get(key).cloned().unwrap_or_default()
    }
}

/// A setting with the value that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Its name in a configuration file, its table before a dot.
    pub key: &'static str,
    /// Its value, as it could be written, but for what may be secret in a URL.
    pub value: String,
    /// Where the value came from.
    pub origin: Origin,
    /// What it means.
    pub help: &'static str,
}

/// A setting, declared once.
#[derive(Debug)]
pub(crate) struct Setting<T> {
    /// Its name in `warmline.toml`, its table before a dot.
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    /// The row of the acceptance cases' table it answers.
    pub(crate) row: Option<&'static str>,
    /// The variable of another program that means the same.
    pub(crate) elsewhere: Option<&'static str>,
    pub(crate) read: fn(&T) -> Value,
    pub(crate) write: fn(&mut T, Value),
}

/// How the place that a setting fills is read, and how it is written.
type Fills<T> = (fn(&T) -> Value, fn(&mut T, Value));

impl<T> Setting<T> {
    /// A setting with the place it fills: how its value is read there, and how it is written.
    pub(crate) const fn new(
        key: &'static str,
        kind: Kind,
        help: &'static str,
        fills: Fills<T>,
    ) -> Self {
        Self {
            key,
            kind,
            help,
            row: None,
            elsewhere: None,
            read: fills.0,
            write: fills.1,
        }
    }

    /// The same, as the answer to a row of the acceptance cases.
    pub(crate) const fn row(mut self, row: &'static str) -> Self {
        self.row = Some(row);
        self
    }

    /// The same, also known by a variable of another program.
    pub(crate) const fn elsewhere(mut self, row: &'static str, variable: &'static str) -> Self {
        self.elsewhere = Some(variable);
        self.row(row)
    }

    /// Its variable.
    pub(crate) fn variable(&self) -> String {
        let name = self.key.to_uppercase().replace('.', "_");
        format!("{}{name}", variables::PREFIX)
    }
}

/// How a place is read and written whose type is that of a [`Value`]; or words beside it.
macro_rules! plain {
    ($form:ident, $($field:ident).+) => {
        (
            |of| Value::$form(of.$($field).+.clone()),
            |of, value| {
                if let Value::$form(value) = value {
                    of.$($field).+ = value;
                }
            },
        )
    };
    ($form:ident, $($field:ident).+, or $($word:literal => $meant:expr),+) => {
        (
            |of| match of.$($field).+ {
                $(meant if meant == $meant => Value::Word($word),)+
                Some(value) => Value::$form(value),
                // Every way of saying nothing has its word above.
                None => Value::Word("none"),
            },
            |of, value| {
                let place = &mut of.$($field).+;
                if let Value::$form(value) = value {
                    *place = Some(value);
                } else {
                    $(if value == Value::Word($word) {
                        *place = $meant;
                    })+
                }
            },
        )
    };
}
use plain;

/// The same for a place whose type has words.
macro_rules! words {
    ($($field:ident).+ : $type:ty) => {
        (
            |of| Value::Word(of.$($field).+.word()),
            |of, value| {
                if let Value::Word(word) = value
                    && let Some(meant) = <$type>::parse(word)
                {
                    of.$($field).+ = meant;
                }
            },
        )
    };
    ($($field:ident).+ : $type:ty, or $unsaid:literal) => {
        (
            |of| Value::Word(of.$($field).+.map_or($unsaid, <$type>::word)),
            |of, value| {
                if let Value::Word(word) = value {
                    of.$($field).+ = <$type>::parse(word);
                }
            },
        )
    };
}
use words;

/// A group of settings: values, origins, and the table that knows both.
pub(crate) trait Group: Sized + Default + 'static {
    const TABLE: &'static [Setting<Self>];

    fn origins(&mut self) -> &mut Origins;

    fn origin_of(&self, key: &str) -> Origin;

    /// The setting of that name.
    fn setting(key: &str) -> Option<&'static Setting<Self>> {
        Self::TABLE.iter().find(|setting| setting.key == key)
    }

    /// Takes a value from a source that is asked before those already taken.
    fn put(&mut self, setting: &Setting<Self>, value: Value, origin: Origin) {
        (setting.write)(self, value);
        self.origins().put(setting.key, origin);
    }

    /// Takes what the environment says, but for what the program itself said.
    fn take_variables(&mut self, lookup: Lookup<'_>) -> Result<(), ConfigError> {
        for setting in Self::TABLE {
            if self.origins().of(setting.key) == Origin::Builder {
                continue;
            }
            if let Some((value, variable)) = variables::value(setting, lookup)? {
                self.put(setting, value, Origin::Environment(variable));
            }
        }
        Ok(())
    }

    /// The same from the environment of this process.
    fn take_own_variables(&mut self) -> Result<(), ConfigError> {
        self.take_variables(&ProcessVariables)
    }

    /// Takes what another group says, with where it came from; silent settings stay as they are.
    fn take_file(&mut self, other: &Self) {
        for setting in Self::TABLE {
            let origin = other.origin_of(setting.key);
            if origin != Origin::Default {
                self.put(setting, (setting.read)(other), origin);
            }
        }
    }

    /// Changes values in the program's name: what is different afterwards was said by it.
    fn built_by(&mut self, change: impl FnOnce(&mut Self)) {
        let before: Vec<Value> = Self::TABLE.iter().map(|one| (one.read)(self)).collect();
        change(self);
        for (setting, before) in Self::TABLE.iter().zip(before) {
            if (setting.read)(self) != before {
                self.origins().put(setting.key, Origin::Builder);
            }
        }
    }

    /// Marks what differs from the default and has no origin yet as said by the program.
    fn mark_built(&mut self) {
        let usual = Self::default();
        for setting in Self::TABLE {
            let differs = (setting.read)(self) != (setting.read)(&usual);
            if differs && self.origins().of(setting.key) == Origin::Default {
                self.origins().put(setting.key, Origin::Builder);
            }
        }
    }

    /// Whether every value lies within its range.
    fn checked(&self) -> Result<(), ConfigError> {
        for setting in Self::TABLE {
            setting.kind.check(&(setting.read)(self)).map_err(|wrong| {
                let what = format!("`{}` {}", setting.key, wrong.what);
                hinted(ConfigError::new(Code::ConfigBadValue, what), wrong.hint)
            })?;
        }
        Ok(())
    }
}

/// Makes a group of settings with its table, and the doors that every group has.
macro_rules! group {
    ($group:ty, $table:path) => {
        impl Group for $group {
            const TABLE: &'static [Setting<Self>] = $table;

            fn origins(&mut self) -> &mut Origins {
                &mut self.origins
            }

            fn origin_of(&self, key: &str) -> Origin {
                self.origins.of(key)
            }
        }

        impl $group {
            /// Takes what the environment says, but for what the program or its command line said.
            ///
            /// # Errors
            /// `config-bad-value` names the variable and its value.
            pub fn take_environment(&mut self, lookup: Lookup<'_>) -> Result<(), ConfigError> {
                self.take_variables(lookup)
            }

            /// The same from the environment of this process.
            ///
            /// # Errors
            /// As there, also for a variable that is no text.
            pub fn take_process_environment(&mut self) -> Result<(), ConfigError> {
                self.take_own_variables()
            }

            /// Says that the program, or the command line, chose this value.
            pub fn built(&mut self, key: &'static str) {
                self.origins.put(key, Origin::Builder);
            }

            /// Where a value came from.
            pub fn origin(&self, key: &str) -> Origin {
                self.origins.of(key)
            }

            /// Every setting with the value that counts.
            pub fn effective(&self) -> Vec<Effective> {
                effective(self, &self.origins)
            }

            /// The names of settings whose values differ.
            pub fn differing(&self, other: &Self) -> Vec<&'static str> {
                differing(self, other)
            }
        }
    };
}

group!(ServerSettings, of_server::TABLE);
group!(EngineSettings, of_engine::TABLE);
group!(GatewaySettings, of_gateway::TABLE);

impl ServerSettings {
    /// Brings settings together that depend on each other, and checks every value's range.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and what is possible.
    pub fn settle(&mut self) -> Result<(), ConfigError> {
        self.checked()?;
        self.tools_have_time()?;
        let (check, longest) = (self.policy.check_after, self.policy.breaker.longest);
        self.policy = std::mem::take(&mut self.policy).settled();
        // What was changed came from where its reason came from.
        if self.policy.check_after != check {
            let reason = self.origins.of("health_check_interval");
            self.origins.put("check_after", reason);
        }
        if self.policy.breaker.longest != longest {
            let reason = self.origins.of("breaker.reset");
            self.origins.put("breaker.longest", reason);
        }
        Ok(())
    }

    /// Whether the same is decided, wherever it was said.
    pub(crate) fn decides_as(&self, other: &Self) -> bool {
        (self.era, self.times, self.sizes) == (other.era, other.times, other.sizes)
            && self.policy == other.policy
    }

    /// What is decided otherwise than usual, by the names of variables: for another process.
    pub(crate) fn to_hand_on(&self) -> BTreeMap<String, String> {
        let usual = Self::default();
        let differs = |setting: &&Setting<Self>| (setting.read)(self) != (setting.read)(&usual);
        let decided = Self::TABLE.iter().filter(differs);
        decided
            .map(|setting| (setting.variable(), (setting.read)(self).to_string()))
            .collect()
    }

    /// Takes what another process handed over, and settles it.
    pub(crate) fn take_handed(
        &mut self,
        handed: &BTreeMap<String, String>,
    ) -> Result<(), ConfigError> {
        self.take_variables(&|name: &str| handed.get(name).cloned())?;
        self.settle()
    }

    /// Gives a server that is to be opened what was decided about it.
    pub fn decide_for(&self, server: &mut Server) {
        (server.era, server.version) = (self.era, self.policy.version);
        (server.sessions, server.dialects) = (self.policy.sessions, self.policy.dialects);
        (server.times, server.sizes) = (self.times, self.sizes);
    }
}

impl EngineSettings {
    /// Checks every value's range, and takes back defaults that this machine cannot hold.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and what is possible.
    pub fn settle(&mut self) -> Result<(), ConfigError> {
        self.checked()?;
        self.fit_into(memory::processes_that_fit());
        Ok(())
    }

    fn fit_into(&mut self, processes: Option<u32>) {
        const KEY: &str = "limits.processes";
        if let Some(fit) = processes
            && fit < self.ceilings.processes
            && self.origins.of(KEY) == Origin::Default
        {
            self.ceilings.processes = fit;
            self.origins.put(KEY, Origin::Machine);
        }
    }
}

impl GatewaySettings {
    /// Checks every value's range.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and what is possible.
    pub fn settle(&mut self) -> Result<(), ConfigError> {
        self.checked()
    }

    /// What its URLs begin with, before the host.
    pub fn scheme(&self) -> &'static str {
        match self.tls_certificate {
            Some(_) => "https",
            None => "http",
        }
    }
}

fn differing<T: Group>(one: &T, other: &T) -> Vec<&'static str> {
    let differs = |setting: &&Setting<T>| (setting.read)(one) != (setting.read)(other);
    let all = T::TABLE.iter().filter(differs);
    all.map(|setting| setting.key).collect()
}

fn effective<T: Group>(values: &T, origins: &Origins) -> Vec<Effective> {
    let one = |setting: &'static Setting<T>| Effective {
        key: setting.key,
        value: public((setting.read)(values)).to_string(),
        origin: origins.of(setting.key),
        help: setting.help,
    };
    T::TABLE.iter().map(one).collect()
}

/// A value for people. Of settings only URLs have room for a secret.
fn public(value: Value) -> Value {
    let shown = |text: String| match text.split_once("://") {
        Some((scheme, _)) => without_secrets(&text).unwrap_or_else(|| format!("{scheme}://…")),
        None => text,
    };
    match value {
        Value::Text(text) => Value::Text(shown(text)),
        Value::Texts(texts) => Value::Texts(texts.into_iter().map(shown).collect()),
        Value::Count(_)
        | Value::Time(_)
        | Value::Size(_)
        | Value::Switch(_)
        | Value::Word(_)
        | Value::Path(_)
        | Value::Address(_) => value,
    }
}

/// A URL without user, password, query and fragment, and as it is where it has none of them. What
/// stands in its path tells apart who is trusted. None if it is no URL.
fn without_secrets(text: &str) -> Option<String> {
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

fn hinted(error: ConfigError, hint: Option<String>) -> ConfigError {
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A path of a file starts from the folder that file lies in.
pub(crate) fn based(value: Value, base: &Path) -> Value {
    if let Value::Path(path) = value {
        return Value::Path(base.join(path));
    }
    value
}
