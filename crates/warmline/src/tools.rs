//! Tools: what a server offers, under names that models can call, and which of it may be called.
//!
//! Asked by: whoever describes tools to a model, and the engine before a tool is called.  Told by:
//! `tools/list` of each server, with all its pages.
//!
//! | question | file |
//! |---|---|
//! | What does a tool say of itself? | `tool.rs` |
//! | Which tools are there, and which one is meant? | `list.rs` |
//! | How does a model provider want it described? | `definition.rs` |
//! | Must the server be asked again? | `cache.rs`, `kept.rs` |
//!
//! Rules are checked twice, for the list and for the call: what is not listed cannot be called by
//! somebody who knows its name. Structured results are handed out as they come; the schema they
//! are to fit stands in the list, so that checking them asks the server nothing.

mod cache;
mod definition;
mod kept;
mod list;
#[cfg(test)]
mod tests;
mod tool;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::names;
use warmline_core::policy::Policy;

pub(crate) use self::cache::ToolCache;
pub use self::definition::ModelProvider;
pub(crate) use self::kept::{Age, KeptFor, Outlives, Read, Stated};
pub use self::list::ToolList;
pub use self::tool::{Metadata, Tool};

/// Whether the rules let a tool be listed and called, by its name at the server.
pub(crate) fn may_call(policy: &Policy, tool: &str) -> bool {
    names::is_allowed(&policy.allow, &policy.deny, tool)
}

/// The trouble of whoever names a tool that a server does not have; with the nearest name, as far
/// as its tools are known.
pub(crate) fn unknown(server: &str, name: &str, known: Option<&ToolList>) -> Trouble {
    let what = format!("tool `{}` not found on `{server}`", name.escape_debug());
    let trouble = Trouble::new(Reason::ToolUnknown, what);
    let Some(known) = known else {
        return trouble;
    };
    match known.nearest(name) {
        Some(near) => trouble.hint(format!("did you mean `{}`?", near.escape_debug())),
        None if known.is_empty() => trouble.because("it has no tools that may be called"),
        None => trouble,
    }
}

/// Whether a name fits one of several patterns, in which `*` stands for any characters.
pub(crate) fn is_listed(patterns: &[String], name: &str) -> bool {
    names::is_any(patterns, name)
}
