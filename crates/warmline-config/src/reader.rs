//! Typed values of a file. Each error is kept with its place, and reading goes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use warmline_core::error::code::Code;
use warmline_engine::settings::config_error::{
    ConfigError, ExcerptPolicy, FileLocation, SourceFile,
};
use warmline_engine::settings::{EngineSettings, SettingKind, SettingValue, closest_match};

use crate::GatewaySettings;
use crate::declaration::{Declaration, SensitiveText};
use crate::document::{Key, Member, Node, Value};

/// What a file declares and decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedFile {
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) engine: EngineSettings,
    pub(crate) gateway: GatewaySettings,
    pub(crate) near_misses: Vec<NearMiss>,
}

/// An unknown key of a file of another program that is nearly one we read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearMiss {
    /// The server that has the key.
    pub server: String,
    /// The key as written.
    pub key: String,
    /// The key that it is nearly.
    pub suggestion: &'static str,
}

/// Most errors that are kept of one file: a file with more is of another kind.
const MAX_ERRORS: usize = 50;

/// Reads values of a file and keeps its errors.
pub(crate) struct Reader<'s> {
    pub(crate) source: SourceFile<'s>,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'s> Reader<'s> {
    pub(crate) fn new(source: SourceFile<'s>) -> Self {
        Self {
            source,
            errors: RefCell::default(),
        }
    }

    pub(crate) fn into_errors(self) -> Vec<ConfigError> {
        self.errors.into_inner()
    }

    pub(crate) fn error_count(&self) -> usize {
        self.errors.borrow().len()
    }

    /// Whether there are so many errors that the rest is not read.
    pub(crate) fn is_full(&self) -> bool {
        self.error_count() >= MAX_ERRORS
    }

    /// Keeps the error, if it is one.
    pub(crate) fn keep<T>(&self, outcome: Result<T, ConfigError>) -> Option<T> {
        outcome
            .map_err(|error| self.errors.borrow_mut().push(error))
            .ok()
    }

    /// The folder that relative paths start from.
    pub(crate) fn base_folder(&self) -> &Path {
        self.source.file.parent().unwrap_or(Path::new(""))
    }

    pub(crate) fn table<'n, 't>(
        &self,
        name: &str,
        node: &'n Node<'t>,
    ) -> Result<&'n [Member<'t>], ConfigError> {
        if let Value::Table(members) = &node.value {
            return Ok(members);
        }
        Err(self.type_error(name, "a table", node))
    }

    /// Reads each member of a table, and keeps the errors.
    pub(crate) fn each_member<'n, 't>(
        &self,
        name: &str,
        node: &'n Node<'t>,
        mut read: impl FnMut(&'n Key<'t>, &'n Node<'t>) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        for (key, node) in self.table(name, node)? {
            if self.is_full() {
                break;
            }
            self.keep(read(key, node));
        }
        Ok(())
    }

    pub(crate) fn text(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        let text = node.as_text().map(str::to_owned);
        text.ok_or_else(|| self.type_error(name, "a text", node))
    }

    pub(crate) fn texts(&self, name: &str, node: &Node<'_>) -> Result<Vec<String>, ConfigError> {
        let items = node.as_list();
        let items = items.ok_or_else(|| self.type_error(name, "a list of texts", node))?;
        items.iter().map(|item| self.text(name, item)).collect()
    }

    /// A table of values that are all read the same way, by their names.
    pub(crate) fn map<T>(
        &self,
        name: &str,
        node: &Node<'_>,
        read: impl Fn(&str, &Node<'_>) -> Result<T, ConfigError>,
    ) -> Result<BTreeMap<String, T>, ConfigError> {
        let members = self.table(name, node)?.iter();
        let values = members.map(|(key, node)| {
            let value = read(&format!("{name}.{}", key.name), node)?;
            Ok((key.name.to_string(), value))
        });
        values.collect()
    }

    /// A text that may be a secret, with its place.
    pub(crate) fn sensitive_text(&self, text: impl Into<String>, node: &Node<'_>) -> SensitiveText {
        SensitiveText {
            text: text.into(),
            position: self.place(node).position,
        }
    }

    /// A value in the form and the range of a setting.
    pub(crate) fn setting_value(
        &self,
        name: &str,
        kind: &SettingKind,
        node: &Node<'_>,
    ) -> Result<SettingValue, ConfigError> {
        kind.parse(&node.as_setting()).map_err(|wrong| {
            let place = self
                .source
                .location(node.span.clone(), ExcerptPolicy::KeyAndValue);
            wrong.into_error(&format!("`{name}`")).with_location(place)
        })
    }

    /// The place of a value, without its text.
    pub(crate) fn place(&self, node: &Node<'_>) -> FileLocation {
        self.source
            .location(node.span.clone(), ExcerptPolicy::Hidden)
    }

    pub(crate) fn type_error(&self, name: &str, wanted: &str, node: &Node<'_>) -> ConfigError {
        let what = format!("`{name}` is {wanted}, not {}", node.type_name());
        self.bad_value(what, node, ExcerptPolicy::Hidden)
    }

    pub(crate) fn bad_value(
        &self,
        what: impl Into<String>,
        node: &Node<'_>,
        show: ExcerptPolicy,
    ) -> ConfigError {
        ConfigError::new(Code::ConfigBadValue, what)
            .with_location(self.source.location(node.span.clone(), show))
    }

    /// A key that is not among those known, with what was probably meant.
    pub(crate) fn unknown_key<'k>(
        &self,
        key: &Key<'_>,
        of_what: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> ConfigError {
        let what = format!("`{}` is not a {of_what}", key.name.escape_debug());
        let error = ConfigError::new(Code::ConfigUnknownKey, what).with_location(
            self.source
                .location(key.span.clone(), ExcerptPolicy::KeyOnly),
        );
        let near = || closest_match(&key.name, known).map(|near| format!("did you mean `{near}`?"));
        let hint = key_hint(&key.name).map(str::to_owned).or_else(near);
        hint.into_iter().fold(error, ConfigError::with_hint)
    }
}

/// What to write instead of keys that people expect.
fn key_hint(key: &str) -> Option<&'static str> {
    Some(match key {
        "timeout" => {
            "`call_timeout` is for a whole call, `call_idle_timeout` for silence in it, \
             `connect_timeout`, `handshake_timeout` and `start_timeout` for opening"
        },
        "repeatable" => "say it for one tool: `tools.NAME.repeatable = true`",
        "type" => "the key is `kind`",
        "args" => {
            "`command` is one list, the program and its arguments: \
             `command = [\"npx\", \"-y\", \"some-server\"]`"
        },
        "cmd" => "the key is `command`, a list: `command = [\"npx\", \"-y\", \"some-server\"]`",
        "port" | "host" => "it is a part of `listen`: `listen = \"127.0.0.1:8484\"`",
        "disabled" => "write `enabled = false`",
        "auth" => {
            "who may call is decided by `gateway.auth`, `[gateway.jwt]` and \
             `gateway.trusted_proxies`"
        },
        _ => return None,
    })
}
