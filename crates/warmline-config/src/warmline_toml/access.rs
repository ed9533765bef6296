//! `allow` and `deny` of a server: names of tools, or rules about callers.

use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy};
use warmline_engine::settings::{ServerSettings, SettingOrigin, SettingsGroup as _};

use crate::access::{AccessRule, AccessSubject};
use crate::declaration::Declaration;
use crate::document::{Node, Value};
use crate::keys;
use crate::reader::Reader;

impl Reader<'_> {
    /// A list without rules is a setting like any other. Of a list with rules, what holds for
    /// everyone is the setting as well, so that it holds where callers have no names.
    pub(super) fn access_list(
        &self,
        list: &str,
        node: &Node<'_>,
        server: &mut Declaration,
    ) -> Result<(), ConfigError> {
        let items = node.as_list().unwrap_or_default();
        let is_allow = list == "allow";
        if is_allow && items.is_empty() && node.as_list().is_some() {
            let what = format!(
                "`allow` of `{}` is empty, which would allow everything",
                server.name
            );
            let error = self.bad_value(what, node, ExcerptPolicy::KeyAndValue);
            let hint = "leave it out to allow all; to allow nobody, `enabled = false`";
            return Err(error.with_hint(hint));
        }
        let Some(setting) = ServerSettings::setting(list) else {
            return Ok(());
        };
        if !items
            .iter()
            .any(|item| matches!(item.value, Value::Table(_)))
        {
            return self.setting(setting, node, &mut server.settings);
        }
        let rules = items.iter().map(|item| self.access_rule(list, item));
        let rules = rules.collect::<Result<_, _>>()?;
        let policy = &mut server.settings.policy;
        if is_allow {
            server.access.allow = rules;
            policy.allow = server.access.all_allowed_tools().unwrap_or_default();
        } else {
            server.access.deny = rules;
            policy.deny = server.access.tools_denied_to_everyone();
        }
        let origin = SettingOrigin::from_location(&self.place(node));
        server.settings.origins_mut().insert(setting.key, origin);
        Ok(())
    }

    fn access_rule(&self, list: &str, item: &Node<'_>) -> Result<AccessRule, ConfigError> {
        if let Some(tool) = item.as_text() {
            return Ok(AccessRule {
                subject: AccessSubject::Everyone,
                tools: Some(vec![tool.to_owned()]),
            });
        }
        let (mut identity, mut claim, mut has, mut tools) = (None, None, None, None);
        for (key, node) in self.table(list, item)? {
            let name = format!("{list}.{}", key.name);
            match key.name.as_ref() {
                "identity" => identity = Some(self.nonempty_text(&name, node)?),
                "claim" => claim = Some(self.nonempty_text(&name, node)?),
                "has" => has = Some(self.nonempty_text(&name, node)?),
                "tools" => tools = Some(self.texts(&name, node)?),
                _ => {
                    let known = keys::RULE.iter().copied();
                    return Err(self.unknown_key(key, "part of a rule", known));
                },
            }
        }
        let fail = |what: &str| {
            let what = format!("a rule of `{list}` {what}");
            let error = self.bad_value(what, item, ExcerptPolicy::KeyAndValue);
            Err(error.with_hint(ACCESS_RULE_HINT))
        };
        let subject = match (identity, claim, has) {
            (None, None, None) => AccessSubject::Everyone,
            (Some(name), None, None) => AccessSubject::Identity(name),
            (None, Some(claim), Some(value)) => AccessSubject::Claim { claim, value },
            (None, Some(_), None) => return fail("does not say what its claim has"),
            (None, None, Some(_)) => return fail("does not say which claim has it"),
            (Some(_), _, _) => return fail("is about an identity and about a claim"),
        };
        if tools.as_ref().is_some_and(Vec::is_empty) {
            return fail("is about no tool at all");
        }
        Ok(AccessRule { subject, tools })
    }

    fn nonempty_text(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        let text = self.text(name, node)?;
        if text.trim().is_empty() {
            let what = format!("`{name}` is empty");
            return Err(self.bad_value(what, node, ExcerptPolicy::KeyAndValue));
        }
        Ok(text)
    }
}

const ACCESS_RULE_HINT: &str = "write `\"tool_*\"`, `{ identity = \"alice\" }` or \
     `{ claim = \"groups\", has = \"finance\" }`, with `tools = [\"read_*\"]` for some tools alone";
