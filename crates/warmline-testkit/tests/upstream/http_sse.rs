//! HTTP+SSE of 2024-11-05: what became of a call, where the stream is the session (D94 to D96).

use crate::prelude::*;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use warmline_core::protocol::session_gone::{SessionGoneForm, SessionGoneMatching};
use warmline_upstream::Transport;

/// How the server treats a `tools/call`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treats {
    /// Answers on the stream, then acknowledges the POST.
    Answers,
    /// Executes, then ends the stream.
    CutsTheStream,
    /// Says that it does not know the session.
    ForgotTheSession,
    /// Says so on the stream, with an error.
    SaysItIsGone,
    /// Asks a question on the stream first.
    Asks,
    /// Refuses some notification with an error that names no id, then answers.
    ComplainsFirst,
}

/// A server of two endpoints.
struct TwoEndpointServer {
    url: String,
    executed: Arc<AtomicUsize>,
}

struct World {
    treats: Treats,
    endpoint: String,
    down: Mutex<Option<TcpStream>>,
    executed: Arc<AtomicUsize>,
    waiting: Mutex<Value>,
}

impl TwoEndpointServer {
    async fn start(treats: Treats, endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        let executed = Arc::new(AtomicUsize::new(0));
        let world = Arc::new(World {
            treats,
            endpoint: endpoint.to_owned(),
            down: Mutex::default(),
            executed: Arc::clone(&executed),
            waiting: Mutex::default(),
        });
        drop(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                drop(tokio::spawn(Arc::clone(&world).serve(stream)));
            }
        }));
        Self { url, executed }
    }

    async fn open(&self) -> Result<Session, Diagnostic> {
        self.open_with(|_| {}).await
    }

    async fn open_with(
        &self,
        change: impl FnOnce(&mut ServerTarget),
    ) -> Result<Session, Diagnostic> {
        let mut server = ServerTarget::http("old", self.url.parse().unwrap());
        change(&mut server);
        Upstream::new()
            .open(&server, &ClientProfile::default())
            .await
    }
}

impl World {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        while let Some((head, body)) = request(&mut stream).await {
            if head.starts_with("GET ") {
                let reply = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\r\ndata: {}\r\n\r\n",
                    self.endpoint
                );
                stream.write_all(reply.as_bytes()).await.unwrap();
                *self.down.lock().await = Some(stream);
                return;
            }
            let status = if head.starts_with("POST /sse") {
                "405 Method Not Allowed"
            } else {
                self.take(serde_json::from_slice(&body).unwrap()).await
            };
            let text = if status.starts_with("404") {
                "Could not find session"
            } else {
                ""
            };
            let reply = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            );
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
    }

    async fn take(&self, message: Value) -> &'static str {
        let id = message["id"].clone();
        match message["method"].as_str().unwrap_or("answer") {
            "initialize" => {
                let result = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": { "name": "old", "version": "1" } });
                self.send(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
                    .await;
            },
            "tools/call" => match self.treats {
                Treats::ForgotTheSession => return "404 Not Found",
                Treats::CutsTheStream => {
                    self.executed.fetch_add(1, Ordering::SeqCst);
                    *self.down.lock().await = None;
                },
                Treats::Answers => self.execute(id).await,
                Treats::SaysItIsGone => {
                    let error = json!({ "code": -32001, "message": "Session not found" });
                    self.send(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
                        .await;
                },
                Treats::ComplainsFirst => {
                    let error = json!({ "code": -32601, "message": "no such notification" });
                    self.send(json!({ "jsonrpc": "2.0", "id": null, "error": error }))
                        .await;
                    self.execute(id).await;
                },
                Treats::Asks => {
                    *self.waiting.lock().await = id;
                    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
                    self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params })).await;
                },
            },
            "answer" => {
                assert_eq!(message["result"]["action"], "accept");
                let id = self.waiting.lock().await.clone();
                self.execute(id).await;
            },
            _ => {},
        }
        "202 Accepted"
    }

    async fn execute(&self, id: Value) {
        self.executed.fetch_add(1, Ordering::SeqCst);
        let result = json!({ "content": [{ "type": "text", "text": "done" }] });
        self.send(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await;
    }

    async fn send(&self, message: Value) {
        let event = format!("event: message\r\ndata: {message}\r\n\r\n");
        let mut down = self.down.lock().await;
        down.as_mut()
            .unwrap()
            .write_all(event.as_bytes())
            .await
            .unwrap();
    }
}

async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head.to_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length:")
                    .map(|n| n.trim().parse::<usize>().unwrap())
            });
            let mut body = bytes[end + 4..].to_vec();
            while body.len() < length.unwrap_or(0) {
                body.push(stream.read_u8().await.ok()?);
            }
            return Some((head, body));
        }
        bytes.push(stream.read_u8().await.ok()?);
    }
}

/// Accepts every form.
struct Agreeable;

