//! Tools: what a server offers, the names that models call it by, and which of it may be called.
//!
//! Rules are checked twice, for the list and for the call: a caller that knows the name of a hidden
//! tool cannot call it either. The list holds the schemas of structured results, so checking a
//! result sends nothing to the server.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::Policy;
use warmline_core::retry::ToolHints;
use warmline_core::tool_names::{self, ToolNames, closest_match};

use crate::list_cache::ServerPrincipal;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_store::ServerDescriptor;

/// The tools of a server that may be called, in the server's order.
#[derive(Clone, Debug)]
pub struct ToolList {
    server: Arc<ServerDescriptor>,
    tools: Vec<Tool>,
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
                Ok(tool) if policy.allows_tool(tool.name()) => list.add(tool),
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

    pub(crate) fn contains(&self, original: &str) -> bool {
        self.index.contains_key(original)
    }

    fn nearest(&self, name: &str) -> Option<&str> {
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

/// The error for a tool that the server does not have, with the nearest name if its tools are known.
pub(crate) fn unknown_tool(server: &str, name: &str, known: Option<&ToolList>) -> Diagnostic {
    let what = format!("tool `{}` not found on `{server}`", name.escape_debug());
    let diagnostic = Diagnostic::new(Reason::ToolUnknown, what);
    let Some(known) = known else {
        return diagnostic;
    };
    match known.nearest(name) {
        Some(near) => diagnostic.with_hint(format!("did you mean `{}`?", near.escape_debug())),
        None if known.is_empty() => diagnostic.with_cause("it has no tools that may be called"),
        None => diagnostic,
    }
}

/// A tool of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tool {
    parsed: Arc<ParsedTool>,
    exposed_name: Arc<str>,
    server: Arc<ServerDescriptor>,
    /// Hints that changed are not trusted any more.
    have_hints_changed: bool,
}

/// A parsed definition; values are slices of `raw`.
#[derive(Debug)]
struct ParsedTool {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Bytes,
    output_schema: Option<Bytes>,
    meta: Option<Bytes>,
    annotations: ToolAnnotations,
    raw: Bytes,
}

/// The hints of a tool; a missing hint differs from `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ToolAnnotations {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
}

/// A tool's entry in a catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolMetadata {
    /// The kind of tool: always `mcp`.
    pub kind: &'static str,
    /// Its name for people.
    pub display_name: String,
    /// The server it belongs to.
    pub server: String,
    /// The folder of its server in the catalogue.
    pub folder: Option<String>,
    /// The short name of its server in the catalogue.
    pub slug: Option<String>,
}

#[derive(Deserialize)]
struct ListedToolJson<'a> {
    name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(borrow, rename = "inputSchema")]
    input_schema: Option<&'a RawValue>,
    #[serde(borrow, rename = "outputSchema")]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

/// The format of a tool definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelProvider {
    /// A function of OpenAI's chat completions.
    #[expect(clippy::doc_markdown, reason = "a name of a company is no code")]
    OpenAi,
    /// A function of OpenAI's responses: the same, one level less deep.
    #[expect(clippy::doc_markdown, reason = "a name of a company is no code")]
    OpenAiResponses,
    /// A tool of Anthropic's messages.
    Anthropic,
}

impl Tool {
    fn parse(raw: Bytes, server: &Arc<ServerDescriptor>) -> Result<Self, serde_json::Error> {
        let members: ListedToolJson<'_> = serde_json::from_slice(&raw)?;
        let part = |value: &RawValue| raw.slice_ref(value.get().as_bytes());
        // Members of a wrong type are ignored.
        let hints: Value = members
            .annotations
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let title_hint = hints["title"].as_str();
        let listed = ParsedTool {
            title: members.title.or_else(|| title_hint.map(str::to_owned)),
            description: members.description,
            input_schema: members.input_schema.map_or_else(Bytes::new, part),
            output_schema: members.output_schema.map(part),
            meta: members.meta.map(part),
            annotations: ToolAnnotations {
                read_only: hints["readOnlyHint"].as_bool(),
                destructive: hints["destructiveHint"].as_bool(),
                idempotent: hints["idempotentHint"].as_bool(),
                open_world: hints["openWorldHint"].as_bool(),
            },
            name: members.name,
            raw: raw.clone(),
        };
        Ok(Self {
            exposed_name: Arc::from(listed.name.as_str()),
            parsed: Arc::new(listed),
            server: Arc::clone(server),
            have_hints_changed: false,
        })
    }

    fn annotations(&self) -> ToolAnnotations {
        self.parsed.annotations
    }

    /// Its name at the server.
    pub fn name(&self) -> &str {
        &self.parsed.name
    }

    /// Its name for models, which differs where a provider would refuse the name.
    pub fn exposed_name(&self) -> &str {
        &self.exposed_name
    }

    /// Its title for people.
    pub fn title(&self) -> Option<&str> {
        self.parsed.title.as_deref()
    }

    /// Its description.
    pub fn description(&self) -> Option<&str> {
        self.parsed.description.as_deref()
    }

    /// The JSON schema of its arguments; `null` without a valid one.
    pub fn input_schema(&self) -> Value {
        serde_json::from_slice(&self.parsed.input_schema).unwrap_or_default()
    }

    /// The JSON schema of its structured results, which Warmline does not check.
    pub fn output_schema(&self) -> Option<Value> {
        let raw = self.parsed.output_schema.as_ref()?;
        serde_json::from_slice(raw).ok()
    }

    /// Its `_meta`.
    pub fn meta(&self) -> Option<Value> {
        serde_json::from_slice(self.parsed.meta.as_ref()?).ok()
    }

    /// Its hints about running twice, and whether they changed.
    pub(crate) fn hints(&self) -> ToolHints {
        ToolHints {
            read_only: self.parsed.annotations.read_only == Some(true),
            idempotent: self.parsed.annotations.idempotent == Some(true),
            have_changed: self.have_hints_changed,
        }
    }

    /// Its definition as raw JSON.
    pub fn raw(&self) -> &Bytes {
        &self.parsed.raw
    }

    /// Its entry in a catalogue.
    pub fn metadata(&self) -> ToolMetadata {
        ToolMetadata {
            kind: "mcp",
            display_name: self.title().unwrap_or(self.name()).to_owned(),
            server: self.server.name.clone(),
            folder: self.server.folder.clone(),
            slug: self.server.slug.clone(),
        }
    }

    /// Its definition under its exposed name.
    pub fn definition(&self, provider: ModelProvider) -> Value {
        match provider {
            ModelProvider::OpenAi => {
                json!({ "type": "function", "function": self.provider_members("parameters") })
            },
            ModelProvider::OpenAiResponses => {
                let mut definition = Map::new();
                definition.insert("type".to_owned(), "function".into());
                definition.extend(self.provider_members("parameters"));
                definition.into()
            },
            ModelProvider::Anthropic => self.provider_members("input_schema").into(),
        }
    }

    fn provider_members(&self, schema: &str) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("name".to_owned(), self.exposed_name().into());
        // A title helps a model more than a bare name.
        if let Some(text) = self.description().or(self.title()) {
            members.insert("description".to_owned(), text.into());
        }
        members.insert(schema.to_owned(), object_schema(self.input_schema()));
        members
    }
}

/// An object schema with `type` and `properties`, which providers require.
fn object_schema(schema: Value) -> Value {
    let mut members = match schema {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        },
    };
    members.entry("type").or_insert_with(|| "object".into());
    members
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    members.into()
}
