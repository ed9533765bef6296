use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_immediate};
use rmcp::model::NumberOrString;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use warmline_core::era::Version;
use warmline_core::exchange::{Notification, ServerRequest};
use warmline_core::pool_key::Transport;
use warmline_upstream::{ClientProfile, ServerFacts, UnsolicitedListener};

use super::*;

/// A server that answers when the test says so.
#[derive(Clone, Debug, Default)]
struct Stage(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    declared: Option<ClientProfile>,
    facts: Option<ServerFacts>,
    asked: Vec<(String, Value)>,
    pending: BTreeMap<String, Pending>,
    dropped: Vec<String>,
    told: Vec<String>,
    ear: Option<Arc<dyn UnsolicitedListener>>,
}

/// Attends until it is dropped.
#[derive(Debug)]
struct Sitting(Stage);

impl ActiveSubscription for Sitting {
    fn is_ended(&self) -> bool {
        false
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        self.0.script().ear = None;
    }
}

struct Pending {
    listener: Arc<dyn Listener>,
    answer: oneshot::Sender<Result<Bytes, ErrorData>>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// Writes down that a call was dropped before its answer.
struct Watch(Stage, Option<String>);

impl Watch {
    fn answered(&mut self) {
        self.1 = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(method) = self.1.take() {
            self.0.script().dropped.push(method);
        }
    }
}

impl Stage {
    fn of(era: Era, version: Version) -> Self {
        let stage = Self::default();
        stage.script().facts = Some(ServerFacts {
            era,
            version,
            transport: Transport::Http,
            keeps_session: true,
            server_info: Some(Bytes::from_static(br#"{"name":"stage","version":"7"}"#)),
            capabilities: Bytes::from_static(br#"{"tools":{"listChanged":true}}"#),
            instructions: Some("be kind".to_owned()),
            evidence: Vec::new(),
            open_duration: Duration::ZERO,
            expires_in: None,
            handshake_result: None,
            learned_at: None,
        });
        stage
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    fn pending(&self, method: &str) -> Pending {
        self.script().pending.remove(method).expect("it was asked")
    }

    fn listener(&self, method: &str) -> Arc<dyn Listener> {
        Arc::clone(&self.script().pending[method].listener)
    }

    fn answer(&self, method: &str, result: Value) {
        let result = Bytes::from(result.to_string());
        self.pending(method).answer.send(Ok(result)).unwrap();
    }
}

impl Backend for Stage {
    fn name(&self) -> &str {
        "stage"
    }

    fn with_client_profile(&self, declared: ClientProfile) -> Self {
        self.script().declared = Some(declared);
        self.clone()
    }

    fn facts(&self) -> impl Future<Output = Result<Arc<ServerFacts>, ErrorData>> + Send + 'static {
        let facts = self.script().facts.clone();
        let gone = || ErrorData::internal_error("nobody is there", None);
        std::future::ready(facts.map(Arc::new).ok_or_else(gone))
    }

    fn request(
        &self,
        method: String,
        params: Params,
        listener: Arc<dyn Listener>,
    ) -> BoxFuture<'static, Result<Bytes, ErrorData>> {
        let (answer, told) = oneshot::channel();
        let params = serde_json::from_slice(params.raw()).unwrap();
        let mut script = self.script();
        script.asked.push((method.clone(), params));
        let pending = Pending { listener, answer };
        script.pending.insert(method.clone(), pending);
        let mut watch = Watch(self.clone(), Some(method));
        Box::pin(async move {
            let answer = told.await.unwrap();
            watch.answered();
            answer
        })
    }

    fn notify(&self, method: String, _params: Params) -> PendingNotification {
        let stage = self.clone();
        Box::pin(async move {
            stage.script().told.push(method);
            Ok(())
        })
    }

    fn subscribe(&self, ear: Arc<dyn UnsolicitedListener>) -> Option<Box<dyn ActiveSubscription>> {
        self.script().ear = Some(ear);
        Some(Box::new(Sitting(self.clone())))
    }
}

fn outgoing(message: Value) -> MessageFromClient {
    serde_json::from_value(message).unwrap()
}

fn request(id: i64, method: &str, params: Value) -> MessageFromClient {
    outgoing(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn notice(method: &str, params: Value) -> MessageFromClient {
    outgoing(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

fn hello(version: &str) -> MessageFromClient {
    let params = json!({
        "protocolVersion": version,
        "capabilities": { "sampling": {}, "elicitation": {} },
        "clientInfo": { "name": "agent", "version": "3" },
    });
    request(0, "initialize", params)
}

async fn heard(conversation: &mut ClientTask<Stage>) -> Value {
    let message = conversation.next_message().await.expect("it is open");
    serde_json::to_value(&message).unwrap()
}

async fn is_silent(conversation: &mut ClientTask<Stage>) -> bool {
    poll_immediate(conversation.next_message()).await.is_none()
}

async fn greeted(stage: &Stage) -> ClientTask<Stage> {
    let mut conversation = ClientTask::new(stage.clone());
    conversation.handle_message(hello("2025-11-25")).unwrap();
    heard(&mut conversation).await;
    conversation
}

#[tokio::test]
async fn initialize_is_answered_in_the_words_of_the_server() {
    let table = [
        (
            Era::Legacy,
            Version::V2025_06_18,
            "2025-11-25",
            "2025-06-18",
        ),
        (
            Era::Legacy,
            Version::V2025_11_25,
            "2025-06-18",
            "2025-06-18",
        ),
        (
            Era::Legacy,
            Version::V2025_06_18,
            "2026-07-28",
            "2025-11-25",
        ),
        (
            Era::Modern,
            Version::V2026_07_28,
            "2025-06-18",
            "2025-06-18",
        ),
    ];
    for (era, version, offered, told) in table {
        let stage = Stage::of(era, version);
        let mut conversation = ClientTask::new(stage.clone());
        conversation.handle_message(hello(offered)).unwrap();
        let result = &heard(&mut conversation).await["result"];
        assert_eq!(result["protocolVersion"], told);
        assert_eq!(result["serverInfo"]["name"], "stage");
        assert_eq!(result["instructions"], "be kind");
        assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
        let declared = stage.script().declared.clone().unwrap();
        assert_eq!(declared.client_name, "agent");
        let said: Value = serde_json::from_slice(&declared.capabilities).unwrap();
        assert!(said.get("sampling").is_some());
        assert!(stage.script().asked.is_empty(), "nothing was sent");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_had_is_an_error_of_initialize() {
    let mut conversation = ClientTask::new(Stage::default());
    conversation.handle_message(hello("2025-11-25")).unwrap();
    let error = &heard(&mut conversation).await["error"];
    assert_eq!(error["message"], "nobody is there");
}

#[tokio::test]
async fn a_client_that_asks_for_the_modern_way_is_shown_the_legacy_one() {
    let mut conversation = ClientTask::new(Stage::default());
    let discover = request(1, "server/discover", json!({}));
    conversation.handle_message(discover).unwrap();
    assert_eq!(heard(&mut conversation).await["error"]["code"], -32601);
}

/// P79: news comes before the answer, under the client's own token.
#[tokio::test]
async fn news_comes_before_the_answer_and_under_the_clients_token() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    let params = json!({ "name": "dig", "_meta": { "progressToken": "mine" } });
    conversation
        .handle_message(request(1, "tools/call", params))
        .unwrap();
    assert!(is_silent(&mut conversation).await);
    let listener = stage.listener("tools/call");
    let progress = br#"{"progressToken":99,"progress":1}"#;
    listener.on_notification(Notification::Progress(Bytes::from_static(progress)));
    let line = br#"{"level":"info","data":"deep"}"#;
    listener.on_notification(Notification::Log(Bytes::from_static(line)));
    stage.answer("tools/call", json!({ "content": [], "isError": false }));
    let first = heard(&mut conversation).await;
    assert_eq!(first["method"], "notifications/progress");
    assert_eq!(first["params"]["progressToken"], "mine");
    let second = heard(&mut conversation).await;
    assert_eq!(second["method"], "notifications/message");
    let third = heard(&mut conversation).await;
    assert_eq!(
        (&third["id"], third["result"].is_object()),
        (&json!(1), true)
    );
}

/// P72, P80: a cancelled call is dropped at once, and others are not.
#[tokio::test]
async fn a_cancelled_call_is_dropped_and_the_others_go_on() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    conversation
        .handle_message(request(1, "tools/call", json!({ "name": "dig" })))
        .unwrap();
    conversation
        .handle_message(request(2, "tools/list", json!({})))
        .unwrap();
    assert!(is_silent(&mut conversation).await);
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 },
    });
    conversation.handle_message(outgoing(cancel)).unwrap();
    assert!(is_silent(&mut conversation).await);
    assert_eq!(stage.script().dropped, ["tools/call"]);
    stage.answer("tools/list", json!({ "tools": [] }));
    assert_eq!(heard(&mut conversation).await["id"], 2);
}

/// P77, P78: a question reaches the client of the call, and its answer goes back.
#[tokio::test]
async fn a_question_is_put_to_the_client_and_answered() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    conversation
        .handle_message(request(1, "tools/call", json!({ "name": "ask" })))
        .unwrap();
    let listener = stage.listener("tools/call");
    let roots = || ServerRequest::new("roots/list", Bytes::from_static(b"{}"));
    let answering = async {
        let asked = heard(&mut conversation).await;
        assert_eq!(asked["method"], "roots/list");
        let result = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } });
        conversation.handle_message(outgoing(result)).unwrap();
    };
    let (answer, ()) = tokio::join!(listener.on_request(roots()), answering);
    let ServerRequestReply::Result(raw) = answer else {
        panic!("it was answered");
    };
    let raw: Value = serde_json::from_slice(&raw).unwrap();
    assert_eq!(raw["roots"], json!([]));

