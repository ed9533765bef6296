//! What the other stories left lying: single promises of the library, each shown once, against a
//! server that keeps a ledger and with the census at the end.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
#[path = "../stories/child.rs"]
#[expect(dead_code, reason = "the stories use more of it")]
mod child;
#[path = "../stage/lives.rs"]
mod lives;
#[path = "../stage/old_server.rs"]
#[expect(dead_code, reason = "other suites use more of it")]
mod old_server;
#[path = "../stage/program.rs"]
mod program;
#[path = "../stories/world.rs"]
mod world;

mod calls;
mod declared;
mod errors;
mod healing;
mod keys;
mod logbook;
mod numbers;
mod pages;
mod programs;
mod reuse;
mod secrets;
mod standing;
mod streams;
mod tools;
mod unplugged;
mod watching;
