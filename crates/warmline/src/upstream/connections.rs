//! Connections: kept HTTP/1.1 connections to one origin.
//!
//! Asked by: [`http`](super::http), for every request.
//!
//! A connection has no task of its own. Whoever sends on it also drives it: the caller's future
//! polls the connection beside the response, so a call adds no task and no hop between tasks.
//! Between calls the connection rests here, undriven; a [keeper](keep) exists only while something
//! rests, and closes what has rested too long. Servers close idle connections too, and a request
//! that meets such a close is lost in a way nobody can tell from an execution, so ours end first.

mod line;
mod waking;

use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1;
use rustls::ClientConfig;
use tokio::runtime::Id;
use tokio::task::AbortHandle;

pub(crate) use self::line::Line;
use self::line::State;
use crate::clock::{self, Instant};
use crate::net::{self, ConnectError, Dial, Origin};
use crate::sync::Mutex;

/// At most this many connections rest per origin; more are closed, oldest first.
const MAX_RESTING: usize = 64;
/// At most this many of them are waited for to end their last response; more are closed.
const MAX_BUSY: usize = 4;

/// The kept connections to one origin under one TLS identity.
pub(crate) struct Connections {
    origin: Origin,
    tls: Option<Arc<ClientConfig>>,
    dial: Option<Arc<dyn Dial>>,
    keep_for: Duration,
    max_head: usize,
    resting: Mutex<Resting>,
}

#[derive(Default)]
struct Resting {
    /// The most recently used last: it is the warmest, and the others may age out.
    lines: Vec<(Line, Instant)>,
    /// The task that closes them in time, in the runtime that was used last. It may have ended with
    /// it.
    keeper: Option<(Option<Id>, AbortHandle)>,
    /// Nothing rests here any more.
    closed: bool,
}

impl Resting {
    /// The warmest that was opened in this runtime.
    fn take_one(&mut self, here: Option<Id>) -> Option<(Line, Instant)> {
        let at = self.lines.iter().rposition(|(line, _)| line.home == here)?;
        Some(self.lines.remove(at))
    }

    /// Whether a task of this runtime closes what has rested too long.
    fn is_kept(&self, here: Option<Id>) -> bool {
        let keeper = self.keeper.as_ref();
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
        keep_for: Duration,
        max_head: usize,
    ) -> Self {
        Self {
            origin,
            tls,
            dial: None,
            keep_for,
            max_head,
            resting: Mutex::default(),
        }
    }

    /// The same, with connections made by somebody else.
    pub(crate) fn made_by(mut self, dial: Option<Arc<dyn Dial>>) -> Self {
        self.dial = dial;
        self
    }

    /// Whether any connection rests here.
    pub(crate) fn is_resting(&self) -> bool {
        !self.resting.lock().lines.is_empty()
    }

    /// A kept connection that is still alive as far as we can tell, the warmest first. One whose
    /// last response has not quite ended rests on: a later call may have it. So does one of another
    /// runtime, which may be driven by nobody at this moment.
    pub(crate) fn take_kept(&self) -> Option<Line> {
        let mut busy = Vec::new();
        let mut found = None;
        let here = clock::here();
        while found.is_none() {
            let Some((mut line, since)) = self.resting.lock().take_one(here) else {
                break;
            };
            if clock::now() >= since + self.keep_for {
                continue;
            }
            match line.state_after_rest() {
                State::Free => found = Some(line),
                State::Busy if busy.len() < MAX_BUSY => busy.push((line, since)),
                State::Busy | State::Dead => {},
            }
        }
        if !busy.is_empty() {
            self.resting.lock().lines.extend(busy.into_iter().rev());
        }
        found
    }

    /// A new connection.
    pub(crate) async fn open(&self) -> Result<Line, ConnectError> {
        let (socket, reads) =
            net::connect(&self.origin, self.tls.clone(), self.dial.as_deref()).await?;
        let halves = http1::Builder::new()
            .max_header_size(self.max_head)
            .handshake(socket)
            .await
            .map_err(|error| ConnectError::Tcp(std::io::Error::other(error)))?;
        Ok(Line::new(halves, reads, self.max_head))
    }

    /// How large the head of a response may be.
    pub(crate) fn max_head(&self) -> usize {
        self.max_head
    }

    /// Puts a connection to rest if it can carry another request, else closes it.
    pub(crate) fn give_back(self: &Arc<Self>, mut line: Line) {
        if line.tail.is_none() && line.state() != State::Free {
            return;
        }
        let mut resting = self.resting.lock();
        if resting.closed {
            return;
        }
        if resting.lines.len() >= MAX_RESTING {
            resting.lines.remove(0);
        }
        resting.lines.push((line, clock::now()));
        let here = clock::here();
        if !resting.is_kept(here) {
            let keeping = keep(Arc::downgrade(self), self.keep_for);
            let keeper = clock::spawn("keep connections", keeping).abort_handle();
            if let Some((_, before)) = resting.keeper.replace((here, keeper)) {
                before.abort();
            }
        }
    }

    /// Closes what rests. What is still used is closed when it is given back.
    pub(crate) fn close(&self) {
        let (lines, keeper) = {
            let mut resting = self.resting.lock();
            resting.closed = true;
            (std::mem::take(&mut resting.lines), resting.keeper.take())
        };
        drop(lines);
        if let Some((_, keeper)) = keeper {
            keeper.abort();
        }
    }
}

/// Closes what has rested too long; ends when nothing rests any more.
async fn keep(connections: std::sync::Weak<Connections>, keep_for: Duration) {
    loop {
        clock::sleep(keep_for / 2).await;
        let Some(connections) = connections.upgrade() else {
            return;
        };
        let mut resting = connections.resting.lock();
        let now = clock::now();
        resting.lines.retain(|(_, since)| now < *since + keep_for);
        if resting.lines.is_empty() {
            resting.keeper = None;
            return;
        }
    }
}
