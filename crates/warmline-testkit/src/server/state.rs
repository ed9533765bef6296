//! Everything a ledger server remembers: sessions, what tools keep, what was asked, what was wrong.
//!
//! One lock around the memory, held for the length of a look; nothing waits inside of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use crate::faults::fault::{Fault, FaultRules};
use crate::faults::personality::Personality;
use crate::ledger::{Ledger, MessageInfo};
use crate::server::message::{message_kind, notification};
use crate::server::message_stream::MessageStream;

/// What one server is and remembers.
#[derive(Debug)]
pub(crate) struct LedgerServerState {
    pub(crate) personality: Personality,
    pub(crate) ledger: Ledger,
    pub(crate) counters: ServerCounters,
    /// Rings when the server shall end as if it had crashed.
    pub(crate) crash_signal: Notify,
    rules: Mutex<FaultRules>,
    memory: Mutex<ServerMemory>,
    violations: Mutex<Vec<String>>,
}

/// Totals since the start.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) connections: AtomicU64,
    pub(crate) open_connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) incomplete_requests: AtomicU64,
    pub(crate) initializes: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) streams: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct ServerMemory {
    pub(crate) sessions: HashMap<String, Session>,
    /// Every id ever given, and whether its client deleted it.
    pub(crate) issued_session_ids: HashMap<String, ClientDeletion>,
    /// All payments ever made, whoever made them.
    pub(crate) total_paid: i64,
    /// What `put` wrote.
    pub(crate) values: BTreeMap<String, Value>,
    /// How often the tools changed.
    pub(crate) tool_changes: u32,
    /// Open `subscriptions/listen`.
    pub(crate) open_listens: Vec<OpenListen>,
    /// Rings when every listen shall end.
    pub(crate) end_listens_signal: Arc<Notify>,
    /// `requestState` strings that are out, and what they stand for.
    pub(crate) input_rounds: HashMap<String, InputRound>,
    /// Questions of the server that wait for the client's answer.
    pub(crate) pending_server_requests: HashMap<(Option<String>, String), oneshot::Sender<Value>>,
    /// Executions that a client may cancel.
    pub(crate) running_calls: HashMap<(Option<String>, String), Arc<Notify>>,
    pub(crate) last_server_request_id: u64,
    /// Whether a modern request came on the pipe.
    pub(crate) seen_modern: bool,
    /// The bearer token that every request must show by now.
    pub(crate) token: Option<String>,
}

/// Whether the client has ended a session itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientDeletion {
    NotDeleted,
    Deleted,
}

/// One legacy session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) version: String,
    pub(crate) capabilities: Value,
    pub(crate) last_used: Instant,
    pub(crate) readiness: Readiness,
    pub(crate) tool_state: ToolState,
    pub(crate) request_ids: HashSet<String>,
    pub(crate) progress_tokens: HashSet<String>,
    pub(crate) subscriptions: HashSet<String>,
    pub(crate) log_level: Option<String>,
    /// Streams that can still be resumed, by name.
    pub(crate) resumable_streams: HashMap<String, Arc<MessageStream>>,
    /// The stream of its GET, or of its pipe.
    pub(crate) get_stream: Option<Arc<MessageStream>>,
}

/// Whether the client said `notifications/initialized`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Initializing,
    Ready,
}

/// What the stateful tools keep: for a session, or for one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolState {
    pub(crate) counter: i64,
    pub(crate) notes: BTreeMap<String, String>,
    pub(crate) page: Option<String>,
}

/// An open `subscriptions/listen`.
#[derive(Debug)]
pub(crate) struct OpenListen {
    pub(crate) id: Value,
    pub(crate) filter: Value,
    pub(crate) stream: Arc<MessageStream>,
}

/// One round of questions that was answered with `input_required`.
#[derive(Clone, Debug)]
pub(crate) struct InputRound {
    pub(crate) tool: String,
    pub(crate) number: u64,
    pub(crate) arguments: Value,
    pub(crate) replies: Vec<Value>,
}

