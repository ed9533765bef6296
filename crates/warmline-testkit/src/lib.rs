//! How to hurt an MCP client, and how to tell what it did.
//!
//! A client is only as good as what it does when things go wrong: when a session is forgotten, when
//! an answer is lost after the payment was made, when a server says something nobody ever said.
//! This kit makes these things happen on command, and writes down what really happened.
//!
//! | part | what it is |
//! |---|---|
//! | [`LedgerServer`] | a fake MCP server of either era that keeps a [`Ledger`] of what it executed |
//! | [`Fault`], [`FaultRule`] | what it does wrong, and to which requests |
//! | [`faults::dialects`] | every known way to say that a session is gone, byte for byte |
//! | [`FaultProxy`] | a wire that is slow, narrow, cut or dead, for any server |
//! | [`sweep`] | drops a future at each of its await points |
//! | [`Census`] | tasks, descriptors and processes that are left over |
//! | [`demo_server`] | the ledger server as a program (`warmline-ledger`), over HTTP or stdio |
//!
//! A test of an agent: the answer to a payment is lost, and it must not be made twice.
//!
//! ```
//! use warmline_testkit::{Fault, LedgerServer, FaultTiming, Personality, FaultRule};
//! # fn run_my_agent(url: &str) { assert!(url.starts_with("http://127.0.0.1:")); }
//!
//! fn a_payment_is_made_once() -> std::io::Result<()> {
//!     // A server of both eras on a free port, on a thread of its own.
//!     let server = LedgerServer::start(Personality::dual())?;
//!     // The next call of `pay` is executed, and its answer never comes.
//!     server.inject(FaultRule::new(Fault::Silence(FaultTiming::AfterExecuting)).on_tool("pay"));
//!
//!     run_my_agent(&server.url());
//!
//!     // What the server did counts, not what the agent believes.
//!     assert!(server.ledger().executions("pay") <= 1);
//!     // The agent kept to the protocol: ids, headers, versions, sessions.
//!     assert_eq!(server.violations(), Vec::<String>::new());
//!     // It closed what it had opened.
//!     assert_eq!(server.counts().open_sessions, 0);
//!     Ok(())
//! }
//! # a_payment_is_made_once().unwrap();
//! ```
//!
//! The kit knows nothing of Warmline: it reads and writes plain JSON and raw HTTP, so that an error
//! in the one does not hide an error in the other. It talks to loopback only.

pub mod census;
pub mod demo_server;
pub mod faults;
pub mod ledger;
pub mod proxy;
pub mod sweep;

mod server;

pub use crate::census::Census;
pub use crate::faults::dialects::Dialect;
pub use crate::faults::fault::{
    AfterReply, CannedReply, ConnectionEnd, CutPoint, ExecuteFirst, Fault, FaultRule, FaultTiming,
    ReplyCorruption,
};
pub use crate::faults::personality::{
    EraLock, EventIds, EventName, GetStreamSupport, LegacySupport, ModernSupport, Newline,
    Personality, ReplyFormat, SseFormat, WriteMode,
};
pub use crate::ledger::{ExecutionPhase, Ledger, LedgerEntry};
pub use crate::proxy::FaultProxy;
pub use crate::server::{LedgerServer, ServerControl, ServerCounts};
