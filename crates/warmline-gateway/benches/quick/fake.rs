//! A fast MCP server of both eras that answers every call with the same kibibyte.
//!
//! It reads requests by hand and keeps nothing, so that what is measured is what stands in front
//! of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::wire;

/// Serves until the process ends; says where on its first line.
pub(crate) async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    println!("{address}");
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        drop(tokio::spawn(answer(socket)));
    }
}

async fn answer(mut socket: TcpStream) {
    let text = "x".repeat(900);
    let mut input = Vec::with_capacity(16 << 10);
    loop {
        let Some(request) = wire::take(&mut input) else {
            match socket.read_buf(&mut input).await {
                Ok(read) if read > 0 => continue,
                _ => return,
            }
        };
        let reply = reply(&request, &text);
        if socket.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn reply(request: &wire::Whole, text: &str) -> String {
    let body = String::from_utf8_lossy(&request.body);
    let is = |method: &str| body.contains(&format!("\"{method}\""));
    let Some(id) = wire::id_of(&body) else {
        return "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned();
    };
    let (headers, result) = if is("initialize") {
        let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}"#;
        // Every session has an id of its own: one that is issued twice would be refused.
        static ISSUED: AtomicU64 = AtomicU64::new(1);
        let number = ISSUED.fetch_add(1, Ordering::Relaxed);
        (
            format!("mcp-session-id: {number:032x}\r\n"),
            result.to_owned(),
        )
    } else if is("server/discover") {
        let result = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#;
        (String::new(), result.to_owned())
    } else {
        let result =
            format!(r#"{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}]}}"#);
        (String::new(), result)
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
