//! What a server says reaches its client as it was said: messages that come together, and what
//! stands in them.

use crate::prelude::*;

use std::sync::Mutex;

use tokio::sync::broadcast;

const PATH: &str = "/servers/words/mcp";
const BATCHING: &str = "2025-03-26";

/// A legacy server that says what its client wants to hear, byte for byte.
struct VerbatimFixture {
    /// Goes out on every standing stream.
    aside: broadcast::Sender<String>,
    /// The bodies that came, as they came.
    heard: Arc<Mutex<Vec<String>>>,
    warm: Warmline,
    gateway: Gateway,
}

impl VerbatimFixture {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (aside, heard) = (broadcast::Sender::new(16), Arc::default());
        let (said, hears) = (aside.clone(), Arc::clone(&heard));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, said.clone(), Arc::clone(&hears)));
            }
        });
        let server = Server::http("words", url);
        let warm = Warmline::builder().server(server).build().unwrap();
        let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
        Self {
            aside,
            heard,
            warm,
            gateway,
        }
    }

    async fn greet(&self, version: &str) -> Legacy {
        let (at, asked) = (self.gateway.address(), json!({ "roots": {} }));
        Legacy::greet_at(at, PATH, version, asked, Vec::new()).await
    }

    /// Says something on the standing streams, once there is one.
    async fn say(&self, text: &str) {
        until("a stream stands", || self.aside.receiver_count() > 0).await;
        self.aside.send(text.to_owned()).unwrap();
    }

    fn heard(&self, word: &str) -> Option<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().rfind(|body| body.contains(word)).cloned()
    }

    async fn finish(self) {
        self.gateway.stop().await;
        self.warm.close().await;
    }
}

