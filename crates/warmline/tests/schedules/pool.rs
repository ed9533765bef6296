//! The pool's root once more: the same files, beside another clock and other locks.

#[path = "../../src/pool/breakers.rs"]
mod breakers;
#[path = "../../src/pool/busy.rs"]
mod busy;
#[path = "../../src/pool/cell.rs"]
mod cell;
#[path = "../../src/pool/connector.rs"]
mod connector;
#[path = "../../src/pool/doors.rs"]
mod doors;
#[path = "../../src/pool/ground.rs"]
mod ground;
#[path = "../../src/pool/hand.rs"]
mod hand;
#[path = "../../src/pool/inheriting.rs"]
mod inheriting;
#[path = "../../src/pool/lease.rs"]
mod lease;
#[path = "../../src/pool/opening.rs"]
mod opening;
#[path = "../../src/pool/places.rs"]
mod places;
#[path = "../../src/pool/refilling.rs"]
mod refilling;
#[path = "../../src/pool/rooms.rs"]
mod rooms;
#[path = "../../src/pool/shelves.rs"]
mod shelves;
#[path = "../../src/pool/steps.rs"]
mod steps;
#[path = "../../src/pool/sweeping.rs"]
mod sweeping;
#[path = "../../src/pool/tally.rs"]
mod tally;
#[path = "../../src/pool/waiting.rs"]
mod waiting;
#[path = "../../src/pool/wire.rs"]
mod wire;
#[path = "../../src/pool/wording.rs"]
mod wording;

pub(crate) use warmline_core::pool::spares::SpareKey;
pub(crate) use warmline_core::pool::{CellPolicy, Ends, Generation, Sharing, Want, Why};

pub(crate) use breakers::{Changes, Opener, Passing};
pub(crate) use cell::CellOf;
pub(crate) use connector::{Connector, Happened, Heals, How, Opened, Order, Purpose, What};
pub(crate) use doors::Pool;
pub(crate) use lease::Lease;
pub(crate) use shelves::Met;
