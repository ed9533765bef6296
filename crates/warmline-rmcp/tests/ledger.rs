//! A client of the official SDK over the ledger server: it runs unchanged, keeps its state, and
//! does not notice that its session was lost.

#![cfg(test)]
#![expect(deprecated, reason = "servers still ask for roots and write log lines")]

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ListRootsResult,
    LoggingMessageNotificationParam, ProgressNotificationParam, ResourceUpdatedNotificationParam,
    Root, RootsCapabilities, SubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::{ErrorData, RoleClient, Service, ServiceError, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::Notify;
use warmline::{Run, Server, Warmline};
use warmline_rmcp::WarmTransport;
use warmline_testkit::{Fault, FaultRule, FaultTiming, LedgerEntry, LedgerServer, Personality};

/// A server that keeps a ledger, and a run of an engine that calls it.
struct Stage {
    ledger: LedgerServer,
    warm: Warmline,
    run: Run,
}

impl Stage {
    fn new(personality: Personality) -> Self {
        let ledger = LedgerServer::start(personality).unwrap();
        let server = Server::http("lamp", ledger.url());
        let warm = Warmline::builder().server(server).build().unwrap();
        let run = warm.begin_run();
        Self { ledger, warm, run }
    }

    fn transport(&self) -> WarmTransport {
        WarmTransport::new(self.run.server("lamp").unwrap())
    }

    /// The same stage, and a client of its run.
    async fn with_client() -> (Self, RunningService<RoleClient, ()>) {
        let stage = Self::new(Personality::legacy());
        let client = served(&stage.run).await;
        (stage, client)
    }

    /// Waits until the server has a line of this kind.
    async fn recorded(&self, is_it: impl Fn(&LedgerEntry) -> bool) {
        let waiting = self
            .ledger
            .ledger()
            .wait_until(PATIENCE, |lines| lines.iter().any(&is_it));
        assert!(waiting.await, "it never came");
    }

    async fn end(self, client: RunningService<RoleClient, impl Service<RoleClient>>) {
        client.cancel().await.unwrap();
        self.run.end().await;
    }
}

async fn served(run: &Run) -> RunningService<RoleClient, ()> {
    let transport = WarmTransport::new(run.server("lamp").unwrap());
    ().serve(transport).await.unwrap()
}

fn call(tool: &'static str, arguments: &Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(Cow::Borrowed(tool)).with_arguments(arguments)
}

fn text(result: &CallToolResult) -> String {
    let result = serde_json::to_value(result).unwrap();
    let blocks = result["content"].as_array().unwrap();
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Counts up in the session, and says what else the result tells.
async fn count_and_hear(client: &RunningService<RoleClient, ()>) -> (i64, Vec<String>) {
    let result = client.call_tool(call("counter", &json!({}))).await.unwrap();
    let mut lines: Vec<String> = text(&result).lines().map(str::to_owned).collect();
    let counted: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    (counted["count"].as_i64().unwrap(), lines)
}

async fn count(client: &RunningService<RoleClient, ()>) -> i64 {
    let (count, told) = count_and_hear(client).await;
    assert_eq!(told, Vec::<String>::new());
    count
}

/// A12, A13, A17, A22: a client of the SDK keeps its state over calls, in one session; a second
/// client of the same run shares it, and closing one closes nothing.
#[tokio::test]
async fn a_client_of_the_sdk_keeps_its_state_over_calls() {
    let (stage, client) = Stage::with_client().await;
    let info = client.peer_info().unwrap();
    assert!(info.capabilities.tools.is_some());
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "counter"));
    assert_eq!(count(&client).await, 1);
    assert_eq!(count(&client).await, 2);
    let second = served(&stage.run).await;
    assert_eq!(count(&second).await, 3);
    client.cancel().await.unwrap();
    assert_eq!(count(&second).await, 4);
    assert_eq!(stage.ledger.ledger().messages_received("initialize"), 1);
    assert_eq!(stage.ledger.violations(), Vec::<String>::new());
    second.cancel().await.unwrap();
    stage.run.end().await;
    assert_eq!(stage.ledger.counts().open_sessions, 0);
}

/// A15: two runs, two sessions.
#[tokio::test]
async fn clients_of_two_runs_never_share_a_session() {
    let stage = Stage::new(Personality::legacy());
    for _ in 0..2 {
        let run = stage.warm.begin_run();
        let client = served(&run).await;
        assert_eq!(count(&client).await, 1);
        client.cancel().await.unwrap();
        run.end().await;
    }
}

