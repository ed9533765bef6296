//! The modules of the pool, built with another clock and other locks.

#[path = "../../src/breakers.rs"]
mod breakers;
#[path = "../../src/cleanup.rs"]
mod cleanup;
#[path = "../../src/connector.rs"]
mod connector;
#[path = "../../src/context.rs"]
mod context;
#[path = "../../src/tests/counters.rs"]
mod counters;
#[path = "../../src/entry.rs"]
mod entry;
#[path = "../../src/maintenance.rs"]
mod maintenance;
#[path = "../../src/messages.rs"]
mod messages;
#[path = "../../src/permits.rs"]
mod permits;
#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/spares.rs"]
mod spares;

pub(crate) use warmline_core::pool::spares::SpareKey;
pub(crate) use warmline_core::pool::{EndCondition, EndReason, EntryPolicy, LeaseMode, Sharing};

pub(crate) use breakers::{BreakerPermit, BreakerTransitions};
pub(crate) use connector::{
    AcquireKind, ConnectedSession, Connector, HealInfo, OpenRequest, PoolEvent, PoolEventKind,
};
pub(crate) use entry::{Lease, LeaseDeadlines, PoolEntry, SessionSnapshot};
pub(crate) use permits::SessionPermit;
pub(crate) use pool::Pool;
pub(crate) use spares::{FirstContactInfo, Spares};
