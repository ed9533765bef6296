//! Part of [`warmline`](https://docs.rs/warmline); follows no semver of its own.
//!
//! Opens sessions with MCP servers of either era over HTTP or stdio, and knows how far every request
//! came.
//!
//! | question | file |
//! |---|---|
//! | How is the era detected? | `detect.rs`, `detect/`; what is remembered: `server_facts/known_eras.rs` |
//! | What does a call look like? | `legacy/session.rs`, `modern.rs`, `http_sse.rs`, `stdio/session.rs` |
//! | What happens while a call waits? | `http/call_reader.rs` |
//! | What does a response mean? | `http/response.rs` and `warmline_core::protocol::http_status` |
//! | Who gets a message on a shared stream? | `pending.rs`, `attribution.rs`; outside of calls: `unsolicited.rs` |
//! | How are streams resumed and held? | `legacy/stream_resume.rs`, `legacy/get_stream.rs` |
//! | How are replies and cancels posted? | `http/post.rs` |
//! | How do bytes travel over HTTP? | `http/endpoint.rs`, `http/connections.rs`, `http/tls.rs` |
//! | How do bytes travel to a child? | `stdio/pipe.rs`, `stdio/write_queue.rs`, `stdio/child_task.rs` |
//! | How does a child start and die? | `child/process.rs`, `child/warden.rs`, `child/find_program.rs` |

#![expect(
    missing_docs,
    reason = "an internal crate: where a name says all, no line repeats it"
)]

mod attribution;
mod backpressure;
pub mod child;
mod detect;
pub mod environment;
mod first_contact;
mod handshake;
mod health_check;
pub(crate) mod http;
pub(crate) mod http_sse;
pub(crate) mod legacy;
mod listener;
mod lists;
pub(crate) mod modern;
mod pending;
mod redaction;
mod sanitize;
mod server_facts;
mod session;
mod session_state;
pub(crate) mod stdio;
pub mod target;
mod unsolicited;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use warmline_core::exchange::Diagnostic;

pub use self::attribution::CallerId;
pub use self::backpressure::ReceiverPace;
pub use self::health_check::{HealthCheck, HealthCheckOutcome};
pub use self::listener::{CapacityFuture, Listener, ReplyFuture, SourceSession};
pub use self::lists::ListKind;
pub use self::lists::{ListReader, is_usable_item};
pub use self::server_facts::{Evidence, ResumableSession, ServerFacts};
pub use self::session::Session;
pub use self::target::{
    ClientProfile, HandshakeObserver, HeaderSource, HttpConfig, LifetimeToken, RenewFuture,
    ServerTarget, SizeLimits, StdioConfig, Timeouts, TransportConfig, has_userinfo,
    is_variable_name, parse_url,
};
pub use self::unsolicited::UnsolicitedListener;
pub use self::unsolicited::is_broadcast_method;
pub use crate::child::find_program::ProgramSource;
pub use crate::environment::withheld_variables;
pub use crate::first_contact::{EraSelection, FirstContact};
pub use crate::http::tls::client_config;
pub use crate::legacy::session::StreamHoldOutcome;
pub use crate::server_facts::known_eras::KnownEras;
pub use crate::stdio::pipe::{ChildExit, ChildReport};
pub use warmline_core::pool_key::Transport;
pub use warmline_platform::net::{ByteStream, Destination, Dial, Dialed, Dialing};

use self::redaction::Redactor;
use self::server_facts::FactsInterner;
use self::session::Driver;
use self::unsolicited::UnsolicitedDispatcher;
use crate::child::ChildTracker;
use crate::http::endpoint::RequestHeaders;
use crate::http::endpoints::Endpoints;
pub use crate::http::endpoints::display_url;
use crate::legacy::session::LegacyHttpSession;
use crate::server_facts::known_eras::{KnownErasCache, KnownErasEntry};
use warmline_platform::clock;

/// Removes the values of these headers, which some servers repeat.
pub fn redact_headers(headers: &[(HeaderName, HeaderValue)], diagnostic: Diagnostic) -> Diagnostic {
    match headers {
        [] => diagnostic,
        headers => Redactor::default()
            .with_headers(headers)
            .redact_diagnostic(diagnostic),
    }
}

fn redact_error<T>(server: &ServerTarget, result: Result<T, Diagnostic>) -> Result<T, Diagnostic> {
    result.map_err(|diagnostic| Redactor::for_server(server).redact_diagnostic(diagnostic))
}

