//! Real servers behind the gateway: what they list is the same with and without it, byte for byte,
//! in every era they speak; and a browser keeps its page between two calls.
//! Versions are pinned in `tests/parts`; without them these tests fail.
#![cfg(test)]

mod browser;
mod client;
#[path = "../servers/counter_rmcp.rs"]
mod counter_rmcp;
mod listing;
#[path = "../servers/parts.rs"]
mod parts;
mod pipe;
#[path = "../servers/running.rs"]
#[expect(dead_code, reason = "the servers are neither killed nor started again")]
mod running;
#[path = "../differential/wire.rs"]
mod wire;
