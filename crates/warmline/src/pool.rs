//! The pool's shell: the table of cells, and the doors to it.
//!
//! Asked by: `call.rs`, before a call is sent; runs, when they end; the keeper.  Decided is
//! everything in `warmline_core::pool`; here its effects are carried out.
//!
//! What a call on a held session costs here: one look into a table without locks, the cell's own
//! short lock twice (lease, settle), two counters, no allocation and no task.
//!
//! | question | file |
//! |---|---|
//! | What can be asked of it? | `doors.rs` |
//! | Who opens, checks and closes? | `connector.rs` |
//! | What stands under a cell's lock? | `cell.rs`, `busy.rs` |
//! | How are effects carried out? | `steps.rs` |
//! | How is a session opened? | `opening.rs`, `hand.rs`, `wire.rs` |
//! | Who gets the room of a lost session? | `inheriting.rs` |
//! | How does a caller wait? | `waiting.rs` |
//! | How is room found? | `rooms.rs`, `ground.rs` |
//! | Where do spares lie? | `shelves.rs`, `places.rs`; who opens them: `refilling.rs` |
//! | What runs in the background, what happens at the end? | `sweeping.rs` |

mod breakers;
mod busy;
mod cell;
mod connector;
mod doors;
mod ground;
mod hand;
mod inheriting;
mod lease;
mod opening;
mod places;
mod refilling;
mod rooms;
mod shelves;
mod steps;
mod sweeping;
mod tally;
mod waiting;
mod wire;
mod wording;

pub(crate) use warmline_core::pool::spares::SpareKey;
pub(crate) use warmline_core::pool::{CellPolicy, Ends, Generation, Sharing, Want, Why};

pub(crate) use breakers::{Changes, Opener, Passing};
pub(crate) use cell::{CellOf, Seen};
pub(crate) use connector::{Connector, Happened, Heals, How, Opened, Order, Purpose, What};
pub(crate) use doors::Pool;
pub(crate) use lease::Lease;
pub(crate) use places::{Trace, UntilGone};
pub(crate) use rooms::Room;
pub(crate) use shelves::{Met, OnShelf};
pub(crate) use sweeping::KeepAlive;
pub(crate) use waiting::Until;

#[cfg(test)]
mod tests;
