//! What a held session and a spare save on real servers: the counter on the TypeScript SDK, over
//! HTTP and over stdio. `make parts` installs it.
//!
//! Only the ratios mean anything: machines are noisy, and all of it happens on this one.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark asks the real clock, prints, and ends when its setting fails"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use warmline::core::policy::SessionPer;
use warmline::events::{Event, Heard, Subscription};
use warmline::{Server, ServerHandle, Warmline};

/// Calls on a held session; each is cheap.
const HELD: usize = 500;
/// Calls that open a session each, over HTTP.
const PER_CALL: usize = 100;
/// Calls or runs that start a process each.
const STARTS: usize = 15;

fn main() {
    warmline::warden::run_if_asked();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let http = Http::start();
        let over_http = || Server::http("counter", &http.url);
        let over_stdio = || Server::stdio("counter", counter());
        println!("medians of one run; the counter on the TypeScript SDK v1");
        println!("            held session   session per call");
        for (name, server, per_call) in [
            ("HTTP", over_http(), PER_CALL),
            ("stdio", over_stdio(), STARTS),
        ] {
            let held = held(server.clone()).await;
            let once = once(server, per_call).await;
            let times = ratio(once, held);
            println!(
                "{name:<8} {:>11.3} ms   {:>13.3} ms  {times:>7.1} times",
                ms(held),
                ms(once)
            );
        }
        println!("            from a spare   cold start");
        for (name, server) in [("HTTP", over_http()), ("stdio", over_stdio())] {
            let warm = first_calls(server.clone().spares(1), STARTS).await;
            let cold = first_calls(server, STARTS).await;
            let times = ratio(cold, warm);
            println!(
                "{name:<8} {:>11.3} ms   {:>13.3} ms  {times:>7.1} times",
                ms(warm),
                ms(cold)
            );
        }
    });
}

/// A call on a session that a run holds.
async fn held(server: Server) -> Duration {
    let warm = Warmline::builder().server(server).build().unwrap();
    let run = warm.begin();
    let counter = run.server("counter").unwrap();
    bump(&counter).await;
    let mut times = Vec::new();
    for _ in 0..HELD {
        let began = Instant::now();
        bump(&counter).await;
        times.push(began.elapsed());
    }
    run.end().await;
    warm.close().await;
    median(times)
}

/// A call on a session of its own.
async fn once(server: Server, calls: usize) -> Duration {
    let server = server.session_per(SessionPer::Call);
    let warm = Warmline::builder().server(server).build().unwrap();
    let counter = warm.server("counter").unwrap();
    bump(&counter).await;
    let mut times = Vec::new();
    for _ in 0..calls {
        let began = Instant::now();
        bump(&counter).await;
        times.push(began.elapsed());
    }
    warm.close().await;
    median(times)
}

/// The first call of a fresh run, from a spare where one is kept.
async fn first_calls(server: Server, runs: usize) -> Duration {
    let keeps_spares = server.policy().spares > 0;
    let warm = Warmline::builder().server(server).build().unwrap();
    let mut events = warm.events();
    // What the server is was found out before.
    warm.run(async |run| bump(&run.server("counter").unwrap()).await)
        .await;
    let mut times = Vec::new();
    for _ in 0..runs {
        if keeps_spares {
            spare(&mut events).await;
        }
        let run = warm.begin();
        let began = Instant::now();
        bump(&run.server("counter").unwrap()).await;
        times.push(began.elapsed());
        run.end().await;
    }
    warm.close().await;
    median(times)
}

/// Waits until one more spare lies ready.
async fn spare(events: &mut Subscription) {
    loop {
        if let Some(Heard::Event(Event::SpareOpened { .. })) = events.next().await {
            return;
        }
    }
}

async fn bump(counter: &ServerHandle) {
    let called = counter.call("bump", serde_json::json!({})).await;
    assert!(!called.unwrap().is_error());
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn ratio(slow: Duration, fast: Duration) -> f64 {
    slow.as_secs_f64() / fast.as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A file of the real parts.
fn part(below: &str) -> PathBuf {
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parts");
    let part = parts.join(below);
    assert!(part.exists(), "{below} is missing; run `make parts`");
    part
}

/// The words that start the counter.
fn counter() -> [String; 2] {
    let words = ["node/node_modules/.bin/node", "node/counter-v1.mjs"];
    words.map(|word| part(word).to_str().unwrap().to_owned())
}

/// The counter over HTTP, until it is dropped.
struct Http {
    url: String,
    child: Child,
}

impl Http {
    fn start() -> Self {
        let [node, script] = counter();
        let mut command = Command::new(node);
        command.args([script.as_str(), "http"]);
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
