//! Rules: who may use which server, and which of its tools.
//!
//! Asked by: [`pass`](crate::pass), at every request, and for every list of tools. What a rule
//! forbids is not shown and not called, whoever holds a ticket from before.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};
use warmline::core::names;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};

use crate::who::Subject;

/// The rules of every server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// All that are about a server have to allow what is done.
    servers: HashMap<String, SmallVec<[ServerRules; 1]>>,
}

/// The rules of one server. What is denied is denied; where anything is allowed by name, nothing
/// else is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerRules {
    /// What may be used.
    pub allow: Vec<Rule>,
    /// What may not be used.
    pub deny: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whom it is about.
    pub whose: Whose,
    /// The tools it is about, by patterns in which `*` stands for any characters; none for the
    /// whole server.
    pub tools: Option<Vec<String>>,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whose {
    /// Everybody.
    Everybody,
    /// An identity, by its name; of a signed token that is its issuer, a blank and its subject.
    Named(String),
    /// Whoever has a claim in a signed token that is this text, or a list with this text in it.
    Claim {
        /// The name of the claim.
        claim: String,
        /// What it must be, or hold.
        has: String,
    },
}

impl Rules {
    /// No rules: everybody who is let in may use everything.
    pub fn none() -> Self {
        Self::default()
    }

    /// The same with the rules of a server.
    #[must_use]
    pub fn with(mut self, server: impl Into<String>, rules: ServerRules) -> Self {
        self.servers.insert(server.into(), smallvec![rules]);
        self
    }

    /// Those by which something is allowed that both allow.
    pub(crate) fn and(&self, others: &Self) -> Self {
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

    /// Takes over the rules of others about some servers that these say nothing of, and names them.
    pub(crate) fn take_over(&mut self, others: &Self, of: impl Fn(&str) -> bool) -> Vec<String> {
        let is_meant = |server: &&String| !self.servers.contains_key(*server) && of(server);
        let taken: Vec<String> = others.servers.keys().filter(is_meant).cloned().collect();
        let rules = taken.iter().filter_map(|name| {
            let rules = others.servers.get(name)?;
            Some((name.clone(), rules.clone()))
        });
        self.servers.extend(rules);
        taken
    }

    /// The same without those of some servers.
    pub(crate) fn without(&self, servers: &[&String]) -> Self {
        let mut fewer = self.clone();
        fewer.servers.retain(|name, _| !servers.contains(&name));
        fewer
    }

    /// Whether somebody may use a server at all.
    pub(crate) fn may_use(&self, subject: &Subject, server: &str) -> bool {
        let mut all = self.servers.get(server).into_iter().flatten();
        all.all(|rules| rules.may_use(subject))
    }

    /// Whether somebody may see and call a tool of a server.
    pub(crate) fn may_call(&self, subject: &Subject, server: &str, tool: &str) -> bool {
        let mut all = self.servers.get(server).into_iter().flatten();
        all.all(|rules| rules.may_call(subject, tool))
    }

    /// Whether what is seen of a server depends on who looks.
    pub(crate) fn shown(&self, server: &str) -> Shown {
        if self.servers.contains_key(server) {
            Shown::ByCaller
        } else {
            Shown::Alike
        }
    }

    /// The same for the tool that a call names. Where there are rules, one that names none by a text
    /// is not passed on: its server might read a name into it.
    pub(crate) fn may_call_named(&self, subject: &Subject, server: &str, call: &Params) -> bool {
        if !self.servers.contains_key(server) {
            return true;
        }
        call.name()
            .is_some_and(|tool| self.may_call(subject, server, &tool))
    }
}

impl ServerRules {
    fn may_use(&self, subject: &Subject) -> bool {
        let denies = |rule: &Rule| rule.tools.is_none() && rule.whose.is(subject);
        let is_allowed = self.allow.iter().any(|rule| rule.whose.is(subject));
        !self.deny.iter().any(denies) && (self.allow.is_empty() || is_allowed)
    }

