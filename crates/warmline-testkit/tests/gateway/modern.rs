//! Modern clients through the gateway, by their bytes.

mod aggregate;
mod checks;
mod era_mismatch;
mod listen;
pub(crate) mod raw_client;
mod relay;
mod runs;
mod stdio;
mod tasks;
