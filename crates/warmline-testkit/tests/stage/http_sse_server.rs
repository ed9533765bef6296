//! A server of 2024-11-05 on threads: a stream that names a second endpoint, and answers on it.
//!
//! It refuses a POST where its stream is, knows `initialize` and gives back the arguments of every
//! tool, and writes down what it was sent.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// A running server; dropping it ends it.
#[derive(Debug)]
pub(crate) struct OldServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    connections: AtomicUsize,
    heard: Mutex<Vec<String>>,
    /// The streams that are open, by the number of their connection.
    streams: Mutex<HashMap<usize, TcpStream>>,
}

impl OldServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || {
            for (number, connection) in listener.incoming().enumerate() {
                if serving.ended.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&serving);
                // A client may leave at any moment; that is what these tests are about.
                let serve = move || {
                    serving.connections.fetch_add(1, Ordering::Relaxed);
                    let served = connection.and_then(|one| serving.serve(number, one));
                    serving.connections.fetch_sub(1, Ordering::Relaxed);
                    served
                };
                drop(std::thread::spawn(serve));
            }
        });
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// Where its stream is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/sse", self.address)
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// The methods of what it was sent, `GET` among them.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().clone()
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes whoever accepts.
        drop(TcpStream::connect(self.address));
        drop(self.accepting.take().map(JoinHandle::join));
    }
}

impl Shared {
    fn serve(&self, number: usize, connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut reader = BufReader::new(connection.try_clone()?);
        while let Some((line, body)) = read_request(&mut reader)? {
            if line.starts_with("GET ") {
                self.heard.lock().unwrap().push("GET".to_owned());
                let streamed = self.stream(number, &connection);
                // Nothing more comes but the end, in one way or another.
                let ended = streamed.and_then(|()| io::copy(&mut reader, &mut io::sink()));
                self.streams.lock().unwrap().remove(&number);
                return ended.map(drop);
            }
            let message: Value = serde_json::from_slice(&body)?;
            let method = message["method"].as_str().unwrap_or("(response)");
            self.heard.lock().unwrap().push(method.to_owned());
            let stream = line
                .split(['=', ' '])
                .nth(2)
                .and_then(|text| text.parse().ok());
            let status = if stream.is_some() {
                "202 Accepted"
            } else {
                "405 Method Not Allowed"
            };
            write!(
                &connection,
                "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"
            )?;
            if let Some(stream) = stream {
                self.answer(stream, &message)?;
            }
        }
        Ok(())
    }

    fn stream(&self, number: usize, mut connection: &TcpStream) -> io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let event = format!("event: endpoint\r\ndata: /messages?session={number}\r\n\r\n");
        self.streams
            .lock()
            .unwrap()
            .insert(number, connection.try_clone()?);
        connection.write_all(format!("{head}{event}").as_bytes())
    }

    fn answer(&self, stream: usize, message: &Value) -> io::Result<()> {
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}})
            },
            Some("tools/call") => {
                json!({"content": [], "structuredContent": {"arguments": message["params"]["arguments"]}})
            },
            _ => return Ok(()),
        };
        let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        match self.streams.lock().unwrap().get_mut(&stream) {
            Some(stream) => write!(stream, "event: message\r\ndata: {reply}\r\n\r\n"),
            None => Ok(()),
        }
    }
}

/// The request line and the body; none at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((first, body)))
}
