//! Lets a client of the official Rust SDK run, unchanged, over a session that Warmline keeps.
//!
//! The SDK gives a client its typed API. Warmline gives it a session that lives as long as its
//! run, is shared with every other call of that run, and is replaced when the server loses it.
//!
//! ```no_run
//! use rmcp::ServiceExt as _;
//! use rmcp::model::CallToolRequestParams;
//! use warmline::{Server, Warmline};
//! use warmline_rmcp::WarmTransport;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let warm = Warmline::builder()
//!     .server(Server::stdio("browser", ["npx", "-y", "@playwright/mcp"]))
//!     .build()?;
//! let run = warm.begin_run();
//!
//! // Where a client was served over a transport of the SDK, it is served over this one.
//! let client = ().serve(WarmTransport::new(run.server("browser")?)).await?;
//! let tools = client.list_all_tools().await?;
//! client.call_tool(CallToolRequestParams::new("browser_snapshot")).await?;
//!
//! // The session belongs to the run: it ends with it, and not with the client.
//! client.cancel().await?;
//! run.end().await;
//! # drop(tools);
//! # Ok(())
//! # }
//! ```
//!
//! | what the client does | what happens |
//! |---|---|
//! | `initialize` | answered here, in the words of the server; the session is opened if there is none |
//! | `notifications/initialized` | nothing: the session said it long ago |
//! | any request | goes the way of every call of Warmline: leased, sent, healed, sent again where that is safe |
//! | drops a call, or cancels it | the call is cancelled, in the way of the server's era |
//! | any other notification (`notifications/roots/list_changed`) | goes to the session that is held, if one is and its era has such |
//! | is asked (elicitation, sampling, roots) | its answer goes back to the call that was asked for, or to the session |
//! | subscribes, sets a log level, waits for lists to change | hears what its session says outside any call |
//! | wants to hear of lists where no session is held for it | `WarmTransport::new(…).hearing(warm.events())` |
//! | is closed | its calls are cancelled; the session stays with its run |
//!
//! An error of the server is passed on as it is. A call that got no answer ends with an error of
//! ours: its message says whether it may have been executed, and its `data` holds the rest
//! (`code`, `delivery`, `hint`).
//!
//! To the SDK every server is one of the legacy era, whatever it speaks: a client that is made to
//! begin with `server/discover` alone is refused, one that may fall back does.

mod backend;
mod client_task;
mod convert;
mod error;
mod handlers;
mod initialize;
mod transport;

pub use error::SendError;
pub use transport::WarmTransport;
