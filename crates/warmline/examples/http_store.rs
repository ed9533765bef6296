//! For a team that already has a service for small pieces of state, and wants sessions to MCP
//! servers to outlive the process that opened them: an agent in a debugger that is restarted at
//! every change, a worker that is moved. Any service that can compare and set will do.
//!
//! ```text
//! cargo run -p warmline --example http_store
//! ```
//!
//! It starts such a service (`GET`, `PUT` and `DELETE /debugstate/{agent}/{key}`) and a server that
//! counts per session, both in this process, and then two lives of one agent.

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use warmline::{Server, Warmline};
use warmline_store::keyring::Keyring;
use warmline_store::{BoxFuture, RecordName, SaveOutcome, SessionStore, StoreError, StoredRecord};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Records in a service over HTTP. The edition of a record travels as its `ETag`, so that two
/// processes never overwrite each other.
#[derive(Clone, Debug)]
struct HttpStore {
    service: SocketAddr,
    agent: String,
}

impl HttpStore {
    /// Asks the service on a thread that may wait; the engine gives up by itself in time.
    async fn ask(
        &self,
        method: &'static str,
        name: RecordName,
        condition: String,
        body: Vec<u8>,
    ) -> Result<Answer, StoreError> {
        let (service, path) = (self.service, format!("/debugstate/{}/{name}", self.agent));
        let asked = move || exchange(service, method, &path, &condition, &body);
        let answer = tokio::task::spawn_blocking(asked).await;
        answer
            .map_err(|error| StoreError::Unavailable(error.to_string()))?
            .map_err(|error| StoreError::Unavailable(format!("{method}: {error}")))
    }

    async fn read(&self, name: RecordName) -> Result<Option<StoredRecord>, StoreError> {
        let answer = self.ask("GET", name, String::new(), Vec::new()).await?;
        match answer.status {
            404 => Ok(None),
            200 => Ok(Some(StoredRecord {
                edition: answer.edition,
                sealed: answer.body,
            })),
            status => Err(StoreError::Unavailable(format!("GET answered {status}"))),
        }
    }
}

impl SessionStore for HttpStore {
    fn load(&self, name: RecordName) -> BoxFuture<'_, Result<Option<StoredRecord>, StoreError>> {
        Box::pin(self.read(name))
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> BoxFuture<'_, Result<SaveOutcome, StoreError>> {
        Box::pin(async move {
            let over = match expected {
                Some(edition) => format!("If-Match: \"{edition}\"\r\n"),
                None => "If-None-Match: *\r\n".to_owned(),
            };
            let condition = format!("{over}ETag: \"{}\"\r\n", stored.edition);
            match self
                .ask("PUT", name, condition, stored.sealed)
                .await?
                .status
            {
                200..=299 => Ok(SaveOutcome::Saved),
                412 => Ok(SaveOutcome::Conflict(self.read(name).await?)),
                status => Err(StoreError::Unavailable(format!("PUT answered {status}"))),
            }
        })
    }

    fn clear(&self, name: RecordName, edition: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let condition = format!("If-Match: \"{edition}\"\r\n");
            match self
                .ask("DELETE", name, condition, Vec::new())
                .await?
                .status
            {
                200..=299 => Ok(true),
                404 | 412 => Ok(false),
                status => Err(StoreError::Unavailable(format!("DELETE answered {status}"))),
            }
        })
    }

    fn scan(&self) -> BoxFuture<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        // This service cannot list. Sessions that nobody comes back for are left to their servers.
        Box::pin(async { Ok(Vec::new()) })
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let world = Arc::new(World::default());
    let address = serve(&world)?;
    let agent = || -> Result<Warmline, Failure> {
        let store = HttpStore {
            service: address,
            agent: "agent-7".to_owned(),
        };
        Ok(Warmline::builder()
            .server(Server::http("counter", format!("http://{address}/mcp")))
            .vault(Keyring::from_text(&"5e".repeat(32))?) // from your secrets, for instance `openssl rand -hex 32`
            .store(store)
            .build()?)
    };

    let first_life = agent()?;
    let before = [
        count(&first_life, "chat").await?,
        count(&first_life, "chat").await?,
    ];
    println!("before the restart  {} {}", before[0], before[1]);
    first_life.close().await; // leaves the session of a live run to its record

    let second_life = agent()?;
    let after = count(&second_life, "chat").await?;
    let handshakes = world.handshakes.load(Ordering::Relaxed);
    println!("after the restart   {after}, {handshakes} handshake in all");

    world.puts_fail.store(true, Ordering::Relaxed);
    let unsaved = [
        count(&second_life, "other").await?,
        count(&second_life, "other").await?,
    ];
    println!(
        "while PUT fails     {} {}, calls go on",
        unsaved[0], unsaved[1]
    );
    second_life.close().await;

    if (before, after, handshakes, unsaved) != ([1, 2], 3, 1, [1, 2]) {
        return Err("the session did not go on as it should".into());
    }
    Ok(())
}

