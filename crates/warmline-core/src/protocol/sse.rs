//! A push parser for event streams: bytes in, events out.
//!
//! Asked by: the HTTP drivers, with whatever pieces the network cuts a stream into. How the
//! bytes are cut changes nothing.
//!
//! What is yielded: every block that has a field we know, also those without data: a server
//!   primes a stream with an id and empty data, so that it can be resumed.
//! What is not: comments, unknown fields, and a block that the end of the stream cuts.
//! What bounds it: one event holds at most `max_event_bytes`. A longer one is reported once and
//!   skipped to its end. Take out all events after each push: what was pushed is kept till then.

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};

/// Takes an event stream in pieces and yields its events.
#[derive(Debug)]
pub struct SseParser {
    max_event_bytes: usize,
    buffer: BytesMut,
    // How far the buffer was searched for the end of a line.
    searched: usize,
    // The last line ended in CR: an LF that follows belongs to it.
    skips_lf: bool,
    is_first_line: bool,
    skipping: Skipping,
    event: Draft,
    last_id: Option<String>,
    retry: Option<u64>,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name, if it has one; none means `message`.
    pub event: Option<String>,
    /// Its data, lines joined by LF; empty for events that only prime the stream.
    pub data: Bytes,
    /// Its id, if it set one.
    pub id: Option<String>,
    /// The pause before a reconnect that it asked for, in milliseconds.
    pub retry: Option<u64>,
}

/// An event was longer than allowed; it is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseTooLarge {
    /// How long an event may be.
    pub max_event_bytes: usize,
}

impl std::fmt::Display for SseTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an event is longer than {} bytes", self.max_event_bytes)
    }
}

