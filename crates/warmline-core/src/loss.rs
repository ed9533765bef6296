//! State loss: what becomes of a call whose session lost what earlier calls left in it.
//!
//! Asked by: the engine, when a lease says that state was lost and nobody was told yet.
//!
//! Why a sentence: a model reads the text of a result, and nobody shows it `_meta`. Without it an
//!   agent goes on as if its pages, variables and transactions were still there.
//! What stays untouched: every byte of the result but the head of `content` and our own members
//!   of `_meta`; `structuredContent` has a schema, so nothing is put there.

use bytes::Bytes;

use crate::code::Reason;
use crate::delivery::Repeat;
use crate::exchange::Trouble;
use crate::policy::OnStateLoss;
use crate::protocol::methods;
use crate::protocol::object;
use crate::protocol::splice::{Edit, edit_with_nested, write_number, write_text};

/// `_meta` of a result: the generation of the session that answered.
pub const GENERATION: &str = "dev.warmline/generation";
/// `_meta` of a result: that state of an earlier generation is lost.
pub const STATE_LOST: &str = "dev.warmline/stateLost";
/// `_meta` of a result: how often the call was sent.
pub const ATTEMPTS: &str = "dev.warmline/attempts";

/// What to do with a call whose session lost its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// Go on and say nothing yet: this method does not touch what is lost.
    Nothing,
    /// Go on and say it in `_meta`; the next call of a tool is told in words.
    Mention,
    /// Go on and say it in `_meta`; that is all that was asked for.
    Meta,
    /// Go on; the result begins with a sentence, and `_meta` says it too.
    Tell,
    /// End the call: `refused`, `session-lost`. The next one works.
    Fail,
    /// As `Fail`, and end the run.
    EndRun,
}

impl Reaction {
    /// Whether the caller knows of the loss when the call has ended so.
    pub const fn settles(self) -> bool {
        match self {
            Self::Meta | Self::Tell | Self::Fail | Self::EndRun => true,
            Self::Nothing | Self::Mention => false,
        }
    }
}

/// What to do with a call of that method.
pub fn plan(policy: OnStateLoss, method: &str) -> Reaction {
    match (policy, touch(method)) {
        (_, Touch::Nothing) => Reaction::Nothing,
        (OnStateLoss::Tell, Touch::Tool) => Reaction::Tell,
        (OnStateLoss::Tell, Touch::State) => Reaction::Mention,
        (OnStateLoss::Continue, _) => Reaction::Meta,
        (OnStateLoss::Fail, _) => Reaction::Fail,
        (OnStateLoss::EndRun, _) => Reaction::EndRun,
    }
}

/// What a method may find changed on a fresh session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// What a tool left behind; its result is read by a model.
    Tool,
    /// What a tool left behind.
    State,
    /// Nothing that calls leave behind: lists, checks, settings of the session itself.
    Nothing,
}

fn touch(method: &str) -> Touch {
    match method {
        "tools/call" => Touch::Tool,
        "resources/read" | "prompts/get" | "completion/complete" | "tasks/get" | "tasks/result" => {
            Touch::State
        },
        _ => match methods::repeat_of(method) {
            Repeat::Safe => Touch::Nothing,
            Repeat::Unsafe => Touch::State,
        },
    }
}

/// What is said of a call besides its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The generation of the session that answered, where it is worth telling.
    pub generation: Option<u32>,
    /// Whether state of an earlier generation is lost.
    pub state_lost: bool,
    /// How often the call was sent; told from 2 on.
    pub attempts: u32,
}

/// Whether the sentence found a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// The result begins with it.
    InText,
    /// This result has no text: a further round, a task, or nothing that is a result of a tool.
    NotYet,
}

/// The result with notes in its `_meta`; the same bytes where there is nothing to say, or where
/// they are no object that notes could stand in.
pub fn annotate(result: &Bytes, notes: &Notes) -> Bytes {
    let written = notes.written();
    if written.is_empty() {
        return result.clone();
    }
    spliced(result, None, &edits(&written)).unwrap_or_else(|| result.clone())
}

/// The result of a tool's call that begins with the sentence, and has the notes in its `_meta`.
pub fn tell(result: &Bytes, server: &str, notes: &Notes) -> (Bytes, Told) {
    let written = notes.written();
    let meta = edits(&written);
    let told = content_with(result, &sentence(server)).and_then(|content| {
        spliced(result, Some(&content), &meta)
            // A `_meta` that is no object cannot hold notes; the sentence still has its place.
            .or_else(|| spliced(result, Some(&content), &[]))
    });
    match told {
        Some(bytes) => (bytes, Told::InText),
        None => (annotate(result, notes), Told::NotYet),
    }
}

/// What a model reads.
pub fn sentence(server: &str) -> String {
    format!(
        "Note: the server `{server}` lost its session and was given a new one before this call. \
         Whatever earlier calls left there, such as open pages, variables or transactions, is \
         gone; redo what you still need. What follows is the result from the new session."
    )
}

/// The trouble of a call that the policy ends because of the loss, and its run where it says so.
pub fn refusal(server: &str, reaction: Reaction, notes: &Notes) -> Trouble {
    let generation = notes
        .generation
        .map(|number| format!(" (now generation {number})"))
        .unwrap_or_default();
    Trouble::new(
        Reason::StateLost,
        format!(
            "`{server}` lost the session's state, and a new session took its place{generation}"
        ),
    )
    .because("what earlier calls left there, such as pages, variables or transactions, is gone")
    .hint(match reaction {
        Reaction::EndRun => {
            "the run ended with it: begin another, and do there what was done before; \
             `on_state_loss = \"tell\"` goes on instead"
        },
        Reaction::Nothing
        | Reaction::Mention
        | Reaction::Meta
        | Reaction::Tell
        | Reaction::Fail => {
            "called again, it runs on the new session, without what was there: do that again first; \
             `on_state_loss = \"tell\"` goes on instead"
        },
    })
}

impl Notes {
    /// Names and raw values, as far as there is something to say.
    fn written(&self) -> Vec<(&'static str, Vec<u8>)> {
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

fn edits<'a>(members: &'a [(&'static str, Vec<u8>)]) -> Vec<Edit<'a>> {
    members
        .iter()
        .map(|(name, value)| Edit::Set(name, value))
        .collect()
}

fn spliced(result: &[u8], content: Option<&[u8]>, meta: &[Edit<'_>]) -> Option<Bytes> {
    let content = content.map(|raw| Edit::Set("content", raw));
    let nested = (!meta.is_empty()).then_some(("_meta", meta));
    let mut out = Vec::with_capacity(result.len() + 512);
    edit_with_nested(result, content.as_slice(), nested, &mut out).ok()?;
    Some(out.into())
}

/// The array `content` of a result with one block more at its head. None for a result that has no
/// place for it.
fn content_with(result: &[u8], sentence: &str) -> Option<Vec<u8>> {
    let (mut content, mut is_final) = (None, true);
    object::walk(object::utf8(result).ok()?, |member| {
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
    write_text(&mut out, sentence);
    out.push(b'}');
    if blocks.trim_start() != "]" {
        out.push(b',');
    }
    out.extend_from_slice(blocks.as_bytes());
    Some(out)
}

#[cfg(test)]
mod tests;
