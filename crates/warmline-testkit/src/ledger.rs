//! The ledger: what a server really did, in order, and never changed afterwards.
//!
//! Asked by: tests, when everything is over.  Told by: the ledger server, before it answers.
//!
//! Every message leaves a line when it arrives, one when its execution begins, and one when its
//! effect is done ([`Phase::Commit`]). So "the answer was lost but the payment was made" can be
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
pub enum Phase {
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
pub struct Entry {
    /// Place in the ledger, from 0.
    pub number: u64,
    /// Milliseconds since the server was started.
    pub at_ms: u64,
    /// How far the message had come.
    pub phase: Phase,
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
    pub extra: BTreeMap<String, String>,
}

/// What of a message is written down as its arguments.
pub(crate) fn arguments_of(message: &Value) -> Value {
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
pub(crate) struct Facts {
    pub(crate) era: &'static str,
    pub(crate) connection: u64,
    pub(crate) session: Option<String>,
    pub(crate) method: String,
    pub(crate) tool: Option<String>,
    pub(crate) arguments: Value,
    pub(crate) meta: Value,
    pub(crate) id: Value,
    pub(crate) credential: Option<String>,
    pub(crate) extra: BTreeMap<String, String>,
}

/// The append-only record of one server. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
    news: Arc<Notify>,
    opened: Instant,
}

#[derive(Debug, Default)]
struct Book {
    entries: Vec<Entry>,
    copy: Option<File>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            book: Arc::default(),
            news: Arc::default(),
            opened: Instant::now(),
        }
    }

    /// From now on every line is also written to `file`, as one JSON object.
    pub(crate) fn copy_to(&self, file: File) {
        self.book.lock().copy = Some(file);
    }

    pub(crate) fn write(&self, phase: Phase, facts: &Facts) {
        let at_ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut book = self.book.lock();
        let entry = Entry {
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
            extra: facts.extra.clone(),
        };
        // A ledger that cannot be written must not change what the server does.
        if let (Some(file), Ok(mut line)) = (book.copy.as_mut(), serde_json::to_vec(&entry)) {
            line.push(b'\n');
            drop(file.write_all(&line));
        }
        book.entries.push(entry);
        drop(book);
        self.news.notify_waiters();
    }

    /// Every line so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.book.lock().entries.clone()
    }

    /// How many lines fit.
    pub fn count(&self, fits: impl Fn(&Entry) -> bool) -> usize {
        self.book
            .lock()
            .entries
            .iter()
            .filter(|entry| fits(entry))
            .count()
    }

    /// How often this tool was executed to its end.
    pub fn executions(&self, tool: &str) -> usize {
        self.count(|entry| entry.phase == Phase::Commit && entry.tool.as_deref() == Some(tool))
    }

    /// How often the execution of this tool began.
    pub fn begun(&self, tool: &str) -> usize {
        self.count(|entry| entry.phase == Phase::Begin && entry.tool.as_deref() == Some(tool))
    }

    /// How often a message of this method was read whole (`GET` and `DELETE` count as methods).
    pub fn received(&self, method: &str) -> usize {
        self.count(|entry| entry.phase == Phase::Received && entry.method == method)
    }

    /// The methods in the order in which they were received.
    pub fn methods(&self) -> Vec<String> {
        let book = self.book.lock();
        let received = book
            .entries
            .iter()
            .filter(|entry| entry.phase == Phase::Received);
        received.map(|entry| entry.method.clone()).collect()
    }

    /// Waits until `enough` is true of the lines, for at most `limit`; says whether it came true.
    pub async fn wait_until(&self, limit: Duration, enough: impl Fn(&[Entry]) -> bool) -> bool {
        let mut over = std::pin::pin!(pause(limit));
        loop {
            let news = self.news.notified();
            if enough(&self.book.lock().entries) {
                return true;
            }
            tokio::select! {
                biased;
                () = news => {},
                () = &mut over => return enough(&self.book.lock().entries),
            }
        }
    }
}

/// A pause in real time, also where the runtime's clock stands still.
pub(crate) async fn pause(length: Duration) {
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
