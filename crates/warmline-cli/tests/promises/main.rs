//! What users rely on, compared with what the program gave before its parts were renamed.
//!
//! Everything goes through the built binary, the wire and the files, so that no name of the code
//! stands here. The fixtures in `before/` were written by the program of commit d2c04e0. They are
//! promises: a test that fails here found something that a user loses. What is new on purpose is
//! added by `WARMLINE_BLESS=1`; read the difference before you commit it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot set its scene has failed"
)]

mod before;
mod client;
mod fake;
mod files;
mod gateway;
mod home;
mod joining;
#[cfg(target_os = "linux")]
mod kept;
mod lists;
mod outputs;
mod wire;