impl std::error::Error for SseTooLarge {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skipping {
    No,
    /// Within a line of the event that is skipped; whether that line has bytes so far.
    Line {
        has_bytes: bool,
    },
}

#[derive(Debug, Default)]
struct Draft {
    event: Option<String>,
    data: Data,
    id: Option<String>,
    retry: Option<u64>,
    has_fields: bool,
    // Bytes of the lines it was made of. Never more than those lines have, so that an event that
    // fits before its last line end still fits after it.
    held: usize,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    // The usual case: one line, which shares the buffer it came in.
    One(Bytes),
    Many(BytesMut),
}

impl SseParser {
    /// A parser at the start of a stream.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            buffer: BytesMut::new(),
            searched: 0,
            skips_lf: false,
            is_first_line: true,
            skipping: Skipping::No,
            event: Draft::default(),
            last_id: None,
            retry: None,
        }
    }

    /// Takes in the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The stream ended: what is left of an event is dropped, and the next bytes start a new
    /// stream. The last id and the pause stay known.
    pub fn finish(&mut self) {
        let fresh = Self::new(self.max_event_bytes);
        let old = std::mem::replace(self, fresh);
        self.last_id = old.last_id;
        self.retry = old.retry;
    }

    /// How many bytes are held of an event that is not complete.
    pub fn unfinished(&self) -> usize {
        self.event.held + self.buffer.len()
    }

    /// The most bytes that an event may have.
    pub const fn max_event_bytes(&self) -> usize {
        self.max_event_bytes
    }

    /// The id of the last complete event that set one; where a stream is resumed.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The pause before a reconnect that the server asked for last, in milliseconds.
    pub const fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Takes the next complete line off the buffer, without its end.
    fn line(&mut self) -> Option<BytesMut> {
        if self.skips_lf && !self.buffer.is_empty() {
            if self.buffer.first() == Some(&b'\n') {
                self.buffer.advance(1);
            }
            self.skips_lf = false;
        }
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'\n', b'\r', unsearched) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + found);
        self.skips_lf = self.buffer.first() == Some(&b'\r');
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    /// What is kept for the event under way, with a line of that length.
    fn is_too_large(&self, line: usize) -> bool {
        self.event.held + line > self.max_event_bytes
    }

    /// Gives the event under way up.
    fn skip(&mut self, skipping: Skipping) -> SseTooLarge {
        self.event = Draft::default();
        self.is_first_line = false;
        self.skipping = skipping;
        SseTooLarge {
            max_event_bytes: self.max_event_bytes,
        }
    }

    /// Goes on skipping; whether the event that is skipped ended.
    fn skip_on(&mut self, has_bytes: bool) -> bool {
        match self.line() {
            Some(line) if line.is_empty() && !has_bytes => {
                self.skipping = Skipping::No;
                true
            },
            Some(_) => {
                self.skipping = Skipping::Line { has_bytes: false };
                true
            },
            None => {
                let has_bytes = has_bytes || !self.buffer.is_empty();
                self.buffer.clear();
                self.searched = 0;
                self.skipping = Skipping::Line { has_bytes };
                false
            },
        }
    }

    fn take_line(&mut self, line: BytesMut) -> Option<SseEvent> {
        let mut line = line.freeze();
        if std::mem::take(&mut self.is_first_line) && line.starts_with(b"\xEF\xBB\xBF") {
            line.advance(3);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let (name, value) = match memchr::memchr(b':', &line) {
            Some(colon) => {
                let value = line.slice(colon + 1..);
                let blank = usize::from(value.first() == Some(&b' '));
                (line.slice(..colon), value.slice(blank..))
            },
            None => (line, Bytes::new()),
        };
        self.event.field(&name, value);
        if let Some(pause) = self.event.retry {
            self.retry = Some(pause);
        }
        None
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let draft = std::mem::take(&mut self.event);
        if !draft.has_fields {
            return None;
        }
        if let Some(id) = &draft.id {
            // An empty id takes the last one back.
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        Some(SseEvent {
            event: draft.event,
            data: draft.data.into_bytes(),
            id: draft.id,
            retry: draft.retry,
        })
    }
}

impl Iterator for SseParser {
    type Item = Result<SseEvent, SseTooLarge>;

    /// The next event that is complete, or none until more bytes are pushed.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Skipping::Line { has_bytes } = self.skipping {
                if !self.skip_on(has_bytes) {
                    return None;
                }
                continue;
            }
            let Some(line) = self.line() else {
                if self.is_too_large(self.buffer.len()) {
                    self.buffer.clear();
                    self.searched = 0;
                    return Some(Err(self.skip(Skipping::Line { has_bytes: true })));
                }
                return None;
            };
            if self.is_too_large(line.len()) {
                return Some(Err(self.skip(Skipping::Line { has_bytes: false })));
            }
            if let Some(event) = self.take_line(line) {
                return Some(Ok(event));
            }
        }
    }
}

impl Draft {
    fn field(&mut self, name: &[u8], value: Bytes) {
        let bytes = value.len() + 1;
        match name {
            b"data" => self.data.add(value),
            b"event" => {
                self.event = Some(String::from_utf8_lossy(&value).into_owned())
                    .filter(|name| !name.is_empty());
            },
            b"id" => match std::str::from_utf8(&value) {
                // An id we could not send back as it came is no id.
                Ok(id) if !id.contains('\0') => self.id = Some(id.to_owned()),
                _ => return,
            },
            b"retry" => match digits(&value) {
                Some(pause) => self.retry = Some(pause),
                None => return,
            },
            _ => return,
        }
        self.held += bytes;
        self.has_fields = true;
    }
}

impl Data {
    fn add(&mut self, line: Bytes) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(line),
            Self::One(first) => {
                let mut lines = BytesMut::with_capacity(first.len() + 1 + line.len());
                lines.extend_from_slice(&first);
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Self::Many(lines)
            },
            Self::Many(mut lines) => {
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Self::Many(lines)
            },
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(line) => line,
            Self::Many(lines) => lines.freeze(),
        }
    }
}

fn digits(value: &[u8]) -> Option<u64> {
    let text: Cow<'_, str> = String::from_utf8_lossy(value);
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
