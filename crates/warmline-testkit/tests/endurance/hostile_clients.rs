//! Hostile clients at a gateway: whatever they send gets the named status and code, memory stays
//! as it is, and a well-behaved client beside them is answered in time.
//!
//! `WARMLINE_HOSTILE` says how many requests are made, `WARMLINE_SEED` which.

mod attack;
mod raw_connection;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use warmline::{Server, Warmline};
use warmline_gateway::{Auth, BearerToken, Gateway, GatewayOptions, ListenerLimits};
use warmline_testkit::{LedgerServer, Personality};

use self::attack::{Gets, Loot};
use self::raw_connection::{RawConnection, Reply};

/// How many requests are made where nobody says otherwise.
const REQUESTS: u64 = 20_000;
/// So many connections attack at a time.
const ATTACKERS: u64 = 16;
/// So many hold a connection and say next to nothing.
const SLOW: usize = 64;
/// A well-behaved client waits no longer for an answer.
const DEADLINE: Duration = Duration::from_secs(2);
/// Memory may grow by this much after the first requests, with the clients' own.
const GROWTH: u64 = 24 << 20;
const PATH: &str = "/servers/ledger/mcp";

fn number(variable: &str) -> Option<u64> {
    let stated = std::env::var(variable).ok()?;
    Some(stated.parse().unwrap())
}

/// Counts lines of the log that people see.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicUsize>);

impl Subscriber for Counted {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() <= Level::INFO && of.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What this process holds in memory, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

async fn gateway(server: &LedgerServer) -> Gateway {
    let warm = Warmline::builder().server(Server::http("ledger", server.url()));
    let warm = warm.build().unwrap();
    let token =
        |name: &str| BearerToken::from_text(warm.vault(), name, &format!("token-of-{name}"));
    let options = GatewayOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: Auth::tokens(vec![token("alice"), token("bob"), token("carol")]),
        max_request: 64 << 10,
        limits: ListenerLimits {
            head_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(1),
            ..ListenerLimits::default()
        },
        ..GatewayOptions::default()
    };
    Gateway::start(warm.clone(), options).await.unwrap()
}

fn post(who: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let text = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-of-{who}\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         {headers}Content-Length: {length}\r\n\r\n{body}"
    );
    text.into_bytes()
}

/// Greets, and gives the ticket.
async fn greet(line: &mut RawConnection, who: &str) -> String {
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"wire","version":"1"}}}"#;
    let greeted = line.send(&post(who, "", hello)).await;
    greeted.header("mcp-session-id").unwrap().to_owned()
}

async fn loot(at: SocketAddr) -> Loot {
    let mut line = RawConnection::to(at);
    let ticket = greet(&mut line, "alice").await;
    let ended = greet(&mut line, "alice").await;
    let leave = format!(
        "DELETE {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-of-alice\r\n\
         Mcp-Session-Id: {ended}\r\n\r\n"
    );
    assert_eq!(line.send(leave.as_bytes()).await.status, 204);
    Loot { ticket, ended }
}

/// Whether an answer is what the attack must get.
fn is_named(gets: Gets, reply: &Reply) -> bool {
    match gets {
        Gets::Code(status, code) => reply.status == status && reply.code() == Some(code),
        Gets::Status(status) => reply.status == status,
        Gets::Stranger => matches!(reply.status, 401 | 429) && reply.code() == Some(-32600),
        Gets::Refusal => match reply.status {
            0 => true,
            // A head that hyper cannot parse gets a bare response.
            400 | 431 => matches!(reply.code(), None | Some(-32600)),
            _ => false,
        },
        Gets::Named => match reply.status {
            200 => reply.message().is_some(),
            202 => true,
            400 | 404 => reply
                .code()
                .is_some_and(|code| (-32_700..=-32_000).contains(&code)),
            _ => false,
        },
    }
}

/// Attacks so many times, one after the other.
async fn attack(at: SocketAddr, loot: Arc<Loot>, seed: u64, times: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut line = RawConnection::to(at);
    for turn in 0..times {
        let (bytes, gets) = attack::draw(&mut rng, &loot);
        let reply = line.send(&bytes).await;
        let sent = String::from_utf8_lossy(&bytes);
        let sent: String = sent.chars().take(1000).collect();
        assert!(
            is_named(gets, &reply),
            "seed {seed}, turn {turn}: must get {gets:?}, got {reply:?}\n{sent}"
        );
    }
}

