//! What is still to be written to a child, down to the byte.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use tokio::net::unix::pipe::Sender;

/// Lines to be written, the first of them perhaps in part.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lines: VecDeque<Outgoing>,
    bytes: usize,
    /// How much of the first line (and its newline) the pipe has taken.
    taken: usize,
    /// How much it has taken in all.
    #[cfg(test)]
    pub(super) taken_in_all: usize,
}

#[derive(Debug)]
struct Outgoing {
    /// The call it begins; none for what nobody waits for.
    call: Option<u64>,
    line: Bytes,
}

/// How much of a line that was taken out of the queue had left.
#[derive(PartialEq, Eq)]
pub(super) enum Withdrawn {
    Whole,
    /// It stays in the queue, because a part of it has left.
    InPart,
}

impl Outbox {
    /// Queues a line, if there is room.
    pub(super) fn push(&mut self, call: Option<u64>, line: Bytes) -> bool {
        if self.lines.len() >= QUEUED_LINES || self.bytes >= QUEUED_BYTES {
            return false;
        }
        self.bytes += line.len();
        self.lines.push_back(Outgoing { call, line });
        true
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How much of the line that is being written has left.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Whether the line of this call is being written.
    pub(super) fn is_half_out(&self, id: u64) -> bool {
        let first = self.lines.front();
        self.taken > 0 && first.is_some_and(|first| first.call == Some(id))
    }

    /// Takes the line of a call out of the queue, unless a part of it has left.
    pub(super) fn withdraw(&mut self, id: u64) -> Withdrawn {
        if self.is_half_out(id) {
            return Withdrawn::InPart;
        }
        let place = self.lines.iter().position(|line| line.call == Some(id));
        if let Some(line) = place.and_then(|place| self.lines.remove(place)) {
            self.bytes -= line.line.len();
        }
        Withdrawn::Whole
    }

    /// Forgets what was not written.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        (self.bytes, self.taken) = (0, 0);
    }

    /// Leaves only what nobody waits for; nothing at all behind a line that is half-way out.
    pub(super) fn keep_said(&mut self) {
        let torn = self.taken > 0;
        self.lines.retain(|line| line.call.is_none() && !torn);
    }

    /// Writes once; returns the call whose JSON text is whole by now.
    pub(super) fn write_some(&mut self, stdin: &Sender) -> io::Result<Option<u64>> {
        let Some(first) = self.lines.front() else {
            return Ok(None);
        };
        let text = first.line.get(self.taken..).unwrap_or_default();
        let taken = stdin.try_write_vectored(&[io::IoSlice::new(text), io::IoSlice::new(b"\n")])?;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.taken += taken;
        #[cfg(test)]
        {
            self.taken_in_all += taken;
        }
        let whole = first.call.filter(|_| self.taken >= first.line.len());
        if self.taken > first.line.len() {
            self.bytes -= first.line.len();
            self.taken = 0;
            self.lines.pop_front();
        }
        Ok(whole)
    }
}

/// Lines and bytes that may wait for a child to read. One line of any size may always wait.
const QUEUED_LINES: usize = 1024;
const QUEUED_BYTES: usize = 64 << 20;
