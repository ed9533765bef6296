//! Pipes: sessions with a child, from its start to the end of its last process. The ledger that
//! the child writes tells what it did; what we say of a call must agree with it.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
#[path = "../stage/lives.rs"]
mod lives;
#[path = "../stage/program.rs"]
mod program;
#[path = "../stage/script.rs"]
mod script;
#[path = "../stage/tasks.rs"]
mod tasks;

mod child;
mod closing;
mod delivery;
mod full_pipe;
mod noise;
mod notices;
mod probing;
mod questions;
mod starting;
mod talk;
