//! The kit tested by itself, with bare sockets: what a client under test gets is what is said here.

#![expect(clippy::unwrap_used, reason = "a test says what failed by panicking")]

mod client;
mod dialects;
mod faults;
mod legacy;
mod modern;
mod pipes;
mod proxy;
mod tls;
