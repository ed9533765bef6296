//! Warmline keeps sessions to MCP servers warm, isolated and healed.
//!
//! The paved path: [`Warmline`] holds the sessions, a [`Run`] is one agent's work, a
//! [`ServerHandle::call`] is one tool call. Everything else is here for those who leave the path.
//!
//! ```no_run
//! # async fn example() -> warmline::Result<()> {
//! use warmline::{Secret, Server, Warmline};
//!
//! let warm = Warmline::builder()
//!     .server(Server::stdio("browser", ["npx", "-y", "@playwright/mcp"]).spares(1))
//!     .server(Server::http("github", "https://example.com/mcp").bearer(Secret::env("GITHUB_TOKEN")))
//!     .build()?;
//! let page = warm
//!     .run(async |run| {
//!         let browser = run.server("browser")?;
//!         browser.call("browser_navigate", serde_json::json!({ "url": "https://example.com" })).await?.ok()?;
//!         browser.call("browser_snapshot", serde_json::json!({})).await?.ok()
//!     })
//!     .await?;
//! println!("{}", page.text());
//! warm.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A program that starts stdio servers calls [`warden::run_if_asked`] first in its `main`, so that
//! its children end with it, whatever ends it.
//!
//! What a call's future was dropped or failed with is never a guess: [`Error::delivery`] says
//! whether it may have been executed.

mod attend;
mod call;
mod client;
#[doc(hidden)]
pub mod clock;
pub mod config;
mod connect;
pub mod credentials;
mod engine;
mod entry;
mod error;
pub mod events;
mod flight;
mod handle;
pub mod identity;
mod keep;
mod lease;
pub mod metrics;
mod net;
mod pool;
#[doc(hidden)]
pub mod private;
pub mod resolve;
mod route;
mod run;
pub mod seal;
mod server;
mod servers;
pub mod settings;
pub mod store;
mod sync;
pub mod tools;
pub mod trust;
pub mod upstream;

pub use crate::core::code::Code;
pub use crate::core::delivery::Delivery;
pub use crate::core::era::Era;
pub use crate::core::exchange::{Answer, News, Question};
pub use crate::core::policy::{Calls, OnStateLoss, SessionPer, Sessions, ToolPolicy};
pub use attend::Attending;
pub use client::{Builder, IdentityHandle, Warmline};
pub use credentials::{CredentialProvider, CredentialSource, Secret};
pub use error::{Error, Result};
pub use handle::{
    Call, CallEvent, CallEvents, HeldSession, ListsOf, Outcome, Responder, ServerHandle,
    ToolOutput, ToolResult,
};
pub use identity::IdentityExtractor;
pub use lease::Leased;
pub use net::{ByteStream, Destination, Dial, Dialed, Dialing};
pub use resolve::ServerResolver;
pub use run::{InCurrentRun, Run};
pub use seal::Vault;
pub use server::Server;
pub use servers::{Declarations, Difference};
pub use store::SessionStore;
pub use upstream::warden;
pub use upstream::{Declared, List, Listener};
pub use warmline_core as core;
