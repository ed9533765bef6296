//! Decisions and bytes of Warmline: the MCP protocol of both eras, without I/O.
//!
//! The four promises of this crate:
//!
//! 1. The same history gives the same answers.
//! 2. It never waits.
//! 3. It never asks for time, dice, files, the environment or the network.
//! 4. It has an answer for every input and does not panic.
//!
//! The map:
//!
//! | question | module |
//! |---|---|
//! | What goes up, what comes down, how does a call end? | [`exchange`] |
//! | What is known of a request that was sent, and is it sent again? | [`delivery`] |
//! | May this call run twice? | [`repeat`] |
//! | How many resends does a server get? | [`budget`] |
//! | What becomes of a call whose session lost its state? | [`loss`] |
//! | What do models call this tool, and may it be called? | [`names`] |
//! | Which era and version is this? | [`era`] |
//! | Which era does that server speak, by its answer to a probe? | [`verdict`] |
//! | May two calls share a session? | [`key`] |
//! | What did the operator decide, and what are the defaults? | [`policy`] |
//! | What is a moment? | [`tick`] |
//! | What does this error code mean, and what can I do? | [`code`] |
//! | What do these bytes mean, and which bytes do we write? | [`protocol`] |

pub mod budget;
pub mod code;
pub mod delivery;
pub mod era;
pub mod exchange;
pub mod key;
pub mod loss;
pub mod names;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod protocol;
pub mod record;
pub mod repeat;
pub mod run;
pub mod tick;
pub mod verdict;
