//! Locks, in one place: schedule explorers put theirs here.
//!
//! A lock is held for straight-line code only, never over an `.await`, and never two at once.

pub use parking_lot::Mutex;
