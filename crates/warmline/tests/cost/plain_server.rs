//! A small fast server of both eras on threads of its own, so that what is counted or timed beside it is
//! the client's alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A server on threads that answers everything with the same small JSON.
pub(crate) struct PlainServer {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl PlainServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let open = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let open = Arc::clone(&open);
                open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve(stream.unwrap());
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, connections }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

static SESSIONS: AtomicU64 = AtomicU64::new(0);

fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((method, body)) = read_request(&mut reader) {
        if method == "GET" {
            return keep_alive(&mut stream);
        }
        let message: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = &message["id"];
        let reply = match message["method"].as_str().unwrap_or_default() {
            "initialize" => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"plain","version":"1"}}}}}}"#
            ),
            "server/discover" => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}},"ttlMs":0,"cacheScope":"private"}}}}"#
            ),
            "tools/call" => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"done"}}]}}}}"#
            ),
            _ => String::new(),
        };
        // As long as the ids of real servers.
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let head = if reply.is_empty() {
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: {session:036x}\r\ncontent-length: {}\r\n\r\n",
                reply.len()
            )
        };
        stream
            .write_all(format!("{head}{reply}").as_bytes())
            .unwrap();
    }
}

/// A standing stream that only ever says that it is there.
fn keep_alive(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let mut said = stream.write_all(head.as_bytes());
    while said.is_ok() {
        said = stream.write_all(b": still here\n\n");
        // A reader that goes away is noticed by the next write.
        let mut nothing = [0; 1];
        stream
            .set_read_timeout(Some(std::time::Duration::from_millis(20)))
            .unwrap();
        if matches!(stream.read(&mut nothing), Ok(0)) {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut method = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if method.is_empty() {
            method = line.split(' ').next()?.to_owned();
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((method, body))
}
