//! The task of a child: moves bytes, notices the child's end, and ends it.
//!
//! It stops for one reason ([`StopReason`]). Then it reads the child's last output, tells all callers,
//! and only then takes the time to close.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Sender;
use tokio::process::ChildStdout;
use tokio::task::JoinHandle;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::{Message, split_batch};
use warmline_core::message::lines::{LineCodec, StdioLine};

use crate::backpressure::ReadBudget;
use crate::child::TrackedChild;
use crate::child::process::{ChildExit, Process};
use crate::child::stderr::{self, StderrTail};
use crate::listener::SourceSession;
use crate::pending::{MAX_STRAY_REPLIES, TooManyStrayReplies};
use crate::stdio::pipe::{PipeShared, skipped_line_text};
use crate::stdio::write_queue::{CloseRequest, TaskWork};
use crate::target::LifetimeToken;
use warmline_platform::clock;

/// How long the rest of the output of an ended child may take: its calls fail within 100 ms.
const FINAL_DRAIN_TIMEOUT: Duration = Duration::from_millis(90);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const TERM_TIMEOUT: Duration = Duration::from_secs(2);
/// For the kernel; only a process that waits for a dead disk takes longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The one task that has a child's streams.
pub(super) struct ChildTask {
    shared: Arc<PipeShared>,
    process: Process,
    stdout: StdoutReader,
    stderr_task: JoinHandle<()>,
    stderr: Arc<StderrTail>,
    /// These come last: they are dropped when nothing is left of the child.
    _lifetime_token: Option<LifetimeToken>,
    tracked: Arc<TrackedChild>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    Exited,
    OutputClosed,
    InputClosed,
    Violation(ProtocolViolation),
    Requested(CloseRequest),
}

impl ChildTask {
    pub(super) fn new(
        shared: Arc<PipeShared>,
        (process, tracked, lifetime_token): (Process, Arc<TrackedChild>, Option<LifetimeToken>),
        (stdout, line_limit): (ChildStdout, usize),
        (stderr_task, stderr): (JoinHandle<()>, Arc<StderrTail>),
    ) -> Self {
        Self {
            shared,
            process,
            stdout: StdoutReader::new(stdout, line_limit),
            stderr_task,
            stderr,
            tracked,
            _lifetime_token: lifetime_token,
        }
    }

    pub(super) async fn run(mut self, stdin: Sender) {
        let why = self.serve(&stdin).await;
        // Its input stays open until its last output is read: many children end with it, and then
        // nobody could tell what they did by themselves from what we made them do.
        let exit = self.drain_output(why).await;
        drop(stdin);
        let diagnostic = self.stop_diagnostic(why, exit);
        if why != StopReason::Requested(CloseRequest::Graceful) {
            let (server, why) = (&self.shared.server, diagnostic.message.as_str());
            let said = diagnostic.cause.as_deref().unwrap_or_default();
            tracing::debug!(server, why, said, "child lost");
        }
        self.shared.end(&diagnostic);
        self.close(why).await;
    }

    async fn serve(&mut self, stdin: &Sender) -> StopReason {
        let mut budget = ReadBudget::default();
        loop {
            let work = self.shared.write_queue.work();
            if let TaskWork::Stop(request) = work {
                self.shared.write_queue.write_remaining(stdin);
                return StopReason::Requested(request);
            }
            tokio::select! {
                read = self.stdout.read(&self.shared) => match read {
                    Ok(bytes) if self.stdout.is_open => budget.consume(bytes).await,
                    Ok(_) => return StopReason::OutputClosed,
                    Err(violation) => return StopReason::Violation(violation),
                },
                () = self.shared.write_queue.changed.notified() => {},
                ready = stdin.writable(), if work == TaskWork::Write => {
                    match ready.and_then(|()| self.shared.write_queue.write_some(stdin)) {
                        Ok(None) => {},
                        Ok(Some(request)) => self.shared.pending.mark_sent(request),
                        Err(error) if is_transient(&error) => {},
                        Err(_) => return StopReason::InputClosed,
                    }
                },
                exit = self.process.wait_for_exit() => {
                    self.shared.output.lock().exit = Some(exit);
                    return StopReason::Exited;
                },
            }
        }
    }

    /// Reads what the child wrote before it ended: replies in the pipe still count.
    async fn drain_output(&mut self, why: StopReason) -> Option<ChildExit> {
        self.stdout.is_final_drain = true;
        match why {
            StopReason::Violation(_) | StopReason::Requested(_) => {},
            StopReason::Exited | StopReason::OutputClosed | StopReason::InputClosed => {
                let reading = async {
                    while self.stdout.is_open && self.stdout.read(&self.shared).await.is_ok() {}
                    let exit = self.process.wait_for_exit().await;
                    self.shared.output.lock().exit = Some(exit);
                    drop((&mut self.stderr_task).await);
                };
                clock::timeout(FINAL_DRAIN_TIMEOUT, reading).await.ok();
            },
        }
        self.shared.output.lock().exit
    }

