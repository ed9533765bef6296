//! What a held session and a spare save on real servers: counters on the Rust, the TypeScript and
//! the Python SDK, over HTTP, over HTTP with TLS and over stdio, and a server of `npx` as people
//! start it. `make parts` installs them.
//!
//! Only the ratios mean anything: machines are noisy, and all of it happens on this one. So what is
//! set beside each other is measured in turns, a few calls of each, and what disturbs one of them
//! disturbs the others. `make bench` shows it on one core and on all of them, because the two differ: waking another core counts for
//! the held call alone, and a program goes on starting for a while after it first answered.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark asks the real clock, prints, and ends when its setting fails"
)]

#[path = "../../warmline-testkit/tests/stage/counter_rmcp.rs"]
mod counter_rmcp;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use warmline::{Run, Server, ServerHandle, Warmline};
use warmline_core::era::Era;
use warmline_core::policy::SessionScope;
use warmline_engine::events::{Event, EventItem, EventSubscription};

use self::counter_rmcp::RmcpCounter;

/// Calls on a held session in each turn; each is cheap.
const HELD: usize = 40;
/// Turns of calls that open a session each, over HTTP.
const PER_CALL: usize = 100;
/// Calls or runs that start a process each.
const STARTS: usize = 15;

fn main() {
    warmline_upstream::child::warden::run_if_asked();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let pem = Pem::make();
        let typescript = [Http::start(&["http"]), Http::start(&["https", pem.path()])];
        let rust = [None, Some(pem.acceptor())].map(RmcpCounter::start);
        let cases = [
            over_http(
                &typescript.each_ref().map(|http| http.url.as_str()),
                "TypeScript",
                &pem,
            ),
            over_http(&rust.each_ref().map(|http| http.url.as_str()), "Rust", &pem),
            over_stdio(),
        ]
        .concat();
        println!("Medians of one run, in ms. What each of them costs beside a held session:");
        println!(
            "{:<22} {:>8} {:>18} {:>18}",
            "", "held", "session per call", "client per call"
        );
        for case in &cases {
            case.beside_held().await;
        }
        println!("\nThe first call of a fresh run:");
        println!("{:<22} {:>12} {:>12}", "", "from a spare", "cold start");
        for case in &cases {
            case.beside_a_spare().await;
        }
    });
}

/// A real server and a call of it.
#[derive(Clone)]
struct Case {
    name: String,
    server: Server,
    tool: &'static str,
    arguments: Value,
    /// How many sessions are opened for a figure.
    openings: usize,
}

/// A counter over HTTP, and over HTTP with TLS.
fn over_http([plain, secure]: &[&str; 2], sdk: &str, pem: &Pem) -> Vec<Case> {
    let plain = Server::http("real", plain);
    let secure = Server::http("real", secure).ca_file(pem.path());
    vec![
        Case::bump(&format!("HTTP, {sdk}"), plain, PER_CALL),
        Case::bump(&format!("HTTPS, {sdk}"), secure, PER_CALL),
    ]
}

fn over_stdio() -> Vec<Case> {
    let python = ["python/.venv-mcp1/bin/python", "python/counter_mcp1.py"].map(part);
    let package = "@modelcontextprotocol/server-sequential-thinking";
    let npx = ["npx", "--offline", "-y", package];
    vec![
        Case::bump("stdio, node", Server::stdio("real", node_counter()), STARTS),
        Case::bump("stdio, python", Server::stdio("real", python), STARTS),
        Case {
            name: "stdio, npx".to_owned(),
            server: Server::stdio("real", npx).cwd(part("node")),
            tool: "sequentialthinking",
            arguments: json!({
                "thought": "one",
                "thoughtNumber": 1,
                "totalThoughts": 2,
                "nextThoughtNeeded": true,
            }),
            openings: STARTS,
        },
    ]
}

impl Case {
    fn bump(name: &str, server: Server, openings: usize) -> Self {
        Self {
            name: name.to_owned(),
            server,
            tool: "bump",
            arguments: json!({}),
            openings,
        }
    }

    async fn beside_held(&self) {
        let held = Holding::of(self).await;
        let per_call = engine(self.server.clone().session_per(SessionScope::Call));
        let own = per_call.server("real").unwrap();
        self.call(&own).await;
        let [mut of_held, mut of_sessions, mut of_clients] = [const { Vec::new() }; 3];
        for _ in 0..self.openings {
            for _ in 0..HELD {
                of_held.push(timed(self.call(&held.server)).await);
            }
            of_sessions.push(timed(self.call(&own)).await);
            of_clients.push(timed(self.client_per_call()).await);
        }
        held.end().await;
        per_call.close().await;
        let [held, session, client] = [of_held, of_sessions, of_clients].map(median);
        println!(
            "{:<22} {:>8.3} {} {}",
            self.name,
            ms(held),
            beside(session, held),
            beside(client, held)
        );
    }

