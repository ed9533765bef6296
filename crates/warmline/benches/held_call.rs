//! What a held session saves, and what a call adds to the bare wire.
//!
//! `make bench` prints medians of one run, side by side. Only the ratios mean anything: machines
//! are noisy, and all of it happens on this one.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark asks the real clock, prints, and ends when its setting fails"
)]

#[path = "../tests/cost/plain_server.rs"]
mod plain_server;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use warmline_core::era::Era;
use warmline_core::exchange::{AttemptResult, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{ClientProfile, ServerTarget, Session, Upstream};

use self::plain_server::PlainServer;

const ROUNDS: usize = 5;
const CALLS: usize = 2000;
const PARAMS: Bytes = Bytes::from_static(br#"{"name":"pay","arguments":{"amount":10}}"#);

fn main() {
    let server = PlainServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut described = ServerTarget::http("plain", server.url().parse().unwrap());
    described.era = Some(Era::Legacy);
    let upstream = Upstream::new();
    let session = runtime
        .block_on(upstream.open(&described, &ClientProfile::default()))
        .unwrap();
    let mut wire = TcpStream::connect(
        server
            .url()
            .trim_start_matches("http://")
            .trim_end_matches("/mcp"),
    )
    .unwrap();
    wire.set_nodelay(true).unwrap();

    println!("medians of {CALLS} calls, {ROUNDS} rounds in turn; HTTP on loopback, JSON reply");
    println!("round   bare wire   held session   session per call");
    for round in 1..=ROUNDS {
        let bare = median(CALLS, || bare_call(&mut wire));
        let held = median(CALLS, || runtime.block_on(call(&session)));
        let per_call = median(CALLS / 10, || {
            runtime.block_on(async {
                let once = upstream
                    .open(&described, &ClientProfile::default())
                    .await
                    .unwrap();
                call(&once).await;
                once.close().await;
            });
        });
        println!(
            "{round:>5}   {:>6.1} us   {:>6.1} us {:>4.2}x  {:>6.1} us {:>4.2}x",
            micros(bare),
            micros(held),
            held.as_secs_f64() / bare.as_secs_f64(),
            micros(per_call),
            per_call.as_secs_f64() / held.as_secs_f64(),
        );
    }
    println!("{} connections stayed open", server.connections());
    println!("held: times the bare wire. per call: times the held session.");
}

async fn call(session: &Session) {
    let request = Request::new("tools/call", Params::parse(PARAMS).unwrap());
    let ending = session.send(request, &()).await;
    assert!(matches!(ending, AttemptResult::Answered(_)), "{ending:?}");
}

/// The least a client could do: the same bytes on a plain blocking socket.
fn bare_call(wire: &mut TcpStream) {
    let body = br#"{"jsonrpc":"2.0","id":123456789012,"method":"tools/call","params":{"name":"pay","arguments":{"amount":10},"_meta":{"progressToken":123456789012}}}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\nmcp-session-id: plain-1\r\nmcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    wire.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut reply = [0; 4096];
    let mut read = 0;
    while !reply[..read].ends_with(b"}}") {
        read += wire.read(&mut reply[read..]).unwrap();
    }
}

fn median(calls: usize, mut one: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..calls)
        .map(|_| {
            let began = Instant::now();
            one();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
