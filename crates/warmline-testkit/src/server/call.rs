//! One request on its way through the server: who sent it, where its answer goes, how it ends.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::faults::fault::{Fault, FaultTiming, ReplyCorruption};
use crate::ledger::{ExecutionPhase, MessageInfo};
use crate::server::message::{RpcError, RpcResult, notification, request, response};
use crate::server::message_stream::MessageStream;
use crate::server::methods;
use crate::server::state::{LedgerServerState, ToolState};

/// Which family of the protocol a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// One admitted request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) state: Arc<LedgerServerState>,
    pub(crate) era: Era,
    pub(crate) session: Option<String>,
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) stream: Arc<MessageStream>,
    pub(crate) info: MessageInfo,
    pub(crate) overrides: ReplyOverrides,
    /// Rings when the client no longer wants the answer.
    pub(crate) cancel_signal: Arc<Notify>,
}

/// Faults that change what is answered rather than how.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyOverrides {
    pub(crate) version: Option<String>,
    pub(crate) cursor_loop: bool,
    pub(crate) extra_tools: usize,
    pub(crate) flood_count: u32,
    pub(crate) session_id: Option<String>,
    /// The response gets the id of another call in flight.
    pub(crate) use_other_id: bool,
    /// So long nothing is done, but to wait for its cancellation.
    pub(crate) delay: Duration,
}

impl ReplyOverrides {
    pub(crate) fn from_fault(fault: &Fault) -> Self {
        let mut quirk = Self::default();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "every other fault strikes elsewhere"
        )]
        match fault {
            Fault::Delay(ms, FaultTiming::BeforeExecuting) => {
                quirk.delay = Duration::from_millis(*ms);
            },
            Fault::Version(version) => quirk.version = Some(version.clone()),
            Fault::CursorLoop => quirk.cursor_loop = true,
            Fault::ManyTools(count) => quirk.extra_tools = *count,
            Fault::Flood(count) => quirk.flood_count = *count,
            Fault::SessionId(id) => quirk.session_id = Some(id.clone()),
            Fault::CorruptReply(ReplyCorruption::OtherCallId) => quirk.use_other_id = true,
            Fault::GiantSessionId(size) => quirk.session_id = Some("x".repeat(*size)),
            _ => {},
        }
        quirk
    }
}

impl Era {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl Call {
    /// Executes it. The response, and all that comes before it, goes to its stream.
    pub(crate) async fn run(self) {
        let key = (self.session.clone(), self.id.to_string());
        self.state
            .memory()
            .running_calls
            .insert(key.clone(), Arc::clone(&self.cancel_signal));
        for number in 0..self.overrides.flood_count {
            self.send_log_message(
                "info",
                &json!(format!("flood {number}")),
                LogDelivery::Always,
            );
        }
        let cancelled = Arc::clone(&self.cancel_signal);
        let outcome = tokio::select! {
            biased;
            () = cancelled.notified() => None,
            outcome = self.execute() => Some(outcome),
        };
        self.unregister(&key);
        match outcome {
            Some(outcome) => self.stream.push(response(&self.response_id(), &outcome)),
            None => self
                .state
                .ledger
                .record(ExecutionPhase::Abandoned, &self.info),
        }
        self.stream.end();
    }

    async fn execute(&self) -> RpcResult {
        if !self.overrides.delay.is_zero() {
            tokio::time::sleep(self.overrides.delay).await;
        }
        methods::handle_request(self).await
    }

    /// Its own id, or that of another call in flight if a fault says so.
    fn response_id(&self) -> Value {
        if !self.overrides.use_other_id {
            return self.id.clone();
        }
        let memory = self.state.memory();
        let other = memory
            .running_calls
            .keys()
            .find(|(session, _)| *session == self.session);
        other
            .and_then(|(_, id)| serde_json::from_str(id).ok())
            .unwrap_or_else(|| self.id.clone())
    }

