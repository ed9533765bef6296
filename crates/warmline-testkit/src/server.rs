//! The ledger server over HTTP, in process, on a thread of its own.
//!
//! A thread of its own, because a test may stop its clock, count its tasks and its allocations:
//! none of that shall notice the server.

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

use crate::fault::{Fault, Rule};
use crate::http::serve::serve_connection;
use crate::http::{Connection, Wire};
use crate::ledger::Ledger;
use crate::message::request;
use crate::personality::{Personality, Writes};
use crate::state::State;

/// A fake MCP server over HTTP that writes down what it does. It ends when it is dropped.
#[derive(Debug)]
pub struct LedgerServer {
    state: Arc<State>,
    address: SocketAddr,
    /// Bound and never listening: while the server is down nobody else gets its port.
    #[expect(dead_code, reason = "it is held, not used")]
    place: TcpSocket,
    tls: Option<Arc<ServerConfig>>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Totals since the server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
    /// HTTP requests read.
    pub requests: u64,
    /// HTTP requests of which not all was read, because their client left.
    pub incomplete: u64,
    /// `initialize` received.
    pub initializes: u64,
    /// Sessions given.
    pub sessions: u64,
    /// Sessions alive now.
    pub open_sessions: u64,
}

/// The means to change a server while it runs. Clones are the same.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) state: Arc<State>,
}

impl LedgerServer {
    /// Starts on a free port of 127.0.0.1.
    pub fn start(personality: Personality) -> io::Result<Self> {
        Self::launch(personality, ([127, 0, 0, 1], 0).into(), None)
    }

    /// Starts with TLS.
    pub fn start_tls(personality: Personality, tls: Arc<ServerConfig>) -> io::Result<Self> {
        Self::launch(personality, ([127, 0, 0, 1], 0).into(), Some(tls))
    }

    fn launch(
        personality: Personality,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        let place = TcpSocket::new_v4()?;
        place.set_reuseaddr(true)?;
        place.bind(address)?;
        let server = Self {
            state: State::new(personality),
            address: place.local_addr()?,
            place,
            tls,
            running: Mutex::new(None),
        };
        server.listen()?;
        Ok(server)
    }

    /// Starts to listen again after [`stop`](Self::stop), at the same address, with its memory.
    pub fn start_again(&self) -> io::Result<()> {
        // One that crashed on command may still be about to end.
        self.stop();
        self.listen()
    }

