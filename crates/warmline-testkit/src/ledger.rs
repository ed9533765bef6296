//! The ledger: what a server really did, in order, and never changed afterwards.
//!
//! Every message leaves a line when it arrives, one when its execution begins, and one when its
//! effect is done ([`ExecutionPhase::Commit`]). So "the answer was lost but the payment was made" can be
//! told from "nothing happened". It grows with the test and lives in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;

/// How far a message had come when its line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionPhase {
    /// It was read whole.
    Received,
    /// Its execution began.
    Begin,
    /// Its effect is done; the answer follows.
    Commit,
    /// It was cancelled, or its client left, before its effect was done.
    Abandoned,
}

/// One line of the ledger.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LedgerEntry {
    /// Place in the ledger, from 0.
    pub number: u64,
    /// Milliseconds since the server was started.
    pub at_ms: u64,
    /// How far the message had come.
    pub phase: ExecutionPhase,
    /// `legacy` or `modern`; empty where it cannot be said.
    pub era: &'static str,
    /// Number of the connection it came on, from 1.
    pub connection: u64,
    /// The session id it carried, or got (`initialize`).
    pub session: Option<String>,
    /// The method; `GET` or `DELETE` for these, `(response)` for an answer of the client.
    pub method: String,
    /// The tool of a `tools/call`.
    pub tool: Option<String>,
    /// The arguments of a `tools/call`, the result or error of an answer, otherwise the params.
    pub arguments: Value,
    /// `params._meta` as it was sent.
    pub meta: Value,
    /// The id as it was sent; null for what has none.
    pub id: Value,
    /// The credential shown (`Authorization`).
    pub credential: Option<String>,
    /// Headers that are the caller's own: `X-…` and those of traces, names in lower case.
    #[serde(rename = "extra")]
    pub extra_headers: BTreeMap<String, String>,
}

/// What of a message is written down as its arguments.
pub(crate) fn recorded_arguments(message: &Value) -> Value {
    let said = match message["method"].as_str() {
        Some("tools/call") => &message["params"]["arguments"],
        Some(_) => &message["params"],
        None if message["error"].is_null() => &message["result"],
        None => &message["error"],
    };
    said.clone()
}

/// What a line is made of before it has a number and a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageInfo {
    pub(crate) era: &'static str,
    pub(crate) connection: u64,
    pub(crate) session: Option<String>,
    pub(crate) method: String,
    pub(crate) tool: Option<String>,
    pub(crate) arguments: Value,
    pub(crate) meta: Value,
    pub(crate) id: Value,
    pub(crate) credential: Option<String>,
    pub(crate) extra_headers: BTreeMap<String, String>,
}

/// The append-only record of one server. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Mutex<LedgerInner>>,
    changed: Arc<Notify>,
    started: Instant,
}

#[derive(Debug, Default)]
struct LedgerInner {
    entries: Vec<LedgerEntry>,
    copy_file: Option<File>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::default(),
            changed: Arc::default(),
            started: Instant::now(),
        }
    }

    /// From now on every line is also written to `file`, as one JSON object.
    pub(crate) fn copy_to_file(&self, file: File) {
        self.inner.lock().copy_file = Some(file);
    }

    pub(crate) fn record(&self, phase: ExecutionPhase, facts: &MessageInfo) {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut book = self.inner.lock();
        let entry = LedgerEntry {
            number: book.entries.len() as u64,
            at_ms,
            phase,
            era: facts.era,
            connection: facts.connection,
            session: facts.session.clone(),
            method: facts.method.clone(),
            tool: facts.tool.clone(),
            arguments: facts.arguments.clone(),
            meta: facts.meta.clone(),
            id: facts.id.clone(),
            credential: facts.credential.clone(),
            extra_headers: facts.extra_headers.clone(),
        };
        // A ledger that cannot be written must not change what the server does.
        if let (Some(file), Ok(mut line)) = (book.copy_file.as_mut(), serde_json::to_vec(&entry)) {
            line.push(b'\n');
            drop(file.write_all(&line));
        }
        book.entries.push(entry);
        drop(book);
        self.changed.notify_waiters();
    }

    /// Every line so far.
    pub fn entries(&self) -> Vec<LedgerEntry> {
        self.inner.lock().entries.clone()
    }

    /// How many lines fit.
    pub fn count(&self, fits: impl Fn(&LedgerEntry) -> bool) -> usize {
        self.inner
            .lock()
            .entries
            .iter()
            .filter(|entry| fits(entry))
            .count()
    }

    /// How often this tool was executed to its end.
    pub fn executions(&self, tool: &str) -> usize {
        self.count(|entry| {
            entry.phase == ExecutionPhase::Commit && entry.tool.as_deref() == Some(tool)
        })
    }

    /// How often the execution of this tool began.
    pub fn started_executions(&self, tool: &str) -> usize {
        self.count(|entry| {
            entry.phase == ExecutionPhase::Begin && entry.tool.as_deref() == Some(tool)
        })
    }

    /// How often a message of this method was read whole (`GET` and `DELETE` count as methods).
    pub fn messages_received(&self, method: &str) -> usize {
        self.count(|entry| entry.phase == ExecutionPhase::Received && entry.method == method)
    }

    /// Every message that was read whole, in this order.
    pub fn all_received(&self) -> Vec<LedgerEntry> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.phase == ExecutionPhase::Received);
        entries
    }

    /// The messages of this method that were read whole.
    pub fn received(&self, method: &str) -> Vec<LedgerEntry> {
        let mut entries = self.all_received();
        entries.retain(|entry| entry.method == method);
        entries
    }

    /// The methods in the order in which they were received.
    pub fn methods(&self) -> Vec<String> {
        let entries = self.all_received().into_iter();
        entries.map(|entry| entry.method).collect()
    }

    /// Waits until `enough` is true of the lines, for at most `limit`; says whether it came true.
    pub async fn wait_until(
        &self,
        limit: Duration,
        enough: impl Fn(&[LedgerEntry]) -> bool,
    ) -> bool {
        let mut over = std::pin::pin!(real_time_sleep(limit));
        loop {
            let news = self.changed.notified();
            if enough(&self.inner.lock().entries) {
                return true;
            }
            tokio::select! {
                biased;
                () = news => {},
                () = &mut over => return enough(&self.inner.lock().entries),
            }
        }
    }
}

/// A pause in real time, also where the runtime's clock stands still.
pub(crate) async fn real_time_sleep(length: Duration) {
    let (done, wait) = tokio::sync::oneshot::channel();
    // The thread ends with the pause, however that ends.
    let (_held, given_up) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        given_up.recv_timeout(length).unwrap_or_default();
        // Nobody may be waiting any more.
        done.send(()).unwrap_or_default();
    });
    drop(wait.await);
}
