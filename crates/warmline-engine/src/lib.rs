//! Part of [`warmline`](https://docs.rs/warmline); follows no semver of its own.
//!
//! The engine: calls, runs and leases, the state of each server, notifications, credentials,
//! events and metrics.

mod call;
mod context;
pub mod credentials;
mod engine;
mod error;
pub mod events;
pub mod identity;
mod lease;
mod list_cache;
mod listener;
pub mod metrics;
mod notifications;
pub mod relay;
mod run;
mod run_state;
pub mod server;
pub mod server_resolver;
mod server_state;
mod session_factory;
pub mod settings;
mod single_flight;
mod subscription;
pub mod tools;
mod warmline;

pub use call::builder::{CallBuilder, CallOutput};
pub use call::output::{ToolOutput, ToolResult};
pub use call::server_handle::{ExclusiveSession, ServerHandle};
pub use call::stream::{CallEvent, CallStream, Responder};
pub use engine::{ServerChanges, ServerSetWatcher};
pub use error::{Error, Result};
pub use listener::Listener;
pub use relay::{CurrentSession, ListScope};
pub use run::{InCurrentRun, Run};
pub use server::Server;
pub use subscription::Subscription;
pub use warmline::{Caller, Warmline, WarmlineBuilder, admin};
