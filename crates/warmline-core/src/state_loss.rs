//! What happens to a call whose session lost what earlier calls left in it: the sentence about it at
//! the head of a result, and our members of its `_meta`.
//!
//! A model reads the text of a result and never sees `_meta`. Without a sentence there an agent
//! goes on as if its pages, variables and transactions still existed. Only the head of `content`
//! and our own members of `_meta` change; `structuredContent` has a schema, so nothing is added
//! there.

use bytes::Bytes;

use crate::delivery::Idempotency;
use crate::error::code::Reason;
use crate::exchange::Diagnostic;
use crate::message::json;
use crate::message::splice::{Edit, edit_object_nested, write_number, write_string};
use crate::policy::StateLossPolicy;
use crate::protocol::methods;

/// What to do with a call whose session lost its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateLossAction {
    /// Continue without a notice: this method does not depend on the lost state.
    Ignore,
    /// Continue with a notice in `_meta`; the next tool call gets one in text.
    MetaThenText,
    /// Continue with a notice in `_meta`; the policy asks for no more.
    MetaOnly,
    /// Continue; the result begins with a sentence, and `_meta` has a notice too.
    TextAndMeta,
    /// End the call: `refused`, `session-lost`. The next one works.
    Fail,
    EndRun,
}

pub fn state_loss_action(policy: StateLossPolicy, method: &str) -> StateLossAction {
    match (policy, state_access(method)) {
        (_, StateAccess::None) => StateLossAction::Ignore,
        (StateLossPolicy::Tell, StateAccess::Tool) => StateLossAction::TextAndMeta,
        (StateLossPolicy::Tell, StateAccess::State) => StateLossAction::MetaThenText,
        (StateLossPolicy::Continue, _) => StateLossAction::MetaOnly,
        (StateLossPolicy::Fail, _) => StateLossAction::Fail,
        (StateLossPolicy::EndRun, _) => StateLossAction::EndRun,
    }
}

/// What a method may find changed on a fresh session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateAccess {
    /// What a tool left behind; its result is read by a model.
    Tool,
    /// What a tool left behind.
    State,
    /// Nothing that calls leave behind: lists, checks, settings of the session itself.
    None,
}

fn state_access(method: &str) -> StateAccess {
    match method {
        "tools/call" => StateAccess::Tool,
        "resources/read" | "prompts/get" | "completion/complete" | "tasks/get" | "tasks/result" => {
            StateAccess::State
        },
        _ => match methods::method_idempotency(method) {
            Idempotency::Idempotent => StateAccess::None,
            Idempotency::NotIdempotent => StateAccess::State,
        },
    }
}

/// The error of a call that the policy fails because of the loss.
pub fn state_loss_diagnostic(
    server: &str,
    reaction: StateLossAction,
    notes: &ResultMeta,
) -> Diagnostic {
    let generation = notes
        .generation
        .map(|number| format!(" (now generation {number})"))
        .unwrap_or_default();
    Diagnostic::new(
        Reason::StateLost,
        format!(
            "`{server}` lost the session's state, and a new session took its place{generation}"
        ),
    )
    .with_cause("what earlier calls left there, such as pages, variables or transactions, is gone")
    .with_hint(if reaction == StateLossAction::EndRun {
        "the run ended with it: begin another, and do there what was done before; \
         `on_state_loss = \"tell\"` goes on instead"
    } else {
        "called again, it runs on the new session, without what was there: do that again first; \
         `on_state_loss = \"tell\"` goes on instead"
    })
}

/// `_meta` of a result: the generation of the session that answered.
pub const GENERATION: &str = "dev.warmline/generation";
/// `_meta` of a result: that state of an earlier generation is lost.
pub const STATE_LOST: &str = "dev.warmline/stateLost";
/// `_meta` of a result: how often the call was sent.
pub const ATTEMPTS: &str = "dev.warmline/attempts";

/// What Warmline adds to the result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultMeta {
    /// The generation of the session that answered, where it is worth telling.
    pub generation: Option<u32>,
    /// Whether state of an earlier generation is lost.
    pub state_lost: bool,
    /// How often the call was sent; added from 2 on.
    pub attempts: u32,
}

