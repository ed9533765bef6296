//! The audit log: one line of JSON for every call and every rejection.
//!
//! A background task writes the lines, so a slow or full disk delays no call. Lines that do not fit
//! into its queue are counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::USER_AGENT;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_core::message::params::Params;
use warmline_core::protocol::meta;
use warmline_engine::Error;
use warmline_platform::clock::{self, Instant};

use crate::metrics::GatewayCounters;
use crate::{StartError, timestamp};

const MAX_QUEUED: usize = 4_096;
const MAX_BATCH: usize = 256;
const MAX_TEXT_CHARS: usize = 200;

/// Where the audit is written, and what it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// The file to append to. If it is moved away, a new one is created.
    pub file: PathBuf,
    /// The names of arguments whose values are written; no others are.
    pub arguments: Vec<String>,
}

pub(crate) struct AuditLog {
    options: AuditOptions,
    queue: AuditQueue,
}

#[derive(Clone)]
struct AuditQueue {
    lines: mpsc::Sender<AuditMessage>,
    counts: Arc<GatewayCounters>,
}

enum AuditMessage {
    Line(String),
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}

/// One line. Its members are sorted by name.
#[derive(Default, Serialize)]
struct AuditRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl AuditRecord {
    fn now(subject: Option<&str>) -> Self {
        Self {
            subject: subject.map(str::to_owned),
            time: timestamp::format_utc(clock::wall_seconds()),
            ..Self::default()
        }
    }

    /// The gateway rejected the request, and sent it to no server.
    fn set_rejected(&mut self, reason: &str) {
        self.refused = Some(reason.to_owned());
        self.code = rejection_code(reason);
        self.delivery = Some(Delivery::Unsent.to_string());
    }

