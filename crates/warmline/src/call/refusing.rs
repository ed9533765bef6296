//! What a server says that does not do what it was asked: an error of the protocol, or that it has
//! no such tool. Nothing is asked of it for that: what is known of its tools is looked up.

use std::sync::Arc;

use bytes::Bytes;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::unknown_tool::says_unknown_tool;

use super::{Job, whose_so_far};
use crate::engine::Caller;
use crate::entry::Entry;
use crate::error::Error;
use crate::tools;

/// The code for parameters that cannot be used, by which most servers refuse an unknown tool.
const INVALID_PARAMS: i64 = -32602;

/// The error of a call that was answered with an error of the protocol.
pub(crate) fn protocol_error(caller: &Caller, entry: &Entry, job: &Job, raw: &Bytes) -> Error {
    let error = Error::answered(&entry.name, &job.method, raw);
    let (Some(said), Some(tool)) = (error.server_error(), job.tool.as_deref()) else {
        return error;
    };
    let is_listed = || known(caller, entry).map(|tools| tools.has(tool));
    let is_unknown = says_unknown_tool(&said.message, tool)
        || (said.code == INVALID_PARAMS && is_listed() == Some(false));
    match is_unknown {
        true => error.meaning(unknown(caller, entry, tool)),
        false => error,
    }
}

/// Says of a result that tells of a failure whether it is that the server has no such tool.
pub(crate) fn unknown_tool(
    caller: &Caller,
    entry: &Entry,
    job: &Job,
    result: &[u8],
) -> Option<Box<Trouble>> {
    let tool = job.tool.as_deref()?;
    let words = first_words(result)?;
    says_unknown_tool(&words, tool).then(|| Box::new(unknown(caller, entry, tool).because(words)))
}

fn unknown(caller: &Caller, entry: &Entry, tool: &str) -> Trouble {
    let known = known(caller, entry);
    if known.as_ref().is_some_and(|tools| tools.has(tool)) {
        // The list that holds is wrong by now.
        entry.tools.forget_all();
    }
    tools::unknown(&entry.name, tool, known.as_deref())
}

fn known(caller: &Caller, entry: &Entry) -> Option<Arc<tools::ToolList>> {
    entry.tools.peek(&whose_so_far(caller, entry))
}

/// The text of a result that is one text.
fn first_words(result: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Said {
        content: Vec<Block>,
    }
    #[derive(serde::Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let said: Said = serde_json::from_slice(result).ok()?;
    let [only] = <[Block; 1]>::try_from(said.content).ok()?;
    only.text
}
