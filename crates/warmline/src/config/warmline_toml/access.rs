//! `allow` and `deny` of a server: tools by name, or rules that say whose they are.

use toml::de::DeValue;

use super::super::access::{Access, AccessRule, Caller};
use super::super::keys;
use super::reader::{Key, Reader, Value};
use crate::settings::place::{ConfigError, Show};
use crate::settings::{Group as _, Origin, ServerSettings};

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Allow,
    Deny,
}

impl List {
    pub(super) fn parse(key: &str) -> Option<Self> {
        match key {
            "allow" => Some(Self::Allow),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }
}

/// Whether a value is a list in which somebody is meant. A list of texts alone is a setting like
/// any other: it holds for everybody.
pub(super) fn is_about_callers(value: &Value<'_>) -> bool {
    let DeValue::Array(items) = value.get_ref() else {
        return false;
    };
    let is_table = |item: &Value<'_>| matches!(item.get_ref(), DeValue::Table(_));
    items.iter().any(is_table)
}

/// Whether a list says nothing. Whoever takes the last one out of a list of those who are let in
/// does not mean to let everybody in.
pub(super) fn is_empty(value: &Value<'_>) -> bool {
    matches!(value.get_ref(), DeValue::Array(items) if items.is_empty())
}

impl Reader<'_> {
    /// A list with rules. What nobody at all may call is the server's own setting as well, so that
    /// it holds where nobody asks who is calling.
    pub(super) fn rules(
        &self,
        list: List,
        key: &Key<'_>,
        value: &Value<'_>,
        access: &mut Access,
        settings: &mut ServerSettings,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.bad(format!("`{name}` is a list"), value.span(), Show::Nothing));
        };
        let rules: Result<Vec<AccessRule>, ConfigError> =
            items.iter().map(|item| self.rule(name, item)).collect();
        match list {
            List::Allow => {
                access.allow = rules?;
                settings.policy.allow = access.tools_of_anybody().unwrap_or_default();
            },
            List::Deny => {
                access.deny = rules?;
                let everybody = |rule: &&AccessRule| rule.caller == Caller::Everybody;
                let denied = access.deny.iter().filter(everybody);
                let denied = denied.filter_map(|rule| rule.tools.clone());
                settings.policy.deny = denied.flatten().collect();
            },
        }
        if let Some(setting) = ServerSettings::setting(name) {
            let place = self.source.place(value.span(), Show::Nothing);
            settings
                .origins()
                .put(setting.key, Origin::of_place(&place));
        }
        Ok(())
    }

    fn rule(&self, list: &str, item: &Value<'_>) -> Result<AccessRule, ConfigError> {
        if let DeValue::String(tool) = item.get_ref() {
            return Ok(AccessRule {
                caller: Caller::Everybody,
                tools: Some(vec![tool.to_string()]),
            });
        }
        let (mut identity, mut claim, mut has, mut tools) = (None, None, None, None);
        for (key, value) in self.table(list, item)? {
            let name = key.get_ref().as_ref();
            match name {
                "identity" => identity = Some(self.said(list, name, value)?),
                "claim" => claim = Some(self.said(list, name, value)?),
                "has" => has = Some(self.said(list, name, value)?),
                "tools" => tools = Some(self.words(&format!("{list}.tools"), value)?),
                _ => {
                    let known = keys::RULE.iter().copied();
                    return Err(self.unknown(key, "part of a rule", known));
                },
            }
        }
        let said = |what: &str| {
            let bad = self.bad(
                format!("a rule of `{list}` {what}"),
                item.span(),
                Show::Line,
            );
            Err(bad.hint(RULES))
        };
        let caller = match (identity, claim, has) {
            (None, None, None) => Caller::Everybody,
            (Some(name), None, None) => Caller::Named(name),
            (None, Some(claim), Some(has)) => Caller::WithClaim { claim, has },
            (None, Some(_), None) => return said("does not say what its claim has"),
            (None, None, Some(_)) => return said("does not say which claim has it"),
            (Some(_), _, _) => return said("is about an identity and about a claim"),
        };
        if tools.as_ref().is_some_and(Vec::is_empty) {
            return said("is about no tool at all");
        }
        Ok(AccessRule { caller, tools })
    }

    fn said(&self, list: &str, name: &str, value: &Value<'_>) -> Result<String, ConfigError> {
        let text = self.text(&format!("{list}.{name}"), value)?;
        if text.trim().is_empty() {
            let what = format!("`{list}.{name}` is empty");
            return Err(self.bad(what, value.span(), Show::Line));
        }
        Ok(text)
    }
}

const RULES: &str = "write `\"tool_*\"`, `{ identity = \"alice\" }` or \
     `{ claim = \"groups\", has = \"finance\" }`, with `tools = [\"read_*\"]` for some tools alone";
