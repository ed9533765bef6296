//! A client that speaks HTTP by hand: what it sends is what stands there.

use crate::prelude::*;

use tokio::io::{AsyncRead, AsyncWrite};

use super::raw_http::{JSON, text};

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

    /// The message in the body, or in its last event.
    pub(crate) fn json(&self) -> Value {
        let last = self.messages().pop();
        last.unwrap_or_else(|| {
            serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
        })
    }

    /// The messages of a body of events.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let lines = self.body.lines();
        let data = lines.filter_map(|line| line.strip_prefix("data: "));
        let data = data.filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The status, and the code of the error in the body.
    pub(crate) fn refusal(&self) -> (u16, i64) {
        let code = self.json()["error"]["code"].as_i64().unwrap_or_default();
        (self.status, code)
    }
}

/// The head and body of a POST with these headers.
pub(crate) fn post(path: &str, headers: &[(&str, &str)], message: &Value) -> String {
    let usual = [("Host", "localhost"), JSON[0], JSON[1]];
    text(
        "POST",
        path,
        &[&usual[..], headers].concat(),
        &message.to_string(),
    )
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
