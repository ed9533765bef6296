//! The fault proxy: a wire that can be slow, narrow, cut or dead, in each direction by itself.
//!
//! It stands between a client and any TCP server, counts what passes, and can be changed while
//! connections are open. Bytes are counted for each connection from the moment its [`LinkConditions`] was
//! set, so that a kept connection can be cut in the middle of its next exchange.

mod forwarder;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, broadcast, oneshot};

use crate::faults::fault::ConnectionEnd;

/// Which way bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// How one direction behaves. By default: as a good wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct LinkConditions {
    /// Everything waits so many milliseconds.
    pub delay_ms: u64,
    /// So many bytes pass in a second.
    pub bytes_per_second: Option<u64>,
    /// Everything passes in pieces of so many bytes.
    pub slice: Option<usize>,
    /// After so many bytes this happens.
    #[serde(rename = "then")]
    pub failure: Option<(u64, LinkFailure)>,
    /// The byte at this place is changed.
    #[serde(rename = "corrupt")]
    pub corrupt_byte: Option<u64>,
    /// Whether the lane is good again after the happening.
    #[serde(rename = "lasts")]
    pub repeat: FailureRepeat,
}

/// What happens when the bytes of a lane are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkFailure {
    /// Both sides see a FIN.
    Fin,
    /// Both sides see a RST.
    Rst,
    /// Whoever reads this lane sees the end; the other lane lives.
    HalfClose,
    /// What follows is swallowed, and nobody is told.
    Swallow,
}

/// Whether a happening happens to one connection or to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureRepeat {
    /// To all, until the lane is set again.
    #[default]
    Always,
    /// To one; then the lane is good.
    Once,
}

/// What a new connection meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptMode {
    /// It is led to the server.
    #[default]
    Forward,
    /// Nobody listens.
    Refuse,
    /// It is accepted and reset.
    Reset,
    /// It is accepted and never led anywhere.
    Silent,
}

/// What has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes from clients to the server.
    pub bytes_up: u64,
    /// Bytes from the server to clients.
    pub bytes_down: u64,
}

/// A TCP proxy on a thread of its own. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    stop: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
pub(crate) struct ProxyState {
    target: SocketAddr,
    settings: Mutex<LinkSettings>,
    accept_mode: Mutex<AcceptMode>,
    accept_mode_changed: Notify,
    end_connections: broadcast::Sender<ConnectionEnd>,
    connections: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

/// Both lanes, and how often each was set.
#[derive(Debug, Default)]
struct LinkSettings {
    up: (u64, LinkConditions),
    down: (u64, LinkConditions),
}

impl LinkConditions {
    /// Adds a delay.
    #[must_use]
    pub fn delay(mut self, length: Duration) -> Self {
        self.delay_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Lets so many bytes pass in a second.
    #[must_use]
    pub fn throttle(mut self, bytes_per_second: u64) -> Self {
        self.bytes_per_second = Some(bytes_per_second.max(1));
        self
    }

    /// Cuts everything into pieces of so many bytes.
    #[must_use]
    pub fn slice(mut self, bytes: usize) -> Self {
        self.slice = Some(bytes.max(1));
        self
    }

    /// Lets so many bytes pass; then this happens.
    #[must_use]
    pub fn fail_after(mut self, bytes: u64, happening: LinkFailure) -> Self {
        self.failure = Some((bytes, happening));
        self
    }

    /// Swallows everything.
    #[must_use]
    pub fn swallow(self) -> Self {
        self.fail_after(0, LinkFailure::Swallow)
    }

    /// Changes the byte at this place.
    #[must_use]
    pub fn corrupt_byte(mut self, place: u64) -> Self {
        self.corrupt_byte = Some(place);
        self
    }

    /// What happens, happens to one connection.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.repeat = FailureRepeat::Once;
        self
    }
}

impl FaultProxy {
    /// Starts on a free port of 127.0.0.1 in front of `target`.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_on(([127, 0, 0, 1], 0).into(), target)
    }

