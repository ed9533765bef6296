//! Settings by their tables, settings of single tools, and credentials.

use std::collections::BTreeMap;
use std::time::Duration;

use warmline_core::policy::{SessionScope, ToolPolicy};
use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy};
use warmline_engine::settings::{
    self, Setting, SettingField as _, SettingKind, SettingOrigin, SettingsGroup, closest_match,
};

use crate::credential::{DeclaredCredential, DeclaredSecret};
use crate::document::{Key, Node};
use crate::keys;
use crate::reader::Reader;

impl Reader<'_> {
    /// The settings of one table, such as `breaker` or `limits`, and of tables within it.
    pub(super) fn settings_table<T: SettingsGroup>(
        &self,
        table: &str,
        node: &Node<'_>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        self.each_member(table, node, |key, node| {
            let path = format!("{table}.{}", key.name);
            if let Some(setting) = T::setting(&path) {
                return self.setting(setting, node, into);
            }
            if keys::keys_within::<T>(&path).next().is_some() {
                return self.settings_table(&path, node, into);
            }
            let what = format!("setting of `{table}`");
            Err(self.unknown_key(key, &what, keys::keys_within::<T>(table)))
        })
    }

    pub(super) fn setting<T: SettingsGroup>(
        &self,
        setting: &Setting<T>,
        node: &Node<'_>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        let value = self.setting_value(setting.key, &setting.kind, node)?;
        let value = settings::resolve_path(value, self.base_folder());
        into.set_value(
            setting,
            value,
            SettingOrigin::from_location(&self.place(node)),
        );
        Ok(())
    }

    /// `[servers.NAME.tools.TOOL]`: settings of single tools.
    pub(super) fn tools(
        &self,
        node: &Node<'_>,
        out: &mut BTreeMap<String, ToolPolicy>,
    ) -> Result<(), ConfigError> {
        self.each_member("tools", node, |tool, node| {
            let policy = out.entry(tool.name.to_string()).or_default();
            self.each_member(&tool.name, node, |key, node| {
                self.tool_key(key, node, policy)
            })
        })
    }

    fn tool_key(
        &self,
        key: &Key<'_>,
        node: &Node<'_>,
        policy: &mut ToolPolicy,
    ) -> Result<(), ConfigError> {
        let value = |kind| self.setting_value(&key.name, &kind, node);
        match key.name.as_ref() {
            "repeatable" => policy.repeatable = bool::from_value(value(SettingKind::switch())?),
            "session_per" => {
                let scope = value(SettingKind::words(SessionScope::WORDS))?;
                policy.session_per = SessionScope::from_value(scope);
            },
            "call_timeout" => policy.total = Duration::from_value(value(SettingKind::time())?),
            "call_idle_timeout" => policy.idle = Duration::from_value(value(SettingKind::time())?),
            _ => {
                let known = keys::TOOL.iter().copied();
                return Err(self.unknown_key(key, "setting of a tool", known));
            },
        }
        Ok(())
    }

    /// `credential = { … }`: the source of a secret, and the header that carries it.
    pub(super) fn credential(
        &self,
        key: &Key<'_>,
        node: &Node<'_>,
    ) -> Result<DeclaredCredential, ConfigError> {
        let (mut found, mut header, mut format) = (Vec::new(), None, None);
        let members = self.table("credential", node);
        for (key, node) in members.map_err(|error| error.with_hint(CREDENTIAL_HINT))? {
            let name = &format!("credential.{}", key.name);
            match key.name.as_ref() {
                "env" => found.push(DeclaredSecret::Env(self.variable_name(name, node)?)),
                "file" => found.push(DeclaredSecret::File(
                    self.credential_file(name, node)?.into(),
                )),
                "command" => found.push(DeclaredSecret::Command(self.texts(name, node)?)),
                "header" => found.push(DeclaredSecret::Header(self.text(name, node)?)),
                "as" => header = Some(self.text(name, node)?),
                "form" => format = Some(self.text(name, node)?),
                _ => {
                    let known = keys::CREDENTIAL.iter().chain(keys::CREDENTIAL_HEADER);
                    return Err(self.unknown_key(key, "part of a credential", known.copied()));
                },
            }
        }
        let fail = |what: &str| {
            let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
            Err(error.with_hint(CREDENTIAL_HINT))
        };
        let secret = match (found.pop(), found.is_empty()) {
            (None, _) => return fail("`credential` does not say where it comes from"),
            (Some(_), false) => return fail("`credential` comes from more than one place"),
            (Some(DeclaredSecret::Command(words)), true)
                if words.first().is_none_or(String::is_empty) =>
            {
                return fail("the `command` of `credential` names no program");
            },
            (Some(secret), true) => secret,
        };
        let credential = DeclaredCredential {
            secret,
            header,
            format,
            location: self
                .source
                .location(key.span.clone(), ExcerptPolicy::KeyOnly),
        };
        // A credential that cannot work is an error of the file, not of the first call.
        credential.to_credential_source(self.base_folder())?;
        Ok(credential)
    }

    /// The path of a token. `{identity}` is the only word that stands for something in it.
    fn credential_file(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        const KNOWN: &str = "identity";
        let text = self.text(name, node)?;
        let words = text.split('{').skip(1);
        let mut words = words.filter_map(|rest| rest.split_once('}').map(|(word, _)| word));
        let Some(word) = words.find(|word| *word != KNOWN) else {
            return Ok(text);
        };
        let what = format!(
            "`{{{}}}` stands for nothing in `{name}`",
            word.escape_debug()
        );
        let hint = match closest_match(word, [KNOWN]) {
            Some(near) => format!("did you mean `{{{near}}}`?"),
            None => format!("only `{{{KNOWN}}}` stands for something: the name of the caller"),
        };
        let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
        Err(error.with_hint(hint))
    }
}

const CREDENTIAL_HINT: &str = "use one of `credential = { env = \"NAME\" }`, `{ file = \"path\" }`, \
     `{ command = [\"program\"] }` or `{ header = \"X-Name\" }`";
