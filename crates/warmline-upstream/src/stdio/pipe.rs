//! A child, and the requests on their way to it.
//!
//! One task per child reads its output, writes its input and waits for its end; reading and writing
//! never wait for each other. [`PendingRequests`] holds who waits for what, the [`WriteQueue`] how
//! much of each line the pipe has taken; the [`ChildTask`] moves bytes and ends the child.
//!
//! What is known of a request (rows W of `docs/reference/rows.md`): a line of which the pipe took less
//! than its JSON text is unsent, because a prefix of JSON is no message. A line of which it took the
//! whole text is unknown until its reply comes, even if the newline is missing: readers run such a
//! line.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::watch;
use warmline_core::delivery::Delivery;
use warmline_core::era::Version;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::splice::to_single_line;

use crate::attribution::CallerId;
use crate::child::find_program::ProgramSource;
pub use crate::child::process::ChildExit;
use crate::child::stderr::{self, StderrTail};
use crate::child::{ChildTracker, find_program, process};
use crate::environment;
use crate::listener::{IncomingRequest, ReplyPayload};
use crate::pending::{PendingEvent, PendingKind, PendingRequest, PendingRequests, StreamLayout};
use crate::redaction::Redactor;
use crate::stdio::child_task::ChildTask;
use crate::stdio::write_queue::{WriteProgress, WriteQueue};
use crate::target::{LifetimeToken, ServerTarget, StdioConfig};
use crate::unsolicited::UnsolicitedDispatcher;
use warmline_platform::clock::{self, RuntimeHandle};
use warmline_platform::lock::Mutex;

/// A child. Dropping the last clone closes it in the background.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    handle: Arc<PipeHandle>,
}

#[derive(Debug)]
struct PipeHandle {
    shared: Arc<PipeShared>,
    stderr: Arc<StderrTail>,
    /// What was known when the child started.
    report: ChildReport,
    orphans: Arc<AtomicU32>,
}

#[derive(Debug)]
pub(super) struct PipeShared {
    pub(super) server: String,
    pub(super) pending: Arc<PendingRequests>,
    pub(super) write_queue: WriteQueue,
    pub(super) output: Mutex<ChildOutput>,
    pub(super) version: OnceLock<Version>,
    /// True once the child and its tree are gone.
    pub(super) is_gone: watch::Sender<bool>,
    runtime: Option<RuntimeHandle>,
}

/// What a child wrote that was no message, and how it ended.
#[derive(Debug, Default)]
pub(super) struct ChildOutput {
    pub(super) skipped_lines: u64,
    /// The last of them, as harmless text.
    pub(super) last_skipped_line: String,
    pub(super) exit: Option<ChildExit>,
}

/// What is known of a child, for `doctor` and error pages.
#[derive(Clone, Debug)]
pub struct ChildReport {
    /// Its process id, which is also the id of its process group.
    pub pid: u32,
    pub program: PathBuf,
    pub program_source: ProgramSource,
    pub path: String,
    /// The last lines of its standard error, as harmless text.
    pub stderr_tail: String,
    pub exit: Option<String>,
    /// The same, for counters.
    pub exit_status: Option<ChildExit>,
    /// Why no replies come from it, unless we closed it: it ended, or had to be ended. With the last
    /// lines of its standard error.
    pub loss_cause: Option<String>,
    /// How many processes outlived it and were killed, once it has ended.
    pub orphans_killed: u32,
    /// How many lines of its output were no messages.
    pub skipped_lines: u64,
    /// The beginning of the last such line, as harmless text.
    pub last_skipped_line: Option<String>,
    /// Whether its whole tree ends also when we are killed.
    pub has_warden: bool,
}

pub(crate) fn skipped_line_text(line: &str) -> String {
    format!("its output has a line that is no message: \"{line}\"")
}

/// A request to a child. Dropping it abandons the request.
#[derive(Debug)]
#[must_use = "dropping a call abandons it"]
pub(crate) struct PipeCall {
    shared: Arc<PipeShared>,
    id: u64,
    request: PendingRequest,
    is_queued: bool,
}

