//! Clients that call as fast as they are answered, and what they saw.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::wire::{self, Whole};

/// Which era the clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Legacy,
    Modern,
}

/// What was seen in one round.
pub(crate) struct LoadResult {
    pub(crate) calls: usize,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// Calls over so many connections for so long.
pub(crate) async fn press(
    at: SocketAddr,
    path: &str,
    speaks: Speaks,
    connections: usize,
    time: Duration,
) -> LoadResult {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(Client::open(at, path, speaks).await);
    }
    let until = Instant::now() + time;
    let mut pressing = JoinSet::new();
    for mut client in clients {
        pressing.spawn(async move {
            let mut times = Vec::with_capacity(1 << 16);
            while Instant::now() < until {
                let began = Instant::now();
                client.call().await;
                times.push(began.elapsed());
            }
            times
        });
    }
    let mut times: Vec<Duration> = pressing.join_all().await.into_iter().flatten().collect();
    times.sort_unstable();
    LoadResult {
        calls: times.len(),
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

struct Client {
    socket: TcpStream,
    input: Vec<u8>,
    request: Vec<u8>,
}

impl Client {
    async fn open(at: SocketAddr, path: &str, speaks: Speaks) -> Self {
        let socket = TcpStream::connect(at).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut client = Self {
            socket,
            input: Vec::with_capacity(16 << 10),
            request: Vec::new(),
        };
        let arguments = format!(
            r#""name":"echo","arguments":{{"text":"{}"}}"#,
            "y".repeat(900)
        );
        match speaks {
            Speaks::Legacy => {
                let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;
                client.request = post(at, path, "", hello);
                let greeted = client.call().await;
                let session = greeted.header("mcp-session-id").unwrap_or_else(|| {
                    let said = String::from_utf8_lossy(&greeted.body);
                    panic!("no session from {at}: {}{said}", greeted.head)
                });
                let headers =
                    format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
                let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                client.request = post(at, path, &headers, ready);
                client.call().await;
                let call = format!(
                    r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{arguments}}}}}"#
                );
                client.request = post(at, path, &headers, &call);
            },
            Speaks::Modern => {
                let headers = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: echo\r\n";
                let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"}}"#;
                let call = format!(
                    r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{arguments},{meta}}}}}"#
                );
                client.request = post(at, path, headers, &call);
            },
        }
        let whole = client.call().await;
        let said = String::from_utf8_lossy(&whole.body);
        assert!(said.contains("\"result\""), "{}{said}", whole.head);
        client
    }

    async fn call(&mut self) -> Whole {
        self.socket.write_all(&self.request).await.unwrap();
        loop {
            if let Some(whole) = wire::take(&mut self.input) {
                return whole;
            }
            let read = self.socket.read_buf(&mut self.input).await.unwrap();
            assert!(read > 0, "the connection was closed");
        }
    }
}

fn post(at: SocketAddr, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
