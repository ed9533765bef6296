//! Warmline keeps sessions to MCP servers warm, isolated and healed.
//!
//! So far this crate holds the side towards servers: [`upstream`] opens a session to any MCP
//! server, of either era, over Streamable HTTP or stdio, and knows what became of every request
//! it sent. Runs, the pool and healing are built on it.

mod call;
mod client;
mod clock;
pub mod config;
mod connect;
pub mod credentials;
mod error;
pub mod events;
pub mod identity;
mod keep;
pub mod metrics;
mod net;
mod pool;
pub mod resolve;
mod run;
pub mod seal;
mod server;
pub mod settings;
pub mod store;
mod sync;
pub mod tools;
pub mod trust;
pub mod upstream;

pub use upstream::warden;
pub use warmline_core as core;
