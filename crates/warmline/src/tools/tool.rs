//! One tool, as its server listed it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use warmline_core::repeat::{Hints, Steadiness};

use crate::store::ServerCard;

/// A tool of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tool {
    listed: Arc<Listed>,
    exposed: Arc<str>,
    server: Arc<ServerCard>,
    steady: Steadiness,
}

/// What a server wrote of a tool; values are parts of `raw`.
#[derive(Debug)]
struct Listed {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Bytes,
    output_schema: Option<Bytes>,
    meta: Option<Bytes>,
    annotations: Annotations,
    raw: Bytes,
}

/// What a tool says of its effects. What it does not say is told apart from "no".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Annotations {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
}

/// What a tool is and where it belongs, for catalogues.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The kind of tool: always `mcp`.
    pub kind: &'static str,
    /// What people call it.
    pub display_name: String,
    /// The server it belongs to.
    pub server: String,
    /// The folder its server belongs to in the catalogue it comes from.
    pub folder: Option<String>,
    /// Its server's short name there.
    pub slug: Option<String>,
}

/// The members of a listed tool that are read here.
#[derive(Deserialize)]
struct Members<'a> {
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

/// The members of `annotations` that are read here. One of a wrong type says nothing.
#[derive(Default, Deserialize)]
struct Said {
    title: Option<Value>,
    #[serde(rename = "readOnlyHint")]
    read_only: Option<Value>,
    #[serde(rename = "destructiveHint")]
    destructive: Option<Value>,
    #[serde(rename = "idempotentHint")]
    idempotent: Option<Value>,
    #[serde(rename = "openWorldHint")]
    open_world: Option<Value>,
}

impl Tool {
    /// Reads a tool as a server listed it.
    pub(super) fn read(raw: Bytes, server: &Arc<ServerCard>) -> Result<Self, serde_json::Error> {
        let members: Members<'_> = serde_json::from_slice(&raw)?;
        let said: Said = members
            .annotations
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let part = |value: &RawValue| raw.slice_ref(value.get().as_bytes());
        let yes_or_no = |value: Option<Value>| value.as_ref().and_then(Value::as_bool);
        let title_hint = said.title.as_ref().and_then(Value::as_str);
        let listed = Listed {
            title: members.title.or_else(|| title_hint.map(str::to_owned)),
            description: members.description,
            input_schema: members.input_schema.map_or_else(Bytes::new, part),
            output_schema: members.output_schema.map(part),
            meta: members.meta.map(part),
            annotations: Annotations {
                read_only: yes_or_no(said.read_only),
                destructive: yes_or_no(said.destructive),
                idempotent: yes_or_no(said.idempotent),
                open_world: yes_or_no(said.open_world),
            },
            name: members.name,
            raw: raw.clone(),
        };
        Ok(Self {
            exposed: Arc::from(listed.name.as_str()),
            listed: Arc::new(listed),
            server: Arc::clone(server),
            steady: Steadiness::Steady,
        })
    }

    /// The same tool under the name that models are to call it by.
    pub(super) fn exposed_as(mut self, name: &str) -> Self {
        if *self.exposed != *name {
            self.exposed = Arc::from(name);
        }
        self
    }

    /// Nothing is built on the hints of this tool any more: they changed.
    pub(super) fn doubt(&mut self) {
        self.steady = Steadiness::Changed;
    }

    pub(super) fn annotations(&self) -> Annotations {
        self.listed.annotations
    }

    /// Its name at the server: what is called.
    pub fn name(&self) -> &str {
        &self.listed.name
    }

    /// Its name for models: the same, unless a provider would refuse it.
    pub fn exposed_name(&self) -> &str {
        &self.exposed
    }

    /// What people call it, if the server says so.
    pub fn title(&self) -> Option<&str> {
        self.listed.title.as_deref()
    }

    /// What it does.
    pub fn description(&self) -> Option<&str> {
        self.listed.description.as_deref()
    }

    /// The JSON schema of its arguments; `null` where the server gave none that can be read.
    pub fn input_schema(&self) -> Value {
        serde_json::from_slice(&self.listed.input_schema).unwrap_or_default()
    }

    /// The JSON schema of its structured results. Results are handed out as they come: whoever
    /// wants them checked has the schema here, without asking the server for each call.
    pub fn output_schema(&self) -> Option<Value> {
        let raw = self.listed.output_schema.as_ref()?;
        serde_json::from_slice(raw).ok()
    }

    /// Its `_meta`.
    pub fn meta(&self) -> Option<Value> {
        serde_json::from_slice(self.listed.meta.as_ref()?).ok()
    }

    /// What it says of running twice, and whether it always said so.
    pub fn hints(&self) -> Hints {
        Hints {
            read_only: self.listed.annotations.read_only == Some(true),
            idempotent: self.listed.annotations.idempotent == Some(true),
            steady: self.steady,
        }
    }

    /// Its definition as the server wrote it.
    pub fn raw(&self) -> &Bytes {
        &self.listed.raw
    }

    /// What it is and where it belongs.
    pub fn metadata(&self) -> Metadata {
        Metadata {
            kind: "mcp",
            display_name: self.title().unwrap_or(self.name()).to_owned(),
            server: self.server.name.clone(),
            folder: self.server.folder.clone(),
            slug: self.server.slug.clone(),
        }
    }
}
