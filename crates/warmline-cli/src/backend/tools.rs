//! The tools of a server, and its rules about them. Runs ask the engine, which applies the same rules.

use serde_json::Value;
use warmline_config::{AccessRule, AccessSubject};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::{Deadlines, Diagnostic};
use warmline_engine::settings::{ServerSettings, SettingOrigin, SettingsGroup as _};
use warmline_platform::clock;
use warmline_upstream::ListKind;

use super::CommandSession;
use super::reply::RequestFailure;
use crate::hints::did_you_mean;
use crate::output::{CliResult, Problem, format_duration, one_line};
use crate::target::Target;
use crate::values::Schema;

#[derive(Clone, Debug)]
pub(crate) struct Tool(pub(crate) Value);

impl Tool {
    pub(crate) fn name(&self) -> &str {
        self.string_member("name").unwrap_or_default()
    }

    pub(crate) fn title(&self) -> Option<&str> {
        let annotated = self.0.pointer("/annotations/title").and_then(Value::as_str);
        self.string_member("title").or(annotated)
    }

    pub(crate) fn description(&self) -> Option<&str> {
        self.string_member("description")
            .filter(|text| !text.trim().is_empty())
    }

    pub(crate) fn summary(&self) -> &str {
        let text = self.description().or_else(|| self.title());
        text.unwrap_or_default()
    }

    pub(crate) fn schema(&self) -> Schema<'_> {
        Schema::new(self.0.get("inputSchema").unwrap_or(&Value::Null))
    }

    /// The server's annotation about running it twice: a hint, not a guarantee.
    pub(crate) fn repeat_hint(&self) -> &'static str {
        if self.hint("readOnlyHint") == Some(true) {
            "read-only"
        } else if self.hint("idempotentHint") == Some(true) {
            "safe to repeat"
        } else {
            ""
        }
    }

    pub(crate) fn hint(&self, name: &str) -> Option<bool> {
        self.0.get("annotations")?.get(name)?.as_bool()
    }

    fn string_member(&self, member: &str) -> Option<&str> {
        self.0.get(member).and_then(Value::as_str)
    }
}

impl CommandSession<'_> {
    pub(crate) async fn list_tools(&self) -> CliResult<Vec<Tool>> {
        let method = ListKind::Tools.method();
        self.report.print_verbose(&format!("→ {method}"));
        let started = clock::now();
        let listed = self.wait_for(method, self.list(ListKind::Tools)).await?;
        let elapsed = started.elapsed();
        let items = listed.map_err(|failure| match failure {
            RequestFailure::Problem(problem) => {
                self.call_failure(problem, method.to_owned(), elapsed)
            },
            RequestFailure::ErrorReply(raw) => self.error_reply_problem(&raw, method, method),
        })?;
        let (count, took) = (items.len(), format_duration(elapsed));
        let report = self.report;
        report.print_verbose(&format!("← {count} tools after {took}"));
        let tools = items.iter().map(|raw| {
            serde_json::from_slice(raw).map(Tool).map_err(|error| {
                let what = format!("cannot read a tool that `{}` lists", self.name());
                Problem::caused(Code::BadAnswer, &what)(error).with_delivery(Delivery::Answered)
            })
        });
        let mut tools: Vec<Tool> = tools.collect::<CliResult<_>>()?;
        tools.retain(|tool| can_call_tool(&self.target.settings, tool.name()));
        Ok(tools)
    }

    pub(crate) fn find_tool<'t>(&self, name: &str, tools: &'t [Tool]) -> CliResult<&'t Tool> {
        let listed = tools.iter().find(|tool| tool.name() == name);
        listed.ok_or_else(|| self.unknown_tool_error(name, tools))
    }

    fn unknown_tool_error(&self, tool: &str, tools: &[Tool]) -> Problem {
        let server = self.name();
        let what = format!("`{server}` has no tool `{}`", tool.escape_debug());
        let problem = Problem::new(Code::ToolUnknown, what)
            .with_server(server)
            .with_delivery(Delivery::Unsent);
        let names = tools.iter().map(Tool::name);
        problem.with_hint(did_you_mean(tool, names.clone()).unwrap_or_else(|| {
            let all: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            match all.len() {
                0 => "it has no tools".to_owned(),
                1..=12 => format!("it has {}", all.join(", ")),
                count => format!(
                    "it has {count} others; `warmline tools {}` lists them",
                    self.target_argument()
                ),
            }
        }))
    }
}

pub(crate) fn check_tool_allowed(target: &Target, tool: &str) -> CliResult<()> {
    if can_call_tool(&target.settings, tool) {
        return Ok(());
    }
    let server = &target.server.name;
    let what = format!("`{}` of `{server}` is not allowed", one_line(tool));
    let diagnostic = Diagnostic::new(Reason::NotAllowed, what);
    Err(Problem::from_diagnostic(&diagnostic, Delivery::Unsent).with_server(server))
}

fn can_call_tool(settings: &ServerSettings, tool: &str) -> bool {
    settings.policy.allows_tool(tool)
}

/// The deadlines of a call: the command line wins, then the settings of its tool.
pub(super) fn tool_deadlines(settings: &ServerSettings, usual: Deadlines, tool: &str) -> Deadlines {
    let is_typed = settings.origin("call_timeout") == SettingOrigin::Builder;
    match settings.policy.tools.get(tool).filter(|_| !is_typed) {
        Some(decided) => Deadlines {
            idle: decided.idle.unwrap_or(usual.idle),
            total: decided.total.unwrap_or(usual.total),
        },
        None => usual,
    }
}

pub(crate) fn rule_text(rule: &AccessRule) -> String {
    let tools = match &rule.tools {
        Some(tools) => tools.join(", "),
        None => "every tool".to_owned(),
    };
    let whose = match &rule.subject {
        AccessSubject::Identity(name) => format!("for {name}"),
        AccessSubject::Claim { claim, value: has } => format!("where {claim} has {has}"),
        AccessSubject::Everyone => "for everybody".to_owned(),
    };
    format!("{tools} {whose}")
}
