//! Faults that a test server shows on demand.

pub(crate) mod corrupt_reply;
pub mod dialects;
pub mod fault;
pub mod personality;
