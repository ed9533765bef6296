//! A connection that is kept from one request to the next, by a client that writes any bytes.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing that anybody sends is answered later.
const SOON: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The connection was closed, and nothing was said.
    const CLOSED: Self = Self {
        status: 0,
        head: String::new(),
        body: String::new(),
    };

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The message in the body, whether it stands alone or is the last event.
    pub(crate) fn message(&self) -> Option<Value> {
        let mut events = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        serde_json::from_str(events.next_back().unwrap_or(&self.body)).ok()
    }

    /// The code of the JSON-RPC error, if it is one.
    pub(crate) fn code(&self) -> Option<i64> {
        self.message()?["error"]["code"].as_i64()
    }
}

/// A client at a gateway.
pub(crate) struct RawConnection {
    at: SocketAddr,
    socket: Option<TcpStream>,
    read: Vec<u8>,
}

impl RawConnection {
    pub(crate) fn to(at: SocketAddr) -> Self {
        Self {
            at,
            socket: None,
            read: Vec::new(),
        }
    }

    /// Sends bytes, and reads what they get: on the connection that is there, if one is.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Reply {
        if let Some(socket) = self.socket.take() {
            let reply = self.send_on(socket, bytes).await;
            // It may have been closed behind the answer before, whose request was not read whole.
            if reply.status != 0 {
                return reply;
            }
        }
        let socket = TcpStream::connect(self.at).await.unwrap();
        self.send_on(socket, bytes).await
    }

    async fn send_on(&mut self, mut socket: TcpStream, bytes: &[u8]) -> Reply {
        self.read.clear();
        // It may be refused before all of it was taken; what is answered counts.
        socket.write_all(bytes).await.ok();
        let reply = timeout(SOON, self.reply(&mut socket)).await;
        let Ok(reply) = reply else {
            let shown: String = String::from_utf8_lossy(bytes).chars().take(400).collect();
            panic!("no answer to {shown}");
        };
        let is_kept = reply.status != 0 && reply.header("connection") != Some("close");
        self.socket = is_kept.then_some(socket);
        reply
    }

    async fn reply(&mut self, socket: &mut TcpStream) -> Reply {
        loop {
            if let Some(reply) = whole(&self.read) {
                return reply;
            }
            match socket.read_buf(&mut self.read).await {
                Ok(read) if read > 0 => {},
                _ => return whole(&self.read).unwrap_or(Reply::CLOSED),
            }
        }
    }
}

/// A response, if all of it is there.
fn whole(read: &[u8]) -> Option<Reply> {
    let text = std::str::from_utf8(read).ok()?;
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut reply = Reply {
        status,
        head: head.to_owned(),
        body: String::new(),
    };
    if reply.header("transfer-encoding") == Some("chunked") {
        reply.body = unchunked(rest)?;
        return Some(reply);
    }
    let length = reply
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    reply.body = rest.get(..length)?.to_owned();
    Some(reply)
}

fn unchunked(mut rest: &str) -> Option<String> {
    let mut out = String::new();
    loop {
        let (size, more) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.push_str(more.get(..size)?);
        rest = more.get(size + 2..)?;
    }
}
