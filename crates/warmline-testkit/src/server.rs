//! The ledger server over HTTP, in process, on a thread of its own.
//!
//! A thread of its own, because a test may stop its clock, count its tasks and its allocations:
//! none of that shall notice the server.

pub(crate) mod call;
pub(crate) mod http;
pub(crate) mod message;
pub(crate) mod message_stream;
pub(crate) mod methods;
pub(crate) mod state;
pub(crate) mod stdio;
pub(crate) mod tools;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::faults::fault::{Fault, FaultRule};
use crate::faults::personality::{Personality, WriteMode};
use crate::ledger::Ledger;
use crate::server::http::exchange::serve_connection;
use crate::server::http::{ClientStream, HttpConnection};
use crate::server::message::request;
use crate::server::state::LedgerServerState;

/// A fake MCP server over HTTP that writes down what it does. It ends when it is dropped.
#[derive(Debug)]
pub struct LedgerServer {
    state: Arc<LedgerServerState>,
    address: SocketAddr,
    /// Bound and never listening: while the server is down nobody else gets its port.
    #[expect(dead_code, reason = "it is held, not used")]
    port_reservation: TcpSocket,
    tls: Option<Arc<ServerConfig>>,
    thread: Mutex<Option<ServerThread>>,
}

#[derive(Debug)]
struct ServerThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Totals since the server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
    /// HTTP requests read.
    pub requests: u64,
    /// HTTP requests of which not all was read, because their client left.
    pub incomplete_requests: u64,
    /// `initialize` received.
    pub initializes: u64,
    /// Sessions given.
    pub sessions: u64,
    /// Sessions alive now.
    pub open_sessions: u64,
}

/// The means to change a server while it runs. Clones are the same.
#[derive(Clone, Debug)]
pub struct ServerControl {
    pub(crate) state: Arc<LedgerServerState>,
}

impl LedgerServer {
    /// Starts on a free port of 127.0.0.1.
    pub fn start(personality: Personality) -> io::Result<Self> {
        Self::start_on(personality, ([127, 0, 0, 1], 0).into(), None)
    }

    /// Starts with TLS.
    pub fn start_tls(personality: Personality, tls: Arc<ServerConfig>) -> io::Result<Self> {
        Self::start_on(personality, ([127, 0, 0, 1], 0).into(), Some(tls))
    }

    fn start_on(
        personality: Personality,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        let place = TcpSocket::new_v4()?;
        place.set_reuseaddr(true)?;
        place.bind(address)?;
        let server = Self {
            state: LedgerServerState::new(personality),
            address: place.local_addr()?,
            port_reservation: place,
            tls,
            thread: Mutex::new(None),
        };
        server.spawn_thread()?;
        Ok(server)
    }

    /// Starts to listen again after [`stop`](Self::stop), at the same address, with its memory.
    pub fn start_again(&self) -> io::Result<()> {
        // One that crashed on command may still be about to end.
        self.stop();
        self.spawn_thread()
    }

    fn spawn_thread(&self) -> io::Result<()> {
        let (stop, stopped) = oneshot::channel();
        let (ready, wait) = std::sync::mpsc::channel();
        let state = Arc::clone(&self.state);
        let tls = self.tls.clone().map(TlsAcceptor::from);
        let address = self.address;
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let Ok(runtime) = runtime else { return };
                runtime.block_on(async {
                    let listener = bind_with_retry(address).await;
                    let bound = listener.as_ref().map(drop);
                    drop(ready.send(bound.map_err(copy_error)));
                    let Ok(listener) = listener else { return };
                    tokio::select! {
                        _ = stopped => {},
                        () = accept_connections(Arc::clone(&state), listener, tls) => {},
                        () = state.crash_signal.notified() => {},
                    }
                });
                // Everything that runs on it, and every socket, goes with the runtime.
                drop(runtime);
                state.counters.open_connections.store(0, Ordering::Relaxed);
            })?;
        wait.recv()
            .map_err(|_| io::Error::other("the server did not start"))??;
        *self.thread.lock() = Some(ServerThread { stop, thread });
        Ok(())
    }

    /// Stops listening and closes every connection; sessions and ledger stay.
    pub fn stop(&self) {
        if let Some(running) = self.thread.lock().take() {
            // It may have crashed already, on command.
            running.stop.send(()).unwrap_or_default();
            drop(running.thread.join());
        }
    }

    /// Stops, forgets every session, and starts again at the same address.
    pub fn restart(&self) -> io::Result<()> {
        self.stop();
        self.state.forget_sessions();
        self.start_again()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of its endpoint.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = if self.tls.is_some() {
            "localhost"
        } else {
            "127.0.0.1"
        };
        format!(
            "{scheme}://{host}:{}{}",
            self.address.port(),
            self.state.personality.path
        )
    }

    /// What it did.
    pub fn ledger(&self) -> &Ledger {
        &self.state.ledger
    }

    /// The means to change it while it runs.
    pub fn control(&self) -> ServerControl {
        ServerControl {
            state: Arc::clone(&self.state),
        }
    }

    /// Tells it what to do wrong.
    pub fn inject(&self, rule: FaultRule) {
        self.state.rules().add(rule);
    }

    /// What clients did that they must not do. Empty at the end of a good test.
    pub fn violations(&self) -> Vec<String> {
        self.state.violations()
    }

    /// Totals so far.
    pub fn counts(&self) -> ServerCounts {
        self.control().counts()
    }
}

