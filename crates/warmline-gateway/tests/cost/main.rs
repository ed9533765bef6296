//! What a straight JSON call through the gateway costs in heap allocations, all in: the door, a
//! face, the engine, the session, and both connections.
//!
//! The server runs on threads of its own and the client writes from buffers it has, so what is
//! counted on this thread is the gateway's alone.

#![cfg(test)]

#[path = "../../../warmline/tests/cost/counting_allocator.rs"]
mod counting_allocator;
#[path = "../../../warmline/tests/cost/plain_server.rs"]
mod plain_server;

use std::cell::Cell;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use warmline_engine::{Server, Warmline};
use warmline_gateway::{Auth, BearerToken, Gateway, GatewayOptions};

use self::counting_allocator::{ALLOCATIONS, HELD};
use self::plain_server::PlainServer;

/// The budget of one `tools/call` with a JSON reply.
const BUDGET: u64 = 20;
const SECRET: &str = "a-token-of-the-usual-length-0123456789abcdef";

/// A client that writes the same bytes each time and reads into the same buffer.
struct Client {
    socket: TcpStream,
    buffer: Vec<u8>,
    read: usize,
}

impl Client {
    async fn open(at: SocketAddr) -> Self {
        Self {
            socket: TcpStream::connect(at).await.unwrap(),
            buffer: vec![0; 16 << 10],
            read: 0,
        }
    }

    /// Sends a request, and waits until its answer ends with this.
    async fn send(&mut self, request: &[u8], end: &[u8]) -> &str {
        self.socket.write_all(request).await.unwrap();
        self.read = 0;
        while !self.buffer[..self.read].ends_with(end) {
            let free = &mut self.buffer[self.read..];
            let read = self.socket.read(free).await.unwrap();
            let so_far = || String::from_utf8_lossy(&self.buffer[..self.read]).into_owned();
            assert!(read > 0, "the connection was closed after {}", so_far());
            self.read += read;
        }
        std::str::from_utf8(&self.buffer[..self.read]).unwrap()
    }
}

/// A request as it stands on the wire.
fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nauthorization: Bearer {SECRET}\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    );
    text.into_bytes()
}

/// A call of a client of each era that was greeted where its era wants that.
async fn call_of(client: &mut Client, path: &str, era: &str) -> Vec<u8> {
    let arguments = r#""name":"pay","arguments":{"amount":10}"#;
    if era == "modern" {
        let headers =
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: pay\r\n";
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"cost","version":"1"}}"#;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{arguments},{meta}}}}}"#
        );
        return post(path, headers, &body);
    }
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"cost","version":"1"}}}"#;
    let greeted = client.send(&post(path, "", hello), b"}").await;
    let ticket = greeted
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap_or_else(|| panic!("no ticket: {greeted}"));
    let headers = format!("mcp-session-id: {ticket}\r\nmcp-protocol-version: 2025-11-25\r\n");
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{arguments}}}}}"#);
    post(path, &headers, &body)
}

async fn gateway(server: &PlainServer, asks: bool) -> Gateway {
    let warm = Warmline::builder().server(Server::http("plain", server.url()));
    let warm = warm.build().unwrap();
    let token = BearerToken::from_text(warm.vault(), "ada", SECRET);
    let options = GatewayOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: if asks {
            Auth::tokens(vec![token])
        } else {
            Auth::None
        },
        ..GatewayOptions::default()
    };
    Gateway::start(warm, options).await.unwrap()
}

/// A straight call stays within its budget in either era, whoever calls and wherever a run is
/// named.
#[tokio::test(flavor = "current_thread")]
async fn a_straight_call_makes_few_allocations() {
    let mut over = Vec::new();
    for (era, asks, path) in [
        ("legacy", true, "/servers/plain/mcp"),
        ("modern", true, "/servers/plain/mcp"),
        ("legacy", true, "/runs/r1/servers/plain/mcp"),
        ("modern", true, "/runs/r1/servers/plain/mcp"),
        ("legacy", false, "/servers/plain/mcp"),
        ("modern", false, "/servers/plain/mcp"),
    ] {
        let server = PlainServer::start();
        let gateway = gateway(&server, asks).await;
        let mut client = Client::open(gateway.address()).await;
        let call = call_of(&mut client, path, era).await;
        for _ in 0..20 {
            let answer = client.send(&call, b"}]}}").await;
            assert!(answer.contains(r#""id":7,"result":"#), "{answer}");
        }
        let mut fewest = u64::MAX;
        for _ in 0..20 {
            let before = ALLOCATIONS.with(Cell::get);
            client.send(&call, b"}]}}").await;
            fewest = fewest.min(ALLOCATIONS.with(Cell::get) - before);
        }
        println!("{era} at {path}, asks who it is: {asks}: {fewest} allocations");
        if fewest > BUDGET {
            over.push(format!("{fewest}: {era} at {path}, asks who it is: {asks}"));
        }
        assert_eq!(server.connections(), 1, "the connection was kept");
        gateway.stop().await;
    }
    assert!(over.is_empty(), "the budget is {BUDGET}: {over:#?}");
}

/// The largest request is held twice at most: as it came, and as it goes on to the server. So much
/// the door counts for it.
#[tokio::test(flavor = "current_thread")]
async fn a_large_request_is_held_twice_at_most() {
    let large = "x".repeat(3 << 20);
    let small = r#""amount":10"#;
    for (era, is_chunked) in [("legacy", false), ("modern", false), ("legacy", true)] {
        let server = PlainServer::start();
        let gateway = gateway(&server, true).await;
        let mut client = Client::open(gateway.address()).await;
        let call = call_of(&mut client, "/servers/plain/mcp", era).await;
        let call = String::from_utf8(call).unwrap();
        client.send(call.as_bytes(), b"}]}}").await;
        let (head, body) = call.split_once("\r\n\r\n").unwrap();
        let body = body.replace(small, &format!(r#""amount":"{large}""#));
        let (before, length) = head.rsplit_once("content-length: ").unwrap();
        assert!(length.parse::<usize>().is_ok(), "{length}");
        let request = if is_chunked {
            let size = body.len();
            format!("{before}transfer-encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n")
        } else {
            format!("{before}content-length: {}\r\n\r\n{body}", body.len())
        };
        let (size, rest) = (body.len(), HELD.with(Cell::get));
        let mut most = rest;
        let calling = client.send(request.as_bytes(), b"}]}}");
        let mut calling = std::pin::pin!(calling);
        loop {
            tokio::select! {
                biased;
                () = tokio::task::yield_now() => most = most.max(HELD.with(Cell::get)),
                answer = &mut calling => break assert!(answer.contains("done"), "{answer}"),
            }
        }
        let held = usize::try_from(most - rest).unwrap();
        println!("{era}, chunked: {is_chunked}: {held} bytes for {size}");
        assert!(held <= size * 2 + (256 << 10), "{held} bytes for {size}");
        gateway.stop().await;
    }
}
