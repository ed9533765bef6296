//! What the engine tells of itself: numbers, events, lines of the log, and the tools of a server
//! as models are shown them.
#![cfg(test)]

#[path = "../stage/census.rs"]
#[expect(dead_code, reason = "no story here starts a process")]
mod census;
#[path = "../stories/world.rs"]
#[expect(dead_code, reason = "the stories use more of it")]
mod world;

mod attacked;
mod leased;
mod numbers;
mod replaced;
mod ruled;
mod tools;
