//! The ledger server over pipes: one client, one process, one line for each message.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Notify, mpsc};

use crate::faults::corrupt_reply::reply_messages;
use crate::faults::fault::{CutPoint, ExecuteFirst, Fault, FaultTiming};
use crate::faults::personality::{EraLock, LegacySupport, ModernSupport};
use crate::ledger::{ExecutionPhase, MessageInfo, recorded_arguments};
use crate::server::call::{Call, Era, ReplyOverrides};
use crate::server::message::{MessageKind, RpcError, message_kind, response};
use crate::server::message_stream::MessageStream;
use crate::server::methods;
use crate::server::state::{LedgerServerState, Session};

/// The name of the one session of a pipe, in the ledger.
const STDIO_SESSION: &str = "stdio";

/// Why a server over pipes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitReason {
    /// The client closed the server's input.
    InputEnded,
    /// It was told to crash.
    Crashed,
}

/// What goes to the client.
enum OutputCommand {
    Bytes(Vec<u8>),
    /// Close the output and live on.
    Close,
}

/// One client on a pair of pipes.
struct StdioConnection {
    state: Arc<LedgerServerState>,
    output: mpsc::Sender<OutputCommand>,
}

/// Serves a client until its input ends, or the server is told to crash.
///
/// After `read_limit` messages nothing is read any more.
pub(crate) async fn serve_stdio<R, W>(
    state: Arc<LedgerServerState>,
    input: R,
    output: W,
    read_limit: Option<u64>,
) -> io::Result<ExitReason>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, outgoing) = mpsc::channel(1024);
    let writer = tokio::spawn(write_output(output, outgoing));
    let pipe = Arc::new(StdioConnection {
        state: Arc::clone(&state),
        output: out,
    });
    let ending = tokio::select! {
        biased;
        () = state.crash_signal.notified() => Ok(ExitReason::Crashed),
        read = read_messages(&pipe, input, read_limit) => read.map(|()| ExitReason::InputEnded),
    };
    writer.abort();
    ending
}

async fn write_output<W: AsyncWrite + Unpin>(
    output: W,
    mut outgoing: mpsc::Receiver<OutputCommand>,
) {
    let mut output = Some(output);
    while let Some(out) = outgoing.recv().await {
        match (out, output.as_mut()) {
            (OutputCommand::Bytes(bytes), Some(open)) => {
                let written = open.write_all(&bytes).await;
                if written.is_err() || open.flush().await.is_err() {
                    output = None;
                }
            },
            (OutputCommand::Close, Some(open)) => {
                drop(open.shutdown().await);
                output = None;
            },
            (OutputCommand::Bytes(_) | OutputCommand::Close, None) => {},
        }
    }
}