/// Calls the tool that counts, in a run of that name.
async fn count(warm: &Warmline, run: &str) -> Result<u64, Failure> {
    let run = warm.named_run(run)?;
    let result = run
        .server("counter")?
        .call("count", json!({}))
        .await?
        .ok()?;
    run.detach(); // the run goes on, also in another process
    Ok(result.text().parse()?)
}

// What follows stands in for the rest of the world.

/// What the service remembers, and what the server does.
#[derive(Default)]
struct World {
    states: Mutex<HashMap<String, (String, Vec<u8>)>>,
    counters: Mutex<HashMap<String, u64>>,
    handshakes: AtomicU64,
    puts_fail: AtomicBool,
}

/// A request or an answer, as far as anybody here looks.
#[derive(Default)]
struct Message {
    line: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Message {
    fn read(stream: &TcpStream) -> Result<Self, Failure> {
        let mut reader = BufReader::new(stream);
        let mut message = Self::default();
        reader.read_line(&mut message.line)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            message
                .headers
                .insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = message.header("content-length").parse().unwrap_or(0);
        message.body.resize(length, 0);
        reader.read_exact(&mut message.body)?;
        Ok(message)
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

struct Answer {
    status: u16,
    edition: u64,
    body: Vec<u8>,
}

/// One request and its answer over a connection of its own.
fn exchange(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Result<Answer, Failure> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let answer = Message::read(&stream)?;
    let status = answer.line.split(' ').nth(1).unwrap_or_default();
    Ok(Answer {
        status: status.parse()?,
        edition: answer.header("etag").trim_matches('"').parse().unwrap_or(0),
        body: answer.body,
    })
}

/// Serves state and the counting server on a port of its own, until the process ends.
fn serve(world: &Arc<World>) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let world = Arc::clone(world);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let world = Arc::clone(&world);
            // Whoever hangs up in the middle gets no answer.
            std::thread::spawn(move || answer(&world, &stream).ok());
        }
    });
    Ok(address)
}

fn answer(world: &World, mut stream: &TcpStream) -> Result<(), Failure> {
    let request = Message::read(stream)?;
    let mut words = request.line.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (status, headers, body) = if path == "/mcp" {
        world.count(method, &request)
    } else {
        world.keep(method, path, &request)
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} .\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.into_bytes(), body].concat())?;
    Ok(())
}

type HttpReply = (u16, String, Vec<u8>);

impl World {
    /// The service for small pieces of state.
    fn keep(&self, method: &str, path: &str, request: &Message) -> HttpReply {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let now = states.get(path).map(|(tag, _)| tag.clone());
        let plain = |status| (status, String::new(), Vec::new());
        let fits = match (request.header("if-match"), request.header("if-none-match")) {
            ("", "") => true,
            ("", _) => now.is_none(),
            (wanted, _) => now.as_deref() == Some(wanted),
        };
        match method {
            "GET" => states.get(path).map_or_else(
                || plain(404),
                |(tag, body)| (200, format!("ETag: {tag}\r\n"), body.clone()),
            ),
            "PUT" if self.puts_fail.load(Ordering::Relaxed) => plain(500),
            _ if !fits => plain(412),
            "PUT" => {
                let tag = request.header("etag").to_owned();
                states.insert(path.to_owned(), (tag, request.body.clone()));
                plain(204)
            },
            "DELETE" => plain(states.remove(path).map_or(404, |_| 204)),
            _ => plain(405),
        }
    }

    /// A server of the legacy era that counts the calls of each session.
    fn count(&self, method: &str, request: &Message) -> HttpReply {
        let session = request.header("mcp-session-id");
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if method == "DELETE" {
            let status = counters.remove(session).map_or(404, |_| 200);
            return (status, String::new(), Vec::new());
        }
        let call: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (id, called) = (&call["id"], call["method"].as_str().unwrap_or_default());
        let json = "Content-Type: application/json\r\n".to_owned();
        let reply = |result: Value| {
            json!({ "jsonrpc": "2.0", "id": id, "result": result })
                .to_string()
                .into_bytes()
        };
        if called == "initialize" {
            let number = self.handshakes.fetch_add(1, Ordering::Relaxed) + 1;
            counters.insert(format!("session-{number}"), 0);
            let headers = format!("{json}Mcp-Session-Id: session-{number}\r\n");
            let result = json!({ "protocolVersion": call["params"]["protocolVersion"],
                "capabilities": { "tools": {} }, "serverInfo": { "name": "counter", "version": "1" } });
            return (200, headers, reply(result));
        }
        let Some(counter) = counters.get_mut(session) else {
            return (404, String::new(), Vec::new());
        };
        match called {
            "tools/call" => {
                *counter += 1;
                let text = counter.to_string();
                (
                    200,
                    json,
                    reply(json!({ "content": [{ "type": "text", "text": text }] })),
                )
            },
            "tools/list" => {
                let schema = json!({ "type": "object" });
                let tools = json!({ "tools": [{ "name": "count", "inputSchema": schema }] });
                (200, json, reply(tools))
            },
            "ping" => (200, json, reply(json!({}))),
            _ => (202, String::new(), Vec::new()),
        }
    }
}