    fn unregister(&self, key: &(Option<String>, String)) {
        let mut memory = self.state.memory();
        memory.running_calls.remove(key);
        let token = self.params["_meta"]["progressToken"].to_string();
        if let Some(session) = self
            .session
            .as_ref()
            .and_then(|id| memory.sessions.get_mut(id))
        {
            session.progress_tokens.remove(&token);
        }
    }

    pub(crate) fn record_begin(&self) {
        self.state.ledger.record(ExecutionPhase::Begin, &self.info);
    }

    pub(crate) fn record_commit(&self) {
        self.state.ledger.record(ExecutionPhase::Commit, &self.info);
    }

    /// Looks into what the session keeps; without a session it is empty and soon forgotten.
    pub(crate) fn with_tool_state<T>(&self, look: impl FnOnce(&mut ToolState) -> T) -> T {
        let mut memory = self.state.memory();
        let session = self
            .session
            .as_ref()
            .and_then(|id| memory.sessions.get_mut(id));
        match session {
            Some(session) => look(&mut session.tool_state),
            None => look(&mut ToolState::default()),
        }
    }

    /// What the client said it can do, for this request or for the session.
    pub(crate) fn client_capabilities(&self) -> Value {
        if self.era == Era::Modern {
            return self.params["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
        }
        let memory = self.state.memory();
        let session = self.session.as_ref().and_then(|id| memory.sessions.get(id));
        session.map_or(Value::Null, |session| session.capabilities.clone())
    }

    /// Says how far it has come, if the client asked to know.
    pub(crate) fn send_progress(&self, done: u64, total: u64, padding: &str) {
        let token = &self.params["_meta"]["progressToken"];
        if !token.is_null() {
            let params = json!({"progressToken": token, "progress": done, "total": total,
                "message": format!("step {done} of {total}{padding}")});
            self.stream
                .push(notification("notifications/progress", &params));
        }
    }

    /// Writes a line of log to the client, if it wants such lines.
    pub(crate) fn send_log_message(&self, level: &str, data: &Value, wanted: LogDelivery) {
        let asked = match self.era {
            Era::Modern => self.params["_meta"]["io.modelcontextprotocol/logLevel"].is_string(),
            Era::Legacy => true,
        };
        if asked || wanted == LogDelivery::Always {
            let params = json!({"level": level, "logger": "ledger", "data": data});
            self.stream
                .push(notification("notifications/message", &params));
        }
    }

    /// Asks the client something in the middle of a legacy call and waits for its answer.
    pub(crate) async fn send_server_request(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<Value, RpcError> {
        let (answer, wait) = oneshot::channel();
        let id = {
            let mut memory = self.state.memory();
            memory.last_server_request_id += 1;
            // Small numbers on purpose: they meet the client's own ids, which must not matter.
            let id = json!(memory.last_server_request_id);
            memory
                .pending_server_requests
                .insert((self.session.clone(), id.to_string()), answer);
            id
        };
        self.stream.push(request(&id, method, params));
        let gone = |_| RpcError::new(-32603, "the session ended before the answer came");
        let reply = wait.await.map_err(gone)?;
        if !is_valid_reply(method, &reply) {
            self.state
                .record_violation(format!("{reply} is no answer to {method}"));
        }
        Ok(reply)
    }
}

/// Whether a reply of the client is an answer to this question, or an error.
fn is_valid_reply(method: &str, reply: &Value) -> bool {
    if reply["error"]["code"].is_i64() {
        return true;
    }
    let result = &reply["result"];
    match method {
        "elicitation/create" => {
            let action = result["action"].as_str().unwrap_or_default();
            ["accept", "decline", "cancel"].contains(&action)
        },
        "sampling/createMessage" => result["role"].is_string() && !result["content"].is_null(),
        "roots/list" => result["roots"].is_array(),
        _ => false,
    }
}

/// Whether a log line is sent to a client that did not ask for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogDelivery {
    IfRequested,
    Always,
}
