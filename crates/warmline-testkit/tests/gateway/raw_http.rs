//! A client that shows every byte: raw HTTP, one connection for each request.

use crate::prelude::*;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

/// Nothing in a story takes longer.
const SOON: Duration = Duration::from_secs(20);

/// One response. Dropping it closes the connection.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The status in words.
    pub(crate) words: String,
    pub(crate) headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
    chunked: bool,
    length: usize,
    /// What was read of a stream and not yet looked at.
    text: String,
}

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: String,
}

impl Event {
    /// The message in it.
    pub(crate) fn message(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("no message: {self:?}"))
    }
}

/// A request as it is sent, with what every request says, unless these headers say it.
pub(crate) fn text(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let length = body.len().to_string();
    let usual = [
        ("Host", "localhost"),
        ("Connection", "close"),
        ("Content-Length", &length),
    ];
    let is_named = |name: &str| headers.iter().any(|(known, _)| *known == name);
    let usual = usual.iter().filter(|(name, _)| !is_named(name));
    let lines = usual
        .chain(headers)
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let head: String = lines.collect();
    format!("{method} {path} HTTP/1.1\r\n{head}\r\n{body}")
}

/// Sends this text, and reads the head of its response.
pub(crate) async fn begin(address: SocketAddr, text: &str) -> Response {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    timeout(SOON, Response::read(socket)).await.unwrap()
}

/// Sends a request, and reads the head of its response.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    begin(address, &text(method, path, headers, body)).await
}

/// Asks for a page.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Response {
    request(address, "GET", path, &[], "").await
}

/// Sends a message with these headers beside those that every message has.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    message: &Value,
) -> Response {
    let headers = [&JSON[..], headers].concat();
    request(address, "POST", path, &headers, &message.to_string()).await
}

/// What a message is, and what may be answered.
pub(crate) const JSON: [(&str, &str); 2] = [
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
];

/// The header that shows somebody's token, which is called after them.
pub(crate) fn bearer(name: &str) -> Vec<(String, String)> {
    let token = format!("Bearer token-of-{name}");
    vec![("Authorization".to_owned(), token)]
}

