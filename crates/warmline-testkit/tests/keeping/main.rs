//! Stories of keeping: how sessions are opened, held, checked, limited and closed, as the program
//! that embeds the engine and the servers behind it see it.
//!
//! Each begins and ends like the stories of `tests/stories`: with a [`world::World`], and with its
//! census.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
#[path = "../stories/child.rs"]
mod child;
#[path = "../stage/lives.rs"]
mod lives;
#[path = "../stage/program.rs"]
mod program;
#[path = "../stories/world.rs"]
mod world;

mod breaker;
mod children;
mod closing;
mod draining;
mod dropped;
mod health;
mod holding;
mod limits;
mod line;
mod opening;
mod restarted;
