//! One tool, as its server listed it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use warmline_core::retry::ToolHints;

use warmline_store::ServerDescriptor;

/// A tool of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tool {
    parsed: Arc<ParsedTool>,
    pub(super) exposed_name: Arc<str>,
    server: Arc<ServerDescriptor>,
    /// Hints that changed are not trusted any more.
    pub(super) have_hints_changed: bool,
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
pub(super) struct ToolAnnotations {
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
    /// Parses a listed tool.
    pub(super) fn parse(
        raw: Bytes,
        server: &Arc<ServerDescriptor>,
    ) -> Result<Self, serde_json::Error> {
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

    pub(super) fn annotations(&self) -> ToolAnnotations {
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
