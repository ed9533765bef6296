//! A push parser for event streams: bytes in, events out.
//!
//! It yields every block with a known field, also those without data: a server primes a stream with
//! an id and empty data, so that it can be resumed. Comments, unknown fields and a block cut by the
//! end of the stream are skipped. An event of more than `max_event_bytes` is reported once and
//! skipped to its end. Take out all events after each push: what was pushed is kept until then.

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};

/// Takes an event stream in pieces and yields its events.
#[derive(Debug)]
pub struct SseParser {
    max_event_bytes: usize,
    buffer: BytesMut,
    // How far the buffer was searched for the end of a line.
    searched_to: usize,
    // The last line ended in CR: an LF that follows belongs to it.
    skips_lf: bool,
    is_first_line: bool,
    skip_state: SkipState,
    draft: EventDraft,
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
    pub id: Option<String>,
    /// The pause before a reconnect that it asked for, in milliseconds.
    pub retry: Option<u64>,
}

/// An event was longer than allowed; it is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseTooLarge {
    pub max_event_bytes: usize,
}

impl std::fmt::Display for SseTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an event is longer than {} bytes", self.max_event_bytes)
    }
}

impl std::error::Error for SseTooLarge {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipState {
    No,
    /// Within a line of the event that is skipped; whether that line has bytes so far.
    Line {
        has_bytes: bool,
    },
}

#[derive(Debug, Default)]
struct EventDraft {
    event: Option<String>,
    data: EventData,
    id: Option<String>,
    retry: Option<u64>,
    has_fields: bool,
    // Bytes of the lines it was made of. Never more than those lines have, so that an event that
    // fits before its last line end still fits after it.
    line_bytes: usize,
}

#[derive(Debug, Default)]
enum EventData {
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
            searched_to: 0,
            skips_lf: false,
            is_first_line: true,
            skip_state: SkipState::No,
            draft: EventDraft::default(),
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
    pub fn buffered_bytes(&self) -> usize {
        self.draft.line_bytes + self.buffer.len()
    }

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
    fn next_line(&mut self) -> Option<BytesMut> {
        if self.skips_lf && !self.buffer.is_empty() {
            if self.buffer.first() == Some(&b'\n') {
                self.buffer.advance(1);
            }
            self.skips_lf = false;
        }
        let unsearched = self.buffer.get(self.searched_to..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'\n', b'\r', unsearched) else {
            self.searched_to = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched_to + found);
        self.skips_lf = self.buffer.first() == Some(&b'\r');
        self.buffer.advance(1);
        self.searched_to = 0;
        Some(line)
    }

    fn exceeds_limit_with(&self, line: usize) -> bool {
        self.draft.line_bytes + line > self.max_event_bytes
    }

    /// Gives the event under way up.
    fn start_skipping(&mut self, skipping: SkipState) -> SseTooLarge {
        self.draft = EventDraft::default();
        self.is_first_line = false;
        self.skip_state = skipping;
        SseTooLarge {
            max_event_bytes: self.max_event_bytes,
        }
    }

    /// Goes on skipping; whether the event that is skipped ended.
    fn continue_skipping(&mut self, has_bytes: bool) -> bool {
        match self.next_line() {
            Some(line) if line.is_empty() && !has_bytes => {
                self.skip_state = SkipState::No;
                true
            },
            Some(_) => {
                self.skip_state = SkipState::Line { has_bytes: false };
                true
            },
            None => {
                let has_bytes = has_bytes || !self.buffer.is_empty();
                self.buffer.clear();
                self.searched_to = 0;
                self.skip_state = SkipState::Line { has_bytes };
                false
            },
        }
    }

    fn process_line(&mut self, line: BytesMut) -> Option<SseEvent> {
        let mut line = line.freeze();
        if std::mem::take(&mut self.is_first_line) && line.starts_with(b"\xEF\xBB\xBF") {
            line.advance(3);
        }
        if line.is_empty() {
            return self.finish_event();
        }
        let (name, value) = match memchr::memchr(b':', &line) {
            Some(colon) => {
                let value = line.slice(colon + 1..);
                let blank = usize::from(value.first() == Some(&b' '));
                (line.slice(..colon), value.slice(blank..))
            },
            None => (line, Bytes::new()),
        };
        self.draft.set_field(&name, value);
        if let Some(pause) = self.draft.retry {
            self.retry = Some(pause);
        }
        None
    }

    fn finish_event(&mut self) -> Option<SseEvent> {
        let draft = std::mem::take(&mut self.draft);
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
            if let SkipState::Line { has_bytes } = self.skip_state {
                if !self.continue_skipping(has_bytes) {
                    return None;
                }
                continue;
            }
            let Some(line) = self.next_line() else {
                if self.exceeds_limit_with(self.buffer.len()) {
                    self.buffer.clear();
                    self.searched_to = 0;
                    return Some(Err(self.start_skipping(SkipState::Line { has_bytes: true })));
                }
                return None;
            };
            if self.exceeds_limit_with(line.len()) {
                return Some(Err(
                    self.start_skipping(SkipState::Line { has_bytes: false })
                ));
            }
            if let Some(event) = self.process_line(line) {
                return Some(Ok(event));
            }
        }
    }
}

impl EventDraft {
    fn set_field(&mut self, name: &[u8], value: Bytes) {
        let bytes = value.len() + 1;
        match name {
            b"data" => self.data.push_line(value),
            b"event" => {
                self.event = Some(String::from_utf8_lossy(&value).into_owned())
                    .filter(|name| !name.is_empty());
            },
            b"id" => match std::str::from_utf8(&value) {
                // An id that cannot be sent back unchanged is ignored.
                Ok(id) if !id.contains('\0') => self.id = Some(id.to_owned()),
                _ => return,
            },
            b"retry" => match parse_digits(&value) {
                Some(pause) => self.retry = Some(pause),
                None => return,
            },
            _ => return,
        }
        self.line_bytes += bytes;
        self.has_fields = true;
    }
}

impl EventData {
    fn push_line(&mut self, line: Bytes) {
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

fn parse_digits(value: &[u8]) -> Option<u64> {
    let text: Cow<'_, str> = String::from_utf8_lossy(value);
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
