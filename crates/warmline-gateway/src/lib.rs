//! The gateway: MCP clients on one side, Warmline's engine on the other.
//!
//! A [`Gateway`] listens, finds out who is calling and which run they mean, speaks to each client
//! in its own era, and hands every call to the engine. It decides nothing about sessions.

mod body;
mod declared;
mod door;
mod face;
mod failure;
mod flow;
mod hosts;
mod lane;
mod path;
pub mod reload;
mod reply;
pub mod settings;
mod ticket;
pub mod tokens;
mod which;
mod who;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use warmline::{Code, Warmline, clock};

use crate::body::Body;
use crate::face::legacy::clients::Clients;
use crate::face::modern::listen::Listens;
pub use crate::face::stdio::Pipe;
use crate::hosts::Hosts;
pub use crate::which::RunFrom;
pub use crate::who::{Auth, Token};
use crate::who::{Doorman, Split, Subject};

/// What can be decided about a gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens for MCP.
    pub listen: SocketAddr,
    /// How callers show who they are.
    pub auth: Auth,
    /// Places where clients name their conversation, looked at in order.
    pub run_from: Vec<RunFrom>,
    /// Names beside those of this machine by which it may be called.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it.
    pub origins: Vec<String>,
    /// The largest request that is taken, in bytes.
    pub max_request: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 8484).into(),
            auth: Auth::default(),
            run_from: RunFrom::usual(),
            hosts: Vec::new(),
            origins: Vec::new(),
            max_request: 4 << 20,
        }
    }
}

/// A gateway that listens. It stops taking connections when it is dropped.
pub struct Gateway {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    listening: JoinHandle<()>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) warm: Warmline,
    pub(crate) options: Options,
    pub(crate) doorman: Doorman,
    pub(crate) hosts: Hosts,
    pub(crate) clients: Clients,
    pub(crate) listens: Listens,
    /// Whether nothing new is taken any more.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Gateway {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn start(warm: Warmline, options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let shared = Shared::new(warm, options, address, stopping.clone());
        let shared = Arc::new(shared);
        let listening = door::listen(Arc::clone(&shared), listener, stopping);
        Ok(Self {
            listening: clock::spawn("listener", listening),
            shared,
            address,
            stop,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The engine behind it.
    pub fn warm(&self) -> &Warmline {
        &self.shared.warm
    }

    /// Lets callers in by other rules from the next request on: a token that is not among them any
    /// more counts no longer.
    pub fn let_in_by(&self, auth: Auth) {
        self.shared.doorman.go_by(auth);
    }

    /// Takes no new connection and closes those that rest; what is under way goes on.
    pub fn drain(&self) {
        self.stop.send_replace(true);
    }

    /// Ends when no connection is left, after [`Gateway::drain`].
    pub async fn drained(&self) {
        // What all connections share hears of the end as well, and is there until we are not.
        while self.stop.receiver_count() > 1 {
            clock::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Takes no new connection, and closes those that rest. Calls under way go on.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        clock::timeout(Duration::from_secs(1), self.listening)
            .await
            .ok();
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("address", &self.address)
            .field("servers", &self.shared.warm.servers())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        warm: Warmline,
        options: Options,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            doorman: Doorman::new(options.auth.clone(), warm.clone()),
            hosts: Hosts::of(address, &options.hosts, &options.origins),
            clients: Clients::default(),
            listens: Listens::default(),
            stopping,
            warm,
            options,
        }
    }

    /// `DELETE /runs/{run}`: the run must be there.
    async fn end_run(&self, subject: &Subject, head: &Parts, name: &str) -> Response<Body> {
        if head.method != Method::DELETE {
            return reply::wrong_method("DELETE");
        }
        let identity = who::identity(&self.warm, subject, Split::Run(name));
        match identity.join(name) {
            Ok(run) => {
                run.end().await;
                reply::empty(StatusCode::NO_CONTENT)
            },
            Err(error) => {
                let status = if error.code() == Code::RunUnknown {
                    StatusCode::NOT_FOUND
                } else {
                    StatusCode::BAD_REQUEST
                };
                reply::json(status, failure::message(b"null", &error))
            },
        }
    }
}
