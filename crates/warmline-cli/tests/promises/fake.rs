//! A server that answers in fixed words and keeps what it was asked, for what must come byte for byte.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::until;

/// The request state that it sends with a question. It must come back unchanged.
pub(crate) const STATE: &str = "état \"1\" \\ / \t ==";

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) session: Option<String>,
    pub(crate) message: Value,
}

impl ReceivedRequest {
    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

/// A server at `/legacy/mcp` and `/modern/mcp`. It goes on until the test ends.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    pub(crate) base: String,
    /// What the ids of its sessions begin with.
    name: &'static str,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    sessions: Arc<AtomicUsize>,
}

impl Fake {
    /// At a free port.
    pub(crate) fn start() -> Self {
        Self::at("127.0.0.1:0", "session")
    }

    /// At this address, as soon as it is free.
    pub(crate) fn at(address: &str, name: &'static str) -> Self {
        let mut listener = None;
        until("the address is free", || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let fake = Self {
            base,
            name,
            asked: Arc::default(),
            sessions: Arc::default(),
        };
        let answering = fake.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let answering = answering.clone();
                std::thread::spawn(move || answering.serve(&socket.unwrap()));
            }
        });
        fake
    }

    /// What it was asked since the last look.
    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn serve(&self, socket: &TcpStream) {
        let mut reader = BufReader::new(socket);
        while let Some(asked) = read(&mut reader) {
            self.asked.lock().unwrap().push(asked.clone());
            let (status, headers, body) = self.answer(&asked);
            let length = body.len();
            let mut to = socket;
            let sent = write!(
                to,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}\
                 Content-Length: {length}\r\n\r\n{body}"
            );
            if sent.is_err() {
                return;
            }
        }
    }

    /// Status, headers and body.
    fn answer(&self, asked: &ReceivedRequest) -> (&'static str, String, String) {
        let none = String::new;
        let is_modern = asked.path.starts_with("/modern");
        match (asked.verb.as_str(), asked.method()) {
            ("DELETE", _) => ("200 OK", none(), none()),
            ("POST", "initialize") if !is_modern => {
                let number = self.sessions.fetch_add(1, Ordering::SeqCst);
                let header = format!("Mcp-Session-Id: {}-{number}\r\n", self.name);
                ("200 OK", header, result(asked, &greeting()))
            },
            ("POST", "server/discover") if is_modern => {
                ("200 OK", none(), result(asked, &discovery()))
            },
            ("POST", "tools/list") => ("200 OK", none(), result(asked, &tools())),
            ("POST", "tools/call") if is_modern => {
                ("200 OK", none(), result(asked, &question(asked)))
            },
            ("POST", "tools/call" | "ping") => ("200 OK", none(), result(asked, &called())),
            ("POST", method) if method.starts_with("notifications/") => {
                ("202 Accepted", none(), none())
            },
            ("POST", _) => {
                let error = json!({"code": -32601, "message": "Method not found"});
                let body = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error});
                ("404 Not Found", none(), body.to_string())
            },
            _ => ("405 Method Not Allowed", none(), none()),
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<ReceivedRequest> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (verb, path) = (words.next()?, words.next()?);
    let (mut length, mut session) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "mcp-session-id" => session = Some(value.trim().to_owned()),
            _ => {},
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let message = serde_json::from_slice(&body).unwrap_or_default();
    Some(ReceivedRequest {
        verb,
        path,
        session,
        message,
    })
}

fn result(asked: &ReceivedRequest, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}).to_string()
}

fn greeting() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "fake", "version": "1"}})
}

fn discovery() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
        "cacheScope": "private", "capabilities": {"tools": {}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "1"}}})
}

fn tools() -> Value {
    let tool = json!({"name": "ask", "inputSchema": {"type": "object"}});
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [tool]})
}

fn called() -> Value {
    json!({"content": [{"type": "text", "text": "done"}]})
}

/// It asks until it gets its state back.
fn question(asked: &ReceivedRequest) -> Value {
    if asked.message["params"]["requestState"] == STATE {
        return json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]});
    }
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"mode": "form", "message": "Who?", "requestedSchema": schema});
    let request = json!({"method": "elicitation/create", "params": params});
    json!({"resultType": "input_required", "requestState": STATE, "inputRequests": {"who": request}})
}
