//! Part of [`warmline`](https://docs.rs/warmline); follows no semver of its own.
//!
//! The seams to the operating system: time and tasks, locks, the network, private files. All other
//! crates use them, so that tests can replace them.

pub mod clock;
pub mod lock;
pub mod net;
pub mod private_file;
