//! The idle HTTP/1.1 connections to one origin.
//!
//! A connection has no task. The caller's future polls it beside the response, so a call adds no task
//! and no hop between tasks. Idle connections are not driven; a reaper task exists only while there
//! are some, and closes those that were idle too long. Servers close idle connections, too, and a
//! request that meets such a close cannot be told from an executed one, so ours end first.

use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1;
use rustls::ClientConfig;
use tokio::runtime::Id;
use tokio::task::AbortHandle;

pub(crate) use crate::http::connection::Connection;
use crate::http::connection::ConnectionState;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_platform::net::{self, ConnectError, Dial, Origin};

/// More idle connections per origin are closed, oldest first.
const MAX_IDLE: usize = 64;
/// How many connections that still drain a response are kept when one is taken.
const MAX_DRAINING: usize = 4;

/// The connections to one origin under one TLS identity.
pub(crate) struct Connections {
    origin: Origin,
    tls: Option<Arc<ClientConfig>>,
    dial: Option<Arc<dyn Dial>>,
    idle_timeout: Duration,
    max_head: usize,
    idle: Mutex<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections {
    /// The most recently used is last; the others may age out.
    connections: Vec<(Connection, Instant)>,
    /// The reaper, in the runtime that was used last. It may have ended with that.
    reaper: Option<(Option<Id>, AbortHandle)>,
    is_closed: bool,
}

impl IdleConnections {
    fn take_latest(&mut self, here: Option<Id>) -> Option<(Connection, Instant)> {
        let at = self
            .connections
            .iter()
            .rposition(|(line, _)| line.runtime == here)?;
        Some(self.connections.remove(at))
    }

    fn has_reaper(&self, here: Option<Id>) -> bool {
        let keeper = self.reaper.as_ref();
        keeper.is_some_and(|(home, keeper)| *home == here && !keeper.is_finished())
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Connections {
    pub(crate) fn new(
        origin: Origin,
        tls: Option<Arc<ClientConfig>>,
        dial: Option<Arc<dyn Dial>>,
        (idle_timeout, max_head): (Duration, usize),
    ) -> Self {
        Self {
            origin,
            tls,
            dial,
            idle_timeout,
            max_head,
            idle: Mutex::default(),
        }
    }

    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.lock().connections.is_empty()
    }

    /// Returns the most recently used connection that seems alive. Skips connections that still drain
    /// a response, and those of other runtimes, which nobody may be driving at the moment.
    pub(crate) fn take_idle(&self) -> Option<Connection> {
        let mut busy = Vec::new();
        let mut found = None;
        let here = clock::current_runtime_id();
        while found.is_none() {
            let Some((mut line, since)) = self.idle.lock().take_latest(here) else {
                break;
            };
            if clock::now() >= since + self.idle_timeout {
                continue;
            }
            match line.state_after_idle() {
                ConnectionState::Ready => found = Some(line),
                ConnectionState::Draining if busy.len() < MAX_DRAINING => busy.push((line, since)),
                ConnectionState::Draining | ConnectionState::Closed => {},
            }
        }
        if !busy.is_empty() {
            self.idle.lock().connections.extend(busy.into_iter().rev());
        }
        found
    }

    pub(crate) async fn open(&self) -> Result<Connection, ConnectError> {
        let (socket, reads) =
            net::connect(&self.origin, self.tls.clone(), self.dial.as_deref()).await?;
        let halves = http1::Builder::new()
            .max_header_size(self.max_head)
            .handshake(socket)
            .await
            .map_err(|error| ConnectError::Tcp(std::io::Error::other(error)))?;
        Ok(Connection::new(halves, reads, self.max_head))
    }

    /// Keeps a connection if it can carry another request, else closes it.
    pub(crate) fn release(self: &Arc<Self>, mut line: Connection) {
        if line.undrained_body.is_none() && line.state() != ConnectionState::Ready {
            return;
        }
        let mut resting = self.idle.lock();
        if resting.is_closed {
            return;
        }
        if resting.connections.len() >= MAX_IDLE {
            resting.connections.remove(0);
        }
        resting.connections.push((line, clock::now()));
        let here = clock::current_runtime_id();
        if !resting.has_reaper(here) {
            let keeping = reap_idle(Arc::downgrade(self), self.idle_timeout);
            let keeper = clock::spawn("keep connections", keeping).abort_handle();
            if let Some((_, before)) = resting.reaper.replace((here, keeper)) {
                before.abort();
            }
        }
    }

    /// Closes the idle connections, and the others when they are released.
    pub(crate) fn close(&self) {
        let (lines, keeper) = {
            let mut resting = self.idle.lock();
            resting.is_closed = true;
            (
                std::mem::take(&mut resting.connections),
                resting.reaper.take(),
            )
        };
        drop(lines);
        if let Some((_, keeper)) = keeper {
            keeper.abort();
        }
    }
}

/// Closes what was idle too long; ends when there is none.
async fn reap_idle(connections: std::sync::Weak<Connections>, keep_for: Duration) {
    loop {
        clock::sleep(keep_for / 2).await;
        let Some(connections) = connections.upgrade() else {
            return;
        };
        let mut resting = connections.idle.lock();
        let now = clock::now();
        resting
            .connections
            .retain(|(_, since)| now < *since + keep_for);
        if resting.connections.is_empty() {
            resting.reaper = None;
            return;
        }
    }
}
