//! The tools of a server with their exposed names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::Policy;
use warmline_core::retry::ToolHints;
use warmline_core::tool_names::{self, ToolNames, closest_match};

use super::tool::{ModelProvider, Tool, ToolAnnotations};
use super::{may_call, unknown_tool};
use crate::list_cache::ServerPrincipal;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_store::ServerDescriptor;

/// The tools of a server that may be called, in the server's order.
#[derive(Clone, Debug)]
pub struct ToolList {
    server: Arc<ServerDescriptor>,
    tools: Vec<Tool>,
    /// The index of each tool, by its name at the server.
    index: BTreeMap<String, usize>,
    exposed_names: ToolNames,
}

impl ToolList {
    /// The list that a server gave, without the tools that the policy hides.
    pub(crate) fn from_listing(
        server: &ServerDescriptor,
        items: Vec<Bytes>,
        policy: &Policy,
    ) -> Self {
        let mut list = Self {
            tools: Vec::with_capacity(items.len()),
            index: BTreeMap::new(),
            exposed_names: ToolNames::default(),
            server: Arc::new(server.clone()),
        };
        for raw in items {
            match Tool::parse(raw, &list.server) {
                Ok(tool) if may_call(policy, tool.name()) => list.add(tool),
                Ok(_) => {},
                Err(error) => {
                    let server = &list.server.name;
                    tracing::warn!(server, %error, "tool left out: not a definition");
                },
            }
        }
        list.exposed_names = ToolNames::from_originals(
            list.index.keys().map(String::as_str),
            tool_names::MAX_NAME_LENGTH,
        );
        for tool in &mut list.tools {
            if let Some(name) = list.exposed_names.exposed(tool.name()) {
                tool.exposed_name = Arc::from(name);
            }
        }
        list
    }

    fn add(&mut self, tool: Tool) {
        if self.index.contains_key(tool.name()) {
            let server = &self.server.name;
            tracing::warn!(server, tool = tool.name(), "tool left out: listed twice");
            return;
        }
        self.index.insert(tool.name().to_owned(), self.tools.len());
        self.tools.push(tool);
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.server.name
    }

    /// The tools, in the server's order.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tool with this name at the server, or this exposed name.
    ///
    /// # Errors
    /// `tool-unknown`, with the nearest name.
    pub fn find(&self, name: &str) -> Result<&Tool, Diagnostic> {
        let original = |exposed| self.by_name(self.exposed_names.original(exposed)?);
        self.by_name(name)
            .or_else(|| original(name))
            .ok_or_else(|| unknown_tool(&self.server.name, name, Some(self)))
    }

    /// The hints of a tool about running twice.
    pub(crate) fn hints(&self, name: &str) -> Option<ToolHints> {
        self.by_name(name).map(Tool::hints)
    }

    /// The definitions of all tools for a model provider.
    pub fn definitions(&self, provider: ModelProvider) -> Vec<Value> {
        self.tools
            .iter()
            .map(|tool| tool.definition(provider))
            .collect()
    }

    fn by_name(&self, original: &str) -> Option<&Tool> {
        self.tools.get(*self.index.get(original)?)
    }

    /// Whether the server lists a tool of that name.
    pub(crate) fn contains(&self, original: &str) -> bool {
        self.index.contains_key(original)
    }

    pub(super) fn nearest(&self, name: &str) -> Option<&str> {
        closest_match(name, self.index.keys().map(String::as_str))
    }
}

impl<'a> IntoIterator for &'a ToolList {
    type Item = &'a Tool;
    type IntoIter = std::slice::Iter<'a, Tool>;

    fn into_iter(self) -> Self::IntoIter {
        self.tools.iter()
    }
}

/// Annotations are kept for at most this many principals.
const MAX_PRINCIPALS: usize = 1_024;
/// The annotations of at most this many tools of one principal are kept, listed or not.
const MAX_HISTORY: usize = 10_000;

/// The annotations of each tool when it was listed last, and whether they ever changed.
type AnnotationHistory = BTreeMap<String, (ToolAnnotations, bool)>;

/// The annotations of one server's tools, for each principal that listed them. They outlive the lists,
/// and the sessions that the lists came from.
#[derive(Debug, Default)]
pub(crate) struct AnnotationStore(Mutex<HashMap<ServerPrincipal, (AnnotationHistory, Instant)>>);

impl AnnotationStore {
    /// Compares a new list with earlier ones. Tools whose annotations changed are marked and no
    /// longer trusted.
    pub(crate) fn compare(&self, principal: ServerPrincipal, list: &mut ToolList) {
        let changed = {
            let mut all = self.0.lock();
            let (history, last_used) = all
                .entry(principal)
                .or_insert_with(|| (AnnotationHistory::new(), clock::now()));
            *last_used = clock::now();
            let changed = compare_annotations(history, list);
            if all.len() > MAX_PRINCIPALS {
                let oldest = all.iter().min_by_key(|(_, (_, last_used))| *last_used);
                if let Some(oldest) = oldest.map(|(principal, _)| *principal) {
                    all.remove(&oldest);
                }
            }
            changed
        };
        for tool in changed {
            let server = list.server();
            tracing::warn!(server, tool, "the annotations of this tool changed");
        }
    }
}

/// Marks the tools whose annotations ever changed. Returns the names of those that changed now.
fn compare_annotations(history: &mut AnnotationHistory, list: &mut ToolList) -> Vec<String> {
    let mut changed = Vec::new();
    if history.len() + list.tools.len() > MAX_HISTORY {
        history.retain(|name, _| list.index.contains_key(name));
    }
    for tool in &mut list.tools {
        let current = tool.annotations();
        let (last, have_changed) = history
            .entry(tool.name().to_owned())
            .or_insert((current, false));
        if *last != current {
            changed.push(tool.name().to_owned());
            *have_changed = true;
            *last = current;
        }
        tool.have_hints_changed = *have_changed;
    }
    changed
}
