//! The fault proxy: a wire that can be slow, narrow, cut or dead, in each direction by itself.
//!
//! It stands between a client and any TCP server, counts what passes, and can be changed while
//! connections are open. Bytes are counted for each connection from the moment its [`Lane`] was
//! set, so that a kept connection can be cut in the middle of its next exchange.

mod pump;

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

use crate::fault::End;

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
pub struct Lane {
    /// Everything waits so many milliseconds.
    pub delay_ms: u64,
    /// So many bytes pass in a second.
    pub bytes_per_second: Option<u64>,
    /// Everything passes in pieces of so many bytes.
    pub slice: Option<usize>,
    /// After so many bytes this happens.
    pub then: Option<(u64, Happening)>,
    /// The byte at this place is changed.
    pub corrupt: Option<u64>,
    /// Whether the lane is good again after the happening.
    pub lasts: Lasts,
}

/// What happens when the bytes of a lane are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happening {
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
pub enum Lasts {
    /// To all, until the lane is set anew.
    #[default]
    Always,
    /// To one; then the lane is good.
    Once,
}

/// What a new connection meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// It is led to the server.
    #[default]
    Open,
    /// Nobody listens.
    Closed,
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
    pub up: u64,
    /// Bytes from the server to clients.
    pub down: u64,
}

/// A TCP proxy on a thread of its own. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    target: SocketAddr,
    lanes: Mutex<Lanes>,
    gate: Mutex<Gate>,
    gate_moved: Notify,
    end_all: broadcast::Sender<End>,
    connections: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

/// Both lanes, and how often each was set.
#[derive(Debug, Default)]
struct Lanes {
    up: (u64, Lane),
    down: (u64, Lane),
}

impl Lane {
    /// Adds a delay.
    #[must_use]
    pub fn delay(mut self, length: Duration) -> Self {
        self.delay_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Lets so many bytes pass in a second.
    #[must_use]
    pub fn drip(mut self, bytes_per_second: u64) -> Self {
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
    pub fn after(mut self, bytes: u64, happening: Happening) -> Self {
        self.then = Some((bytes, happening));
        self
    }

    /// Swallows everything.
    #[must_use]
    pub fn swallow(self) -> Self {
        self.after(0, Happening::Swallow)
    }

    /// Changes the byte at this place.
    #[must_use]
    pub fn corrupt(mut self, place: u64) -> Self {
        self.corrupt = Some(place);
        self
    }

    /// What happens, happens to one connection.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.lasts = Lasts::Once;
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
        let shared = Arc::new(Shared {
            target,
            lanes: Mutex::default(),
            gate: Mutex::default(),
            gate_moved: Notify::new(),
            end_all: broadcast::channel(16).0,
            connections: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
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
                        () = listen(for_thread, address, ready) => {},
                    }
                });
            })?;
        let address = wait
            .recv()
            .map_err(|_| io::Error::other("the proxy did not start"))??;
        Ok(Self {
            address,
            shared,
            stop: Some((stop, thread)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// This URL, by way of the proxy.
    pub fn url(&self, of_server: &str) -> String {
        let target = self.shared.target.port().to_string();
        of_server.replacen(
            &format!(":{target}"),
            &format!(":{}", self.address.port()),
            1,
        )
    }

    /// Sets one direction, for open connections too.
    pub fn set(&self, direction: Direction, lane: Lane) {
        self.shared.set(direction, lane);
    }

    /// Both directions are good again, and the gate is open.
    pub fn mend(&self) {
        self.set(Direction::Up, Lane::default());
        self.set(Direction::Down, Lane::default());
        self.gate(Gate::Open);
    }

    /// Sets what new connections meet.
    pub fn gate(&self, gate: Gate) {
        *self.shared.gate.lock() = gate;
        self.shared.gate_moved.notify_one();
    }

    /// Ends every open connection now.
    pub fn end_all(&self, end: End) {
        // Nobody may be connected.
        self.shared.end_all.send(end).unwrap_or_default();
    }

    /// What has passed so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            connections: self.shared.connections.load(Ordering::Relaxed),
            up: self.shared.up.load(Ordering::Relaxed),
            down: self.shared.down.load(Ordering::Relaxed),
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

impl Shared {
    fn set(&self, direction: Direction, lane: Lane) {
        let mut lanes = self.lanes.lock();
        let one = match direction {
            Direction::Up => &mut lanes.up,
            Direction::Down => &mut lanes.down,
        };
        *one = (one.0 + 1, lane);
    }

    /// How this direction is set, and the number of that setting.
    fn lane(&self, direction: Direction) -> (u64, Lane) {
        let lanes = self.lanes.lock();
        match direction {
            Direction::Up => lanes.up,
            Direction::Down => lanes.down,
        }
    }

    fn count(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

type Ready = std::sync::mpsc::Sender<io::Result<SocketAddr>>;

async fn listen(shared: Arc<Shared>, address: SocketAddr, ready: Ready) {
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
        let gate = *shared.gate.lock();
        listener = match (gate, listener) {
            (Gate::Closed, _) => None,
            (Gate::Open | Gate::Reset | Gate::Silent, None) => TcpListener::bind(bound).await.ok(),
            (Gate::Open | Gate::Reset | Gate::Silent, open) => open,
        };
        tokio::select! {
            biased;
            () = shared.gate_moved.notified() => {},
            Some(client) = accepted(listener.as_ref()) => {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                drop(tokio::spawn(admit(Arc::clone(&shared), client, gate)));
            },
        }
    }
}

async fn accepted(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

async fn admit(shared: Arc<Shared>, client: TcpStream, gate: Gate) {
    match gate {
        Gate::Open => pump::connect(&shared, client).await,
        Gate::Reset => drop(client.set_zero_linger()),
        Gate::Silent | Gate::Closed => {
            // Held until all connections are ended.
            drop(shared.end_all.subscribe().recv().await);
        },
    }
}
