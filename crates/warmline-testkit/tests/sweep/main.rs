//! The cancel sweep: every public future of `upstream` is dropped at each of its await points.
//! After each drop everything is as it was before: tasks, sockets, processes; and the next calls
//! get their own answers.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
#[path = "../stage/old_server.rs"]
mod old_server;
#[path = "../stage/program.rs"]
mod program;

mod calls;
mod embedded;
mod ends;
mod openings;
mod questions;
mod scene;
