//! Values of a TOML file by their types, each complaint with its place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use serde_spanned::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use warmline_core::code::Code;

use super::super::declaration::Written;
use super::super::expand::{self, Expand};
use super::super::file::MOST_FAULTS;
use crate::settings::nearest;
use crate::settings::place::{ConfigError, Show, Source};

pub(super) type Key<'i> = Spanned<DeString<'i>>;
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// What to write instead of a variable, given its name.
pub(super) type Instead = fn(&str) -> String;

pub(super) struct Reader<'s> {
    pub(super) source: Source<'s>,
    /// What was wrong so far.
    pub(super) faults: RefCell<Vec<ConfigError>>,
}

impl<'s> Reader<'s> {
    pub(super) fn of(source: Source<'s>) -> Self {
        Self {
            source,
            faults: RefCell::default(),
        }
    }

    /// Whether so much is wrong that the rest need not be looked at.
    pub(super) fn is_full(&self) -> bool {
        self.faults.borrow().len() >= MOST_FAULTS
    }

    /// Goes on where something is wrong, and keeps it to be told.
    pub(super) fn told<T>(&self, understood: Result<T, ConfigError>) -> Option<T> {
        understood
            .map_err(|error| self.faults.borrow_mut().push(error))
            .ok()
    }

    pub(super) fn table<'v, 'i>(
        &self,
        name: &str,
        value: &'v Value<'i>,
    ) -> Result<&'v DeTable<'i>, ConfigError> {
        if let DeValue::Table(table) = value.get_ref() {
            return Ok(table);
        }
        Err(self.wrong(name, "a table", value))
    }

    pub(super) fn text(&self, name: &str, value: &Value<'_>) -> Result<String, ConfigError> {
        if let DeValue::String(text) = value.get_ref() {
            return Ok(text.to_string());
        }
        Err(self.wrong(name, "a text", value))
    }

    pub(super) fn words(&self, name: &str, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
        if let DeValue::Array(words) = value.get_ref() {
            return words.iter().map(|word| self.text(name, word)).collect();
        }
        Err(self.wrong(name, "a list of texts", value))
    }

    pub(super) fn texts(
        &self,
        name: &str,
        value: &Value<'_>,
        instead: Instead,
    ) -> Result<BTreeMap<String, Written>, ConfigError> {
        self.table(name, value)?
            .iter()
            .map(|(key, value)| {
                let path = format!("{name}.{}", key.get_ref());
                let written = self.written(&path, value, instead)?;
                Ok((key.get_ref().to_string(), written))
            })
            .collect()
    }

    /// A literal text, with its place.
    pub(super) fn written(
        &self,
        name: &str,
        value: &Value<'_>,
        instead: Instead,
    ) -> Result<Written, ConfigError> {
        let text = self.literal(name, value, instead)?;
        let at = self.at(value);
        Ok(Written { text, at })
    }

    /// Line and column of a value.
    pub(super) fn at(&self, value: &Value<'_>) -> Option<(usize, usize)> {
        self.source.place(value.span(), Show::Nothing).at
    }

    /// A text that is sent as it stands. One that seems to count on a variable is refused: the
    /// server would get the dollar sign.
    pub(super) fn literal(
        &self,
        name: &str,
        value: &Value<'_>,
        instead: Instead,
    ) -> Result<String, ConfigError> {
        let text = self.text(name, value)?;
        match expand::names(&text, Expand::Variables).first() {
            None => Ok(text),
            Some(variable) => {
                let what = format!(
                    "{} does not fill in `${{{}}}`",
                    name_of(self.source.file),
                    variable.escape_debug()
                );
                let bad = self.bad(what, value.span(), Show::Nothing);
                Err(bad.hint(instead(variable)))
            },
        }
    }

    fn wrong(&self, name: &str, wanted: &str, found: &Value<'_>) -> ConfigError {
        let kind = found.get_ref().type_str();
        let what = format!("`{name}` is {wanted}, not {}", article(kind));
        self.bad(what, found.span(), Show::Nothing)
    }

    pub(super) fn bad(
        &self,
        what: impl Into<String>,
        span: std::ops::Range<usize>,
        show: Show,
    ) -> ConfigError {
        ConfigError::new(Code::ConfigBadValue, what).at(self.source.place(span, show))
    }

    pub(super) fn unknown<'k>(
        &self,
        key: &Key<'_>,
        of_what: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> ConfigError {
        let name = key.get_ref();
        let error = ConfigError::new(
            Code::ConfigUnknownKey,
            format!("`{}` is not a {of_what}", name.escape_debug()),
        )
        .at(self.source.place(key.span(), Show::Key));
        if let Some((_, hint)) = MEANT.iter().find(|(meant, _)| *meant == name.as_ref()) {
            return error.hint(*hint);
        }
        match nearest(name, known) {
            Some(word) => error.hint(format!("did you mean `{word}`?")),
            None => error,
        }
    }
}

/// Keys that people expect, and what to write instead.
const MEANT: &[(&str, &str)] = &[
    (
        "timeout",
        "`call_timeout` is for a whole call, `call_idle_timeout` for silence in it, \
         `connect_timeout`, `handshake_timeout` and `start_timeout` for opening",
    ),
    (
        "repeatable",
        "say it for one tool: `tools.NAME.repeatable = true`",
    ),
    ("type", "the key is `kind`"),
    (
        "args",
        "`command` is one list, the program and its arguments: `command = [\"npx\", \"-y\", \"some-server\"]`",
    ),
    (
        "cmd",
        "the key is `command`, a list: `command = [\"npx\", \"-y\", \"some-server\"]`",
    ),
    (
        "port",
        "it is a part of `listen`: `listen = \"127.0.0.1:8484\"`",
    ),
    (
        "host",
        "it is a part of `listen`: `listen = \"127.0.0.1:8484\"`",
    ),
    ("disabled", "write `enabled = false`"),
    (
        "auth",
        "who may call is decided by `gateway.auth`, `[gateway.jwt]` and `gateway.trusted_proxies`",
    ),
];

pub(super) fn name_of(file: &Path) -> String {
    file.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn article(kind: &str) -> String {
    match kind.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}