    fn listen(&self) -> io::Result<()> {
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
                    let listener = bind(address).await;
                    let bound = listener.as_ref().map(drop);
                    drop(ready.send(bound.map_err(copied)));
                    let Ok(listener) = listener else { return };
                    tokio::select! {
                        _ = stopped => {},
                        () = accept(Arc::clone(&state), listener, tls) => {},
                        () = state.crash.notified() => {},
                    }
                });
                // Everything that runs on it, and every socket, goes with the runtime.
                drop(runtime);
                state.counts.open_connections.store(0, Ordering::Relaxed);
            })?;
        wait.recv()
            .map_err(|_| io::Error::other("the server did not start"))??;
        *self.running.lock() = Some(Running { stop, thread });
        Ok(())
    }

    /// Stops listening and closes every connection; sessions and ledger stay.
    pub fn stop(&self) {
        if let Some(running) = self.running.lock().take() {
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
    pub fn control(&self) -> Control {
        Control {
            state: Arc::clone(&self.state),
        }
    }

    /// Tells it what to do wrong.
    pub fn inject(&self, rule: Rule) {
        self.state.rules().add(rule);
    }

    /// What clients did that they must not do. Empty at the end of a good test.
    pub fn violations(&self) -> Vec<String> {
        self.state.violations()
    }

    /// Totals so far.
    pub fn counts(&self) -> Counts {
        self.control().counts()
    }
}

impl Drop for LedgerServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Control {
    /// Adds a rule.
    pub fn inject(&self, rule: Rule) {
        self.state.rules().add(rule);
    }

    /// A fault for the next request, whatever it is.
    pub fn next(&self, fault: Fault) {
        self.inject(Rule::new(fault));
    }

    /// Takes every rule back.
    pub fn clear(&self) {
        self.state.rules().clear();
    }

    /// How many faults were applied so far.
    pub fn applied(&self) -> u64 {
        self.state.rules().applied()
    }

    /// Forgets every session, as a restart or an expiry does.
    pub fn forget_sessions(&self) {
        self.state.forget_sessions();
    }

    /// From now on every request must show this bearer token: the one before has expired.
    pub fn demand_token(&self, token: &str) {
        self.state.memory().token = Some(token.to_owned());
    }

    /// Changes the tools and says so to whoever asked.
    pub fn change_tools(&self) {
        self.state.tools_changed();
    }

    /// Says to whoever subscribed that this resource changed.
    pub fn update_resource(&self, uri: &str) {
        self.state.resource_updated(uri);
    }

    /// Ends every open `subscriptions/listen` with its result.
    pub fn end_listens(&self) {
        self.state.memory().listens_end.notify_waiters();
    }

    /// How many `subscriptions/listen` are open.
    pub fn listens(&self) -> usize {
        self.state.memory().listens.len()
    }

    /// Says this on every `subscriptions/listen` that is open, whatever it wants to hear of.
    pub fn tell_listens(&self, method: &str, params: &Value) {
        for listen in &self.state.memory().listens {
            listen.say(method, params.clone());
        }
    }

    /// Sends this message on the standing stream of every session, whatever it says.
    pub fn say(&self, message: &Value) {
        for session in self.state.memory().sessions.values() {
            if let Some(standing) = &session.standing {
                standing.say(message.clone());
            }
        }
    }

    /// How many sessions have a standing stream that somebody reads.
    pub fn standing_streams(&self) -> usize {
        let memory = self.state.memory();
        let standing = memory
            .sessions
            .values()
            .filter_map(|session| session.standing.as_ref());
        standing.filter(|stream| stream.is_read()).count()
    }

    /// Asks every session something on its standing stream; the answer is in the ledger.
    pub fn ask(&self, method: &str, params: &Value) {
        let mut memory = self.state.memory();
        let sessions: Vec<_> = memory
            .sessions
            .iter()
            .filter_map(|(id, session)| Some((id.clone(), session.standing.clone()?)))
            .collect();
        for (session, standing) in sessions {
            memory.last_question += 1;
            let id = serde_json::json!(memory.last_question);
            memory
                .questions
                .insert((Some(session), id.to_string()), oneshot::channel().0);
            standing.say(request(&id, method, params));
        }
    }

    /// The sum of all payments.
    pub fn paid(&self) -> i64 {
        self.state.memory().paid
    }

    /// Ids of the sessions that are alive.
    pub fn sessions(&self) -> Vec<String> {
        self.state.memory().sessions.keys().cloned().collect()
    }

    /// Forgets what clients did wrong so far, for a test that does it on purpose.
    pub fn clear_violations(&self) {
        self.state.clear_violations();
    }

    /// Totals so far.
    pub fn counts(&self) -> Counts {
        let counts = &self.state.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            connections: read(&counts.connections),
            open_connections: read(&counts.open_connections),
            requests: read(&counts.requests),
            incomplete: read(&counts.incomplete),
            initializes: read(&counts.initializes),
            sessions: read(&counts.sessions),
            open_sessions: self.state.memory().sessions.len() as u64,
        }
    }
}

pub(crate) async fn accept(state: Arc<State>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    while let Ok((socket, _)) = listener.accept().await {
        let number = state.counts.connections.fetch_add(1, Ordering::Relaxed) + 1;
        drop(tokio::spawn(greet(
            Arc::clone(&state),
            socket,
            tls.clone(),
            number,
        )));
    }
}

async fn greet(state: Arc<State>, socket: TcpStream, tls: Option<TlsAcceptor>, number: u64) {
    let writes = state.personality.writes;
    if socket.set_nodelay(writes == Writes::Whole).is_err() {
        return;
    }
    let wire = match tls {
        None => Wire::Plain(socket),
        Some(tls) => match tls.accept(socket).await {
            Ok(secure) => Wire::Tls(Box::new(secure)),
            Err(_) => return,
        },
    };
    state
        .counts
        .open_connections
        .fetch_add(1, Ordering::Relaxed);
    serve_connection(Arc::clone(&state), Connection::new(number, wire, writes)).await;
    state
        .counts
        .open_connections
        .fetch_sub(1, Ordering::Relaxed);
}

/// Binds to an address that is ours. A process that another test starts at this moment may hold a
/// copy of the last listener until it has begun.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
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

fn copied(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