    fn to_line(&self) -> String {
        // Texts and numbers always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl AuditLog {
    pub(crate) fn start(
        options: AuditOptions,
        counts: Arc<GatewayCounters>,
    ) -> Result<Self, StartError> {
        let output = AuditFile::open(&options.file)
            .map_err(|error| StartError::Audit(options.file.clone(), error))?;
        let (lines, queued) = mpsc::channel(MAX_QUEUED);
        let writing = write_queued(output, queued, Arc::clone(&counts));
        drop(clock::spawn("audit", writing));
        Ok(Self {
            options,
            queue: AuditQueue { lines, counts },
        })
    }

    pub(crate) fn start_line(
        &self,
        (subject, headers): (&str, &HeaderMap),
        server: &str,
        (method, params): (&str, &Params),
        run: Option<String>,
        trace: Option<String>,
    ) -> AuditLine {
        let is_call = method == "tools/call";
        let tool = params.name().filter(|_| is_call);
        AuditLine(Some(PendingLine {
            record: AuditRecord {
                arguments: is_call.then(|| self.named_arguments(params)).flatten(),
                client: client_name(headers, method, params),
                run,
                server: Some(server.to_owned()),
                method: Some(truncate(method)),
                tool: tool.as_deref().map(truncate),
                trace,
                ..AuditRecord::now(Some(subject))
            },
            started_at: clock::now(),
            queue: self.queue.clone(),
        }))
    }

    /// Writes the line of a request that was rejected before its message was read, and of `more` like
    /// it that got no line. There is no path if the request head was not read.
    pub(crate) fn write_rejection(
        &self,
        (path, server): (Option<&str>, Option<&str>),
        (subject, reason): (&str, &'static str),
        more: u64,
    ) {
        let mut record = AuditRecord {
            path: path.map(truncate),
            server: server.map(truncate),
            more: (more > 0).then_some(more),
            ..AuditRecord::now(Some(subject))
        };
        record.set_rejected(reason);
        self.queue.push(&record);
    }

    pub(crate) async fn flush(&self, within: Duration) {
        let (written, flushed) = oneshot::channel();
        let flushing = async {
            let flush = AuditMessage::Flush(written);
            if self.queue.lines.send(flush).await.is_ok() {
                flushed.await.ok();
            }
        };
        clock::timeout(within, flushing).await.ok();
    }

    fn named_arguments(&self, params: &Params) -> Option<Map<String, Value>> {
        if self.options.arguments.is_empty() {
            return None;
        }
        let all: Value = serde_json::from_slice(params.member("arguments")?).ok()?;
        let named = self.options.arguments.iter().filter_map(|name| {
            let value = all.get(name)?;
            Some((name.clone(), value.clone()))
        });
        let named: Map<String, Value> = named.collect();
        (!named.is_empty()).then_some(named)
    }
}

impl AuditQueue {
    fn push(&self, record: &AuditRecord) {
        self.counts.audit_lines.increment();
        let line = AuditMessage::Line(record.to_line());
        if self.lines.try_send(line).is_err() {
            self.counts.audit_lines_lost.increment();
        }
    }
}

/// The line of a request in flight; none without an audit. If it is dropped, the request was cancelled.
#[derive(Default)]
pub(crate) struct AuditLine(Option<PendingLine>);

struct PendingLine {
    record: AuditRecord,
    started_at: Instant,
    queue: AuditQueue,
}

impl AuditLine {
    pub(crate) fn finish(mut self, outcome: &Result<Bytes, Error>) {
        let delivery = match outcome {
            Ok(_) => Delivery::Answered,
            Err(error) => error.delivery(),
        };
        self.write(delivery, |record| {
            if let Err(error) = outcome
                && error.server_error().is_none()
            {
                let code = error.code().as_str();
                record.code = Some(code);
                record.refused = rejection_code(code).map(str::to_owned);
            }
        });
    }

    pub(crate) fn finish_rejected(mut self, reason: &str) {
        self.write(Delivery::Unsent, |record| record.set_rejected(reason));
    }

    pub(crate) fn finish_timed_out(mut self) {
        let code = Some(Code::Deadline.as_str());
        self.write(Delivery::Unknown, |record| record.code = code);
    }

    fn write(&mut self, delivery: Delivery, describe: impl FnOnce(&mut AuditRecord)) {
        if let Some(mut line) = self.0.take() {
            describe(&mut line.record);
            let took = clock::now().saturating_duration_since(line.started_at);
            line.record.delivery = Some(delivery.to_string());
            line.record.duration_us = Some(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            line.queue.push(&line.record);
        }
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        self.write(Delivery::Unknown, |record| record.code = Some("cancelled"));
    }
}

async fn write_queued(
    mut output: AuditFile,
    mut queued: mpsc::Receiver<AuditMessage>,
    counts: Arc<GatewayCounters>,
) {
    let mut messages = Vec::with_capacity(MAX_BATCH);
    // How many of the lost lines the file mentions.
    let mut reported = 0;
    let mut is_failing = false;
    while queued.recv_many(&mut messages, MAX_BATCH).await > 0 {
        let mut text = String::new();
        let mut lines = 0;
        let mut flushed = Vec::new();
        for message in messages.drain(..) {
            match message {
                AuditMessage::Line(line) => {
                    lines += 1;
                    text.push_str(&line);
                    text.push('\n');
                },
                AuditMessage::Flush(written) => flushed.push(written),
            }
        }
        let lost = counts.audit_lines_lost.count();
        if lost > reported {
            let record = AuditRecord {
                dropped: Some(lost - reported),
                ..AuditRecord::now(None)
            };
            text.push_str(&record.to_line());
            text.push('\n');
        }
        let writing = clock::spawn_blocking("audit", move || {
            let written = output.append(text.as_bytes());
            (output, written)
        });
        let Ok((back, written)) = writing.await else {
            return;
        };
        output = back;
        match &written {
            Ok(()) => reported = lost,
            Err(_) => counts.audit_lines_lost.add(lines),
        }
        log_change(is_failing, &written);
        is_failing = written.is_err();
        for written in flushed {
            written.send(()).ok();
        }
    }
}

/// Logs that the audit begins to fail, or works again: a full disk must not fill the log as well.
fn log_change(was_failing: bool, written: &io::Result<()>) {
    match written {
        Err(error) if !was_failing => {
            tracing::error!(%error, "failed to write the audit; lines are lost");
        },
        Ok(()) if was_failing => tracing::info!("the audit is written again"),
        Ok(()) | Err(_) => {},
    }
}

/// The error code of a rejection whose reason is a code.
fn rejection_code(reason: &str) -> Option<&'static str> {
    let codes = [Code::NotAllowed, Code::Draining].map(Code::as_str);
    codes.into_iter().find(|code| *code == reason)
}

fn truncate(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

fn client_name(headers: &HeaderMap, method: &str, params: &Params) -> Option<String> {
    let in_initialize = || {
        params
            .member("clientInfo")
            .filter(|_| method == "initialize")
    };
    let info = params.meta_member(meta::CLIENT_INFO).or_else(in_initialize);
    let stated = info.and_then(|info| {
        let info: Map<String, Value> = serde_json::from_slice(info).ok()?;
        let name = info.get("name")?.as_str()?;
        Some(match info.get("version").and_then(Value::as_str) {
            Some(version) => format!("{name} {version}"),
            None => name.to_owned(),
        })
    });
    let agent = || Some(headers.get(USER_AGENT)?.to_str().ok()?.to_owned());
    Some(truncate(&stated.or_else(agent)?))
}

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
}

impl AuditFile {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open_for_append(path)?,
            path: path.to_owned(),
        })
    }

    /// Appends whole lines. Creates the file again if it was moved away or removed.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_same =
            |found: &std::fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        if !std::fs::metadata(&self.path).is_ok_and(|found| is_same(&found)) {
            self.file = open_for_append(&self.path)?;
        }
        self.file.write_all(lines)
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its reader.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::other("the pipe has no reader"),
            Some(_) | None => error,
        })?;
    // Writes wait for a slow reader: half a line is no line.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let error = AuditFile::open(&path).unwrap_err();
        assert_eq!(error.to_string(), "the pipe has no reader");
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, 0o600.into());
        let mut reader = File::from(reader.unwrap());
        AuditFile::open(&path).unwrap().append(b"one\n").unwrap();
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "one\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut output = AuditFile::open(&path).unwrap();
        output.append(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        output.append(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        AuditFile::open(&path).unwrap().append(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree\n");
    }
}