impl Pipe {
    /// Starts the server's program. Nothing was sent if this fails, and nothing is left running.
    pub(crate) async fn spawn(
        server: &ServerTarget,
        config: &StdioConfig,
        children: &Arc<ChildTracker>,
    ) -> Result<Self, Diagnostic> {
        let tracked = Arc::new(children.track());
        // An abandoned start is counted until nothing is left of it.
        let token: LifetimeToken = Arc::new((Arc::clone(&tracked), server.lifetime_token.clone()));
        let mut environment = environment::child_environment(config);
        let program = find_program::find_program(&server.name, config, &mut environment).await?;
        let start = process::SpawnSpec {
            program: &program.path,
            args: &config.args,
            environment: &environment,
            cwd: config.cwd.as_deref(),
            lifetime_token: Some(&token),
        };
        let (process, streams) = process::Process::spawn(start)
            .await
            .map_err(|error| start_failed(&server.name, &program.path, &error))?;
        let redactor = Redactor::for_environment(&environment).with_variables(&config.substituted);
        let stderr = Arc::new(StderrTail::with_redactor(redactor));
        let draining = stderr::drain_stderr(streams.stderr, Arc::clone(&stderr));
        let draining = clock::spawn("stderr of a child", draining);
        let unsolicited = UnsolicitedDispatcher::new(server.unsolicited_listener.clone());
        let shared = Arc::new(PipeShared {
            server: server.name.clone(),
            pending: Arc::new(PendingRequests::new(StreamLayout::Pipe, unsolicited)),
            write_queue: WriteQueue::default(),
            output: Mutex::default(),
            version: OnceLock::new(),
            is_gone: watch::Sender::new(false),
            runtime: RuntimeHandle::current(),
        });
        let path = environment.get(std::ffi::OsStr::new("PATH"));
        let handle = Arc::new(PipeHandle {
            shared: Arc::clone(&shared),
            stderr: Arc::clone(&stderr),
            report: ChildReport {
                pid: process.pid(),
                program: program.path,
                program_source: program.source,
                path: path.map_or_else(String::new, |path| path.to_string_lossy().into_owned()),
                stderr_tail: String::new(),
                exit: None,
                exit_status: None,
                loss_cause: None,
                orphans_killed: 0,
                skipped_lines: 0,
                last_skipped_line: None,
                has_warden: process.has_warden(),
            },
            orphans: Arc::clone(&process.orphans),
        });
        let task = ChildTask::new(
            shared,
            (process, tracked, server.lifetime_token.clone()),
            (streams.stdout, server.size_limits.line),
            (draining, stderr),
        );
        // It ends when the child does, or when the last handle is dropped.
        drop(clock::spawn("child", task.run(streams.stdin)));
        Ok(Self { handle })
    }

    /// Sends a request of ours: one JSON message without a newline, whose id is `id`.
    pub(crate) fn request(&self, id: u64, line: Bytes) -> PipeCall {
        self.start_request(id, line, PendingKind::Call, None)
    }

    pub(crate) fn start_request(
        &self,
        id: u64,
        line: Bytes,
        kind: PendingKind,
        caller: Option<CallerId>,
    ) -> PipeCall {
        let shared = Arc::clone(&self.handle.shared);
        let request = shared.pending.register(id, kind, caller);
        let queued = shared.write_queue.push_request(id, to_single_line(line));
        let is_queued = queued.is_ok();
        if let Err((reason, why)) = queued {
            let what = format!("`{}` {why}", shared.server);
            request.fail_unsent(Diagnostic::new(reason, what));
        }
        PipeCall {
            shared,
            id,
            request,
            is_queued,
        }
    }

    /// Sends a message that gets no reply. The error says why it will never be written.
    pub(crate) fn send_message(&self, line: Bytes) -> Result<(), Diagnostic> {
        let shared = &self.handle.shared;
        if let Some(diagnostic) = shared.pending.end_reason() {
            return Err(diagnostic);
        }
        if !shared.write_queue.push_message(to_single_line(line)) {
            let what = format!("`{}` does not read, and its queue is full", shared.server);
            return Err(Diagnostic::new(Reason::LocalResources, what));
        }
        Ok(())
    }

    /// From now on requests of the server are dropped: the modern era allows none over a pipe.
    pub(crate) fn ignore_server_requests(&self) {
        self.handle.shared.pending.ignore_server_requests();
    }

    pub(crate) fn set_version(&self, version: Version) {
        // There is one handshake in the life of a child.
        self.handle.shared.version.set(version).ok();
    }

    pub(crate) fn redactor(&self) -> Redactor {
        self.handle.stderr.redactor.clone()
    }

    pub(crate) fn report(&self) -> ChildReport {
        let PipeHandle { shared, stderr, .. } = &*self.handle;
        let (skipped_lines, skipped_line, exit) = {
            let output = shared.output.lock();
            let line = output.last_skipped_line.clone();
            (output.skipped_lines, line, output.exit)
        };
        let lost = shared.pending.end_reason();
        let lost = lost.filter(|diagnostic| diagnostic.reason != Reason::Closed);
        ChildReport {
            stderr_tail: stderr.text(),
            exit: exit.map(|exit| exit.to_string()),
            exit_status: exit,
            loss_cause: lost.map(|diagnostic| match diagnostic.cause {
                Some(last_lines) => format!("{}: {last_lines}", diagnostic.message),
                None => diagnostic.message,
            }),
            orphans_killed: self.handle.orphans.load(Ordering::Relaxed),
            skipped_lines,
            last_skipped_line: (skipped_lines > 0).then(|| stderr.redact_line(skipped_line)),
            ..self.handle.report.clone()
        }
    }