impl Response {
    pub(crate) async fn read(socket: TcpStream) -> Self {
        let mut body = BufReader::new(socket);
        let mut first = String::new();
        body.read_line(&mut first).await.unwrap();
        let status = first
            .split(' ')
            .nth(1)
            .unwrap_or_else(|| panic!("no status: {first:?}"));
        let status = status.parse().unwrap();
        let words = first.splitn(3, ' ').nth(2).unwrap_or_default();
        let words = words.trim_end().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            body.read_line(&mut line).await.unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Self {
            status,
            words,
            headers,
            body,
            chunked: false,
            length: 0,
            text: String::new(),
        };
        response.chunked = response.header("transfer-encoding") == Some("chunked");
        let length = response
            .header("content-length")
            .and_then(|text| text.parse().ok());
        response.length = length.unwrap_or(0);
        response
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// The next piece of the body; none at its end.
    async fn piece(&mut self) -> Option<Vec<u8>> {
        let length = if self.chunked {
            let mut size = String::new();
            self.body.read_line(&mut size).await.ok()?;
            usize::from_str_radix(size.trim(), 16).ok()?
        } else {
            std::mem::take(&mut self.length)
        };
        if length == 0 {
            return None;
        }
        let mut piece = vec![0; length];
        self.body.read_exact(&mut piece).await.ok()?;
        if self.chunked {
            self.body.read_exact(&mut [0; 2]).await.ok()?;
        }
        Some(piece)
    }

    /// All of the body.
    pub(crate) async fn whole(&mut self) -> String {
        let mut whole = Vec::new();
        while let Some(piece) = timeout(SOON, self.piece()).await.unwrap() {
            whole.extend_from_slice(&piece);
        }
        String::from_utf8(whole).unwrap()
    }

    /// All of the body, as JSON.
    pub(crate) async fn json(&mut self) -> Value {
        let whole = self.whole().await;
        serde_json::from_str(&whole).unwrap_or_else(|_| panic!("{} no JSON: {whole}", self.status))
    }

    /// The next event with or without data; none at the end of the stream.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.event_that_came() {
                return Some(event);
            }
            let piece = timeout(SOON, self.piece()).await.unwrap()?;
            self.text.push_str(&String::from_utf8(piece).unwrap());
        }
    }

    /// The same, however long it takes.
    pub(crate) async fn event_ever(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.event_that_came() {
                return Some(event);
            }
            let piece = self.piece().await?;
            self.text.push_str(&String::from_utf8(piece).unwrap());
        }
    }

    /// The next event of what was read already; comments are none.
    fn event_that_came(&mut self) -> Option<Event> {
        while let Some(end) = self.text.find("\n\n") {
            let text: String = self.text.drain(..end + 2).collect();
            if let Some(event) = parse(&text) {
                return Some(event);
            }
        }
        None
    }

    /// The next message of a stream; none at its end.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.event().await?;
            if !event.data.is_empty() {
                return Some(event.message());
            }
        }
    }

    /// The next message of this method; what comes before it is not looked at.
    pub(crate) async fn heard(&mut self, method: &str) -> Value {
        loop {
            let message = self.message().await;
            let message = message.unwrap_or_else(|| panic!("{method} never came"));
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The answer, whichever form it has.
    pub(crate) async fn answer(&mut self) -> Value {
        if self.header("content-type") == Some("application/json") {
            return self.json().await;
        }
        loop {
            let message = self
                .message()
                .await
                .unwrap_or_else(|| panic!("{} ended", self.status));
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}

/// An event; none for what is only a comment.
fn parse(text: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut is_event = false;
    for line in text.lines().filter(|line| !line.starts_with(':')) {
        let Some((name, value)) = line.split_once(": ").or(line.split_once(':')) else {
            continue;
        };
        is_event = true;
        match name {
            "event" => event.kind = Some(value.to_owned()),
            "id" => event.id = Some(value.to_owned()),
            "retry" => event.retry = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            _ => {},
        }
    }
    is_event.then_some(event)
}

/// A legacy client with a session of its own.
#[derive(Clone, Debug)]
pub(crate) struct Legacy {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    pub(crate) ticket: String,
    pub(crate) version: String,
    /// Headers of every request.
    pub(crate) more: Vec<(String, String)>,
}

impl Legacy {
    /// Greets a server through the gateway.
    pub(crate) async fn greet(
        world: &World,
        path: &str,
        version: &str,
        capabilities: Value,
    ) -> Self {
        Self::greet_with(world, path, version, capabilities, Vec::new()).await
    }

    /// The same, with headers of every request.
    pub(crate) async fn greet_with(
        world: &World,
        path: &str,
        version: &str,
        capabilities: Value,
        more: Vec<(String, String)>,
    ) -> Self {
        let address = world.gateway.address();
        Self::greet_at(address, path, version, capabilities, more).await
    }

    /// The same, at this address.
    pub(crate) async fn greet_at(
        address: SocketAddr,
        path: &str,
        version: &str,
        capabilities: Value,
        more: Vec<(String, String)>,
    ) -> Self {
        let mut client = Self {
            address,
            path: path.to_owned(),
            ticket: String::new(),
            version: version.to_owned(),
            more,
        };
        let mut response = client.post(&initialize(version, capabilities)).await;
        assert_eq!(response.status, 200);
        client.ticket = response.header("mcp-session-id").unwrap().to_owned();
        let result = response.answer().await;
        assert_eq!(result["result"]["protocolVersion"], version, "{result}");
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&told).await.status, 202);
        client
    }

    async fn send(&self, method: &str, more: &[(&str, &str)], body: &str) -> Response {
        let mut headers = JSON.to_vec();
        if !self.ticket.is_empty() {
            headers.extend(self.session());
        }
        let own = self.more.iter();
        headers.extend(own.map(|(name, value)| (name.as_str(), value.as_str())));
        // The last word counts.
        headers.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        headers.extend_from_slice(more);
        request(self.address, method, &self.path, &headers, body).await
    }

    /// The headers of its session.
    pub(crate) fn session(&self) -> [(&str, &str); 2] {
        [
            ("Mcp-Session-Id", &self.ticket),
            ("MCP-Protocol-Version", &self.version),
        ]
    }

    /// Somebody who knows a path, has no session, and shows their token.
    pub(crate) fn nameless(address: SocketAddr, name: &str, path: &str) -> Self {
        Self {
            address,
            path: path.to_owned(),
            ticket: String::new(),
            version: "2025-11-25".to_owned(),
            more: bearer(name),
        }
    }

    /// Sends a message.
    pub(crate) async fn post(&self, message: &Value) -> Response {
        self.send("POST", &[], &message.to_string()).await
    }

    /// Sends a message with headers of its own.
    pub(crate) async fn post_with(&self, more: &[(&str, &str)], message: &Value) -> Response {
        self.send("POST", more, &message.to_string()).await
    }

    /// Opens the standing stream, or takes one up.
    pub(crate) async fn get(&self, last: Option<&str>) -> Response {
        let last: Vec<_> = last
            .map(|last| ("Last-Event-ID", last))
            .into_iter()
            .collect();
        self.send("GET", &last, "").await
    }

    /// Ends the client session.
    pub(crate) async fn delete(&self) -> Response {
        self.send("DELETE", &[], "").await
    }

    /// Calls a tool, and reads its answer.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.post(&call(1, tool, arguments)).await.answer().await
    }

    /// One more call of the counter.
    pub(crate) async fn count(&self) -> i64 {
        let answer = self.call("counter", json!({})).await;
        let count = &answer["result"]["structuredContent"]["count"];
        count.as_i64().unwrap_or_else(|| panic!("{answer}"))
    }
}

/// The message that greets.
pub(crate) fn initialize(version: &str, capabilities: Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": "hello", "method": "initialize",
        "params": {
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": { "name": "wire", "version": "1" },
        },
    })
}

/// The message that calls a tool.
pub(crate) fn call(id: i64, tool: &str, arguments: Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments },
    })
}