    fn may_call(&self, subject: &Subject, tool: &str) -> bool {
        let fits = |rule: &Rule| rule.is_about(tool) && rule.whose.is(subject);
        !self.deny.iter().any(fits) && (self.allow.is_empty() || self.allow.iter().any(fits))
    }
}

impl Rule {
    fn is_about(&self, tool: &str) -> bool {
        self.tools
            .as_ref()
            .is_none_or(|patterns| names::is_any(patterns, tool))
    }
}

impl Whose {
    fn is(&self, subject: &Subject) -> bool {
        match (self, subject) {
            (Self::Everybody, _) => true,
            (Self::Named(name), Subject::Known(known)) => known.name == *name,
            (Self::Claim { claim, has }, Subject::Known(known)) => {
                let said = known.claims.as_ref().and_then(|all| find(all, claim));
                said.is_some_and(|said| holds(claim, said, has))
            },
            (Self::Named(_) | Self::Claim { .. }, Subject::Anybody) => false,
        }
    }
}

/// The claim of that name; `a.b` is `b` within `a`, where no claim has the whole name.
fn find<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        find(claims.get(outer)?, inner)
    })
}

/// The claim that is a list of words in one text (RFC 8693).
const SCOPE: &str = "scope";

fn holds(claim: &str, said: &Value, text: &str) -> bool {
    match said {
        Value::String(all) if claim == SCOPE => all.split(' ').any(|one| one == text),
        Value::String(one) => one == text,
        Value::Array(all) => all.iter().any(|one| one.as_str() == Some(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// To whom a list is shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// To everybody.
    Alike,
    /// To whom the rules allow it.
    ByCaller,
}

/// The result of `tools/list`, as far as it has to be read.
#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow, default)]
    tools: Option<Vec<&'a RawValue>>,
    /// Who may keep the list for whom.
    #[serde(borrow, default, rename = "cacheScope")]
    scope: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// What a list says that no two callers may share.
const PRIVATE: &str = "\"private\"";

/// A list of no tools, in the era of what is not shown.
fn nothing(result: &[u8]) -> Bytes {
    let is_modern = memchr::memmem::find(result, b"\"resultType\"").is_some();
    Bytes::from_static(if is_modern {
        b"{\"tools\":[],\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"}"
    } else {
        b"{\"tools\":[]}"
    })
}

/// A list without the tools that may not be seen. What stays is as the server wrote it; a list
/// from which nothing goes is the very same bytes, but that it is no longer for everybody where
/// others may see less.
pub(crate) fn strike(result: Bytes, shown: Shown, may_be_seen: impl Fn(&str) -> bool) -> Bytes {
    let (tools, scope) = match serde_json::from_slice::<Listed<'_>>(&result) {
        Ok(Listed { tools: None, .. }) => return result,
        Ok(Listed {
            tools: Some(tools),
            scope,
        }) => (tools, scope),
        // What cannot be read cannot be struck out, and is not shown.
        Err(_) => return nothing(&result),
    };
    let is_told_wrongly = scope.is_some_and(|scope| scope.get() != PRIVATE);
    let mut stays = Vec::with_capacity(result.len());
    let mut number = 0;
    for tool in &tools {
        // A tool without a name cannot be called, and cannot be looked up.
        let named = serde_json::from_str::<Named<'_>>(tool.get());
        if named.is_ok_and(|named| may_be_seen(&named.name)) {
            stays.push(if number == 0 { b'[' } else { b',' });
            stays.extend_from_slice(tool.get().as_bytes());
            number += 1;
        }
    }
    if number == 0 {
        stays.push(b'[');
    }
    stays.push(b']');
    let is_struck = number < tools.len();
    let becomes_private = is_told_wrongly && (is_struck || shown == Shown::ByCaller);
    let mut edits: SmallVec<[Edit<'_>; 2]> = SmallVec::new();
    edits.extend(is_struck.then_some(Edit::Set("tools", &stays)));
    edits.extend(becomes_private.then_some(Edit::Set("cacheScope", PRIVATE.as_bytes())));
    if edits.is_empty() {
        return result;
    }
    let mut out = Vec::with_capacity(result.len());
    match splice::edit_object(&result, &edits, &mut out) {
        Ok(()) => out.into(),
        Err(_) => nothing(&result),
    }
}

#[cfg(test)]
mod tests;
