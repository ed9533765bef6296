//! A client that knows nothing: it writes bytes and reads bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use warmline_testkit::LedgerServer;

/// What came back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to the end its framing promised.
    pub(crate) whole: bool,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The messages of a stream, in order.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text().replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect()
    }
}

/// A connection.
pub(crate) struct Client {
    socket: BufReader<TcpStream>,
    limit: usize,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self {
            socket: BufReader::new(socket),
            limit: usize::MAX,
        }
    }

    pub(crate) fn send(&mut self, verb: &str, headers: &[(&str, &str)], body: &str) {
        let mut head = format!("{verb} /mcp HTTP/1.1\r\nHost: here\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.socket.get_mut().write_all(head.as_bytes()).unwrap();
    }

    pub(crate) fn send_to(&mut self, verb: &str, path: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.socket.get_mut().write_all(head.as_bytes()).unwrap();
    }

    /// Reads no more than so many bytes of a body that comes in chunks.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(crate) fn receive(&mut self) -> Reply {
        let mut reply = Reply::default();
        loop {
            let mut line = String::new();
            if self.socket.read_line(&mut line).unwrap_or(0) == 0 {
                return reply;
            }
            if line == "\r\n" {
                break;
            }
            reply.head += &line;
        }
        reply.status = reply.head.split(' ').nth(1).unwrap().parse().unwrap();
        reply.whole = if reply.header("transfer-encoding").is_some() {
            self.chunks(&mut reply.body)
        } else {
            let length = reply
                .header("content-length")
                .map_or(0, |text| text.parse().unwrap());
            let read = self
                .socket
                .by_ref()
                .take(length)
                .read_to_end(&mut reply.body);
            read.is_ok_and(|count| count as u64 == length)
        };
        reply
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let mut line = String::new();
            if self.socket.read_line(&mut line).unwrap_or(0) == 0 {
                return false;
            }
            let size = u64::from_str_radix(line.trim(), 16).unwrap();
            let mut part = Vec::new();
            let read = self.socket.by_ref().take(size).read_to_end(&mut part);
            let count = part.len() as u64;
            body.extend(part);
            let mut end = String::new();
            if read.is_err() || count < size || self.socket.read_line(&mut end).unwrap_or(0) == 0 {
                return false;
            }
            if size == 0 {
                return true;
            }
            if body.len() > self.limit {
                return false;
            }
        }
    }

    pub(crate) fn post(&mut self, headers: &[(&str, &str)], body: &Value) -> Reply {
        self.begin_post(headers, body);
        self.receive()
    }

    /// Sends a message, and waits for nothing.
    fn begin_post(&mut self, headers: &[(&str, &str)], body: &Value) {
        let mut all = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        all.extend(headers);
        self.send("POST", &all, &body.to_string());
    }

    /// Whether the server closed the connection, and how: none while it is open.
    pub(crate) fn end(&mut self) -> Option<std::io::ErrorKind> {
        let mut byte = [0];
        match self.socket.read(&mut byte) {
            Ok(0) => Some(std::io::ErrorKind::UnexpectedEof),
            Ok(_) => None,
            Err(error) => Some(error.kind()),
        }
    }
}

/// A legacy session, opened as the specification asks for.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) id: Option<String>,
    pub(crate) version: String,
    next: u64,
}

impl Session {
    pub(crate) fn open(server: &LedgerServer, capabilities: Value) -> Self {
        let mut client = Client::to(server.address());
        let reply = client.post(&[], &initialize(capabilities));
        let version = "2025-11-25".to_owned();
        let mut session = Self {
            client,
            id: reply.header("mcp-session-id"),
            version,
            next: 1,
        };
        assert_eq!(reply.status, 200, "{}", reply.text());
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.say(&initialized).status, 202);
        session
    }

    /// Goes on with ids beyond these.
    pub(crate) fn skip_ids(&mut self, count: u64) {
        self.next += count;
    }

    pub(crate) fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![("MCP-Protocol-Version", self.version.as_str())];
        headers.extend(self.id.as_deref().map(|id| ("Mcp-Session-Id", id)));
        headers
    }

    pub(crate) fn say(&mut self, message: &Value) -> Reply {
        let mut all = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let headers: Vec<(String, String)> = self
            .headers()
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        all.extend(headers.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        self.client.send("POST", &all, &message.to_string());
        self.client.receive()
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Reply {
        self.next += 1;
        let id = self.next;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Reply {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }
}

pub(crate) fn initialize(capabilities: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": capabilities,
        "clientInfo": {"name": "kit", "version": "0"},
    }})
}

/// A modern request with all it must carry.
pub(crate) fn modern(id: u64, method: &str, mut params: Value) -> (Vec<(String, String)>, Value) {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let mut headers = vec![
        ("MCP-Protocol-Version".to_owned(), "2026-07-28".to_owned()),
        ("Mcp-Method".to_owned(), method.to_owned()),
    ];
    if let Some(name) = params["name"].as_str().or_else(|| params["uri"].as_str()) {
        headers.push(("Mcp-Name".to_owned(), name.to_owned()));
    }
    (
        headers,
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
    )
}

pub(crate) fn post_modern(client: &mut Client, id: u64, method: &str, params: Value) -> Reply {
    begin_modern(client, id, method, params);
    client.receive()
}

/// The same, without waiting for the answer.
pub(crate) fn begin_modern(client: &mut Client, id: u64, method: &str, params: Value) {
    let (headers, body) = modern(id, method, params);
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    client.begin_post(&headers, &body);
}