    fn stop_diagnostic(&self, why: StopReason, exit: Option<ChildExit>) -> Diagnostic {
        let (reason, what) = match (why, exit) {
            (StopReason::Requested(CloseRequest::Graceful), _) => {
                let what = format!("`{}` was closed", self.shared.server);
                return Diagnostic::new(Reason::Closed, what);
            },
            (StopReason::Requested(CloseRequest::TornInput), _) => (
                Reason::ReplyLost,
                "was ended: a deadline cut a message to it".to_owned(),
            ),
            (StopReason::Violation(ProtocolViolation::TooMuchGarbage), _) => (
                Reason::BadReply,
                "was ended: its output is not MCP (100 lines or 1 MiB in a row)".to_owned(),
            ),
            (StopReason::Violation(ProtocolViolation::TooManyStrayReplies), _) => (
                Reason::BadReply,
                format!("was ended: {MAX_STRAY_REPLIES} replies to nothing we asked"),
            ),
            (
                StopReason::Exited | StopReason::OutputClosed | StopReason::InputClosed,
                Some(exit),
            ) => (Reason::ChildExit, format!("ended with {exit}")),
            (StopReason::InputClosed | StopReason::Exited, None) => {
                (Reason::ChildExit, "closed its input".to_owned())
            },
            (StopReason::OutputClosed, None) => (
                Reason::ReplyLost,
                "closed its output and kept running".to_owned(),
            ),
        };
        let diagnostic = Diagnostic::new(reason, format!("`{}` {what}", self.shared.server));
        match self.last_output() {
            Some(said) => diagnostic.with_cause(said),
            None => diagnostic,
        }
    }

    /// What the child wrote as it ended: to its standard error, or where only messages belong.
    fn last_output(&self) -> Option<String> {
        let said = self.stderr.text();
        if !said.is_empty() {
            return Some(said);
        }
        let line = {
            let output = self.shared.output.lock();
            (output.skipped_lines > 0).then(|| output.last_skipped_line.clone())
        };
        line.map(|line| skipped_line_text(&self.stderr.redact_line(line)))
    }

    /// Ends the child and its descendants, step by step. Its input is closed already.
    async fn close(&mut self, why: StopReason) {
        if why == StopReason::Requested(CloseRequest::Graceful)
            && self.exits_within(CLOSE_TIMEOUT).await
        {
            return;
        }
        self.process.terminate();
        if self.exits_within(TERM_TIMEOUT).await {
            return;
        }
        self.process.kill();
        let killed = clock::timeout(KILL_TIMEOUT, self.wait_for_exit()).await;
        if killed.is_err() {
            tracing::error!(server = self.shared.server, "a child cannot be killed");
        }
    }

    async fn exits_within(&mut self, limit: Duration) -> bool {
        let timeout = self.tracked.step_timeout(limit);
        tokio::select! {
            biased;
            () = self.wait_for_exit() => true,
            () = timeout => false,
        }
    }

    /// Waits for the child's end. Its output is still read, or it might hang in a last write.
    async fn wait_for_exit(&mut self) {
        loop {
            tokio::select! {
                exit = self.process.wait_for_exit() => {
                    self.shared.output.lock().exit = Some(exit);
                    return;
                },
                _ = self.stdout.fill_chunk(), if self.stdout.is_open => {},
            }
        }
    }
}

impl Drop for ChildTask {
    /// A panic and the end of the runtime get here, too: no caller waits for ever.
    fn drop(&mut self) {
        let what = format!("the task of `{}` ended", self.shared.server);
        // The child ends with it, so an unsent request may go to another.
        self.shared.end(&Diagnostic::new(Reason::ChildExit, what));
        self.stderr_task.abort();
        self.shared.is_gone.send_replace(true);
    }
}

/// The pipe was full after all, or a signal came.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

const CHUNK_BYTES: usize = 64 << 10;
const MAX_GARBAGE_LINES: usize = 100;
const MAX_GARBAGE_BYTES: usize = 1 << 20;
const SKIPPED_LINE_BYTES: usize = 2 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProtocolViolation {
    /// Too many lines in a row were no messages.
    TooMuchGarbage,
    TooManyStrayReplies,
}

impl From<TooManyStrayReplies> for ProtocolViolation {
    fn from(_: TooManyStrayReplies) -> Self {
        Self::TooManyStrayReplies
    }
}