impl Listener for Agreeable {
    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        assert_eq!(question.kind, ServerRequestKind::Elicitation);
        let raw = Bytes::from_static(br#"{"action":"accept","content":{}}"#);
        Box::pin(std::future::ready(ServerRequestReply::Result(raw)))
    }
}

fn payment() -> Request {
    let params = Params::from_serialize(&json!({ "name": "pay", "arguments": {} })).unwrap();
    Request::new("tools/call", params)
}

#[tokio::test]
async fn a_call_is_answered_on_the_stream_and_a_question_on_the_way_too() {
    for treats in [Treats::Answers, Treats::Asks, Treats::ComplainsFirst] {
        let server = TwoEndpointServer::start(treats, "/messages?session=1").await;
        let session = server.open().await.unwrap();
        assert_eq!(session.facts().version.as_str(), "2024-11-05");
        for executed in 1..=2 {
            let ending = session.send(payment(), &Agreeable).await;
            let holds = matches!(ending, AttemptResult::Answered(Reply::Result(_)));
            assert!(holds, "{treats:?} {ending:?}");
            assert_eq!(server.executed.load(Ordering::SeqCst), executed);
        }
        session.close().await;
        let after = session.send(payment(), &()).await;
        assert_eq!(
            after.delivery(),
            Delivery::Unsent,
            "{treats:?}: a closed session sends nothing"
        );
    }
}

/// P8: the end of the stream is the end of the session.
#[tokio::test]
async fn a_stream_that_is_cut_leaves_its_calls_unknown_and_ends_the_session() {
    let server = TwoEndpointServer::start(Treats::CutsTheStream, "/messages?session=1").await;
    let session = server.open().await.unwrap();
    let AttemptResult::Failed(failure) = session.send(payment(), &()).await else {
        panic!("answered")
    };
    assert_eq!(failure.delivery(), Delivery::Unknown, "D94");
    assert_eq!(failure.diagnostic.reason, Reason::ReplyLost);
    assert_eq!(server.executed.load(Ordering::SeqCst), 1);
    assert_eq!(session.retired_reason(), Some(Reason::ReplyLost));
    let found = session.send(payment(), &()).await.delivery();
    assert_eq!(found, Delivery::Unsent);
}

/// P8: a lost session over HTTP+SSE is told as such.
#[tokio::test]
async fn a_forgotten_session_refuses_and_gives_the_request_back() {
    let server = TwoEndpointServer::start(Treats::ForgotTheSession, "/messages?session=1").await;
    let session = server.open().await.unwrap();
    let AttemptResult::Failed(failure) = session.send(payment(), &()).await else {
        panic!("answered")
    };
    assert_eq!(failure.delivery(), Delivery::Refused, "D95");
    assert!(failure.diagnostic.session_gone.is_some(), "{failure:?}");
    assert_eq!(server.executed.load(Ordering::SeqCst), 0);
    assert!(session.retired_reason().is_some());
}

/// reliability G10: over this transport every answer comes on the stream.
#[tokio::test]
async fn a_server_that_says_on_the_stream_that_the_session_is_gone_is_believed_where_asked_for() {
    let server = TwoEndpointServer::start(Treats::SaysItIsGone, "/messages?session=1").await;
    let session = server.open().await.unwrap();
    let ending = session.send(payment(), &()).await;
    let holds = matches!(ending, AttemptResult::Answered(Reply::Error(_)));
    assert!(holds, "{ending:?}");
    assert_eq!(session.retired_reason(), None);

    let wide = |server: &mut ServerTarget| server.session_gone_matching = SessionGoneMatching::Wide;
    let session = server.open_with(wide).await.unwrap();
    let AttemptResult::Failed(failure) = session.send(payment(), &()).await else {
        panic!("answered")
    };
    assert_eq!(failure.delivery(), Delivery::Unknown);
    let expected = Some(SessionGoneForm::InBand);
    assert_eq!(failure.diagnostic.session_gone, expected);
    assert_eq!(session.retired_reason(), Some(Reason::SessionGone));
}

#[tokio::test]
async fn a_session_of_two_endpoints_says_how_its_bytes_travel_and_cannot_be_kept() {
    let server = TwoEndpointServer::start(Treats::Answers, "/messages?session=1").await;
    let session = server.open().await.unwrap();
    assert_eq!(session.facts().transport, Transport::HttpSse);
    assert!(session.kept().is_none() && session.session_id().is_none());
}

#[tokio::test]
async fn an_endpoint_of_another_origin_is_not_posted_to() {
    let server = TwoEndpointServer::start(Treats::Answers, "http://localhost.invalid/steal").await;
    let trouble = server.open().await.unwrap_err();
    assert_eq!(trouble.reason, Reason::NotMcp, "D96: {trouble:?}");
    assert!(trouble.cause.unwrap().contains("another origin"));
}