/// Whether the sentence found a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticePlacement {
    /// The result begins with it.
    InText,
    /// This result has no text: a further round, a task, or nothing that is a result of a tool.
    Deferred,
}

/// The result with additions in its `_meta`; unchanged without additions, or if it cannot hold
/// them.
pub fn with_result_meta(result: &Bytes, notes: &ResultMeta) -> Bytes {
    let written = notes.members();
    if written.is_empty() {
        return result.clone();
    }
    splice_result(result, None, &meta_edits(&written)).unwrap_or_else(|| result.clone())
}

/// The result of a tool's call that begins with the sentence, and has the notes in its `_meta`.
pub fn with_state_loss_notice(
    result: &Bytes,
    server: &str,
    notes: &ResultMeta,
) -> (Bytes, NoticePlacement) {
    let written = notes.members();
    let meta = meta_edits(&written);
    let told = prepend_text_block(result, &state_loss_notice(server)).and_then(|content| {
        splice_result(result, Some(&content), &meta)
            // A `_meta` that is no object cannot hold notes; the sentence still has its place.
            .or_else(|| splice_result(result, Some(&content), &[]))
    });
    match told {
        Some(bytes) => (bytes, NoticePlacement::InText),
        None => (with_result_meta(result, notes), NoticePlacement::Deferred),
    }
}

/// What a model reads.
pub fn state_loss_notice(server: &str) -> String {
    format!(
        "Note: the server `{server}` lost its session and was given a new one before this call. \
         Whatever earlier calls left there, such as open pages, variables or transactions, is \
         gone; redo what you still need. What follows is the result from the new session."
    )
}

impl ResultMeta {
    /// Names and raw values, as far as there is something to say.
    fn members(&self) -> Vec<(&'static str, Vec<u8>)> {
        let number = |value: u32| {
            let mut digits = Vec::with_capacity(10);
            write_number(&mut digits, u64::from(value));
            digits
        };
        let mut members = Vec::with_capacity(3);
        if let Some(generation) = self.generation {
            members.push((GENERATION, number(generation)));
        }
        if self.state_lost {
            members.push((STATE_LOST, b"true".to_vec()));
        }
        if self.attempts > 1 {
            members.push((ATTEMPTS, number(self.attempts)));
        }
        members
    }
}

fn meta_edits<'a>(members: &'a [(&'static str, Vec<u8>)]) -> Vec<Edit<'a>> {
    members
        .iter()
        .map(|(name, value)| Edit::Set(name, value))
        .collect()
}

fn splice_result(result: &[u8], content: Option<&[u8]>, meta: &[Edit<'_>]) -> Option<Bytes> {
    let content = content.map(|raw| Edit::Set("content", raw));
    let nested = (!meta.is_empty()).then_some(("_meta", meta));
    let mut out = Vec::with_capacity(result.len() + 512);
    edit_object_nested(result, content.as_slice(), nested, &mut out).ok()?;
    Some(out.into())
}

/// The array `content` of a result with one block more at its head. None for a result that has no
/// place for it.
fn prepend_text_block(result: &[u8], sentence: &str) -> Option<Vec<u8>> {
    let (mut content, mut is_final) = (None, true);
    json::walk_members(json::parse_utf8(result).ok()?, |member| {
        match member.name.as_ref() {
            "content" => content = Some(member.value),
            // A further round asks first, and a task only begins: neither is read by a model.
            "resultType" => is_final = member.value == "\"complete\"",
            "task" => is_final = false,
            _ => {},
        }
        Ok(())
    })
    .ok()?;
    let blocks = content.unwrap_or("[]").strip_prefix('[')?;
    if !is_final {
        return None;
    }
    let mut out = Vec::with_capacity(blocks.len() + sentence.len() + 32);
    out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
    write_string(&mut out, sentence);
    out.push(b'}');
    if blocks.trim_start() != "]" {
        out.push(b',');
    }
    out.extend_from_slice(blocks.as_bytes());
    Some(out)
}

#[cfg(test)]
mod tests;