    /// Waits until the child and its tree are gone.
    pub(crate) async fn wait_until_gone(&self) {
        let mut gone = self.handle.shared.is_gone.subscribe();
        // We hold the sender, so this ends only when it is true.
        drop(gone.wait_for(|gone| *gone).await);
    }

    /// Ends the child: its input, 2 s, TERM to its group, 2 s, KILL. The tree is gone when this
    /// returns. Calls in flight are lost at once. Dropped half-way, the closing goes on.
    pub(crate) async fn close(&self) {
        self.handle.shared.write_queue.request_close();
        self.wait_until_gone().await;
    }
}

impl Drop for PipeHandle {
    fn drop(&mut self) {
        self.shared.write_queue.request_close();
    }
}

impl PipeShared {
    /// Queues a reply to a request of the server. A child that never reads loses it.
    pub(super) fn queue_reply(&self, id: &[u8], payload: ReplyPayload) {
        self.write_queue
            .push_message(payload.into_message(id).into());
    }

    /// No reply comes any more, and nothing is written.
    pub(super) fn end(&self, diagnostic: &Diagnostic) {
        self.pending.end_all(diagnostic);
        self.write_queue.end();
    }
}

impl PipeCall {
    /// Waits for the next event.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next_event(&mut self) -> PendingEvent {
        let other_runtime = self.shared.runtime.clone();
        let Some(home) = other_runtime.filter(|home| !home.is_current()) else {
            return self.request.next_event().await;
        };
        loop {
            tokio::select! {
                biased;
                event = self.request.next_event() => return event,
                // A request that has left gets its reply, whichever runtime reads it.
                () = home.wait_until_stalled(), if !self.is_in_flight() => {
                    if !self.is_in_flight() {
                        return self.stalled_runtime_loss();
                    }
                },
            }
        }
    }

    fn stalled_runtime_loss(&mut self) -> PendingEvent {
        let delivery = match self.abandon() {
            WriteProgress::Unsent => Delivery::Unsent,
            WriteProgress::Partial | WriteProgress::Whole => Delivery::Unknown,
        };
        let server = &self.shared.server;
        let what = format!("`{server}` was started in a runtime that nobody drives at the moment");
        let diagnostic = Diagnostic::new(Reason::TimeoutUnsent, what)
            .with_hint("let that runtime run on, or call all servers from one runtime");
        PendingEvent::Lost(delivery, diagnostic)
    }

    /// Abandons the call, and returns how much of it has left.
    pub(crate) fn abandon(&mut self) -> WriteProgress {
        let progress = match std::mem::take(&mut self.is_queued) {
            true => self.shared.write_queue.abandon(self.id),
            false => WriteProgress::Unsent,
        };
        self.unregister(progress);
        progress
    }

    /// Server requests that were not read get their refusal here.
    fn unregister(&self, progress: WriteProgress) {
        if progress != WriteProgress::Unsent {
            self.shared.pending.mark_sent(self.id);
        }
        for message in self.request.unregister() {
            let unread = IncomingRequest::from_message(&message);
            self.shared.queue_reply(&unread.id, unread.refused_reply());
        }
    }

    /// Whether something of it has left and its end has not come.
    pub(crate) fn is_in_flight(&self) -> bool {
        let has_left =
            || self.shared.write_queue.state.lock().progress(self.id) != WriteProgress::Unsent;
        self.is_queued && !self.request.is_ended() && has_left()
    }
}

impl Drop for PipeCall {
    /// A line that was written in part is written to its end: torn input would cost the others.
    fn drop(&mut self) {
        if self.is_queued {
            let progress = self.shared.write_queue.state.lock().withdraw(self.id);
            self.unregister(progress);
        }
    }
}

fn start_failed(server: &str, program: &std::path::Path, error: &std::io::Error) -> Diagnostic {
    use rustix::io::Errno;
    let program = program.display();
    let (reason, hint) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => (
            Reason::ProgramMissing,
            "the interpreter in its first line may be missing",
        ),
        Some(Errno::ACCESS) => (Reason::Spawn, "check that it may be executed"),
        Some(Errno::NOEXEC) => (Reason::Spawn, "check that it is built for this machine"),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => (
            Reason::LocalResources,
            "this machine has no room for another process: raise its limits",
        ),
        _ => (Reason::Spawn, "try to run it in a terminal"),
    };
    let what = format!("`{server}` could not be started: {program}");
    Diagnostic::new(reason, what)
        .with_cause(error.to_string())
        .with_hint(hint)
}

#[cfg(test)]
mod tests;
