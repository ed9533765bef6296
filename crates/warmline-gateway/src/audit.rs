//! The audit: one line of JSON for every call, and for everybody who was turned away.
//!
//! Told by: [`pass`](crate::pass) and [`door`](crate::door).  It is written in the background; a
//! disk that is slow or full delays nobody. What did not fit into the line is counted there.

mod file;
pub(crate) mod time;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use warmline::clock::{self, Instant};
use warmline::core::protocol::headers::SESSION_ID;
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;
use warmline::{Code, Delivery, Error};

use self::file::Output;
use crate::NotStarted;
use crate::face::Visit;
use crate::metrics::AuditCounts;
use crate::ticket::Ticket;
use crate::{trace, which};

/// So many lines wait to be written; more are counted and dropped.
const MAX_WAITING: usize = 4_096;
/// So many are written at once.
const AT_ONCE: usize = 256;
/// Texts of clients are cut after so many characters.
const MAX_TEXT: usize = 200;

/// What is written for people who look back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// The file, to which lines are added. One that was moved away is made anew.
    pub file: PathBuf,
    /// The names of arguments whose values are written; no others ever are.
    pub arguments: Vec<String>,
}

/// Where lines go.
pub(crate) struct Audit {
    options: AuditOptions,
    lines: mpsc::Sender<Note>,
    dropped: Arc<Dropped>,
}

/// Lines that did not fit: those that the file was not told of yet, and all.
struct Dropped {
    untold: AtomicU64,
    counts: Arc<AuditCounts>,
}

impl Dropped {
    fn more(&self, lines: u64) {
        self.untold.fetch_add(lines, Ordering::Relaxed);
        self.counts.lost.more(lines);
    }
}

enum Note {
    Line(String),
    /// Everything before this was written.
    Flush(oneshot::Sender<()>),
}

impl Audit {
    /// Opens the file, and begins to write.
    pub(crate) fn start(
        options: AuditOptions,
        counts: Arc<AuditCounts>,
    ) -> Result<Self, NotStarted> {
        let output = Output::open(&options.file)
            .map_err(|error| NotStarted::Audit(options.file.clone(), error))?;
        let (lines, waiting) = mpsc::channel(MAX_WAITING);
        let dropped = Arc::new(Dropped {
            untold: AtomicU64::new(0),
            counts,
        });
        let writing = write(output, waiting, Arc::clone(&dropped));
        drop(clock::spawn("audit", writing));
        Ok(Self {
            options,
            lines,
            dropped,
        })
    }

    /// The beginning of a line for a request.
    pub(crate) fn line(
        &self,
        visit: &Visit<'_>,
        server: &str,
        method: &str,
        params: &Params,
    ) -> Line {
        let is_call = method == "tools/call";
        let tool = params.name().filter(|_| is_call);
        let mut said = Self::said(visit.subject.name());
        put(&mut said, "client", client(visit.head, method, params));
        put(&mut said, "run", run(visit, params));
        put(&mut said, "server", Some(server));
        put(&mut said, "method", Some(cut(method)));
        put(&mut said, "tool", tool.as_deref().map(cut));
        put(&mut said, "trace", trace::id(visit.head, params));
        if is_call && let Some(arguments) = self.named(params) {
            said.insert("arguments".to_owned(), arguments);
        }
        Line {
            said,
            since: clock::now(),
            lines: self.lines.clone(),
            dropped: Arc::clone(&self.dropped),
            is_over: false,
        }
    }