    /// Starts on this address.
    pub fn start_on(address: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(ProxyState {
            target,
            settings: Mutex::default(),
            accept_mode: Mutex::default(),
            accept_mode_changed: Notify::new(),
            end_connections: broadcast::channel(16).0,
            connections: AtomicU64::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let (ready, wait) = std::sync::mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let Ok(runtime) = runtime else { return };
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {},
                        () = accept_connections(for_thread, address, ready) => {},
                    }
                });
            })?;
        let address = wait
            .recv()
            .map_err(|_| io::Error::other("the proxy did not start"))??;
        Ok(Self {
            address,
            state: shared,
            stop: Some((stop, thread)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// This URL, by way of the proxy.
    pub fn proxied_url(&self, of_server: &str) -> String {
        let target = self.state.target.port().to_string();
        of_server.replacen(
            &format!(":{target}"),
            &format!(":{}", self.address.port()),
            1,
        )
    }

    /// Sets one direction, for open connections too.
    pub fn set_conditions(&self, direction: Direction, lane: LinkConditions) {
        self.state.set_conditions(direction, lane);
    }

    /// Both directions are good again, and the gate is open.
    pub fn restore(&self) {
        self.set_conditions(Direction::Up, LinkConditions::default());
        self.set_conditions(Direction::Down, LinkConditions::default());
        self.set_accept_mode(AcceptMode::Forward);
    }

    /// Sets what new connections meet.
    pub fn set_accept_mode(&self, gate: AcceptMode) {
        *self.state.accept_mode.lock() = gate;
        self.state.accept_mode_changed.notify_one();
    }

    /// Ends every open connection now.
    pub fn end_connections(&self, end: ConnectionEnd) {
        // Nobody may be connected.
        self.state.end_connections.send(end).unwrap_or_default();
    }

    /// What has passed so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            connections: self.state.connections.load(Ordering::Relaxed),
            bytes_up: self.state.bytes_up.load(Ordering::Relaxed),
            bytes_down: self.state.bytes_down.load(Ordering::Relaxed),
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.stop.take() {
            stop.send(()).unwrap_or_default();
            drop(thread.join());
        }
    }
}

impl ProxyState {
    fn set_conditions(&self, direction: Direction, lane: LinkConditions) {
        let mut lanes = self.settings.lock();
        let one = match direction {
            Direction::Up => &mut lanes.up,
            Direction::Down => &mut lanes.down,
        };
        *one = (one.0 + 1, lane);
    }

    /// How this direction is set, and the number of that setting.
    fn conditions(&self, direction: Direction) -> (u64, LinkConditions) {
        let lanes = self.settings.lock();
        match direction {
            Direction::Up => lanes.up,
            Direction::Down => lanes.down,
        }
    }

    fn add_bytes(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Up => &self.bytes_up,
            Direction::Down => &self.bytes_down,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

type ReadySender = std::sync::mpsc::Sender<io::Result<SocketAddr>>;

async fn accept_connections(shared: Arc<ProxyState>, address: SocketAddr, ready: ReadySender) {
    let mut listener = match TcpListener::bind(address).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            ready.send(Err(error)).unwrap_or_default();
            return;
        },
    };
    let bound = listener
        .as_ref()
        .and_then(|open| open.local_addr().ok())
        .unwrap_or(address);
    ready.send(Ok(bound)).unwrap_or_default();
    loop {
        let gate = *shared.accept_mode.lock();
        listener = match (gate, listener) {
            (AcceptMode::Refuse, _) => None,
            (AcceptMode::Forward | AcceptMode::Reset | AcceptMode::Silent, None) => {
                TcpListener::bind(bound).await.ok()
            },
            (AcceptMode::Forward | AcceptMode::Reset | AcceptMode::Silent, open) => open,
        };
        tokio::select! {
            biased;
            () = shared.accept_mode_changed.notified() => {},
            Some(client) = accept_client(listener.as_ref()) => {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                drop(tokio::spawn(handle_client(Arc::clone(&shared), client, gate)));
            },
        }
    }
}

async fn accept_client(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

async fn handle_client(shared: Arc<ProxyState>, client: TcpStream, gate: AcceptMode) {
    match gate {
        AcceptMode::Forward => forwarder::forward_connection(&shared, client).await,
        AcceptMode::Reset => drop(client.set_zero_linger()),
        AcceptMode::Silent | AcceptMode::Refuse => {
            // Held until all connections are ended.
            drop(shared.end_connections.subscribe().recv().await);
        },
    }
}
