//! Detection: which era a server speaks is found out by questions that do nothing, and each answer
//! leads to the step that the table of the protocol reference says. The server's ledger tells what
//! was sent.
use crate::census;
use crate::http_sse_server;
use crate::runtime_tasks;

mod era_cache;
mod first_contact;
mod fixture;
mod handshake;
mod http_rows;
mod pinned_era;
mod sessionless;
mod stdio_rows;
mod unknown_era;
