//! Part of `warmline`: the session pool. Follows no semver of its own.
//!
//! [`warmline_core::pool`] decides; this crate carries its effects out. A call on an open session
//! costs one lookup in a table without locks, the short lock of its entry twice (lease, settle), no
//! allocation and no task.
//!
//! | question | file |
//! |---|---|
//! | What can callers do? | `pool.rs` |
//! | Who opens, checks and closes sessions? | `connector.rs` |
//! | What belongs to one key, and how does a caller wait? | `entry.rs`, `entry/waiter.rs` |
//! | How are effects carried out? | `entry/effects.rs` |
//! | How is a session opened, or a lost one replaced? | `entry/opening.rs` |
//! | Which session is evicted? | `entry/table.rs` |
//! | Which limits hold, and who waits for a permit? | `permits.rs` |
//! | When do openings pause? | `breakers.rs` |
//! | Who opens spares, and who takes them? | `spares.rs` |
//! | What runs in the background, and how does the pool drain? | `maintenance.rs` |

#![expect(
    missing_docs,
    reason = "an internal crate: where a name says all, no line repeats it"
)]
#![expect(
    missing_debug_implementations,
    reason = "sessions and setups belong to the engine, and need not be printable"
)]

/// The platform's clock. The schedule explorer builds this crate's files beside a clock of its own.
mod clock {
    pub(crate) use warmline_platform::clock::*;
}
/// The platform's locks, for the same reason.
mod lock {
    pub(crate) use warmline_platform::lock::*;
}

mod breakers;
mod cleanup;
mod connector;
mod context;
mod entry;
mod maintenance;
mod messages;
mod permits;
mod pool;
mod spares;

pub use warmline_core::pool::spares::SpareKey;
pub use warmline_core::pool::{
    EndCondition, EndReason, EntryPolicy, Generation, LeaseMode, Sharing,
};

pub use breakers::{BreakerPermit, BreakerTransitions};
pub use cleanup::{CleanupToken, HeldUntilCleanup};
pub use connector::{
    AcquireKind, ConnectedSession, Connector, HealInfo, OpenRequest, PoolEvent, PoolEventKind,
};
pub use entry::{Lease, LeaseDeadlines, PoolEntry, SessionSnapshot};
pub use maintenance::KeepAliveCheck;
pub use permits::SessionPermit;
pub use pool::Pool;
pub use spares::{FirstContactInfo, SpareCounts, Spares};

#[cfg(test)]
mod tests;
