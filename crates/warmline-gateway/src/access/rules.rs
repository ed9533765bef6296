//! Rules: who may use which server, and which of its tools.
//!
//! They are checked at every request, also of sessions from before a change. A denied tool is
//! neither listed nor called.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};
use warmline_config::{AccessRule, AccessSubject, DeclaredAccess};
use warmline_core::message::params::Params;
use warmline_core::message::splice::{self, Edit};
use warmline_core::tool_names;

use crate::auth::Subject;

/// The rules of every server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// All rules of a server must allow a request.
    servers: HashMap<String, SmallVec<[DeclaredAccess; 1]>>,
}

impl AccessRules {
    /// No rules: every caller who authenticates may use everything.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds the rules of a server.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<String>, rules: DeclaredAccess) -> Self {
        self.servers.insert(server.into(), smallvec![rules]);
        self
    }

    pub(crate) fn intersection(&self, others: &Self) -> Self {
        let mut both = self.clone();
        for (server, more) in &others.servers {
            let all = both.servers.entry(server.clone()).or_default();
            for rules in more {
                if !all.contains(rules) {
                    all.push(rules.clone());
                }
            }
        }
        both
    }

    /// Takes the rules of `others` for the servers that `of` selects and that have none here, and
    /// returns their names.
    pub(crate) fn inherit_missing(
        &mut self,
        others: &Self,
        of: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let is_missing = |server: &&String| !self.servers.contains_key(*server) && of(server);
        let names: Vec<String> = others.servers.keys().filter(is_missing).cloned().collect();
        let rules = names.iter().filter_map(|name| {
            let rules = others.servers.get(name)?;
            Some((name.clone(), rules.clone()))
        });
        self.servers.extend(rules);
        names
    }

    pub(crate) fn without_servers(&self, servers: &[&String]) -> Self {
        let mut fewer = self.clone();
        fewer.servers.retain(|name, _| !servers.contains(&name));
        fewer
    }

    pub(crate) fn may_use(&self, subject: &Subject, server: &str) -> bool {
        self.allow(subject, server, None)
    }

    pub(crate) fn may_call(&self, subject: &Subject, server: &str, tool: &str) -> bool {
        self.allow(subject, server, Some(tool))
    }

    fn allow(&self, subject: &Subject, server: &str, tool: Option<&str>) -> bool {
        let mut all = self.servers.get(server).into_iter().flatten();
        all.all(|rules| allows(rules, subject, tool))
    }

    /// Whether callers may see different tools of a server.
    pub(crate) fn are_per_caller(&self, server: &str) -> bool {
        self.servers.contains_key(server)
    }

    /// Whether a caller may make this call. Where there are rules, a call without a text as its tool
    /// name is denied: a server might read a name into it.
    pub(crate) fn may_call_request(&self, subject: &Subject, server: &str, call: &Params) -> bool {
        let may_call = |tool: Cow<'_, str>| self.may_call(subject, server, &tool);
        !self.servers.contains_key(server) || call.name().is_some_and(may_call)
    }
}

/// Whether the rules of a server let a caller use a tool, or the server at all. A denial always
/// counts; if anything is allowed by name, nothing else is.
fn allows(rules: &DeclaredAccess, subject: &Subject, tool: Option<&str>) -> bool {
    // A denial of some tools does not deny the server, and a permission of some allows it.
    let applies = |rule: &AccessRule, to_server: bool| {
        let to_tool = match (&rule.tools, tool) {
            (None, _) => true,
            (Some(_), None) => to_server,
            (Some(patterns), Some(tool)) => tool_names::matches_any_pattern(patterns, tool),
        };
        to_tool && matches(&rule.subject, subject)
    };
    let is_denied = rules.deny.iter().any(|rule| applies(rule, false));
    !is_denied && (rules.allow.is_empty() || rules.allow.iter().any(|rule| applies(rule, true)))
}

fn matches(rule: &AccessSubject, subject: &Subject) -> bool {
    match (rule, subject) {
        (AccessSubject::Everyone, _) => true,
        (AccessSubject::Identity(name), Subject::Authenticated(known)) => known.name == *name,
        (AccessSubject::Claim { claim, value }, Subject::Authenticated(known)) => {
            let found = known.claims.as_ref().and_then(|all| find_claim(all, claim));
            found.is_some_and(|found| claim_contains(claim, found, value))
        },
        (AccessSubject::Identity(_) | AccessSubject::Claim { .. }, Subject::Anonymous) => false,
    }
}

/// The claim with this name; `a.b` is `b` in `a`, unless a claim has the whole name.
fn find_claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        find_claim(claims.get(outer)?, inner)
    })
}

/// A claim with several words in one text (RFC 8693).
const SCOPE_CLAIM: &str = "scope";

fn claim_contains(claim: &str, value: &Value, text: &str) -> bool {
    match value {
        Value::String(all) if claim == SCOPE_CLAIM => all.split(' ').any(|one| one == text),
        Value::String(one) => one == text,
        Value::Array(all) => all.iter().any(|one| one.as_str() == Some(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

#[derive(Deserialize)]
struct RawToolList<'a> {
    #[serde(borrow, default)]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, rename = "cacheScope")]
    scope: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawToolName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

const PRIVATE_CACHE_SCOPE: &str = "\"private\"";

/// An empty list, in the era of the list that it replaces.
fn empty_tool_list(result: &[u8]) -> Bytes {
    let is_modern = memchr::memmem::find(result, b"\"resultType\"").is_some();
    Bytes::from_static(if is_modern {
        b"{\"tools\":[],\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"}"
    } else {
        b"{\"tools\":[]}"
    })
}

/// Removes the tools that the caller may not see. The rest stays as the server wrote it, except that
/// a list becomes private where other callers may see less.
pub(crate) fn filter_tool_list(
    result: Bytes,
    is_per_caller: bool,
    is_visible: impl Fn(&str) -> bool,
) -> Bytes {
    let (tools, scope) = match serde_json::from_slice::<RawToolList<'_>>(&result) {
        Ok(RawToolList { tools: None, .. }) => return result,
        Ok(RawToolList {
            tools: Some(tools),
            scope,
        }) => (tools, scope),
        // What cannot be read cannot be filtered.
        Err(_) => return empty_tool_list(&result),
    };
    let is_shared = scope.is_some_and(|scope| scope.get() != PRIVATE_CACHE_SCOPE);
    let mut tools_json = Vec::with_capacity(result.len());
    let mut count = 0;
    for tool in &tools {
        // A tool without a name cannot be checked.
        let named = serde_json::from_str::<RawToolName<'_>>(tool.get());
        if named.is_ok_and(|named| is_visible(&named.name)) {
            tools_json.push(if count == 0 { b'[' } else { b',' });
            tools_json.extend_from_slice(tool.get().as_bytes());
            count += 1;
        }
    }
    if count == 0 {
        tools_json.push(b'[');
    }
    tools_json.push(b']');
    let is_filtered = count < tools.len();
    let becomes_private = is_shared && (is_filtered || is_per_caller);
    let mut edits: SmallVec<[Edit<'_>; 2]> = SmallVec::new();
    edits.extend(is_filtered.then_some(Edit::Set("tools", &tools_json)));
    edits
        .extend(becomes_private.then_some(Edit::Set("cacheScope", PRIVATE_CACHE_SCOPE.as_bytes())));
    if edits.is_empty() {
        return result;
    }
    let mut out = Vec::with_capacity(result.len());
    match splice::edit_object(&result, &edits, &mut out) {
        Ok(()) => out.into(),
        Err(_) => empty_tool_list(&result),
    }
}

#[cfg(test)]
mod tests;
