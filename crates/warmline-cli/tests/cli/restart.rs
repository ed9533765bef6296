//! `warmline serve` is killed under load and started again: nothing is sent twice, and whoever was
//! not in the middle of a call notices nothing.

use crate::prelude::*;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use warmline_platform::clock;

const CLIENTS: usize = 1_000;
/// So often each client must be answered once the gateway is there again.
const AFTER: u32 = 2;
/// The gateway is killed after so many calls.
const BEFORE: usize = 3 * CLIENTS;

/// How a request ended for its client.
enum Ended {
    Answered(String),
    /// The connection broke after something of the request had left.
    Cut,
    /// There was no connection.
    Nowhere,
}

/// A client with one connection and one client session.
struct Client {
    number: usize,
    at: SocketAddr,
    path: Arc<str>,
    socket: Option<TcpStream>,
    /// How long it thinks after every call.
    pause: Duration,
    headers: String,
    /// How often the server had counted when it last answered.
    counted: u64,
    /// Calls since then of which nobody knows whether they were counted.
    unknown: u64,
    answered: Vec<String>,
    cuts: usize,
}

impl Client {
    async fn send(&mut self, body: &str) -> Ended {
        // Whoever rested while the other end left has lost nothing.
        let kept = self.socket.take().filter(is_open);
        let mut socket = match kept {
            Some(socket) => socket,
            None => match TcpStream::connect(self.at).await {
                Ok(socket) => socket,
                Err(_) => return Ended::Nowhere,
            },
        };
        let (path, headers, length) = (&self.path, &self.headers, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        if socket.write_all(request.as_bytes()).await.is_err() {
            return Ended::Cut;
        }
        let mut read = Vec::new();
        loop {
            if let Some(answer) = whole(&read) {
                self.socket = Some(socket);
                return Ended::Answered(answer);
            }
            match socket.read_buf(&mut read).await {
                Ok(read) if read > 0 => {},
                _ => return Ended::Cut,
            }
        }
    }

    async fn greet(&mut self) {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;
        let Ended::Answered(greeted) = self.send(hello).await else {
            panic!("nobody greets client {}", self.number);
        };
        let ticket = greeted
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        let ticket = ticket.unwrap_or_else(|| panic!("no ticket: {greeted}"));
        self.headers = format!("Mcp-Session-Id: {ticket}\r\n");
    }

    /// Calls once, and says whether it was answered.
    async fn call(&mut self, turn: u32) -> bool {
        let id = format!("{}-{turn}", self.number);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"counter","arguments":{{"call":"{id}"}}}}}}"#
        );
        match self.send(&body).await {
            Ended::Nowhere => clock::sleep(Duration::from_millis(50)).await,
            Ended::Cut => {
                self.unknown += 1;
                self.cuts += 1;
            },
            Ended::Answered(answer) => {
                let json = answer.split_once("\r\n\r\n").unwrap().1;
                let message: Value = serde_json::from_str(json).unwrap();
                let count = message["result"]["structuredContent"]["count"].as_u64();
                let count = count.unwrap_or_else(|| panic!("client {}: {answer}", self.number));
                let most = self.counted + 1 + self.unknown;
                assert!(
                    self.counted < count && count <= most,
                    "client {} is in another session: {count} after {}, {} unknown",
                    self.number,
                    self.counted,
                    self.unknown,
                );
                (self.counted, self.unknown) = (count, 0);
                self.answered.push(id);
                return true;
            },
        }
        false
    }

    /// Calls until it was answered often enough by the gateway that came back.
    async fn work(mut self, is_back: Arc<AtomicBool>) -> Self {
        let (mut turn, mut after) = (1, 0);
        while after < AFTER {
            let was_back = is_back.load(Ordering::SeqCst);
            if self.call(turn).await && was_back {
                after += 1;
            }
            turn += 1;
            clock::sleep(self.pause).await;
        }
        self
    }
}