/// A48, A120: the server forgets the session; the call is sent again on a new one, and says that
/// what earlier calls left is gone.
#[tokio::test]
async fn a_lost_session_is_healed_under_the_client() {
    let (stage, client) = Stage::with_client().await;
    assert_eq!(count(&client).await, 1);
    stage.ledger.control().forget_sessions();
    let (healed, told) = count_and_hear(&client).await;
    assert_eq!((healed, told.len()), (1, 1), "the model is told: {told:?}");
    assert_eq!(count(&client).await, 2);
    assert_eq!(stage.ledger.ledger().messages_received("initialize"), 2);
    stage.end(client).await;
}

/// A128, P84: a payment whose answer was lost is not made again, and the error says that it may
/// have been executed.
#[tokio::test]
async fn an_answer_that_was_lost_is_told_truthfully() {
    let (stage, client) = Stage::with_client().await;
    let cut = Fault::Cut(
        warmline_testkit::CutPoint::AfterExecuting,
        warmline_testkit::ConnectionEnd::Rst,
    );
    stage.ledger.inject(FaultRule::new(cut).on_tool("pay"));
    let paid = client.call_tool(call("pay", &json!({ "amount": 5 }))).await;
    let Err(ServiceError::McpError(error)) = paid else {
        panic!("the answer was lost: {paid:?}");
    };
    let holds = error.message.contains("may have been executed");
    assert!(holds, "{error:?}");
    let data = error.data.unwrap();
    assert_eq!(data["delivery"], "unknown");
    assert_eq!(data["code"], "answer-lost");
    assert_eq!(stage.ledger.ledger().executions("pay"), 1);
    stage.end(client).await;
}

/// An error of the server is the server's: nothing of it is changed.
#[tokio::test]
async fn an_error_of_the_server_is_passed_on_as_it_is() {
    let (stage, client) = Stage::with_client().await;
    stage.ledger.inject(
        FaultRule::new(Fault::Error {
            code: -32042,
            message: "not today".to_owned(),
            data: json!({ "until": "tomorrow" }),
        })
        .on_tool("echo"),
    );
    let echoed = client.call_tool(call("echo", &json!({}))).await;
    let Err(ServiceError::McpError(error)) = echoed else {
        panic!("the server refused: {echoed:?}");
    };
    let received = (error.code.0, error.message.as_ref());
    assert_eq!(received, (-32042, "not today"));
    assert_eq!(error.data, Some(json!({ "until": "tomorrow" })));
    stage.end(client).await;
}

/// P71, P72, P80: a call that is dropped is cancelled at the server, and the next one works.
#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let (stage, client) = Stage::with_client().await;
    let slow = client.call_tool(call("slow", &json!({ "ms": 600_000 })));
    let begun = stage.recorded(|line| line.tool.as_deref() == Some("slow"));
    tokio::select! {
        slow = slow => panic!("it takes its time: {slow:?}"),
        () = begun => {},
    }
    let is_cancelled = |line: &LedgerEntry| line.method == "notifications/cancelled";
    stage.recorded(is_cancelled).await;
    assert_eq!(count(&client).await, 1);
    stage.end(client).await;
}

/// A client that hears and answers.
#[derive(Clone, Debug, Default)]
struct Listening(Arc<Mutex<Vec<String>>>, Arc<Notify>);

impl Listening {
    fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl ClientHandler for Listening {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities.roots = Some(RootsCapabilities::default());
        info
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.note(format!("progress {}", progress.progress));
    }

    async fn on_logging_message(
        &self,
        _line: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.note("log".to_owned());
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note("tools changed".to_owned());
        self.1.notify_one();
    }

    async fn on_resource_updated(
        &self,
        updated: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.note(format!("{} updated", updated.uri));
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.note("asked for roots".to_owned());
        Ok(ListRootsResult::new(vec![Root::new("file:///home/ada")]))
    }
}

/// P77, P79: progress, log lines and questions reach the client in both eras; its answer reaches
/// the server.
#[tokio::test]
async fn news_and_questions_reach_the_client_in_both_eras() {
    for personality in [Personality::legacy(), Personality::modern()] {
        let stage = Stage::new(personality);
        let handler = Listening::default();
        let client = handler.clone().serve(stage.transport()).await.unwrap();
        let steps = json!({ "steps": 3, "pause_ms": 0 });
        client.call_tool(call("progress", &steps)).await.unwrap();
        let asked = client
            .call_tool(call("ask_roots", &json!({ "rounds": 1 })))
            .await;
        assert!(text(&asked.unwrap()).contains("file:///home/ada"));
        let heard = handler.heard();
        let holds = heard.iter().any(|what| what.starts_with("progress"));
        assert!(holds, "{heard:?}");
        assert!(heard.contains(&"asked for roots".to_owned()), "{heard:?}");
        stage.end(client).await;
    }
}