    let declining = async {
        let asked = heard(&mut conversation).await;
        let error = json!({ "code": -1, "message": "no" });
        let error = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
        conversation.handle_message(outgoing(error)).unwrap();
    };
    let (answer, ()) = tokio::join!(listener.on_request(roots()), declining);
    assert!(matches!(answer, ServerRequestReply::Error(_)));
}

#[tokio::test]
async fn a_question_that_nobody_wants_answered_any_more_is_withdrawn() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    conversation
        .handle_message(request(1, "tools/call", json!({ "name": "ask" })))
        .unwrap();
    let listener = stage.listener("tools/call");
    let question = ServerRequest::new("roots/list", Bytes::from_static(b"{}"));
    {
        let mut given_up = listener.on_request(question);
        assert!(poll_immediate(&mut given_up).await.is_none());
    }
    let asked = heard(&mut conversation).await;
    let withdrawn = heard(&mut conversation).await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    // A late answer of the client harms nobody.
    let id = asked["id"].as_i64().map(NumberOrString::Number).unwrap();
    let questions = &conversation.channel.server_requests;
    questions.resolve(&id, ServerRequestReply::Declined);
}

/// What the client tells goes up where its server's era has such, and never what is ours.
#[tokio::test]
async fn what_a_client_tells_reaches_its_server() {
    let (roots, progress) = ("notifications/roots/list_changed", "notifications/progress");
    let extension = "notifications/example.org/seen";
    for (era, version, told) in [
        (
            Era::Legacy,
            Version::V2025_11_25,
            vec![roots, progress, extension],
        ),
        (Era::Modern, Version::V2026_07_28, vec![extension]),
    ] {
        let stage = Stage::of(era, version);
        let mut conversation = greeted(&stage).await;
        for (method, params) in [
            ("notifications/initialized", json!({})),
            (roots, json!({})),
            (
                progress,
                json!({ "progressToken": "theirs", "progress": 1 }),
            ),
            (extension, json!({})),
            ("notifications/cancelled", json!({ "requestId": 77 })),
        ] {
            let telling = conversation.handle_message(notice(method, params)).unwrap();
            if let Some(telling) = telling {
                telling.await.unwrap();
            }
        }
        assert_eq!(stage.script().told, told);
    }
}