    async fn beside_a_spare(&self) {
        let spare = self.first_calls(1).await;
        let cold = self.first_calls(0).await;
        println!(
            "{:<22} {:>12.3} {}",
            self.name,
            ms(spare),
            beside(cold, spare)
        );
    }

    /// A call of a client of its own, as adapters of agent frameworks do by default: it connects,
    /// opens a session, calls, and closes. It knows the era, as those clients do.
    async fn client_per_call(&self) {
        let warm = engine(self.server.clone().era(Era::Legacy));
        let run = warm.begin_run();
        self.call(&run.server("real").unwrap()).await;
        run.end().await;
        warm.close().await;
    }

    /// The first call of a fresh run, from a spare where one is kept.
    async fn first_calls(&self, spares: u32) -> Duration {
        let warm = engine(self.server.clone().spares(spares));
        let mut events = warm.events();
        // What the server is was found out before.
        warm.run(async |run| self.call(&run.server("real").unwrap()).await)
            .await;
        let mut times = Vec::new();
        for _ in 0..STARTS {
            if spares > 0 {
                spare(&mut events).await;
            }
            let run = warm.begin_run();
            let began = Instant::now();
            self.call(&run.server("real").unwrap()).await;
            times.push(began.elapsed());
            run.end().await;
        }
        warm.close().await;
        median(times)
    }

    async fn call(&self, server: &ServerHandle) {
        let called = server.call(self.tool, self.arguments.clone()).await;
        assert!(!called.unwrap().is_error());
    }
}

/// A session that a run holds.
struct Holding {
    warm: Warmline,
    run: Run,
    server: ServerHandle,
}

impl Holding {
    async fn of(case: &Case) -> Self {
        let warm = engine(case.server.clone());
        let run = warm.begin_run();
        let server = run.server("real").unwrap();
        case.call(&server).await;
        Self { warm, run, server }
    }

    async fn end(self) {
        self.run.end().await;
        self.warm.close().await;
    }
}

async fn timed(work: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    work.await;
    began.elapsed()
}

fn engine(server: Server) -> Warmline {
    Warmline::builder().server(server).build().unwrap()
}

/// Waits until one more spare lies ready.
async fn spare(events: &mut EventSubscription) {
    loop {
        if let Some(EventItem::Event(Event::SpareOpened { .. })) = events.next().await {
            return;
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A time, and how many times the fast one it is.
fn beside(slow: Duration, fast: Duration) -> String {
    let times = format!("({:.1} ×)", slow.as_secs_f64() / fast.as_secs_f64());
    format!("{:>8.3} {times:>10}", ms(slow))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A file of the real parts.
fn part(below: &str) -> String {
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parts");
    let part = parts.join(below);
    assert!(part.exists(), "{below} is missing; run `make parts`");
    part.to_str().unwrap().to_owned()
}

/// The words that start the counter on the TypeScript SDK.
fn node_counter() -> [String; 2] {
    ["node/node_modules/.bin/node", "node/counter-v1.mjs"].map(part)
}

/// The counter over HTTP, until it is dropped.
struct Http {
    url: String,
    child: Child,
}

impl Http {
    fn start(words: &[&str]) -> Self {
        let [node, script] = node_counter();
        let mut command = Command::new(node);
        command.arg(script).args(words);
        // It ends with its input.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find_map(|line| Some(line.ok()?.strip_prefix("ready ")?.to_owned()));
        Self {
            url: ready.unwrap(),
            child,
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A certificate for `localhost` with its key, in a file until it is dropped.
struct Pem {
    file: PathBuf,
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Pem {
    fn make() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        let path = std::env::temp_dir().join(format!("warmline-bench-{}.pem", std::process::id()));
        std::fs::write(&path, pem).unwrap();
        Self { file: path, made }
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// The server's side of TLS with it.
    fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![self.made.cert.der().clone()], key)
            .unwrap();
        Arc::new(config).into()
    }
}

impl Drop for Pem {
    fn drop(&mut self) {
        std::fs::remove_file(&self.file).ok();
    }
}
