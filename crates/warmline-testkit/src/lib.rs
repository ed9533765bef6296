//! How to hurt an MCP client, and how to tell what it did.

pub mod demo_server;
pub mod dialects;
pub mod fault;
pub mod ledger;
pub mod personality;

mod answer;
mod call;
mod http;
mod message;
mod server;
mod spoil;
mod state;
mod stdio;
mod stream;
mod tools;

pub use crate::dialects::Dialect;
pub use crate::fault::{Canned, CutAt, End, Executes, Fault, Moment, Rule, Spoil};
pub use crate::ledger::{Entry, Ledger, Phase};
pub use crate::personality::{
    EventIds, EventName, GetStream, LegacyLeg, ModernLeg, Newline, Personality, ReplyForm, SseForm,
    Writes,
};
pub use crate::server::{Control, Counts, LedgerServer};
