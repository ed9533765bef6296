//! Stories of the engine that people embed: what a program sees, and what its servers really did.
//!
//! Every story begins with a [`world::World`] and ends with its `finish`, which takes the census:
//! nothing is left, the server saw nothing that a client must not do, and the engine's own numbers
//! agree with what happened.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
#[path = "../stage/lives.rs"]
mod lives;
#[path = "../stage/program.rs"]
mod program;

mod breaker;
mod child;
mod children;
mod dialects;
mod drain;
mod healing;
mod isolation;
mod keeping;
mod limits;
mod meeting;
mod named;
mod needs;
mod opening;
mod orders;
mod reloaded;
mod reuse;
mod runs;
mod runtimes;
mod spares;
mod state_loss;
mod storm;
mod tools;
mod untold;
mod whose_loss;
mod wire;
mod world;
