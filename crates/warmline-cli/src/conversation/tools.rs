//! The tools of a server.

use serde_json::Value;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::upstream::List;

use super::line::Unlisted;
use super::{Conversation, interrupted};
use crate::clock;
use crate::interrupt::until_interrupted;
use crate::problem::{Outcome, Problem};
use crate::report::text::seconds;
use crate::rules;
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
    /// Every tool of the server that may be called.
    pub(crate) async fn tools(&self) -> Outcome<Vec<Tool>> {
        let method = List::Tools.method();
        self.report.account(&format!("→ {method}"));
        let begun = clock::now();
        let what = format!("waiting for {method} of {}", self.name);
        let listing = Box::pin(self.line.list(List::Tools, self.patience));
        let listed = until_interrupted(self.report.while_waiting(&what, listing)).await;
        let took = begun.elapsed();
        match listed {
            Ok(Ok(items)) => {
                let count = items.len();
                self.report
                    .account(&format!("← {count} tools after {}", seconds(took)));
                let mut tools: Vec<Tool> = items
                    .iter()
                    .map(|raw| self.read_tool(raw))
                    .collect::<Outcome<_>>()?;
                tools.retain(|tool| rules::may_call(&self.settings, tool.name()));
                Ok(tools)
            },
            Ok(Err(Unlisted::Failed(problem))) => {
                Err(self.failed(problem, method.to_owned(), took))
            },
            Ok(Err(Unlisted::SaidNo(raw))) => Err(self.said_no(&raw, method, method)),
            Err(_) => Err(interrupted(&self.name, Delivery::Unknown).at(method)),
        }
    }

    fn read_tool(&self, raw: &[u8]) -> Outcome<Tool> {
        serde_json::from_slice(raw).map(Tool).map_err(|error| {
            let what = format!("`{}` lists a tool that cannot be read", self.name);
            Problem::new(Code::BadAnswer, what)
                .because(error.to_string())
                .delivered(Delivery::Answered)
        })
    }
}