/// Holds connections that never say a whole request, a letter at a time, until it is over.
async fn dawdle(at: SocketAddr, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        let mut socket = TcpStream::connect(at).await.unwrap();
        for letter in "POST /servers/ledger/mcp HTTP/1.1\r\nHost: localhost\r\nX-".bytes() {
            if socket.write_all(&[letter]).await.is_err() || over.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // It is closed on us, not the other way round.
        let mut rest = Vec::new();
        let reading = socket.read_to_end(&mut rest);
        let left = tokio::time::timeout(Duration::from_secs(10), reading).await;
        assert!(left.is_ok(), "a slow client is left");
    }
}

/// Calls until it is over: everything is answered in time, in the session it was greeted in.
async fn behave(at: SocketAddr, over: Arc<AtomicBool>) -> (u64, Duration) {
    let mut line = RawConnection::to(at);
    let ticket = greet(&mut line, "carol").await;
    let headers = format!("Mcp-Session-Id: {ticket}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let count = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"counter","arguments":{}}}"#;
    let call = post("carol", &headers, count);
    let (mut calls, mut slowest) = (0, Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        calls += 1;
        let began = Instant::now();
        let reply = line.send(&call).await;
        slowest = slowest.max(began.elapsed());
        let message = reply.message().unwrap_or_else(|| panic!("{reply:?}"));
        let counted = &message["result"]["structuredContent"]["count"];
        assert_eq!(counted.as_u64(), Some(calls), "{reply:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (calls, slowest)
}

/// P110, reliability T16: what hostile clients of both eras send gets the named status and code each
/// time; memory stays flat, the log is not flooded, and whoever behaves is answered in time.
#[test]
fn whatever_hostile_clients_send_concerns_nobody_else() {
    crate::play_alone(async {
        let seed = number("WARMLINE_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
        let requests = number("WARMLINE_HOSTILE").unwrap_or(REQUESTS);
        println!("WARMLINE_SEED={seed} WARMLINE_HOSTILE={requests}");
        let log = Counted::default();
        let _logging = tracing::subscriber::set_default(log.clone());
        let server = LedgerServer::start(Personality::dual()).unwrap();
        let gateway = gateway(&server).await;
        let at = gateway.address();
        let loot = Arc::new(loot(at).await);
        let over = Arc::new(AtomicBool::new(false));
        let behaving = tokio::spawn(behave(at, Arc::clone(&over)));
        let mut slow = JoinSet::new();
        for _ in 0..SLOW {
            slow.spawn(dawdle(at, Arc::clone(&over)));
        }
        let began = Instant::now();
        let storm = async |from: u64, times: u64| {
            let mut attacking = JoinSet::new();
            for number in 0..ATTACKERS {
                let seed = seed.wrapping_add(from).wrapping_add(number);
                attacking.spawn(attack(at, Arc::clone(&loot), seed, times / ATTACKERS));
            }
            attacking.join_all().await;
        };
        // What is held once for all is held after these.
        storm(0, requests / 5).await;
        let held = resident();
        storm(1 << 40, requests - requests / 5).await;
        let grown = resident().saturating_sub(held);
        over.store(true, Ordering::Relaxed);
        let (calls, slowest) = behaving.await.unwrap();
        slow.join_all().await;
        let lines = log.0.load(Ordering::Relaxed);
        println!(
            "{requests} attacks in {:?}: memory grew by {} KiB, {lines} lines in the log; beside them \
             {calls} calls, the slowest took {slowest:?}",
            began.elapsed(),
            grown >> 10,
        );
        assert!(grown <= GROWTH, "memory grew by {grown} bytes");
        let holds = lines as u64 <= requests;
        assert!(holds, "{lines} lines for {requests} requests");
        assert!(slowest <= DEADLINE, "a call took {slowest:?}");
        gateway.stop().await;
        assert_eq!(server.violations(), Vec::<String>::new());
    });
}