impl Drop for LedgerServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServerControl {
    /// Adds a rule.
    pub fn inject(&self, rule: FaultRule) {
        self.state.rules().add(rule);
    }

    /// A fault for the next request, whatever it is.
    pub fn inject_next(&self, fault: Fault) {
        self.inject(FaultRule::new(fault));
    }

    /// Takes every rule back.
    pub fn clear_faults(&self) {
        self.state.rules().clear();
    }

    /// How many faults were applied so far.
    pub fn faults_applied(&self) -> u64 {
        self.state.rules().applied()
    }

    /// Forgets every session, as a restart or an expiry does.
    pub fn forget_sessions(&self) {
        self.state.forget_sessions();
    }

    /// From now on every request must show this bearer token: the one before has expired.
    pub fn require_token(&self, token: &str) {
        self.state.memory().token = Some(token.to_owned());
    }

    /// Changes the tools and says so to whoever asked.
    pub fn change_tools(&self) {
        self.state.notify_tools_changed();
    }

    /// Says to whoever subscribed that this resource changed.
    pub fn update_resource(&self, uri: &str) {
        self.state.notify_resource_updated(uri);
    }

    /// Ends every open `subscriptions/listen` with its result.
    pub fn end_listens(&self) {
        self.state.memory().end_listens_signal.notify_waiters();
    }

    /// How many `subscriptions/listen` are open.
    pub fn open_listens(&self) -> usize {
        self.state.memory().open_listens.len()
    }

    /// Says this on every `subscriptions/listen` that is open, whatever it wants to hear of.
    pub fn notify_listens(&self, method: &str, params: &Value) {
        for listen in &self.state.memory().open_listens {
            listen.notify(method, params.clone());
        }
    }

    /// Sends this message on the standing stream of every session, whatever it says.
    pub fn send_on_get_streams(&self, message: &Value) {
        for session in self.state.memory().sessions.values() {
            if let Some(standing) = &session.get_stream {
                standing.push(message.clone());
            }
        }
    }

    /// How many sessions have a standing stream that somebody reads.
    pub fn open_get_streams(&self) -> usize {
        let memory = self.state.memory();
        let standing = memory
            .sessions
            .values()
            .filter_map(|session| session.get_stream.as_ref());
        standing.filter(|stream| stream.has_reader()).count()
    }

    /// Asks every session something on its standing stream; the answer is in the ledger.
    pub fn send_server_request(&self, method: &str, params: &Value) {
        let mut memory = self.state.memory();
        let sessions: Vec<_> = memory
            .sessions
            .iter()
            .filter_map(|(id, session)| Some((id.clone(), session.get_stream.clone()?)))
            .collect();
        for (session, standing) in sessions {
            memory.last_server_request_id += 1;
            let id = serde_json::json!(memory.last_server_request_id);
            memory
                .pending_server_requests
                .insert((Some(session), id.to_string()), oneshot::channel().0);
            standing.push(request(&id, method, params));
        }
    }

    /// The sum of all payments.
    pub fn total_paid(&self) -> i64 {
        self.state.memory().total_paid
    }

    /// Ids of the sessions that are alive.
    pub fn session_ids(&self) -> Vec<String> {
        self.state.memory().sessions.keys().cloned().collect()
    }

    /// Forgets what clients did wrong so far, for a test that does it on purpose.
    pub fn clear_violations(&self) {
        self.state.clear_violations();
    }

    /// Totals so far.
    pub fn counts(&self) -> ServerCounts {
        let counts = &self.state.counters;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ServerCounts {
            connections: read(&counts.connections),
            open_connections: read(&counts.open_connections),
            requests: read(&counts.requests),
            incomplete_requests: read(&counts.incomplete_requests),
            initializes: read(&counts.initializes),
            sessions: read(&counts.sessions),
            open_sessions: self.state.memory().sessions.len() as u64,
        }
    }
}

pub(crate) async fn accept_connections(
    state: Arc<LedgerServerState>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
) {
    while let Ok((socket, _)) = listener.accept().await {
        let number = state.counters.connections.fetch_add(1, Ordering::Relaxed) + 1;
        drop(tokio::spawn(serve_client(
            Arc::clone(&state),
            socket,
            tls.clone(),
            number,
        )));
    }
}

async fn serve_client(
    state: Arc<LedgerServerState>,
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    number: u64,
) {
    let writes = state.personality.write_mode;
    if socket.set_nodelay(writes == WriteMode::Whole).is_err() {
        return;
    }
    let wire = match tls {
        None => ClientStream::Plain(socket),
        Some(tls) => match tls.accept(socket).await {
            Ok(secure) => ClientStream::Tls(Box::new(secure)),
            Err(_) => return,
        },
    };
    state
        .counters
        .open_connections
        .fetch_add(1, Ordering::Relaxed);
    serve_connection(
        Arc::clone(&state),
        HttpConnection::new(number, wire, writes),
    )
    .await;
    state
        .counters
        .open_connections
        .fetch_sub(1, Ordering::Relaxed);
}

/// Binds to an address that is ours. A process that another test starts at this moment may hold a
/// copy of the last listener until it has begun.
async fn bind_with_retry(address: SocketAddr) -> io::Result<TcpListener> {
    for _ in 0..100 {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            bound => return bound,
        }
    }
    TcpListener::bind(address).await
}

fn copy_error(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