async fn read_messages<R>(
    pipe: &Arc<StdioConnection>,
    input: R,
    limit: Option<u64>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
{
    let mut lines = BufReader::new(input);
    let mut count = 0;
    loop {
        if limit.is_some_and(|limit| count >= limit) {
            std::future::pending::<()>().await;
        }
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        count += 1;
        match serde_json::from_slice(&line) {
            Ok(message) => pipe.handle_message(message),
            Err(_) => pipe.state.record_violation("a line on stdin is not JSON"),
        }
    }
}

impl StdioConnection {
    fn handle_message(self: &Arc<Self>, message: Value) {
        self.state.counters.requests.fetch_add(1, Ordering::Relaxed);
        let facts = self.message_info(&message);
        self.state.ledger.record(ExecutionPhase::Received, &facts);
        match message_kind(&message) {
            MessageKind::Request => {
                let fault = self.state.take_fault(&facts, &message);
                drop(tokio::spawn(
                    Arc::clone(self).handle_request(message, facts, fault),
                ));
            },
            MessageKind::Notification => self.handle_notification(&message),
            MessageKind::Response => self.settle_server_request(message),
            MessageKind::Malformed => self
                .state
                .record_violation("a line is not one JSON-RPC message"),
        }
    }

    fn message_info(&self, message: &Value) -> MessageInfo {
        let params = &message["params"];
        let method = message["method"]
            .as_str()
            .unwrap_or("(response)")
            .to_owned();
        let tool = (method == "tools/call").then(|| params["name"].as_str().unwrap_or_default());
        let era = self.message_era(message);
        MessageInfo {
            era: era.as_str(),
            connection: 1,
            session: (era == Era::Legacy).then(|| STDIO_SESSION.to_owned()),
            arguments: recorded_arguments(message),
            tool: tool.map(str::to_owned),
            method,
            meta: params["_meta"].clone(),
            id: message["id"].clone(),
            credential: None,
            extra_headers: BTreeMap::new(),
        }
    }

    fn message_era(&self, message: &Value) -> Era {
        let meta = &message["params"]["_meta"];
        let claims = meta
            .get("io.modelcontextprotocol/protocolVersion")
            .is_some();
        match self.state.personality.modern {
            ModernSupport::Unknown => Era::Legacy,
            ModernSupport::Served | ModernSupport::RefusedByVersion if claims => Era::Modern,
            ModernSupport::Served | ModernSupport::RefusedByVersion => Era::Legacy,
        }
    }

    async fn handle_request(
        self: Arc<Self>,
        message: Value,
        facts: MessageInfo,
        fault: Option<Fault>,
    ) {
        let id = facts.id.clone();
        if self.apply_early_fault(&id, fault.as_ref()).await == FaultFlow::Stop {
            return;
        }
        let quirk = fault
            .as_ref()
            .map(ReplyOverrides::from_fault)
            .unwrap_or_default();
        let era = self.message_era(&message);
        let call = Call {
            state: Arc::clone(&self.state),
            era,
            session: facts.session.clone(),
            id: id.clone(),
            method: facts.method.clone(),
            params: message["params"].clone(),
            stream: MessageStream::new(format!("p{}", self.state.next_stream_number())),
            info: facts,
            overrides: quirk,
            cancel_signal: Arc::new(Notify::new()),
        };
        if let Some(error) = self.check_request(&call) {
            // What is not executed is late all the same.
            tokio::time::sleep(call.overrides.delay).await;
            return self.send_message(&response(&id, &Err(error))).await;
        }
        let stream = Arc::clone(&call.stream);
        drop(tokio::spawn(call.run()));
        self.forward_stream(&stream, fault.as_ref()).await;
    }

    /// Faults that strike before anything is done.
    async fn apply_early_fault(&self, id: &Value, fault: Option<&Fault>) -> FaultFlow {
        let line = match fault {
            Some(Fault::ForgetSessions) => {
                self.state.forget_sessions();
                return FaultFlow::Continue;
            },
            Some(Fault::Silence(FaultTiming::BeforeExecuting)) => return FaultFlow::Stop,
            Some(Fault::Crash(FaultTiming::BeforeExecuting)) => {
                self.state.crash_signal.notify_one();
                return FaultFlow::Stop;
            },
            Some(Fault::Cut(CutPoint::BeforeExecuting, _)) => {
                self.send(OutputCommand::Close).await;
                return FaultFlow::Stop;
            },
            Some(Fault::Error {
                code,
                message,
                data,
            }) => {
                let mut error = RpcError::new(*code, message.as_str());
                error.data = (!data.is_null()).then(|| data.clone());
                response(id, &Err(error)).to_string()
            },
            Some(Fault::Result(result)) => response(id, &Ok(result.clone())).to_string(),
            Some(Fault::Reply(canned)) if canned.execute_first == ExecuteFirst::No => {
                crate::faults::dialects::fill_placeholders(&canned.body, id, None)
            },
            _ => return FaultFlow::Continue,
        };
        self.send(OutputCommand::Bytes(format!("{line}\n").into_bytes()))
            .await;
        FaultFlow::Stop
    }

    /// The rules of the eras on a pipe.
    fn check_request(self: &Arc<Self>, call: &Call) -> Option<RpcError> {
        match call.era {
            Era::Modern => self.check_modern_request(call),
            Era::Legacy => self.check_legacy_request(call),
        }
    }

    /// A pipe that has turned modern may refuse to turn back.
    fn era_lock_error(&self, call: &Call) -> Option<RpcError> {
        let personality = &self.state.personality;
        let locked = personality.era_lock == EraLock::FirstWins && self.state.memory().seen_modern;
        locked.then(|| {
            let requested = &call.params["protocolVersion"];
            let data = json!({"supported": personality.modern_versions, "requested": requested});
            RpcError::with_data(
                -32022,
                "connection is serving the 2026-07-28 protocol",
                data,
            )
        })
    }

    fn check_modern_request(&self, call: &Call) -> Option<RpcError> {
        self.state.memory().seen_modern = true;
        let meta = &call.params["_meta"];
        if !meta["io.modelcontextprotocol/clientCapabilities"].is_object() {
            self.state
                .record_violation("params._meta lacks io.modelcontextprotocol/clientCapabilities");
            return Some(RpcError::invalid_params("params._meta is incomplete"));
        }
        let version = &meta["io.modelcontextprotocol/protocolVersion"];
        let served = match self.state.personality.modern {
            ModernSupport::RefusedByVersion => &self.state.personality.legacy_versions,
            ModernSupport::Served | ModernSupport::Unknown => {
                &self.state.personality.modern_versions
            },
        };
        if self
            .state
            .memory()
            .running_calls
            .contains_key(&(None, call.id.to_string()))
        {
            self.state
                .record_violation(format!("id {} is still in flight", call.id));
        }
        let fits = served.iter().any(|one| version == one.as_str());
        let data = json!({"supported": served, "requested": version});
        (!fits).then(|| RpcError::with_data(-32022, "Unsupported protocol version", data))
    }

    fn check_legacy_request(self: &Arc<Self>, call: &Call) -> Option<RpcError> {
        if call.method == "initialize" {
            self.state
                .counters
                .initializes
                .fetch_add(1, Ordering::Relaxed);
            if let Some(error) =
                methods::initialize_error(call).or_else(|| self.era_lock_error(call))
            {
                return Some(error);
            }
            self.open_session(call);
        } else if self.state.personality.legacy == LegacySupport::Refused {
            return Some(RpcError::invalid_params("params._meta is missing"));
        } else if !self.state.memory().sessions.contains_key(STDIO_SESSION) {
            if call.method != "server/discover" {
                self.state
                    .record_violation(format!("{} before initialize", call.method));
            }
            return Some(RpcError::new(-32601, "Method not found"));
        }
        self.check_unique_ids(call);
        self.state
            .check_readiness(Some(STDIO_SESSION), &call.method);
        None
    }

    fn open_session(self: &Arc<Self>, call: &Call) {
        let mut session = Session::new(
            &methods::negotiated_version(call),
            call.params["capabilities"].clone(),
        );
        let standing = MessageStream::new("pipe");
        session.get_stream = Some(Arc::clone(&standing));
        self.state.counters.sessions.fetch_add(1, Ordering::Relaxed);
        self.state
            .memory()
            .sessions
            .insert(STDIO_SESSION.to_owned(), session);
        let pipe = Arc::clone(self);
        drop(tokio::spawn(async move {
            pipe.forward_stream(&standing, None).await;
        }));
    }

    fn check_unique_ids(&self, call: &Call) {
        let token = &call.params["_meta"]["progressToken"];
        let mut memory = self.state.memory();
        let Some(session) = memory.sessions.get_mut(STDIO_SESSION) else {
            return;
        };
        if !session.request_ids.insert(call.id.to_string()) {
            self.state
                .record_violation(format!("id {} was used twice in a session", call.id));
        }
        if !token.is_null() && !session.progress_tokens.insert(token.to_string()) {
            self.state
                .record_violation(format!("progress token {token} is used twice at a time"));
        }
    }

    /// Carries what a call says to the client, spoilt as told.
    async fn forward_stream(&self, stream: &MessageStream, fault: Option<&Fault>) {
        let mut place = 0;
        while let Some(message) = stream.message_at(place).await {
            place += 1;
            let is_response = message.get("method").is_none();
            if is_response && self.apply_late_fault(&message, fault).await == FaultFlow::Stop {
                return;
            }
            for mut text in reply_messages(fault.filter(|_| is_response), &message) {
                text.push(b'\n');
                self.send(OutputCommand::Bytes(text)).await;
            }
        }
    }

    /// Faults that strike when the effect is done and the response is ready.
    async fn apply_late_fault(&self, response: &Value, fault: Option<&Fault>) -> FaultFlow {
        match fault {
            Some(Fault::Silence(FaultTiming::AfterExecuting)) => FaultFlow::Stop,
            Some(Fault::Delay(ms, FaultTiming::AfterExecuting)) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                FaultFlow::Continue
            },
            Some(Fault::Crash(FaultTiming::AfterExecuting)) => {
                self.state.crash_signal.notify_one();
                FaultFlow::Stop
            },
            Some(Fault::Reply(canned)) => {
                let line =
                    crate::faults::dialects::fill_placeholders(&canned.body, &response["id"], None);
                self.send(OutputCommand::Bytes(format!("{line}\n").into_bytes()))
                    .await;
                FaultFlow::Stop
            },
            Some(Fault::Cut(at, _)) => {
                let text = response.to_string().into_bytes();
                if let CutPoint::InBody(count) = at {
                    let part = text.get(..*count).unwrap_or(&text).to_vec();
                    self.send(OutputCommand::Bytes(part)).await;
                }
                self.send(OutputCommand::Close).await;
                FaultFlow::Stop
            },
            _ => FaultFlow::Continue,
        }
    }

    fn handle_notification(&self, message: &Value) {
        if message["method"] == "notifications/initialized" {
            self.state
                .check_readiness(Some(STDIO_SESSION), "notifications/initialized");
        }
        if message["method"] != "notifications/cancelled" {
            return;
        }
        let id = message["params"]["requestId"].to_string();
        let memory = self.state.memory();
        for session in [None, Some(STDIO_SESSION.to_owned())] {
            if let Some(running) = memory.running_calls.get(&(session, id.clone())) {
                running.notify_one();
            }
        }
    }

    fn settle_server_request(&self, message: Value) {
        let id = message["id"].to_string();
        let waiting = self
            .state
            .memory()
            .pending_server_requests
            .remove(&(Some(STDIO_SESSION.to_owned()), id));
        match waiting {
            Some(waiting) => drop(waiting.send(message)),
            None => self
                .state
                .record_violation("an answer to a question that was never asked"),
        }
    }

    async fn send_message(&self, message: &Value) {
        self.send(OutputCommand::Bytes(format!("{message}\n").into_bytes()))
            .await;
    }

    async fn send(&self, out: OutputCommand) {
        // A writer that is gone means the server is ending.
        self.output.send(out).await.unwrap_or_default();
    }
}

#[derive(PartialEq, Eq)]
enum FaultFlow {
    Continue,
    Stop,
}
