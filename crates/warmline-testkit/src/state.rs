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

use crate::fault::{Fault, Rules};
use crate::ledger::{Facts, Ledger};
use crate::message::{kind, notification};
use crate::personality::Personality;
use crate::stream::Stream;

/// What one server is and remembers.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) personality: Personality,
    pub(crate) ledger: Ledger,
    pub(crate) counts: Counts,
    /// Rings when the server shall end as if it had crashed.
    pub(crate) crash: Notify,
    rules: Mutex<Rules>,
    memory: Mutex<Memory>,
    violations: Mutex<Vec<String>>,
}

/// Totals since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) open_connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) incomplete: AtomicU64,
    pub(crate) initializes: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) streams: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) sessions: HashMap<String, Session>,
    /// Every id ever given, and whether its client deleted it.
    pub(crate) issued: HashMap<String, Ended>,
    /// All payments ever made, whoever made them.
    pub(crate) paid: i64,
    /// What `put` wrote.
    pub(crate) values: BTreeMap<String, Value>,
    /// How often the tools changed.
    pub(crate) tools_changed: u32,
    /// Open `subscriptions/listen`.
    pub(crate) listens: Vec<Listen>,
    /// Rings when every listen shall end.
    pub(crate) listens_end: Arc<Notify>,
    /// `requestState` strings that are out, and what they stand for.
    pub(crate) rounds: HashMap<String, Round>,
    /// Questions of the server that wait for the client's answer.
    pub(crate) questions: HashMap<(Option<String>, String), oneshot::Sender<Value>>,
    /// Executions that a client may cancel.
    pub(crate) running: HashMap<(Option<String>, String), Arc<Notify>>,
    pub(crate) last_question: u64,
    /// Whether a modern request came on the pipe.
    pub(crate) seen_modern: bool,
    /// The bearer token that every request must show by now.
    pub(crate) token: Option<String>,
}

/// Whether the client has ended a session itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    NotByClient,
    ByClient,
}

/// One legacy session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) version: String,
    pub(crate) capabilities: Value,
    pub(crate) last_used: Instant,
    pub(crate) readiness: Readiness,
    pub(crate) drawer: Drawer,
    pub(crate) ids: HashSet<String>,
    pub(crate) tokens: HashSet<String>,
    pub(crate) subscriptions: HashSet<String>,
    pub(crate) log_level: Option<String>,
    /// Streams that can still be resumed, by name.
    pub(crate) streams: HashMap<String, Arc<Stream>>,
    /// The stream of its GET, or of its pipe.
    pub(crate) standing: Option<Arc<Stream>>,
}

/// Whether the client said `notifications/initialized`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Opening,
    Ready,
}

/// What the stateful tools keep: for a session, or for one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawer {
    pub(crate) counter: i64,
    pub(crate) notes: BTreeMap<String, String>,
    pub(crate) page: Option<String>,
}

/// An open `subscriptions/listen`.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) id: Value,
    pub(crate) wanted: Value,
    pub(crate) stream: Arc<Stream>,
}

/// One round of questions that was answered with `input_required`.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) tool: String,
    pub(crate) number: u64,
    pub(crate) arguments: Value,
    pub(crate) answers: Vec<Value>,
}

impl State {
    pub(crate) fn new(personality: Personality) -> Arc<Self> {
        let memory = Memory {
            token: personality.token.clone(),
            ..Memory::default()
        };
        Arc::new(Self {
            personality,
            ledger: Ledger::new(),
            counts: Counts::default(),
            crash: Notify::new(),
            rules: Mutex::default(),
            memory: Mutex::new(memory),
            violations: Mutex::default(),
        })
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock()
    }

    /// The fault for this message, if there is one.
    pub(crate) fn fault(&self, facts: &Facts, message: &Value) -> Option<Fault> {
        let tool = facts.tool.as_deref();
        self.rules.lock().take(&facts.method, tool, kind(message))
    }

    /// Records something a client must not do.
    pub(crate) fn violation(&self, what: impl Into<String>) {
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
            if let Some(standing) = session.standing {
                standing.end();
            }
        }
        memory.questions.clear();
    }

    /// The tools changed: tells whoever asked to be told.
    pub(crate) fn tools_changed(&self) {
        let mut memory = self.memory();
        memory.tools_changed += 1;
        let news = notification(
            "notifications/tools/list_changed",
            &Value::Object(serde_json::Map::new()),
        );
        for session in memory.sessions.values() {
            if let Some(standing) = &session.standing {
                standing.say(news.clone());
            }
        }
        for listen in &memory.listens {
            if listen.wanted["toolsListChanged"] == Value::Bool(true) {
                listen.say("notifications/tools/list_changed", serde_json::json!({}));
            }
        }
    }

    /// A resource changed: tells whoever subscribed to it.
    pub(crate) fn resource_updated(&self, uri: &str) {
        let memory = self.memory();
        let params = serde_json::json!({"uri": uri});
        for session in memory
            .sessions
            .values()
            .filter(|one| one.subscriptions.contains(uri))
        {
            if let Some(standing) = &session.standing {
                standing.say(notification("notifications/resources/updated", &params));
            }
        }
        for listen in &memory.listens {
            let wanted = listen.wanted["resourceSubscriptions"].as_array();
            if wanted.is_some_and(|uris| uris.iter().any(|one| one == uri)) {
                listen.say("notifications/resources/updated", params.clone());
            }
        }
    }

    pub(crate) fn next_stream(&self) -> u64 {
        self.counts.streams.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl State {
    /// A request before `notifications/initialized` is too early, but for a ping.
    pub(crate) fn check_readiness(&self, session: Option<&str>, method: &str) {
        let mut memory = self.memory();
        let Some(session) = session.and_then(|id| memory.sessions.get_mut(id)) else {
            return;
        };
        if method == "notifications/initialized" {
            session.readiness = Readiness::Ready;
        } else if session.readiness == Readiness::Opening
            && !["initialize", "ping"].contains(&method)
        {
            self.violation(format!("{method} before notifications/initialized"));
        }
    }
}

impl Session {
    pub(crate) fn new(version: &str, capabilities: Value) -> Self {
        Self {
            version: version.to_owned(),
            capabilities,
            last_used: Instant::now(),
            readiness: Readiness::Opening,
            drawer: Drawer::default(),
            ids: HashSet::new(),
            tokens: HashSet::new(),
            subscriptions: HashSet::new(),
            log_level: None,
            streams: HashMap::new(),
            standing: None,
        }
    }
}

impl Listen {
    /// Says something on this subscription, with its id.
    pub(crate) fn say(&self, method: &str, mut params: Value) {
        params["_meta"]["io.modelcontextprotocol/subscriptionId"] = self.id.clone();
        self.stream.say(notification(method, &params));
    }
}
