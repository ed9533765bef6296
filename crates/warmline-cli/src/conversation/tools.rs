//! The tools of a server.

use serde_json::Value;
use warmline::config::nearest;
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

    /// What people may call it.
    pub(crate) fn title(&self) -> Option<&str> {
        let annotated = self.0.pointer("/annotations/title").and_then(Value::as_str);
        self.text("title").or(annotated)
    }

    /// What it does, in the server's words.
    pub(crate) fn description(&self) -> Option<&str> {
        self.text("description")
            .filter(|text| !text.trim().is_empty())
    }

    /// What is known of what it does.
    pub(crate) fn about(&self) -> &str {
        let about = self.description().or_else(|| self.title());
        about.unwrap_or_default()
    }

    pub(crate) fn schema(&self) -> Schema {
        Schema::of(self.0.get("inputSchema").cloned().unwrap_or_default())
    }

    /// What it says about running: a hint of the server, not a promise.
    pub(crate) fn repeats(&self) -> &'static str {
        let hint = |name: &str| self.hint(name) == Some(true);
        if hint("readOnlyHint") {
            "read-only"
        } else if hint("idempotentHint") {
            "may run twice"
        } else {
            ""
        }
    }

    /// A hint of the server about running it; none where it says nothing.
    pub(crate) fn hint(&self, name: &str) -> Option<bool> {
        self.0.get("annotations")?.get(name)?.as_bool()
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

    /// The tool of this name among those that were listed.
    pub(crate) fn listed<'t>(&self, name: &str, tools: &'t [Tool]) -> Outcome<&'t Tool> {
        let listed = tools.iter().find(|tool| tool.name() == name);
        listed.ok_or_else(|| self.unknown(name, tools))
    }

    fn unknown(&self, tool: &str, tools: &[Tool]) -> Problem {
        let server = &self.name;
        let what = format!("`{server}` has no tool `{}`", tool.escape_debug());
        let problem = Problem::new(Code::ToolUnknown, what)
            .of_server(server)
            .delivered(Delivery::Unsent);
        let names = tools.iter().map(Tool::name);
        problem.hint(match (nearest(tool, names.clone()), tools.len()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, 0) => "it has no tools at all".to_owned(),
            (None, 1..=12) => {
                let all: Vec<String> = names.map(|name| format!("`{name}`")).collect();
                format!("it has {}", all.join(", "))
            },
            (None, count) => format!(
                "it has {count} others; `warmline tools {}` lists them",
                self.again
            ),
        })
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