    /// Somebody was not let in, to a server or at all: their message was not read.
    pub(crate) fn turned_away(
        &self,
        head: &Parts,
        server: Option<&str>,
        (subject, why): (&str, &'static str),
    ) {
        let mut said = Self::said(subject);
        put(&mut said, "path", Some(cut(head.uri.path())));
        put(&mut said, "server", server.map(cut));
        refuse(&mut said, why);
        tell(&self.lines, &self.dropped, said);
    }

    /// The same of somebody nobody knows, after so many others for whom no line was written. Who
    /// did not come as far as to say so wanted to go to no path.
    pub(crate) fn turned_away_after(
        &self,
        path: Option<&str>,
        (subject, why): (&str, &'static str),
        left_out: u64,
    ) {
        let mut said = Self::said(subject);
        put(&mut said, "path", path.map(cut));
        refuse(&mut said, why);
        if left_out > 0 {
            said.insert("more".to_owned(), json!(left_out));
        }
        tell(&self.lines, &self.dropped, said);
    }

    /// Waits until everything so far is written, or for so long.
    pub(crate) async fn flush(&self, within: Duration) {
        let (written, flushed) = oneshot::channel();
        let flushing = async {
            if self.lines.send(Note::Flush(written)).await.is_ok() {
                flushed.await.ok();
            }
        };
        clock::timeout(within, flushing).await.ok();
    }

    fn said(subject: &str) -> Map<String, Value> {
        let mut said = Map::new();
        put(
            &mut said,
            "time",
            Some(time::written(clock::wall_seconds())),
        );
        put(&mut said, "subject", Some(subject));
        said
    }

    /// The arguments that are named, as they are.
    fn named(&self, params: &Params) -> Option<Value> {
        if self.options.arguments.is_empty() {
            return None;
        }
        let all: Value = serde_json::from_slice(params.member("arguments")?).ok()?;
        let named = self.options.arguments.iter().filter_map(|name| {
            let value = all.get(name)?;
            Some((name.clone(), value.clone()))
        });
        let named: Map<String, Value> = named.collect();
        (!named.is_empty()).then_some(Value::Object(named))
    }
}

/// A line whose end is not known yet. One that is dropped says that nobody knows.
pub(crate) struct Line {
    said: Map<String, Value>,
    since: Instant,
    lines: mpsc::Sender<Note>,
    dropped: Arc<Dropped>,
    is_over: bool,
}

impl Line {
    /// The request ended.
    pub(crate) fn ended(mut self, outcome: &Result<Bytes, Error>) {
        let delivery = match outcome {
            Ok(_) => Delivery::Answered,
            Err(error) => error.delivery(),
        };
        if let Err(error) = outcome
            && error.server_error().is_none()
        {
            let code = error.code();
            put(&mut self.said, "code", Some(code.word()));
            put(&mut self.said, "refused", ours(code.word()));
        }
        self.over(delivery);
    }

    /// The rules said no.
    pub(crate) fn refused(mut self, why: &str) {
        refuse(&mut self.said, why);
        self.over(Delivery::Unsent);
    }

    /// It was sent, and nobody answered in time.
    pub(crate) fn late(mut self) {
        put(&mut self.said, "code", Some(Code::Deadline.word()));
        self.over(Delivery::Unknown);
    }

    fn over(&mut self, delivery: Delivery) {
        self.is_over = true;
        let took = clock::now().saturating_duration_since(self.since);
        put(&mut self.said, "delivery", Some(delivery.to_string()));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.said.insert("duration_us".to_owned(), json!(micros));
        tell(&self.lines, &self.dropped, std::mem::take(&mut self.said));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.is_over {
            put(&mut self.said, "code", Some("cancelled"));
            self.over(Delivery::Unknown);
        }
    }
}

fn tell(lines: &mpsc::Sender<Note>, dropped: &Dropped, said: Map<String, Value>) {
    let line = Value::Object(said).to_string();
    dropped.counts.lines.one_more();
    if lines.try_send(Note::Line(line)).is_err() {
        dropped.more(1);
    }
}

async fn write(mut output: Output, mut waiting: mpsc::Receiver<Note>, dropped: Arc<Dropped>) {
    let mut notes = Vec::with_capacity(AT_ONCE);
    let mut health = Health::Well;
    while waiting.recv_many(&mut notes, AT_ONCE).await > 0 {
        let mut text = String::new();
        let mut lines = 0;
        let mut flushed = Vec::new();
        for note in notes.drain(..) {
            match note {
                Note::Line(line) => {
                    lines += 1;
                    text.push_str(&line);
                    text.push('\n');
                },
                Note::Flush(told) => flushed.push(told),
            }
        }
        let lost = dropped.untold.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let time = time::written(clock::wall_seconds());
            let line = json!({ "time": time, "dropped": lost });
            text.push_str(&format!("{line}\n"));
        }
        let writing = clock::spawn_blocking("audit", move || {
            let written = output.write(text.as_bytes());
            (output, written)
        });
        let Ok((back, written)) = writing.await else {
            return;
        };
        output = back;
        if written.is_err() {
            dropped.more(lines);
            dropped.untold.fetch_add(lost, Ordering::Relaxed);
        }
        health = health.after(&written);
        for told in flushed {
            told.send(()).ok();
        }
    }
}

/// Whether lines reach the file. A change is told once: a full disk must not fill the log as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    Ill,
}

impl Health {
    fn after(self, written: &io::Result<()>) -> Self {
        match (self, written) {
            (Self::Well, Err(error)) => {
                tracing::error!(%error, "the audit cannot be written; lines are lost");
            },
            (Self::Ill, Ok(())) => tracing::info!("the audit is written again"),
            (Self::Well, Ok(())) | (Self::Ill, Err(_)) => {},
        }
        match written {
            Ok(()) => Self::Well,
            Err(_) => Self::Ill,
        }
    }
}

/// Something was refused by us, and went to no server.
fn refuse(said: &mut Map<String, Value>, why: &str) {
    put(said, "refused", Some(why));
    put(said, "code", ours(why));
    put(said, "delivery", Some(Delivery::Unsent.to_string()));
}

/// What is refused by the door, by a face or by the engine, and is the same to whoever reads it: it
/// is a code, and a reason to refuse.
fn ours(word: &str) -> Option<&'static str> {
    let codes = [Code::NotAllowed, Code::Draining].map(Code::word);
    codes.into_iter().find(|code| *code == word)
}

fn put(said: &mut Map<String, Value>, name: &str, value: Option<impl Into<String>>) {
    if let Some(value) = value {
        said.insert(name.to_owned(), Value::String(value.into()));
    }
}

/// A text of a client, no longer than a line can bear.
fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// What a client calls itself.
fn client(head: &Parts, method: &str, params: &Params) -> Option<String> {
    let greeting = (method == "initialize").then(|| params.member("clientInfo"));
    let stated = params.meta_member(meta::CLIENT_INFO).or(greeting.flatten());
    let stated = stated.and_then(|info| {
        let info: Map<String, Value> = serde_json::from_slice(info).ok()?;
        let name = info.get("name")?.as_str()?;
        Some(match info.get("version").and_then(Value::as_str) {
            Some(version) => format!("{name} {version}"),
            None => name.to_owned(),
        })
    });
    let agent = || {
        let agent = head.headers.get(USER_AGENT)?.to_str().ok()?;
        Some(agent.to_owned())
    };
    let name = stated.or_else(agent)?;
    Some(cut(&name))
}

/// The run that the request is in.
fn run(visit: &Visit<'_>, params: &Params) -> Option<String> {
    let shared = visit.shared;
    let vault = shared.warm.vault();
    let terms = shared.terms.load();
    let run_from = &terms.run_from;
    let named = which::run(visit.target.run, visit.head, Some(params), run_from, vault);
    if let Some(name) = named.ok().flatten() {
        return Some(name.into_owned());
    }
    let ticket = visit.head.headers.get(SESSION_ID)?;
    Some(Ticket::open(vault, ticket.as_bytes())?.run_name())
}
