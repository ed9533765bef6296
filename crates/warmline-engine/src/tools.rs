//! Tools: what a server offers, the names that models call it by, and which of it may be called.
//!
//! Rules are checked twice, for the list and for the call: a caller that knows the name of a hidden
//! tool cannot call it either. The list holds the schemas of structured results, so checking a
//! result sends nothing to the server.

mod list;
#[cfg(test)]
mod tests;
mod tool;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::Policy;
use warmline_core::tool_names;

pub(crate) use self::list::AnnotationStore;
pub use self::list::ToolList;
pub use self::tool::{ModelProvider, Tool, ToolMetadata};

/// Whether the policy allows a tool, by its name at the server.
pub(crate) fn may_call(policy: &Policy, tool: &str) -> bool {
    tool_names::is_tool_allowed(&policy.allow, &policy.deny, tool)
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

/// Whether a name matches one of several patterns, where `*` stands for any characters.
pub(crate) fn matches_any(patterns: &[String], name: &str) -> bool {
    tool_names::matches_any_pattern(patterns, name)
}
