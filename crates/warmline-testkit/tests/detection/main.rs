//! Detection: which era a server speaks is found out by questions that do nothing, and each answer
//! leads to the step that the table of the protocol reference says. The server's ledger tells what
//! was sent.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
#[path = "../stage/lives.rs"]
mod lives;
#[path = "../stage/old_server.rs"]
mod old_server;
#[path = "../stage/program.rs"]
mod program;
#[path = "../stage/script.rs"]
mod script;
#[path = "../stage/tasks.rs"]
mod tasks;

mod contact;
mod handshake;
mod http_rows;
mod memory;
mod never;
mod no_verdict;
mod pinned;
mod scene;
mod stdio_rows;
mod survey;
