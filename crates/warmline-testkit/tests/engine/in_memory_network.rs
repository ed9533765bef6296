//! Whole flows without any network: a server that exists only in the test, on a clock of its own.

use crate::prelude::*;

use std::collections::BTreeMap;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::time::Instant;
use warmline::Dial;
use warmline_platform::net::{Destination, Dialed, Dialing};

/// A server at the other end of a pipe in memory. Clones are the same server.
#[derive(Clone, Debug, Default)]
struct Unplugged(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    /// What a session counted, and when it began.
    sessions: BTreeMap<String, (i64, Option<Instant>)>,
    /// Sessions last so long.
    lasts: Option<Duration>,
    /// What the next call gets instead of its answer.
    refusal: Option<(u16, &'static str)>,
    given: usize,
    heard: Vec<String>,
}

/// One connector to it: two of different labels are two ways.
#[derive(Debug)]
struct Plug(&'static str, Unplugged);

impl Dial for Plug {
    fn label(&self) -> &str {
        self.0
    }

    fn dial<'a>(&'a self, _: Destination<'a>) -> Dialing<'a> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        drop(tokio::spawn(self.1.clone().serve(theirs)));
        Box::pin(async move { Ok(Dialed::Plain(Box::new(ours))) })
    }
}

impl Unplugged {
    fn now<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn handshakes(&self) -> usize {
        self.now(|inside| inside.given)
    }

    /// Answers requests until the other end is closed.
    async fn serve(self, stream: DuplexStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut lines, mut length) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim().to_owned();
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(": ").unwrap_or_default();
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.parse().unwrap();
                }
                lines.push(line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            let answer = self.answer(&lines, &body);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    fn answer(&self, lines: &[String], body: &[u8]) -> String {
        let headers = || lines.iter().filter_map(|line| line.split_once(": "));
        let mut ids = headers().filter(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
        let id = ids.next().map(|(_, value)| value.to_owned());
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or("DELETE");
        let mut inside = self.0.lock().unwrap();
        inside.heard.push(method.to_owned());
        match method {
            "DELETE" => {
                inside.sessions.remove(&id.unwrap());
                written(204, "", "")
            },
            "initialize" => {
                inside.given += 1;
                let id = format!("s{}", inside.given);
                inside
                    .sessions
                    .insert(id.clone(), (0, Some(Instant::now())));
                let result = json!({
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "unplugged", "version": "1" },
                });
                let head = format!("Mcp-Session-Id: {id}\r\n");
                written(200, &head, &reply(&message, &json!({ "result": result })))
            },
            "notifications/initialized" => written(202, "", ""),
            "tools/call" | "ping" => match inside.counted(method, id.as_deref()) {
                Ok(count) => {
                    let said = json!({ "content": [], "structuredContent": { "count": count } });
                    written(200, "", &reply(&message, &json!({ "result": said })))
                },
                Err((status, words)) => written(status, "", words),
            },
            _ => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                written(200, "", &reply(&message, &json!({ "error": error })))
            },
        }
    }
}

impl Inside {
    /// What a call counts in its session, or the refusal it gets.
    fn counted(&mut self, method: &str, id: Option<&str>) -> Result<i64, (u16, &'static str)> {
        if let Some(refusal) = self.refusal.take_if(|_| method == "tools/call") {
            return Err(refusal);
        }
        let lasts = self.lasts;
        self.sessions.retain(|_, (_, began)| {
            let age = began.map(|began| began.elapsed());
            age.zip(lasts).is_none_or(|(age, lasts)| age < lasts)
        });
        let session = self.sessions.get_mut(id.unwrap_or_default());
        let (count, _) = session.ok_or((404, "Session not found"))?;
        *count += i64::from(method == "tools/call");
        Ok(*count)
    }
}

fn reply(message: &Value, outcome: &Value) -> String {
    let mut reply = outcome.clone();
    reply["jsonrpc"] = json!("2.0");
    reply["id"] = message["id"].clone();
    reply.to_string()
}

fn written(status: u16, head: &str, body: &str) -> String {
    let kind = if body.starts_with('{') {
        "application/json"
    } else {
        "text/plain"
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\n{head}Content-Length: {length}\r\n\r\n{body}"
    )
}

fn declared(plug: Plug) -> Server {
    Server::http("mock", "http://mock.invalid/mcp").dial(plug)
}

/// A188: handshake, refusals with 400 and 404, and sessions that expire: all of it without a network,
/// and a whole day of it on a simulated clock.
#[tokio::test(start_paused = true)]
async fn whole_flows_run_without_a_network_on_a_clock_of_the_test() {
    let server = Unplugged::default();
    let plug = Plug("mock", server.clone());
    let warm = Warmline::builder().server(declared(plug)).build().unwrap();
    let run = warm.begin_run();
    let mock = run.server("mock").unwrap();
    assert_eq!((count(&mock).await, count(&mock).await), (1, 2));
    let words = "Bad Request: No valid session ID provided";
    server.now(|inside| inside.refusal = Some((400, words)));
    assert_eq!((count(&mock).await, server.handshakes()), (1, 2));
    server.now(|inside| inside.sessions.clear());
    assert_eq!((count(&mock).await, server.handshakes()), (1, 3));
    server.now(|inside| inside.refusal = Some((400, "the amount is missing")));
    let error = mock.call("counter", json!({})).await.unwrap_err();
    assert_eq!((error.attempts(), server.handshakes()), (1, 3), "{error:?}");

    // From now on no session is older than an hour; nobody notices for a day.
    server.now(|inside| inside.lasts = Some(Duration::from_secs(3600)));
    let began = Instant::now();
    for _ in 0..48 {
        count(&mock).await;
        tokio::time::sleep(Duration::from_secs(1800)).await;
    }
    assert_eq!(began.elapsed(), Duration::from_secs(24 * 3600));
    assert!(server.handshakes() > 10, "{}", server.handshakes());
    run.end().await;
    warm.close().await;
    assert!(server.now(|inside| inside.sessions.is_empty()));
    server.now(|inside| assert!(inside.heard.contains(&"DELETE".to_owned())));
}

/// A112: sessions of the pool are opened by the connector of the program, and another connector is
/// another session; the same one is not.
#[tokio::test(start_paused = true)]
async fn another_connector_is_another_session_of_the_pool() {
    let server = Unplugged::default();
    let way = |label| {
        let declared = declared(Plug(label, server.clone()));
        declared
            .session_per(SessionScope::Identity)
            .calls(CallConcurrency::SideBySide)
    };
    let warm = Warmline::builder().server(way("one")).build().unwrap();
    for (label, expected) in [("one", 1), ("one", 2), ("two", 1), ("two", 2)] {
        warm.add_server(way(label)).unwrap();
        let found = count(&warm.server("mock").unwrap()).await;
        assert_eq!(found, expected, "{label}");
    }
    warm.close().await;
}
