//! The tools of a server, page by page.

use serde_json::{Value, json};
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::protocol::params::Params;

use super::Conversation;
use crate::problem::{Outcome, Problem};
use crate::values::Schema;

/// A tool as its server lists it.
#[derive(Clone, Debug)]
pub(crate) struct Tool(pub(crate) Value);

impl Tool {
    pub(crate) fn name(&self) -> &str {
        self.text("name").unwrap_or_default()
    }

    /// What it is, in the server's words.
    pub(crate) fn title(&self) -> &str {
        let annotated = self.0.pointer("/annotations/title").and_then(Value::as_str);
        self.text("title")
            .or(annotated)
            .or(self.text("description"))
            .unwrap_or_default()
    }

    pub(crate) fn schema(&self) -> Schema {
        Schema::of(self.0.get("inputSchema").cloned().unwrap_or_default())
    }

    /// What it says about running: a hint of the server, not a promise.
    pub(crate) fn repeats(&self) -> &'static str {
        let hint = |name: &str| {
            self.0.get("annotations").and_then(|all| all.get(name)) == Some(&Value::Bool(true))
        };
        if hint("readOnlyHint") {
            "read-only"
        } else if hint("idempotentHint") {
            "may run twice"
        } else {
            ""
        }
    }

    fn text(&self, member: &str) -> Option<&str> {
        self.0.get(member).and_then(Value::as_str)
    }
}

impl Conversation<'_> {
    /// Every tool of the server. Pages end, and so does our patience with them.
    pub(crate) async fn tools(&self) -> Outcome<Vec<Tool>> {
        let mut tools = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..PAGES {
            let params = match &cursor {
                Some(cursor) => params_of(&json!({ "cursor": cursor }))?,
                None => Params::empty(),
            };
            let told = self.ask("tools/list", params, &()).await?;
            let mut page = told.result(self.name(), "tools/list")?;
            let listed = page.get_mut("tools").map(Value::take);
            let Some(Value::Array(listed)) = listed else {
                let what = format!(
                    "the answer of `{}` to tools/list holds no tools",
                    self.name()
                );
                return Err(Problem::new(Code::BadAnswer, what).delivered(Delivery::Answered));
            };
            tools.extend(listed.into_iter().map(Tool));
            cursor = page
                .get("nextCursor")
                .filter(|cursor| cursor.is_string())
                .cloned();
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        let what = format!("`{}` lists tools without end", self.name());
        Err(Problem::new(Code::BadAnswer, what)
            .because(format!("after {PAGES} pages there was still another"))
            .delivered(Delivery::Answered))
    }
}

/// Parameters of ours. They are small and well-formed by their making.
pub(super) fn params_of(value: &Value) -> Outcome<Params> {
    Params::of(value).map_err(|error| {
        Problem::new(Code::Bug, "a request could not be written").because(error.to_string())
    })
}

/// More pages than any server needs.
const PAGES: usize = 200;