impl LedgerServerState {
    pub(crate) fn new(personality: Personality) -> Arc<Self> {
        let memory = ServerMemory {
            token: personality.token.clone(),
            ..ServerMemory::default()
        };
        Arc::new(Self {
            personality,
            ledger: Ledger::new(),
            counters: ServerCounters::default(),
            crash_signal: Notify::new(),
            rules: Mutex::default(),
            memory: Mutex::new(memory),
            violations: Mutex::default(),
        })
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, ServerMemory> {
        self.memory.lock()
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, FaultRules> {
        self.rules.lock()
    }

    /// The fault for this message, if there is one.
    pub(crate) fn take_fault(&self, facts: &MessageInfo, message: &Value) -> Option<Fault> {
        let tool = facts.tool.as_deref();
        self.rules
            .lock()
            .take_fault(&facts.method, tool, message_kind(message))
    }

    /// Records something a client must not do.
    pub(crate) fn record_violation(&self, what: impl Into<String>) {
        self.violations.lock().push(what.into());
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    pub(crate) fn clear_violations(&self) {
        self.violations.lock().clear();
    }

    /// Forgets every session, as a restart would.
    pub(crate) fn forget_sessions(&self) {
        let mut memory = self.memory();
        for (_, session) in memory.sessions.drain() {
            if let Some(standing) = session.get_stream {
                standing.end();
            }
        }
        memory.pending_server_requests.clear();
    }

    /// The tools changed: tells whoever asked to be told.
    pub(crate) fn notify_tools_changed(&self) {
        let mut memory = self.memory();
        memory.tool_changes += 1;
        let news = notification(
            "notifications/tools/list_changed",
            &Value::Object(serde_json::Map::new()),
        );
        for session in memory.sessions.values() {
            if let Some(standing) = &session.get_stream {
                standing.push(news.clone());
            }
        }
        for listen in &memory.open_listens {
            if listen.filter["toolsListChanged"] == Value::Bool(true) {
                listen.notify("notifications/tools/list_changed", serde_json::json!({}));
            }
        }
    }

    /// A resource changed: tells whoever subscribed to it.
    pub(crate) fn notify_resource_updated(&self, uri: &str) {
        let memory = self.memory();
        let params = serde_json::json!({"uri": uri});
        for session in memory
            .sessions
            .values()
            .filter(|one| one.subscriptions.contains(uri))
        {
            if let Some(standing) = &session.get_stream {
                standing.push(notification("notifications/resources/updated", &params));
            }
        }
        for listen in &memory.open_listens {
            let wanted = listen.filter["resourceSubscriptions"].as_array();
            if wanted.is_some_and(|uris| uris.iter().any(|one| one == uri)) {
                listen.notify("notifications/resources/updated", params.clone());
            }
        }
    }

    pub(crate) fn next_stream_number(&self) -> u64 {
        self.counters.streams.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl LedgerServerState {
    /// A request before `notifications/initialized` is too early, but for a ping.
    pub(crate) fn check_readiness(&self, session: Option<&str>, method: &str) {
        let mut memory = self.memory();
        let Some(session) = session.and_then(|id| memory.sessions.get_mut(id)) else {
            return;
        };
        if method == "notifications/initialized" {
            session.readiness = Readiness::Ready;
        } else if session.readiness == Readiness::Initializing
            && !["initialize", "ping"].contains(&method)
        {
            self.record_violation(format!("{method} before notifications/initialized"));
        }
    }
}

impl Session {
    pub(crate) fn new(version: &str, capabilities: Value) -> Self {
        Self {
            version: version.to_owned(),
            capabilities,
            last_used: Instant::now(),
            readiness: Readiness::Initializing,
            tool_state: ToolState::default(),
            request_ids: HashSet::new(),
            progress_tokens: HashSet::new(),
            subscriptions: HashSet::new(),
            log_level: None,
            resumable_streams: HashMap::new(),
            get_stream: None,
        }
    }
}

impl OpenListen {
    /// Says something on this subscription, with its id.
    pub(crate) fn notify(&self, method: &str, mut params: Value) {
        params["_meta"]["io.modelcontextprotocol/subscriptionId"] = self.id.clone();
        self.stream.push(notification(method, &params));
    }
}