/// P81: the tools change; a client hears of it, though it has no call under way.
#[tokio::test]
async fn a_client_hears_of_lists_that_change_between_its_calls() {
    let stage = Stage::new(Personality::legacy());
    let handler = Listening::default();
    let transport = stage.transport().with_events(stage.warm.events());
    let idle = handler.clone().serve(transport).await.unwrap();
    let busy = served(&stage.run).await;
    // A server is listened to while a call runs that it could ask about.
    let slow = busy.call_tool(call("slow", &json!({ "ms": 600_000 })));
    let hearing = async {
        while stage.ledger.control().open_get_streams() == 0 {
            tokio::task::yield_now().await;
        }
        stage.ledger.control().change_tools();
        handler.1.notified().await;
    };
    tokio::select! {
        slow = slow => panic!("it takes its time: {slow:?}"),
        told = tokio::time::timeout(PATIENCE, hearing) => {
            assert!(told.is_ok(), "{:?}", handler.heard());
        },
    }
    assert_eq!(handler.heard(), ["tools changed"]);
    busy.cancel().await.unwrap();
    stage.end(idle).await;
}

/// Waits until it is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "{what}");
}

/// P90, P91: what a session says and asks outside any call reaches its client, also after the
/// session was replaced; what the client tells reaches the session.
#[tokio::test]
async fn a_client_hears_its_session_between_calls_and_is_heard() {
    let stage = Stage::new(Personality::legacy());
    let control = stage.ledger.control();
    let handler = Listening::default();
    let transport = stage.transport().with_events(stage.warm.events());
    let client = handler.clone().serve(transport).await.unwrap();
    let uri = "ledger://entries";
    client
        .subscribe(SubscribeRequestParams::new(uri))
        .await
        .unwrap();
    let has_heard = |what: &str| handler.heard().iter().filter(|said| *said == what).count();
    let updated = format!("{uri} updated");
    until("it is listened to", || control.open_get_streams() == 1).await;
    control.update_resource(uri);
    until("an update is heard", || has_heard(&updated) == 1).await;
    control.change_tools();
    until("of tools", || has_heard("tools changed") == 1).await;
    control.send_server_request("roots/list", &json!({}));
    until("a question", || has_heard("asked for roots") == 1).await;
    let line = json!({ "level": "info", "data": "by the way" });
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": line });
    control.send_on_get_streams(&message);
    until("a log line", || has_heard("log") == 1).await;

    control.forget_sessions();
    client.call_tool(call("counter", &json!({}))).await.unwrap();
    let is_so = || control.open_get_streams() == 1;
    until("the new one is listened to", is_so).await;
    control.update_resource(uri);
    until("an update of the new one", || has_heard(&updated) == 2).await;

    client.notify_roots_list_changed().await.unwrap();
    stage
        .recorded(|line| line.method == "notifications/roots/list_changed")
        .await;
    client.cancel().await.unwrap();
    stage.run.end().await;
    stage.warm.close().await;
    assert_eq!(stage.ledger.violations(), Vec::<String>::new());
    let ledger = stage.ledger.ledger();
    assert_eq!(
        ledger.messages_received("notifications/roots/list_changed"),
        1
    );
}

/// A notification that could not be delivered is not called sent.
#[tokio::test]
async fn a_server_that_could_not_be_told_is_an_error() {
    let (stage, client) = Stage::with_client().await;
    assert_eq!(count(&client).await, 1);
    drop(stage.ledger);
    let told = client.notify_roots_list_changed().await;
    assert!(matches!(told, Err(ServiceError::TransportSend(_))));
    client.cancel().await.unwrap();
    stage.run.end_now().await;
    stage.warm.close().await;
}

/// A server that never answers and a client that ends: nothing is left behind.
#[tokio::test]
async fn a_client_that_ends_cancels_its_calls() {
    let (stage, client) = Stage::with_client().await;
    stage
        .ledger
        .inject(FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).on_tool("echo"));
    let peer = client.peer().clone();
    let waiting = peer.call_tool(call("echo", &json!({})));
    let ending = async {
        let is_call = |line: &LedgerEntry| line.tool.as_deref() == Some("echo");
        stage.recorded(is_call).await;
        client.cancel().await.unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, ending);
    assert!(waited.is_err());
    stage.run.end().await;
    stage.warm.close().await;
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
