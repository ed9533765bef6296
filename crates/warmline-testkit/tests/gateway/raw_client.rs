//! A client that speaks HTTP by hand: what it sends is what stands there.

use crate::prelude::*;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// An answer of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The message in the body, whether it stands alone or in an event.
    pub(crate) fn json(&self) -> Value {
        let text = self
            .body
            .lines()
            .find_map(|line| line.strip_prefix("data: "));
        serde_json::from_str(text.unwrap_or(&self.body)).unwrap()
    }
}

/// The head and body of a POST with these headers.
pub(crate) fn post(path: &str, headers: &[(&str, &str)], message: &Value) -> String {
    let body = message.to_string();
    let mut text = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nConnection: close\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n" + &body
}

/// `initialize` of a legacy client.
pub(crate) fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "by-hand", "version": "1" },
    } })
}

/// A request of a legacy client.
pub(crate) fn request(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params })
}

/// A call of a legacy client.
pub(crate) fn call(tool: &str, arguments: &Value) -> Value {
    request(
        "tools/call",
        &json!({ "name": tool, "arguments": arguments }),
    )
}

/// Sends text and reads until the other end closes.
pub(crate) async fn send(address: SocketAddr, text: &str) -> Reply {
    let socket = TcpStream::connect(address).await.unwrap();
    send_on(socket, text).await
}

/// The same over any connection.
pub(crate) async fn send_on(mut socket: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> Reply {
    // It may be closed before all of it is taken; what was answered counts.
    socket.write_all(text.as_bytes()).await.ok();
    let mut read = Vec::new();
    let reading = socket.read_to_end(&mut read);
    let within = Duration::from_secs(20);
    tokio::time::timeout(within, reading).await.unwrap().ok();
    reply(&read)
}

/// What came back, as far as it came.
pub(crate) fn reply(read: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(read).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Reply {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        body: unchunked(head, body),
    }
}

fn unchunked(head: &str, body: &str) -> String {
    if !head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        return body.to_owned();
    }
    let (mut rest, mut out) = (body, String::new());
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(piece) = more.get(..size).filter(|piece| !piece.is_empty()) else {
            break;
        };
        out.push_str(piece);
        rest = more.get(size + 2..).unwrap_or_default();
    }
    out
}
