//! What a `warmline.toml` decides: settings by their tables, single tools, and credentials.

use std::collections::BTreeMap;

use toml::de::DeValue;
use warmline_core::policy::{SessionPer, ToolPolicy};

use super::super::credential::{DeclaredCredential, From};
use super::super::keys;
use super::reader::{Key, Reader, Value};
use crate::settings::place::{ConfigError, Show};
use crate::settings::{self, Group, Kind, Origin, Said, Setting, nearest};

impl Reader<'_> {
    /// The settings of one table, such as `breaker` or `limits`, and of tables within it.
    pub(super) fn decided_in<T: Group>(
        &self,
        table: &str,
        value: &Value<'_>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        for (key, value) in self.table(table, value)? {
            if self.is_full() {
                break;
            }
            let path = format!("{table}.{}", key.get_ref());
            self.told(match T::setting(&path) {
                Some(setting) => self.decide(setting, value, into),
                None if keys::within::<T>(&path).next().is_some() => {
                    self.decided_in(&path, value, into)
                },
                None => {
                    let what = format!("setting of `{table}`");
                    Err(self.unknown(key, &what, keys::within::<T>(table)))
                },
            });
        }
        Ok(())
    }

    /// One setting with the value the file gives it.
    pub(super) fn decide<T: Group>(
        &self,
        setting: &Setting<T>,
        value: &Value<'_>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        let read = self.valued(setting.key, &setting.kind, value)?;
        let origin = Origin::of_place(&self.source.place(value.span(), Show::Nothing));
        into.put(setting, settings::based(read, self.base()), origin);
        Ok(())
    }

    fn valued(
        &self,
        name: &str,
        kind: &Kind,
        value: &Value<'_>,
    ) -> Result<settings::Value, ConfigError> {
        kind.read(&said(value)).map_err(|wrong| {
            let bad = self.bad(format!("`{name}` {}", wrong.what), value.span(), Show::Line);
            wrong.hint.into_iter().fold(bad, ConfigError::hint)
        })
    }

    /// `[servers.NAME.tools.TOOL]`: what is decided for single tools.
    pub(super) fn tools(
        &self,
        value: &Value<'_>,
        out: &mut BTreeMap<String, ToolPolicy>,
    ) -> Result<(), ConfigError> {
        for (name, tool) in self.table("tools", value)? {
            let mut policy = ToolPolicy::default();
            for (key, value) in self.table(name.get_ref(), tool)? {
                if self.is_full() {
                    break;
                }
                self.told(self.key_of_a_tool(key, value, &mut policy));
            }
            out.insert(name.get_ref().to_string(), policy);
        }
        Ok(())
    }

    fn key_of_a_tool(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        policy: &mut ToolPolicy,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        let read = match name {
            "repeatable" => self.valued(name, &Kind::switch(), value)?,
            "session_per" => self.valued(name, &Kind::words(SessionPer::WORDS), value)?,
            "call_timeout" | "call_idle_timeout" => self.valued(name, &Kind::time(), value)?,
            _ => return Err(self.unknown(key, "setting of a tool", keys::TOOL.iter().copied())),
        };
        if let settings::Value::Switch(repeatable) = read {
            policy.repeatable = Some(repeatable);
        } else if let settings::Value::Word(word) = read {
            policy.session_per = SessionPer::parse(word);
        } else if let settings::Value::Time(time) = read {
            let limit = match name {
                "call_timeout" => &mut policy.total,
                _ => &mut policy.idle,
            };
            *limit = Some(time);
        }
        Ok(())
    }

    /// `credential = { … }`: where a secret comes from, and how it is shown.
    pub(super) fn credential(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
    ) -> Result<DeclaredCredential, ConfigError> {
        let (mut found, mut header, mut form) = (Vec::new(), None, None);
        let table = self.table("credential", value);
        for (key, value) in table.map_err(|error| error.hint(CREDENTIALS))? {
            match key.get_ref().as_ref() {
                "env" => found.push(From::Env(self.variable("credential.env", value)?)),
                "file" => {
                    found.push(From::File(self.credential_file(value)?.into()));
                },
                "command" => found.push(From::Command(self.words("credential.command", value)?)),
                "header" => found.push(From::Header(self.text("credential.header", value)?)),
                "as" => header = Some(self.text("credential.as", value)?),
                "form" => form = Some(self.text("credential.form", value)?),
                _ => {
                    let known = keys::CREDENTIAL.iter().chain(keys::CREDENTIAL_SHOWN);
                    return Err(self.unknown(key, "part of a credential", known.copied()));
                },
            }
        }
        let said = |what: &str| {
            self.bad(what, value.span(), Show::Nothing)
                .hint(CREDENTIALS)
        };
        let one = found
            .pop()
            .ok_or_else(|| said("`credential` does not say where it comes from"))?;
        if !found.is_empty() {
            return Err(said("`credential` comes from more than one place"));
        }
        if matches!(&one, From::Command(words) if words.first().is_none_or(String::is_empty)) {
            return Err(said("the `command` of `credential` names no program"));
        }
        let credential = DeclaredCredential {
            from: one,
            header,
            form,
            place: self.source.place(key.span(), Show::Key),
        };
        // What cannot work is said when the file is read, not at the first call.
        credential.source(self.base())?;
        Ok(credential)
    }

    /// The path of a token, in which one word may stand for something. Another one would be looked
    /// for as it is written, by everybody alike.
    fn credential_file(&self, value: &Value<'_>) -> Result<String, ConfigError> {
        const KNOWN: &str = "identity";
        let text = self.text("credential.file", value)?;
        let words = text.split('{').skip(1);
        let mut words = words.filter_map(|rest| rest.split_once('}').map(|(word, _)| word));
        let Some(word) = words.find(|word| *word != KNOWN) else {
            return Ok(text);
        };
        let shown = word.escape_debug();
        let what = format!("`{{{shown}}}` stands for nothing in `credential.file`");
        let hint = match nearest(word, [KNOWN]) {
            Some(near) => format!("did you mean `{{{near}}}`?"),
            None => {
                format!("`{{{KNOWN}}}` stands for the name of whoever asks, and nothing else does")
            },
        };
        Err(self.bad(what, value.span(), Show::Nothing).hint(hint))
    }

    /// `labels = { NAME = "text" }`.
    pub(super) fn labels(
        &self,
        value: &Value<'_>,
    ) -> Result<BTreeMap<String, String>, ConfigError> {
        self.table("labels", value)?
            .iter()
            .map(|(key, value)| {
                let name = key.get_ref().to_string();
                let text = self.text(&format!("labels.{name}"), value)?;
                Ok((name, text))
            })
            .collect()
    }

    /// The name of a variable. What is no name may be the secret itself: it is not repeated.
    pub(super) fn variable(&self, name: &str, value: &Value<'_>) -> Result<String, ConfigError> {
        let text = self.text(name, value)?;
        let is_name = !text.is_empty()
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name {
            return Ok(text);
        }
        let what = format!("`{name}` is not the name of a variable");
        Err(self
            .bad(what, value.span(), Show::Nothing)
            .hint("put the value into a variable, and name that"))
    }
}

/// What stands in the file, before anybody knows whether it fits.
fn said<'v>(value: &'v Value<'_>) -> Said<'v> {
    match value.get_ref() {
        DeValue::String(text) => Said::Text(text),
        DeValue::Boolean(on) => Said::Switch(*on),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Said::Other("a number out of all bounds"), Said::Number),
        DeValue::Array(items) => {
            let texts = items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned));
            match texts.collect() {
                Some(texts) => Said::Texts(texts),
                None => Said::Other("a list of other things"),
            }
        },
        DeValue::Float(_) => Said::Other("a number with a fraction"),
        DeValue::Datetime(_) => Said::Other("a date"),
        DeValue::Table(_) => Said::Other("a table"),
    }
}

const CREDENTIALS: &str = "use one of `credential = { env = \"NAME\" }`, `{ file = \"path\" }`, \
     `{ command = [\"program\"] }` or `{ header = \"X-Name\" }`";
