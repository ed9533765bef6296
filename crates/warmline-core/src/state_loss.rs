//! What happens to a call whose session lost what earlier calls left in it.

mod result_notice;

use crate::delivery::Idempotency;
use crate::error::code::Reason;
use crate::exchange::Diagnostic;
use crate::policy::StateLossPolicy;
use crate::protocol::methods;

pub use result_notice::{
    ATTEMPTS, GENERATION, NoticePlacement, ResultMeta, STATE_LOST, state_loss_notice,
    with_result_meta, with_state_loss_notice,
};

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
    /// As `Fail`, and end the run.
    EndRun,
}

/// What to do with a call of that method.
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

#[cfg(test)]
mod tests;
