//! A push codec for messages on lines, as child processes write them.
//!
//! A line ends in LF or CRLF; blank lines are skipped. A line longer than the limit is skipped to
//! its end and reported with the id found in its first 4 KiB, so that the call it answers can end
//! at once.

use bytes::{Buf, Bytes, BytesMut};

use crate::message::json;

/// Takes output in pieces and yields its lines.
#[derive(Debug)]
pub struct LineCodec {
    max_line: usize,
    buffer: BytesMut,
    searched_to: usize,
    oversized: Option<OversizedLine>,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StdioLine {
    /// A line without its end.
    Complete(Bytes),
    /// A line that was longer than allowed.
    TooLong {
        /// The id it carries, if that is a number and stands in its first 4 KiB.
        id: Option<u64>,
        bytes: usize,
    },
}

#[derive(Debug, Default)]
struct OversizedLine {
    head: Vec<u8>,
    bytes: usize,
    ends_in_cr: bool,
}

/// How much of a line that is too long is searched for an id.
const MAX_ID_SEARCH: usize = 4096;

impl LineCodec {
    /// A codec for lines of at most `max_line` bytes.
    pub fn new(max_line: usize) -> Self {
        Self {
            max_line,
            buffer: BytesMut::new(),
            searched_to: 0,
            oversized: None,
        }
    }

    /// Takes in the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where the next bytes can be read to, without a copy.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The output ended: the last line, if it has no end.
    pub fn finish(&mut self) -> Option<StdioLine> {
        let rest = self.buffer.split();
        self.searched_to = 0;
        self.finish_line(rest)
    }

    fn finish_line(&mut self, piece: BytesMut) -> Option<StdioLine> {
        if let Some(mut skipped) = self.oversized.take() {
            skipped.add(&piece);
            return Some(skipped.into_line());
        }
        let mut line = piece.freeze();
        let ends_in_cr = line.last() == Some(&b'\r');
        if line.len() - usize::from(ends_in_cr) > self.max_line {
            let mut skipped = OversizedLine::default();
            skipped.add(&line);
            return Some(skipped.into_line());
        }
        line.truncate(line.len() - usize::from(ends_in_cr));
        let is_blank = line.iter().all(|byte| json::is_whitespace(*byte));
        (!is_blank).then_some(StdioLine::Complete(line))
    }

    /// Gives the bytes of a line without end up once it cannot fit any more.
    fn discard_oversized(&mut self) {
        // One more than the limit: the last byte may be the CR of its end.
        if self.oversized.is_none() && self.buffer.len() > self.max_line + 1 {
            self.oversized = Some(OversizedLine::default());
        }
        if let Some(skipped) = &mut self.oversized {
            skipped.add(&self.buffer);
            self.buffer.clear();
            self.searched_to = 0;
        }
    }
}

impl Iterator for LineCodec {
    type Item = StdioLine;

    /// The next complete line, or none until more bytes are pushed.
    fn next(&mut self) -> Option<StdioLine> {
        loop {
            let unsearched = self.buffer.get(self.searched_to..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'\n', unsearched) else {
                self.searched_to = self.buffer.len();
                self.discard_oversized();
                return None;
            };
            let piece = self.buffer.split_to(self.searched_to + found);
            self.buffer.advance(1);
            self.searched_to = 0;
            if let Some(line) = self.finish_line(piece) {
                return Some(line);
            }
        }
    }
}

impl OversizedLine {
    fn add(&mut self, piece: &[u8]) {
        let room = MAX_ID_SEARCH - self.head.len().min(MAX_ID_SEARCH);
        self.head
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.bytes += piece.len();
        self.ends_in_cr = piece.last().map_or(self.ends_in_cr, |byte| *byte == b'\r');
    }

    fn into_line(self) -> StdioLine {
        StdioLine::TooLong {
            id: find_id(&self.head),
            bytes: self.bytes - usize::from(self.ends_in_cr),
        }
    }
}

/// The id in the head of a message that is cut somewhere.
fn find_id(head: &[u8]) -> Option<u64> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?,
    };
    let mut id = None;
    // The walk ends with an error where the text is cut; what it saw before counts. A number at
    // the very end may be cut itself.
    let walked = json::walk_members(text, |member| {
        if member.name == "id" && member.range().end < text.len() {
            id = member.value.parse().ok();
        }
        Ok(())
    });
    walked.map_or(id, |()| id)
}

#[cfg(test)]
mod tests;