/// What a server says and asks outside any call reaches a client that is ready, until it ends.
#[tokio::test]
async fn what_a_server_says_between_calls_reaches_the_client() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    assert!(stage.script().ear.is_none(), "it is not ready yet");
    let ready = notice("notifications/initialized", json!({}));
    conversation.handle_message(ready).unwrap();
    let ear = stage.script().ear.clone().unwrap();
    ear.on_notification("notifications/resources/updated", br#"{"uri":"a://b"}"#);
    let updated = heard(&mut conversation).await;
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "a://b");
    let roots = ServerRequest::new("roots/list", Bytes::from_static(b"{}"));
    let answering = async {
        let asked = heard(&mut conversation).await;
        assert_eq!(asked["method"], "roots/list");
        let result = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } });
        conversation.handle_message(outgoing(result)).unwrap();
    };
    let (answer, ()) = tokio::join!(ear.on_request(roots).unwrap(), answering);
    assert!(matches!(answer, ServerRequestReply::Result(_)));
    conversation.close();
    assert!(stage.script().ear.is_none(), "nobody hears any more");
}

/// reliability P10: news that come faster than they are taken away hold up no call.
#[tokio::test]
async fn a_call_is_answered_though_the_news_never_end() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    let ready = notice("notifications/initialized", json!({}));
    conversation.handle_message(ready).unwrap();
    let ear = stage.script().ear.clone().unwrap();
    let call = request(1, "tools/call", json!({ "name": "dig" }));
    conversation.handle_message(call).unwrap();
    assert!(is_silent(&mut conversation).await);
    stage.answer("tools/call", json!({ "content": [] }));
    for _ in 0..5 {
        ear.on_notification("notifications/resources/updated", br#"{"uri":"a://b"}"#);
        ear.on_notification("notifications/resources/updated", br#"{"uri":"a://c"}"#);
        if heard(&mut conversation).await["id"] == 1 {
            return;
        }
    }
    panic!("the call waits for the news to end");
}

#[tokio::test]
async fn a_modern_server_is_spared_what_it_does_not_know() {
    let stage = Stage::of(Era::Modern, Version::V2026_07_28);
    let mut conversation = greeted(&stage).await;
    conversation
        .handle_message(request(1, "ping", json!({})))
        .unwrap();
    assert_eq!(heard(&mut conversation).await["result"], json!({}));
    let level = request(2, "logging/setLevel", json!({ "level": "debug" }));
    conversation.handle_message(level).unwrap();
    assert_eq!(heard(&mut conversation).await["result"], json!({}));
    assert!(stage.script().asked.is_empty());
    let call = request(3, "tools/call", json!({ "name": "dig" }));
    conversation.handle_message(call).unwrap();
    let (method, params) = stage.script().asked[0].clone();
    assert_eq!(method, "tools/call");
    assert_eq!(params["_meta"][LOG_LEVEL], "debug");
}

/// P36, P76: ending the conversation cancels its calls and says so.
#[tokio::test]
async fn an_ended_conversation_has_nothing_more_to_say() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    conversation
        .handle_message(request(1, "tools/call", json!({ "name": "dig" })))
        .unwrap();
    conversation.close();
    assert!(conversation.next_message().await.is_none());
    assert_eq!(stage.script().dropped, ["tools/call"]);
}

#[tokio::test]
async fn a_result_that_is_no_json_is_an_error_of_its_call() {
    let stage = Stage::of(Era::Legacy, Version::V2025_11_25);
    let mut conversation = greeted(&stage).await;
    conversation
        .handle_message(request(1, "tools/list", json!({})))
        .unwrap();
    let torn = Bytes::from_static(b"{\"tools\":");
    stage.pending("tools/list").answer.send(Ok(torn)).unwrap();
    let heard = heard(&mut conversation).await;
    assert_eq!(
        (&heard["id"], &heard["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
}