/// Whether the other end has not closed it.
fn is_open(socket: &TcpStream) -> bool {
    let read = socket.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A response of stated length, if all of it is there.
fn whole(read: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(read).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    (body.len() >= length?.parse().ok()?).then(|| text.to_owned())
}

/// As many sockets as the clients and the server need.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// The clients, all of them greeted and with a session at the server.
async fn greeted(at: SocketAddr, path: &Arc<str>) -> Vec<Client> {
    let mut greeting = JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = Client {
            number,
            at,
            path: Arc::clone(path),
            socket: None,
            // Some are always in the middle of a call, and most hardly ever.
            pause: Duration::from_millis(if number % 4 == 0 { 5 } else { 1_500 }),
            headers: String::new(),
            counted: 0,
            unknown: 0,
            answered: Vec::new(),
            cuts: 0,
        };
        greeting.spawn(async move {
            client.greet().await;
            assert!(client.call(0).await, "client {number} gets no answer");
            client
        });
    }
    greeting.join_all().await
}

/// How often each call was executed, by its id.
fn executions(server: &LedgerServer) -> HashMap<String, usize> {
    let mut executions = HashMap::new();
    for entry in server.ledger().entries() {
        if entry.phase == ExecutionPhase::Begin && entry.tool.as_deref() == Some("counter") {
            let id = entry.arguments["call"].as_str().unwrap().to_owned();
            *executions.entry(id).or_default() += 1;
        }
    }
    executions
}

/// A49, reliability P29: calls that are not under way when the gateway is killed go on in their old
/// session, those that are see a cut, and nothing is sent twice.
#[test]
fn a_gateway_that_is_killed_under_load_goes_on_where_it_was() {
    raise_limit();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    // A thousand sessions are written down at once. On a busy machine that may take longer than a
    // store usually may, and a session that could not be written down is lost with its process.
    let warmline = Warmline::new().with("WARMLINE_STORE_TIMEOUT", "30s");
    let url = server.url();
    let words = ["--auth", "none", url.as_str()];
    let serving = Serving::start(&warmline, &words);
    let name = serving.said["servers"][0]["name"].as_str().unwrap();
    let path: Arc<str> = format!("/servers/{name}/mcp").into();
    let base = serving.base();
    let listen = base.strip_prefix("http://").unwrap();
    let at: SocketAddr = listen.parse().unwrap();
    let runtime = Runtime::new().unwrap();
    let clients = runtime.block_on(greeted(at, &path));
    let is_back = Arc::new(AtomicBool::new(false));
    let working: Vec<_> = clients
        .into_iter()
        .map(|client| runtime.spawn(client.work(Arc::clone(&is_back))))
        .collect();
    let enough = Duration::from_secs(60);
    let ledger = server.ledger().clone();
    let busy = runtime.block_on(ledger.wait_until(enough, |entries| {
        let commits = entries
            .iter()
            .rev()
            .filter(|entry| entry.phase == ExecutionPhase::Commit);
        commits.take(BEFORE).count() >= BEFORE
    }));
    assert!(busy, "the clients do not get on");
    serving.tell(Signal::KILL);
    drop(serving);
    let serving = Serving::start_at(&warmline, listen, &words);
    is_back.store(true, Ordering::SeqCst);
    let mut done = Vec::new();
    for client in working {
        done.push(runtime.block_on(client).unwrap());
    }
    let cuts: usize = done.iter().map(|client| client.cuts).sum();
    let untouched = done.iter().filter(|client| client.cuts == 0).count();
    let executions = executions(&server);
    let twice: Vec<_> = executions.iter().filter(|(_, times)| **times > 1).collect();
    assert_eq!(twice, Vec::<(&String, &usize)>::new());
    let answered = done.iter().flat_map(|client| &client.answered);
    for id in answered.clone() {
        assert_eq!(executions.get(id), Some(&1), "call {id}");
    }
    println!(
        "{CLIENTS} clients: {} calls were answered, {cuts} cut, {} executed; {untouched} clients \
         noticed nothing",
        answered.count(),
        executions.len()
    );
    assert!(cuts > 0, "some calls were under way");
    assert!(untouched > 0, "some clients were in the middle of nothing");
    assert_eq!(server.counts().open_sessions, CLIENTS as u64);
    serving.stop(&warmline);
    assert_eq!(server.violations(), Vec::<String>::new());
}
