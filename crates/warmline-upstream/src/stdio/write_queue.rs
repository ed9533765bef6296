//! What is still to be written to a child, down to the byte.
//!
//! One short lock. The write itself happens under it (the pipe never blocks), so that a caller who
//! gives up learns exactly how much of its line has left.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use warmline_core::error::code::Reason;

use warmline_platform::lock::Mutex;

/// How many lines and bytes may wait for a child to read. One line of any size may always wait.
const MAX_QUEUED_LINES: usize = 1024;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// Lines to be written, the first of them perhaps in part.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    pub(super) state: Mutex<WriteState>,
    /// Notified when [`WriteQueue::work`] may have changed.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct WriteState {
    lines: VecDeque<QueuedLine>,
    bytes: usize,
    /// How much of the first line (and its newline) the pipe has taken.
    written: usize,
    close_request: Option<CloseRequest>,
    is_ended: bool,
    /// How much the pipe has taken in all.
    #[cfg(test)]
    total_written: usize,
}

#[derive(Debug)]
struct QueuedLine {
    /// The request that it holds; none if nobody waits for a reply.
    request: Option<u64>,
    line: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseRequest {
    Graceful,
    /// A part of a message is in its input.
    TornInput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskWork {
    Idle,
    Write,
    Stop(CloseRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteProgress {
    Unsent,
    /// Not all of its JSON text.
    Partial,
    /// All of its JSON text. Readers run it even if the newline is missing.
    Whole,
}

impl WriteQueue {
    /// Queues the line of a request. The error says why not, behind the server's name.
    pub(super) fn push_request(&self, id: u64, line: Bytes) -> Result<(), (Reason, String)> {
        let mut state = self.state.lock();
        if state.close_request.is_some() {
            return Err((Reason::Closed, "is being closed".to_owned()));
        }
        if !state.push(Some(id), line) {
            let lines = state.lines.len();
            let what = format!("does not read: {lines} messages wait already");
            return Err((Reason::LocalResources, what));
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Queues a line that needs no reply, if there is room.
    pub(super) fn push_message(&self, line: Bytes) -> bool {
        let is_queued = self.state.lock().push(None, line);
        self.changed.notify_one();
        is_queued
    }

    pub(super) fn request_close(&self) {
        let mut state = self.state.lock();
        state.close_request.get_or_insert(CloseRequest::Graceful);
        self.changed.notify_one();
    }

    pub(super) fn work(&self) -> TaskWork {
        let state = self.state.lock();
        match state.close_request {
            Some(request) => TaskWork::Stop(request),
            None if state.lines.is_empty() => TaskWork::Idle,
            None => TaskWork::Write,
        }
    }

    /// Removes the line of a request, unless a part of it has left: then not a byte more leaves, and
    /// the child is to be ended.
    pub(super) fn abandon(&self, id: u64) -> WriteProgress {
        let mut state = self.state.lock();
        let progress = state.withdraw(id);
        if progress == WriteProgress::Partial {
            state.close_request = Some(CloseRequest::TornInput);
            self.changed.notify_one();
        }
        progress
    }

    /// Writes once; returns the request whose JSON text is whole now.
    pub(super) fn write_some(&self, stdin: &Sender) -> io::Result<Option<u64>> {
        let mut state = self.state.lock();
        // Who abandoned a request knows how much of it has left: that must stay true.
        if state.close_request.is_some() {
            return Ok(None);
        }
        state.write_some(stdin)
    }

    /// Writes the messages that need no reply, as far as the pipe takes them now; nothing behind a
    /// line that was written in part.
    pub(super) fn write_remaining(&self, stdin: &Sender) {
        let state = &mut *self.state.lock();
        let is_torn = state.written > 0;
        state
            .lines
            .retain(|line| line.request.is_none() && !is_torn);
        while !state.lines.is_empty() && state.write_some(stdin).is_ok() {}
    }

    /// Nothing is written any more. The lines of requests stay: their callers withdraw them.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        let first = state.lines.front();
        if first.is_some_and(|line| line.request.is_none()) {
            state.written = 0;
        }
        state.lines.retain(|line| line.request.is_some());
    }

    #[cfg(test)]
    pub(super) fn total_written(&self) -> usize {
        self.state.lock().total_written
    }

    #[cfg(test)]
    pub(super) fn written(&self) -> usize {
        self.state.lock().written
    }
}

impl WriteState {
    fn push(&mut self, request: Option<u64>, line: Bytes) -> bool {
        let is_full = self.lines.len() >= MAX_QUEUED_LINES || self.bytes >= MAX_QUEUED_BYTES;
        if self.is_ended || is_full {
            return false;
        }
        self.bytes += line.len();
        self.lines.push_back(QueuedLine { request, line });
        true
    }

    pub(super) fn progress(&self, id: u64) -> WriteProgress {
        match self.lines.iter().position(|line| line.request == Some(id)) {
            Some(0) if self.written > 0 => {
                let length = self.lines.front().map_or(0, |line| line.line.len());
                match self.written < length {
                    true => WriteProgress::Partial,
                    false => WriteProgress::Whole,
                }
            },
            Some(_) => WriteProgress::Unsent,
            None => WriteProgress::Whole,
        }
    }

    /// Removes the line of a request, unless a part of it has left.
    pub(super) fn withdraw(&mut self, id: u64) -> WriteProgress {
        let progress = self.progress(id);
        if progress == WriteProgress::Unsent {
            let queued = self.lines.iter().position(|line| line.request == Some(id));
            if let Some(line) = queued.and_then(|index| self.lines.remove(index)) {
                self.bytes = self.bytes.saturating_sub(line.line.len());
            }
        }
        progress
    }

    fn write_some(&mut self, stdin: &Sender) -> io::Result<Option<u64>> {
        let Some(first) = self.lines.front() else {
            return Ok(None);
        };
        let text = first.line.get(self.written..).unwrap_or_default();
        let taken = stdin.try_write_vectored(&[io::IoSlice::new(text), io::IoSlice::new(b"\n")])?;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += taken;
        #[cfg(test)]
        {
            self.total_written += taken;
        }
        let whole = first.request.filter(|_| self.written >= first.line.len());
        if self.written > first.line.len() {
            self.bytes = self.bytes.saturating_sub(first.line.len());
            self.written = 0;
            self.lines.pop_front();
        }
        Ok(whole)
    }
}