fn unsolicited_dispatcher(server: &ServerTarget) -> UnsolicitedDispatcher {
    UnsolicitedDispatcher::new(server.unsolicited_listener.clone())
}

/// Opens sessions to servers. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pub endpoints: Arc<Endpoints>,
    facts_interner: Arc<FactsInterner>,
    known_eras: Arc<KnownErasCache>,
    pub child_tracker: Arc<ChildTracker>,
}

impl Upstream {
    /// Nothing is read or connected until a session is opened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a session with a server. Detects its era unless that is configured.
    ///
    /// # Errors
    /// With what went wrong and what to do. No request of a caller was sent.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no process behind. A server that got `initialize` may hold a session
    /// that nobody knows.
    pub async fn open(
        &self,
        server: &ServerTarget,
        declared: &ClientProfile,
    ) -> Result<Session, Diagnostic> {
        redact_error(server, detect::open(self, server, declared).await)
    }

    /// Makes the first contact with a server: detects its eras and opens a session in the one to use.
    ///
    /// Only a configured era is tried. With [`EraSelection::Both`] a server that speaks both eras is
    /// tried in both, once, and the era that keeps state is used.
    ///
    /// # Errors
    /// As [`Upstream::open`].
    ///
    /// # Cancel safety
    /// As [`Upstream::open`].
    pub async fn first_contact(
        &self,
        server: &ServerTarget,
        declared: &ClientProfile,
        legs: EraSelection,
    ) -> Result<FirstContact, Diagnostic> {
        let making = first_contact::make_first_contact(self, server, declared, legs);
        redact_error(server, Box::pin(making).await)
    }

    /// Checks whether a server behind a URL accepts connections, without a request. A process is always
    /// reachable.
    ///
    /// # Errors
    /// With the reason why not.
    pub async fn check_reachable(
        &self,
        server: &ServerTarget,
        within: Duration,
    ) -> Result<(), Diagnostic> {
        let TransportConfig::Http(reach) = &server.transport else {
            return Ok(());
        };
        let endpoint = self.endpoints.get_or_create(server, reach)?;
        endpoint.ensure_connected(clock::after(within)).await
    }

    /// Checks whether a server behind a URL answers, by a request without effects outside of any
    /// session. A process is not asked.
    ///
    /// # Errors
    /// With the reason why not.
    pub async fn check_responding(
        &self,
        server: &ServerTarget,
        within: Duration,
    ) -> Result<(), Diagnostic> {
        let TransportConfig::Http(reach) = &server.transport else {
            return Ok(());
        };
        let headers = self.request_headers(server, reach)?;
        redact_error(server, health_check::check_server(headers, within).await)
    }

    /// Resumes a session that was opened before, perhaps by another process. Nothing is sent: the first
    /// call shows whether the server still has it. Request ids start at a new random number, so none is
    /// used twice.
    ///
    /// # Errors
    /// If the session does not fit the server: only sessions over Streamable HTTP can be resumed.
    pub fn resume(
        &self,
        server: &ServerTarget,
        declared: &ClientProfile,
        kept: &ResumableSession,
    ) -> Result<Session, Diagnostic> {
        let TransportConfig::Http(reach) = &server.transport else {
            return Err(server_facts::not_resumable(&server.name, "it is a process"));
        };
        let head = self.request_headers(server, reach)?;
        let driver =
            LegacyHttpSession::resume(head, declared, kept, unsolicited_dispatcher(server))?;
        let facts = self.facts_interner.intern(Arc::clone(&kept.facts));
        Ok(Session::new(Driver::LegacyHttp(driver), facts, None))
    }

    /// The eras that a server was seen to speak.
    pub fn known_eras(&self, server: &ServerTarget, declared: &ClientProfile) -> Option<KnownEras> {
        self.known_eras_entry(server, declared).get()
    }

    fn known_eras_entry(&self, server: &ServerTarget, profile: &ClientProfile) -> KnownErasEntry {
        KnownErasEntry::new(&self.known_eras, server, profile)
    }

    fn request_headers(
        &self,
        server: &ServerTarget,
        reach: &HttpConfig,
    ) -> Result<RequestHeaders, Diagnostic> {
        let endpoint = self.endpoints.get_or_create(server, reach)?;
        Ok(RequestHeaders::new(endpoint, server.credential.clone()))
    }
}
