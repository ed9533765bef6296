//! A server that says what it is told, in steps, and keeps every byte it read.

use crate::prelude::*;

use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;

/// One step of a reply.
#[derive(Clone, Debug)]
pub(crate) enum ReplyStep {
    /// A whole JSON reply, `$ID` filled; ends the reply.
    Json(String),
    /// Bytes as they stand, head and all; ends the reply.
    Raw(String),
    /// An event of a stream, `$ID` filled; the first one brings the head.
    Event(String),
    /// Waits until so many messages without a method were read: answers of the client.
    Answers(usize),
    /// Waits until so many tools were called.
    Calls(usize),
}

/// What was read: the head as it came, and the body.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) raw: String,
    pub(crate) body: Value,
    /// Which of the connections it came on.
    pub(crate) connection: u16,
}

impl ReceivedRequest {
    /// A header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

type Script = dyn Fn(&Value) -> Vec<ReplyStep> + Send + Sync;

/// Runs on the runtime of the test and ends with it.
#[derive(Clone)]
pub(crate) struct Stub {
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    news: Arc<Notify>,
    script: Arc<Script>,
    greeting: &'static str,
    pub(crate) url: String,
}

impl Stub {
    /// What is no request gets 202, `initialize` and `server/discover` a proper answer, and the
    /// rest what the script says.
    pub(crate) async fn start(
        script: impl Fn(&Value) -> Vec<ReplyStep> + Send + Sync + 'static,
    ) -> Self {
        Self::greeting("", script).await
    }

    /// The same, with a session id in the answer to `initialize`.
    pub(crate) async fn with_sessions(
        script: impl Fn(&Value) -> Vec<ReplyStep> + Send + Sync + 'static,
    ) -> Self {
        Self::greeting("Mcp-Session-Id: stub-1\r\n", script).await
    }

    /// The stub as a client knows it.
    pub(crate) fn target(&self, era: Era) -> ServerTarget {
        let mut target = ServerTarget::http("ledger", self.url.parse().unwrap());
        target.era = Some(era);
        target
    }

    /// A session of a client that declares nothing.
    pub(crate) async fn session(&self, era: Era) -> Session {
        let declared = ClientProfile::default();
        let opened = Upstream::new().open(&self.target(era), &declared).await;
        opened.unwrap()
    }

    async fn greeting(
        greeting: &'static str,
        script: impl Fn(&Value) -> Vec<ReplyStep> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stub = Self {
            seen: Arc::default(),
            news: Arc::default(),
            script: Arc::new(script),
            greeting,
            url: format!("http://{}/mcp", listener.local_addr().unwrap()),
        };
        let accepting = stub.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(socket));
            }
        });
        stub
    }

    /// Everything that was read so far.
    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// The messages of this method.
    pub(crate) fn of(&self, method: &str) -> Vec<ReceivedRequest> {
        let seen = self.seen().into_iter();
        seen.filter(|one| one.body["method"] == method).collect()
    }

    /// The answers of the client to what the server asked.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let seen = self.seen().into_iter();
        seen.filter(is_answer).map(|one| one.body).collect()
    }

    async fn serve(self, mut socket: TcpStream) {
        // The port of the client tells connections apart.
        let connection = socket.peer_addr().map_or(0, |peer| peer.port());
        while let Some(mut seen) = read(&mut socket).await {
            seen.connection = connection;
            let body = seen.body.clone();
            self.seen.lock().unwrap().push(seen);
            self.news.notify_waiters();
            let steps = match body["method"].as_str() {
                Some("initialize") => vec![self.greet(&body)],
                Some("server/discover") => vec![ReplyStep::Json(DISCOVERED.to_owned())],
                Some(_) if body.get("id").is_some() => (self.script)(&body),
                _ => Vec::new(),
            };
            if self
                .say(&mut socket, &steps, &body["id"].to_string())
                .await
                .is_err()
            {
                return;
            }
        }
    }

    fn greet(&self, body: &Value) -> ReplyStep {
        let answer = INITIALIZED.replace("$ID", &body["id"].to_string());
        let (greeting, length) = (self.greeting, answer.len());
        ReplyStep::Raw(format!(
            "{JSON_HEAD}{greeting}Content-Length: {length}\r\n\r\n{answer}"
        ))
    }

    async fn say(
        &self,
        socket: &mut TcpStream,
        steps: &[ReplyStep],
        id: &str,
    ) -> std::io::Result<()> {
        if steps.is_empty() {
            return socket
                .write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
        let mut in_stream = false;
        for step in steps {
            match step {
                ReplyStep::Json(body) => {
                    let body = body.replace("$ID", id);
                    let head = format!("{JSON_HEAD}Content-Length: {}\r\n\r\n", body.len());
                    return socket.write_all(format!("{head}{body}").as_bytes()).await;
                },
                ReplyStep::Raw(bytes) => return socket.write_all(bytes.as_bytes()).await,
                ReplyStep::Event(data) => {
                    if !std::mem::replace(&mut in_stream, true) {
                        socket.write_all(STREAM_HEAD.as_bytes()).await?;
                    }
                    let event = format!("data: {}\n\n", data.replace("$ID", id));
                    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                    socket.write_all(chunk.as_bytes()).await?;
                },
                ReplyStep::Answers(count) => self.wait_for(*count, is_answer).await,
                ReplyStep::Calls(count) => self.wait_for(*count, is_call).await,
            }
        }
        socket.write_all(b"0\r\n\r\n").await
    }

    async fn wait_for(&self, count: usize, such: fn(&ReceivedRequest) -> bool) {
        loop {
            let news = self.news.notified();
            if self
                .seen
                .lock()
                .unwrap()
                .iter()
                .filter(|one| such(one))
                .count()
                >= count
            {
                return;
            }
            news.await;
        }
    }
}

fn is_answer(seen: &ReceivedRequest) -> bool {
    seen.body.get("method").is_none() && seen.body.get("id").is_some()
}

fn is_call(seen: &ReceivedRequest) -> bool {
    seen.body["method"] == "tools/call"
}

const JSON_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"stub","version":"1"}}}"#;
const DISCOVERED: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}}"#;

/// The next request; none at the end of the connection.
async fn read(socket: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(place) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break place + 4;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes.drain(..end).collect()).unwrap();
    let mut seen = ReceivedRequest {
        head,
        raw: String::new(),
        body: Value::Null,
        connection: 0,
    };
    let length: usize = seen
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    while bytes.len() < length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    seen.raw = String::from_utf8(bytes).unwrap();
    seen.body = serde_json::from_str(&seen.raw).unwrap_or_default();
    Some(seen)
}
