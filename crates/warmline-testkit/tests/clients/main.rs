//! Real clients through the gateway: each lists and calls, keeps its state on a server that keeps
//! one, and stays apart from others. What a client is told must be what it is told without us.
//! Versions are pinned in `tests/parts`; without them these tests fail.
#![cfg(test)]

mod agent;
mod inspector;
mod merged;
mod official_rust;
mod old_transport;
#[path = "../stage/outside.rs"]
#[expect(dead_code, reason = "clients leave nothing behind that matters here")]
mod outside;
#[path = "../servers/parts.rs"]
#[expect(dead_code, reason = "only clients are needed here, not the servers")]
mod parts;
mod scripted;
mod visits;
mod world;
