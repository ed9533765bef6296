//! Warmline keeps sessions to MCP servers warm, isolated and healed.
//!
//! So far this crate holds the side towards servers: [`upstream`] opens a session to any MCP
//! server, of either era, over Streamable HTTP or stdio, and knows what became of every request
//! it sent. Runs, the pool and healing are built on it.

mod clock;
pub mod config;
pub mod credentials;
mod error;
pub mod events;
mod flight;
pub mod identity;
pub mod metrics;
mod net;
mod pool;
pub mod resolve;
pub mod seal;
pub mod settings;
pub mod store;
mod sync;
pub mod tools;
pub mod trust;
pub mod upstream;

pub use upstream::warden;
pub use warmline_core as core;