async fn serve(
    mut socket: TcpStream,
    aside: broadcast::Sender<String>,
    heard: Arc<Mutex<Vec<String>>>,
) {
    let mut read = Vec::new();
    while let Some((head, body)) = next(&mut socket, &mut read).await {
        heard.lock().unwrap().push(body.clone());
        if head.starts_with("GET") {
            return stand(socket, aside.subscribe()).await;
        }
        let message: Value = serde_json::from_str(&body).unwrap_or_default();
        let reply = match message["method"].as_str() {
            Some("initialize") => json_reply(&greeting(&message)),
            Some("tools/call") => said(&message),
            Some("ping") => json_reply(&answer(&message, "result", &json!({}))),
            Some(_) if message.get("id").is_some() => {
                let unknown = json!({ "code": -32601, "message": "Method not found" });
                json_reply(&answer(&message, "error", &unknown))
            },
            _ => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        if socket.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The next request: its head and its body.
async fn next(socket: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, String)> {
    let head = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break String::from_utf8(read.drain(..end + 4).collect()).unwrap();
        }
        if socket.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(0, |(_, value)| value.trim().parse().unwrap());
    while read.len() < length {
        if socket.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
    Some((
        head,
        String::from_utf8(read.drain(..length).collect()).unwrap(),
    ))
}

async fn stand(mut socket: TcpStream, mut said: broadcast::Receiver<String>) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    while let Ok(text) = said.recv().await {
        let event = format!("data: {text}\n\n");
        if socket.write_all(event.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn greeting(asked: &Value) -> String {
    let result = json!({
        "protocolVersion": asked["params"]["protocolVersion"],
        "capabilities": { "logging": {}, "tools": { "listChanged": true } },
        "serverInfo": { "name": "words", "version": "1" },
    });
    answer(asked, "result", &result)
}

fn answer(asked: &Value, member: &str, value: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": asked["id"], member: value }).to_string()
}

/// What the call wants to hear, with its id filled in.
fn said(asked: &Value) -> String {
    let arguments = &asked["params"]["arguments"];
    let id = asked["id"].to_string();
    let texts = arguments["say"].as_array().unwrap().iter();
    let texts = texts.map(|text| text.as_str().unwrap().replace("$ID", &id));
    if arguments["as"] == "json" {
        return json_reply(&texts.collect::<String>());
    }
    let events: String = texts.map(|text| format!("data: {text}\n\n")).collect();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{events}", events.len())
}

fn json_reply(body: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: one\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The call that gets these texts, in this form.
fn wanting(form: &str, texts: &[&str]) -> Value {
    call(1, "say", json!({ "as": form, "say": texts }))
}

/// All that comes down a stream, as it is written there.
async fn texts(mut stream: Response) -> Vec<String> {
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    let mut heard = Vec::new();
    while let Some(event) = stream.event().await {
        heard.extend((!event.data.is_empty()).then_some(event.data));
    }
    heard
}

const LINE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}"#;
const UPDATED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#;

/// mcp-spec 2.2, T23: a server of the one version that knows batches may answer in one. Each of its
/// messages is heard as if it had come alone, also what stands behind the answer.
#[tokio::test]
async fn a_server_may_answer_in_a_batch() {
    let words = VerbatimFixture::start().await;
    let client = words.greet(BATCHING).await;
    let answer = ANSWER.replace("$ID", "1");
    for form in ["json", "events"] {
        for batch in [
            format!("[{LINE},{UPDATED},{ANSWER}]"),
            format!(" [ {ANSWER} , {LINE} , {UPDATED} ] "),
            format!(r#"[{LINE},5,[{LINE}],{{"id":7}},{UPDATED},{ANSWER},{ANSWER}]"#),
        ] {
            let heard = texts(client.post(&wanting(form, &[&batch])).await).await;
            assert_eq!(heard, [LINE, UPDATED, &answer], "{form} {batch}");
        }
        // The answer alone.
        let batch = format!("[{ANSWER}]");
        let mut response = client.post(&wanting(form, &[&batch])).await;
        assert_eq!(response.answer().await["result"], json!({ "content": [] }));
        // No answer at all.
        for batch in [format!("[{LINE}]"), "[]".to_owned(), format!("[{LINE}")] {
            let mut response = client.post(&wanting(form, &[&batch])).await;
            let failed = response.answer().await;
            assert_eq!(failed["error"]["code"], 7503, "{form} {batch} {failed}");
        }
    }
    client.delete().await;
    words.finish().await;
}

/// mcp-spec 2.2: in every other version a batch is no answer.
#[tokio::test]
async fn a_batch_is_no_answer_where_the_version_knows_none() {
    let words = VerbatimFixture::start().await;
    for version in ["2025-06-18", NEWEST] {
        let client = words.greet(version).await;
        for form in ["json", "events"] {
            let batch = format!("[{LINE},{ANSWER}]");
            let mut response = client.post(&wanting(form, &[&batch])).await;
            let failed = response.answer().await;
            assert_eq!(failed["error"]["code"], 7503, "{version} {form} {failed}");
        }
        client.delete().await;
    }
    words.finish().await;
}

/// mcp-spec 2.2: the same for what a server asks and tells outside any call.
#[tokio::test]
async fn a_server_may_speak_in_a_batch_outside_any_call() {
    let words = VerbatimFixture::start().await;
    let client = words.greet(BATCHING).await;
    let mut response = client.post(&wanting("json", &[ANSWER])).await;
    assert_eq!(response.answer().await["id"], 1);
    let mut stream = client.get(None).await;
    let asks = r#"{"jsonrpc":"2.0","id":"asked","method":"ping"}"#;
    words.say(&format!("[{LINE},{asks},{UPDATED}]")).await;
    for text in [LINE, UPDATED] {
        assert_eq!(stream.event().await.unwrap().data, text);
    }
    let answered = || words.heard(r#""id":"asked""#);
    until("the question is answered", || answered().is_some()).await;
    client.delete().await;
    words.finish().await;
}

/// DESIGN 4: what a server or a client tells without parameters arrives without them, and with those
/// of no member where it has such.
#[tokio::test]
async fn parameters_that_were_not_said_are_not_added() {
    let words = VerbatimFixture::start().await;
    let client = words.greet(NEWEST).await;
    let told = [
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"custom/thing"}"#,
        r#"{"jsonrpc":"2.0","method":"custom/thing","params":{}}"#,
    ];
    let events = [&told[..], &[ANSWER]].concat();
    let heard = texts(client.post(&wanting("events", &events)).await).await;
    assert_eq!(heard, [&told[..], &[&ANSWER.replace("$ID", "1")]].concat());

    let mut stream = client.get(None).await;
    assert_eq!(stream.event().await.unwrap().data, "");
    for text in told {
        words.say(text).await;
        assert_eq!(stream.event().await.unwrap().data, text);
    }
    words
        .say(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#)
        .await;
    let asked = stream.heard("roots/list").await;
    assert_eq!(asked.get("params"), None);

    for text in [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{}}"#,
    ] {
        let notice: Value = serde_json::from_str(text).unwrap();
        assert_eq!(client.post(&notice).await.status, 202);
        let is_so = || words.heard("roots/list_changed").as_deref() == Some(text);
        until("it is told", is_so).await;
    }
    client.delete().await;
    words.finish().await;
}
