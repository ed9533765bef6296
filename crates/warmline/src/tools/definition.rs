//! A tool as model providers want it described.

use serde_json::{Map, Value, json};

use super::Tool;

/// Who is to read a definition.
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
    /// Its definition, under the name that models are to call it by.
    pub fn definition(&self, provider: ModelProvider) -> Value {
        match provider {
            ModelProvider::OpenAi => {
                json!({ "type": "function", "function": self.described("parameters") })
            },
            ModelProvider::OpenAiResponses => {
                let mut definition = Map::new();
                definition.insert("type".to_owned(), "function".into());
                definition.extend(self.described("parameters"));
                definition.into()
            },
            ModelProvider::Anthropic => self.described("input_schema").into(),
        }
    }

    fn described(&self, schema: &str) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("name".to_owned(), self.exposed_name().into());
        // A model that is told nothing but a name may still make sense of a title.
        if let Some(text) = self.description().or(self.title()) {
            members.insert("description".to_owned(), text.into());
        }
        members.insert(schema.to_owned(), object_schema(self.input_schema()));
        members
    }
}

/// The schema of an object, with its properties named: providers refuse one without them.
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
