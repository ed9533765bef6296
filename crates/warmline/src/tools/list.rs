//! The tools of a server, with the names that models call them by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use warmline_core::exchange::Trouble;
use warmline_core::names::{self, Names, nearest};
use warmline_core::policy::Policy;
use warmline_core::repeat::Hints;

use super::definition::ModelProvider;
use super::kept::Read;
use super::tool::{Annotations, Tool};
use super::{may_call, unknown};
use crate::store::ServerCard;

/// What tools said of themselves when they were first listed, and which of them took it back.
pub(super) type Seen = BTreeMap<String, (Annotations, Kept)>;

/// Whether a tool kept to what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}

/// Names that are remembered of one list, listed or not any more.
const MOST_SEEN: usize = 10_000;

/// The tools of a server that may be called, in the server's order.
#[derive(Clone, Debug)]
pub struct ToolList {
    server: Arc<ServerCard>,
    tools: Vec<Tool>,
    /// Where each tool stands, by its name at the server.
    places: BTreeMap<String, usize>,
    names: Names,
    bytes: usize,
    /// How long it is good by the word of its server, if that says anything of it.
    good_for: Option<Duration>,
}

impl ToolList {
    pub(super) fn good_for(&self) -> Option<Duration> {
        self.good_for
    }

    /// The list that a server gave, as far as the policy lets its tools be called.
    pub(crate) fn of(server: &ServerCard, read: impl Into<Read>, policy: &Policy) -> Self {
        let Read { items, good_for } = read.into();
        let mut list = Self {
            good_for,
            tools: Vec::with_capacity(items.len()),
            places: BTreeMap::new(),
            names: Names::default(),
            bytes: items.iter().map(Bytes::len).sum(),
            server: Arc::new(server.clone()),
        };
        for raw in items {
            match Tool::read(raw, &list.server) {
                Ok(tool) if may_call(policy, tool.name()) => list.add(tool),
                Ok(_) => {},
                Err(error) => {
                    let server = &list.server.name;
                    tracing::warn!(server, %error, "tool left out: not a definition");
                },
            }
        }
        list.names = Names::of(list.places.keys().map(String::as_str), names::LONGEST);
        let names = &list.names;
        list.tools = { list.tools }
            .into_iter()
            .map(|tool| match names.exposed(tool.name()) {
                Some(name) => tool.clone().exposed_as(name),
                None => tool,
            })
            .collect();
        list
    }

    fn add(&mut self, tool: Tool) {
        if self.places.contains_key(tool.name()) {
            let server = &self.server.name;
            tracing::warn!(server, tool = tool.name(), "tool left out: listed twice");
            return;
        }
        self.places.insert(tool.name().to_owned(), self.tools.len());
        self.tools.push(tool);
    }

    /// Compares with what the tools said before, and doubts those that took it back. Gives the
    /// names of those that did so just now.
    pub(super) fn compare(&mut self, seen: &mut Seen) -> Vec<String> {
        let mut changed = Vec::new();
        if seen.len() + self.tools.len() > MOST_SEEN {
            seen.retain(|name, _| self.places.contains_key(name));
        }
        for tool in &mut self.tools {
            let says = tool.annotations();
            let (said, kept) = seen
                .entry(tool.name().to_owned())
                .or_insert((says, Kept::Yes));
            if *said != says {
                changed.push(tool.name().to_owned());
                *kept = Kept::No;
                *said = says;
            }
            if *kept == Kept::No {
                tool.doubt();
            }
        }
        changed
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.server.name
    }

    /// The tools, in the server's order.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tool of that name: its own, or the one that models know it by.
    ///
    /// # Errors
    /// `tool-unknown`, which names the tool, the server and the nearest right name.
    pub fn find(&self, name: &str) -> Result<&Tool, Trouble> {
        let original = |exposed| self.by_name(self.names.original(exposed)?);
        self.by_name(name)
            .or_else(|| original(name))
            .ok_or_else(|| unknown(&self.server.name, name, Some(self)))
    }

    /// What the tool of that name says of running twice.
    pub fn hints(&self, name: &str) -> Option<Hints> {
        self.by_name(name).map(Tool::hints)
    }

    /// The definitions of all tools, as a model provider wants them.
    pub fn definitions(&self, provider: ModelProvider) -> Vec<Value> {
        self.tools
            .iter()
            .map(|tool| tool.definition(provider))
            .collect()
    }

    /// What the list holds, in bytes of the server.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn by_name(&self, original: &str) -> Option<&Tool> {
        self.tools.get(*self.places.get(original)?)
    }

    /// Whether the server lists a tool of that name.
    pub(crate) fn has(&self, original: &str) -> bool {
        self.places.contains_key(original)
    }

    /// The name of a tool of the server that is most like this one.
    pub(super) fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.places.keys().map(String::as_str))
    }
}

impl<'a> IntoIterator for &'a ToolList {
    type Item = &'a Tool;
    type IntoIter = std::slice::Iter<'a, Tool>;

    fn into_iter(self) -> Self::IntoIter {
        self.tools.iter()
    }
}
