//! Part of `warmline`: its decisions, and the MCP protocol of both eras, without I/O.
//!
//! This crate keeps four promises:
//!
//! 1. The same history gives the same answers.
//! 2. It never waits.
//! 3. It never asks for time, random numbers, files, the environment or the network.
//! 4. It has an answer for every input and does not panic.
//!
//! | question | module |
//! |---|---|
//! | What goes up, what comes down, how does a call end? | [`exchange`] |
//! | What is known of a request? | [`delivery`] |
//! | May this call run twice, and is it sent again? | [`retry`] |
//! | How many retries does a server get? | [`retry::budget`] |
//! | What happens to a call whose session lost its state? | [`state_loss`] |
//! | What do models call this tool, and may it be called? | [`tool_names`] |
//! | Which era and version is this? | [`era`] |
//! | Which era does that server speak? | [`era_detection`] |
//! | May two calls share a session? | [`pool_key`] |
//! | What did the operator decide, and what are the defaults? | [`policy`] |
//! | What does this error code mean, and what can I do? | [`error::code`] |
//! | How is a JSON-RPC message read, changed and written? | [`message`] |
//! | What does the protocol say, in both eras? | [`protocol`] |
//! | Which session does a call get? | [`session_plan`] |
//! | How do sessions open, wait, heal and end? | [`pool`] |

#![expect(
    missing_docs,
    reason = "an internal crate: where a name says all, no line repeats it"
)]

pub mod delivery;
pub mod era;
pub mod era_detection;
pub mod error;
pub mod exchange;
pub mod message;
pub mod policy;
pub mod pool;
pub mod pool_key;
pub mod protocol;
pub mod record;
pub mod retry;
pub mod run;
pub mod session_plan;
pub mod state_loss;
pub mod time;
pub mod tool_names;
pub mod word_enum;
