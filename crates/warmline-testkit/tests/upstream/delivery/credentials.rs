//! Credentials: the source is asked for every request, whatever the request is for, and nobody
//! else's header stands in its place.

use crate::prelude::*;

use std::sync::atomic::AtomicU64;

use http::{HeaderName, HeaderValue, header};
use warmline_upstream::HeaderSource;

use super::fixture::Expected::Result;
use super::scripted_server::{ReceivedRequest, ReplyStep, Stub};
use super::server_requests::EVERYTHING;

/// Gives another token each time it is asked, as if every one expired at once.
#[derive(Debug, Default)]
struct Fleeting(AtomicU64);

impl HeaderSource for Fleeting {
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        let value = HeaderValue::from_str(&format!("Bearer secret-{number}")).unwrap();
        Some((header::AUTHORIZATION, value))
    }
}

/// Answers every question.
struct Agreeable;

impl Listener for Agreeable {
    fn on_request(&self, _: ServerRequest) -> ReplyFuture<'_> {
        let raw = Bytes::from_static(br#"{"action":"accept","content":{}}"#);
        Box::pin(std::future::ready(ServerRequestReply::Result(raw)))
    }
}

fn described(stub: &Stub, era: Era) -> ServerTarget {
    stub.target(era)
}

async fn open(server: &ServerTarget) -> Session {
    let declared = ClientProfile {
        capabilities: EVERYTHING,
        ..ClientProfile::default()
    };
    Upstream::new().open(server, &declared).await.unwrap()
}

/// Asks first where a tool is called `ask`, never answers `slow`, and answers the rest.
fn script(body: &Value) -> Vec<ReplyStep> {
    let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete"}}"#;
    match body["params"]["name"].as_str() {
        Some("ask") => {
            let question = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}});
            vec![
                ReplyStep::Event(question.to_string()),
                ReplyStep::Answers(1),
                ReplyStep::Event(answer.to_owned()),
            ]
        },
        Some("slow") => vec![ReplyStep::Answers(usize::MAX)],
        _ => vec![ReplyStep::Json(answer.to_owned())],
    }
}

fn tokens(seen: &[ReceivedRequest]) -> Vec<String> {
    let shown = seen.iter().map(|one| one.header("authorization"));
    shown.map(|value| value.unwrap().to_owned()).collect()
}

/// A104, A119, P53: each request takes its token fresh, not only calls.
#[tokio::test]
async fn the_source_is_asked_for_every_request_of_a_session() {
    let stub = Stub::with_sessions(script).await;
    let mut server = described(&stub, Era::Legacy);
    server.credential = Some(Arc::new(Fleeting::default()));
    let session = open(&server).await;
    for name in ["plain", "ask", "plain"] {
        let ending = session.call(tool(name, &json!({})), &Agreeable).await;
        assert_eq!(Outcome::of(ending).ended, Result, "{name}");
    }
    let slow = tool("slow", &json!({}));
    tokio::select! {
        ending = session.call(slow, &()) => panic!("it ended: {ending:?}"),
        () = within(Duration::from_secs(5), || stub.of("tools/call").len() == 4) => {},
    }
    within(Duration::from_secs(5), || {
        stub.of("notifications/cancelled").len() == 1
    })
    .await;
    session.close().await;

    let seen = stub.seen();
    let mut shown = tokens(&seen);
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), seen.len(), "no token was used twice");
    let kinds = ["POST ", "GET ", "DELETE "];
    assert!(
        kinds
            .iter()
            .all(|kind| seen.iter().any(|one| one.head.starts_with(kind)))
    );
    assert_eq!(stub.answers().len(), 1, "an answer to a question");
}

/// A103: modern calls too, which have no session.
#[tokio::test]
async fn a_modern_call_carries_the_token_of_its_moment() {
    let stub = Stub::start(script).await;
    let mut server = described(&stub, Era::Modern);
    server.credential = Some(Arc::new(Fleeting::default()));
    let session = open(&server).await;
    for _ in 0..3 {
        let ending = session.call(tool("plain", &json!({})), &()).await;
        assert_eq!(Outcome::of(ending).ended, Result);
    }
    // Asked once more when the session was opened: it is redacted in what was seen then.
    let numbered = |number: usize| format!("Bearer secret-{number}");
    assert_eq!(tokens(&stub.seen()), [0, 2, 3, 4].map(numbered));
}

/// A100: headers of a call are its own, but never in the place of the credential.
#[tokio::test]
async fn a_header_of_a_call_never_stands_in_the_place_of_the_credential() {
    let secret = |text: &'static str| {
        let mut value = HeaderValue::from_static(text);
        value.set_sensitive(true);
        (header::AUTHORIZATION, value)
    };
    for era in [Era::Legacy, Era::Modern] {
        let mine = || {
            tool("plain", &json!({})).with_header(header::AUTHORIZATION, "mine".parse().unwrap())
        };
        let stub = Stub::start(script).await;
        let anonymous = described(&stub, era);
        let mut with_source = anonymous.clone();
        with_source.credential = Some(Arc::new(Fleeting::default()));
        let mut with_header = anonymous.clone();
        if let TransportConfig::Http(reach) = &mut with_header.transport {
            reach.headers.push(secret("the server's"));
        }
        let mut shown = Vec::new();
        for server in [anonymous, with_source, with_header] {
            let session = open(&server).await;
            let traced =
                mine().with_header("traceparent".parse().unwrap(), "00-1".parse().unwrap());
            assert_eq!(Outcome::of(session.call(traced, &()).await).ended, Result);
            let last = stub.of("tools/call").pop().unwrap();
            assert_eq!(last.header("traceparent"), Some("00-1"));
            shown.push(last.header("authorization").unwrap().to_owned());
        }
        assert_eq!(shown[0], "mine", "{era}: a server without a credential");
        assert!(shown[1].starts_with("Bearer secret-"), "{era}: {shown:?}");
        assert_eq!(shown[2], "the server's", "{era}");
    }
}

/// A source that has nothing to send sends nothing.
#[tokio::test]
async fn a_source_without_a_token_sends_no_header() {
    #[derive(Debug)]
    struct Empty;
    impl HeaderSource for Empty {
        fn header(&self) -> Option<(HeaderName, HeaderValue)> {
            None
        }
    }
    let stub = Stub::start(script).await;
    let mut server = described(&stub, Era::Legacy);
    server.credential = Some(Arc::new(Empty));
    let session = open(&server).await;
    let ending = session.call(tool("plain", &json!({})), &()).await;
    assert_eq!(Outcome::of(ending).ended, Result);
    let seen = stub.seen();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|one| one.header("authorization").is_none()));
}