struct StdoutReader {
    stdout: ChildStdout,
    codec: LineCodec,
    line_limit: usize,
    chunk: Vec<u8>,
    is_open: bool,
    is_routed: bool,
    /// The child is gone: its last output is read while its calls can still get it, and reading waits
    /// for nobody.
    is_final_drain: bool,
    /// Lines and bytes that were no messages, since the last message.
    garbage_lines: usize,
    garbage_bytes: usize,
}

impl StdoutReader {
    fn new(stdout: ChildStdout, line_limit: usize) -> Self {
        Self {
            stdout,
            codec: LineCodec::new(line_limit),
            line_limit,
            chunk: vec![0; CHUNK_BYTES],
            is_open: true,
            is_routed: true,
            is_final_drain: false,
            garbage_lines: 0,
            garbage_bytes: 0,
        }
    }

    /// Reads once, routes all complete lines, and returns how much was read.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    async fn read(&mut self, shared: &Arc<PipeShared>) -> Result<usize, ProtocolViolation> {
        if !self.is_routed {
            self.route_lines(shared).await?;
        }
        let read = self.fill_chunk().await;
        self.codec.push(self.chunk.get(..read).unwrap_or_default());
        self.is_routed = false;
        self.route_lines(shared).await?;
        // A last line without a newline is a line all the same.
        if !self.is_open
            && let Some(line) = self.codec.finish()
        {
            self.route(shared, line)?;
        }
        Ok(read)
    }

    async fn route_lines(&mut self, shared: &Arc<PipeShared>) -> Result<(), ProtocolViolation> {
        loop {
            if !self.is_final_drain {
                // As much as one line may have.
                shared.pending.wait_for_capacity(self.line_limit).await;
            }
            let Some(line) = self.codec.next() else {
                self.is_routed = true;
                return Ok(());
            };
            self.route(shared, line)?;
        }
    }

    fn route(
        &mut self,
        shared: &Arc<PipeShared>,
        line: StdioLine,
    ) -> Result<(), ProtocolViolation> {
        match line {
            StdioLine::Complete(line) => {
                let mut texts = split_batch(line, shared.version.get().copied());
                texts.try_for_each(|text| self.route_text(shared, text))
            },
            StdioLine::TooLong { id, bytes } => {
                shared.output.lock().skipped_lines += 1;
                if let Some(id) = id {
                    let (server, limit) = (&shared.server, self.line_limit);
                    let what =
                        format!("`{server}` sent a line of {bytes} bytes, the limit is {limit}");
                    let diagnostic = Diagnostic::new(Reason::ReplyTooLarge, what);
                    shared.pending.lose(id, diagnostic);
                }
                Ok(())
            },
        }
    }

    fn route_text(
        &mut self,
        shared: &Arc<PipeShared>,
        text: Bytes,
    ) -> Result<(), ProtocolViolation> {
        let parsed = match text.contains(&b'\r') {
            true => None,
            false => Message::parse(text.clone()).ok(),
        };
        let Some(message) = parsed else {
            return self.skip_line(shared, &text);
        };
        (self.garbage_lines, self.garbage_bytes) = (0, 0);
        let weak = Arc::downgrade(shared);
        let send_reply = move |id: &[u8], payload| {
            if let Some(shared) = weak.upgrade() {
                shared.queue_reply(id, payload);
            }
        };
        let source = SourceSession::from_ref(&**shared);
        Ok(shared.pending.dispatch(message, source, send_reply)?)
    }

    fn skip_line(&mut self, shared: &PipeShared, line: &Bytes) -> Result<(), ProtocolViolation> {
        self.garbage_lines += 1;
        self.garbage_bytes += line.len();
        let kept = String::from_utf8_lossy(line.get(..SKIPPED_LINE_BYTES).unwrap_or(line));
        {
            let mut output = shared.output.lock();
            output.skipped_lines += 1;
            output.last_skipped_line = stderr::sanitize_terminal_text(&kept);
        }
        // The line may hold a secret of the child, which is redacted where the line is shown.
        tracing::debug!(bytes = line.len(), "line skipped");
        if self.garbage_lines >= MAX_GARBAGE_LINES || self.garbage_bytes >= MAX_GARBAGE_BYTES {
            return Err(ProtocolViolation::TooMuchGarbage);
        }
        Ok(())
    }

    /// A failed read is the end, as there is no other way to go on.
    async fn fill_chunk(&mut self) -> usize {
        let read = self.stdout.read(&mut self.chunk).await.unwrap_or(0);
        self.is_open = read > 0;
        read
    }
}
