//! What the gateway adds to a call, beside nginx as a plain reverse proxy.
//!
//! `make bench-quick` runs it: clients, proxy and a fast fake server share one core, and the peers
//! take turns, so that the ratios of one run mean something on a noisy machine.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark asks the real clock, prints, and ends when its setting fails"
)]

mod fake;
mod load;
mod peers;
mod wire;

use std::time::Duration;

use warmline_engine::{Server, Warmline};
use warmline_gateway::{Gateway, GatewayOptions};

use self::load::{LoadResult, Speaks};
use self::peers::{Peer, processor_time};

const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_millis(1500);
const CONNECTIONS: [usize; 2] = [1, 16];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["fake"] => runtime.block_on(fake::serve()),
        ["gateway", url] => runtime.block_on(gateway(url)),
        _ => runtime.block_on(compare()),
    }
}

/// The gateway in a process of its own, with one worker.
async fn gateway(url: &str) {
    let server = Server::http("fake", url);
    let warm = Warmline::builder().server(server).build().unwrap();
    let options = GatewayOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        ..GatewayOptions::default()
    };
    let gateway = Gateway::start(warm, options).await.unwrap();
    println!("{}", gateway.address());
    std::future::pending::<()>().await;
}

async fn compare() {
    let scratch = tempfile::tempdir().unwrap();
    let (fake, target) = peers::role(&["fake"]);
    let url = format!("http://{target}/mcp");
    let (ours, at) = peers::role(&["gateway", &url]);
    let nginx = peers::nginx(target, scratch.path());
    let mut all = Vec::new();
    for speaks in [Speaks::Legacy, Speaks::Modern] {
        let peer = |name, at, path, processes| Peer {
            name,
            at,
            path,
            speaks,
            processes,
        };
        all.push(peer("direct", target, "/mcp", vec![fake.0.id()]));
        if let Some((nginx, at)) = &nginx {
            all.push(peer("nginx", *at, "/mcp", vec![nginx.0.id()]));
        }
        let path = "/servers/fake/mcp";
        all.push(peer("warmline", at, path, vec![ours.0.id()]));
    }
    if nginx.is_none() {
        eprintln!("nginx is not installed, so there is nothing to compare with");
    }
    for connections in CONNECTIONS {
        table(&all, connections).await;
    }
}

/// Presses all peers in turn, and prints the medians of the rounds.
async fn table(peers: &[Peer], connections: usize) {
    let mut seen: Vec<Vec<(LoadResult, Duration)>> = peers.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (peer, rounds) in peers.iter().zip(&mut seen) {
            let before = processor_time(&peer.processes);
            let round = load::press(peer.at, peer.path, peer.speaks, connections, ROUND).await;
            rounds.push((round, processor_time(&peer.processes) - before));
        }
    }
    println!("{connections} connection(s), medians of {ROUNDS} rounds in turn");
    println!("                     p50        p99     calls/s   processor a call   : nginx");
    for speaks in [Speaks::Legacy, Speaks::Modern] {
        let mut beside = None;
        for (peer, rounds) in peers.iter().zip(&seen) {
            if peer.speaks != speaks {
                continue;
            }
            let of =
                |pick: &dyn Fn(&(LoadResult, Duration)) -> f64| median(rounds.iter().map(pick));
            let p50 = of(&|(seen, _)| micros(seen.p50));
            let p99 = of(&|(seen, _)| micros(seen.p99));
            let calls = of(&|(seen, _)| count(seen.calls) / ROUND.as_secs_f64());
            let processor = of(&|(seen, took)| micros(*took) / count(seen.calls));
            if peer.name == "nginx" {
                beside = Some((p50, processor));
            }
            let ratio = beside.map_or_else(String::new, |(nginx, taken)| {
                format!("{:.2} p50, {:.2} processor", p50 / nginx, processor / taken)
            });
            println!(
                "{:<8} {:<8} {p50:>7.1} us {p99:>7.1} us {calls:>9.0} {processor:>12.1} us      {ratio}",
                format!("{speaks:?}").to_lowercase(),
                peer.name,
            );
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss, reason = "nobody calls 2^52 times")]
fn count(calls: usize) -> f64 {
    calls as f64
}
