//! Follows the framing of HTTP/1.1 requests, and finds heads that two readers could read
//! differently (request smuggling).
//!
//! A head that states the length of its body twice is ambiguous. Hyper picks one length and drops
//! the other before the service sees the head, so the raw bytes are read here. Only the beginning
//! of an unfinished line is kept.

use smallvec::SmallVec;

/// The longest line that matters: `Content-Length`, a colon, blanks and the digits of a number.
const MAX_LINE: usize = 64;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct RequestFraming {
    /// This many bytes of a body come before the next line.
    body_left: u64,
    next_line: LineKind,
    /// The beginning of an unfinished line, up to [`MAX_LINE`] bytes.
    partial_line: SmallVec<[u8; MAX_LINE]>,
    stated_length: StatedLength,
    heads_started: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineKind {
    /// The request line, perhaps after empty lines.
    #[default]
    Start,
    Head,
    ChunkSize,
    /// The empty line after the last chunk.
    Trailers,
    /// It is not known where the next head begins: nothing more is read.
    Desynced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StatedLength {
    #[default]
    NoBody,
    Length(u64),
    Chunked,
    Ambiguous,
}

impl RequestFraming {
    /// Reads more bytes. Returns the number of the first head that is ambiguous, or whose beginning
    /// is unknown, once. Later bytes are ignored.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Option<usize> {
        while !bytes.is_empty() && self.next_line != LineKind::Desynced {
            if self.body_left > 0 {
                let left = usize::try_from(self.body_left).unwrap_or(usize::MAX);
                let here = left.min(bytes.len());
                self.body_left -= here as u64;
                bytes = bytes.get(here..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.begin_line(bytes);
                return None;
            };
            let (line, rest) = bytes.split_at(end + 1);
            bytes = rest;
            self.finish_line(line);
            if self.next_line == LineKind::Desynced {
                return Some(self.heads_started);
            }
        }
        None
    }

    fn begin_line(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.partial_line.len();
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.partial_line.extend_from_slice(kept);
    }

    fn finish_line(&mut self, line: &[u8]) {
        if self.partial_line.is_empty() {
            return self.parse_line(line);
        }
        self.begin_line(line);
        let whole = std::mem::take(&mut self.partial_line);
        self.parse_line(&whole);
    }

    fn parse_line(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match self.next_line {
            LineKind::Start if text.is_empty() => {},
            LineKind::Start => {
                self.heads_started += 1;
                self.next_line = LineKind::Head;
            },
            LineKind::Head if text.is_empty() => self.finish_head(),
            LineKind::Head => {
                self.stated_length = self.stated_length.combine(parse_length_header(text));
            },
            LineKind::ChunkSize => match parse_chunk_size(text) {
                Some(0) => self.next_line = LineKind::Trailers,
                // The line break after the chunk.
                Some(size) => self.body_left = size.saturating_add(2),
                None => self.mark_desynced(),
            },
            LineKind::Trailers if text.is_empty() => self.next_line = LineKind::Start,
            // Trailer fields are not followed.
            LineKind::Trailers | LineKind::Desynced => self.mark_desynced(),
        }
    }

    fn finish_head(&mut self) {
        self.next_line = match std::mem::take(&mut self.stated_length) {
            StatedLength::NoBody => LineKind::Start,
            StatedLength::Length(length) => {
                self.body_left = length;
                LineKind::Start
            },
            StatedLength::Chunked => LineKind::ChunkSize,
            StatedLength::Ambiguous => LineKind::Desynced,
        };
    }

    const fn mark_desynced(&mut self) {
        self.heads_started += 1;
        self.next_line = LineKind::Desynced;
    }
}

impl StatedLength {
    fn combine(self, more: Self) -> Self {
        match (self, more) {
            (one, Self::NoBody) | (Self::NoBody, one) => one,
            _ => Self::Ambiguous,
        }
    }
}

fn parse_length_header(line: &[u8]) -> StatedLength {
    let Some(colon) = memchr::memchr(b':', line) else {
        return StatedLength::NoBody;
    };
    let (name, value) = line.split_at(colon);
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return StatedLength::Chunked;
    }
    if !name.eq_ignore_ascii_case(b"content-length") {
        return StatedLength::NoBody;
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let is_whole = line.len() < MAX_LINE;
    let length = std::str::from_utf8(value).ok().filter(|_| is_whole);
    let length = length.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    // Hyper rejects what is no number.
    length
        .and_then(|text| text.parse().ok())
        .map_or(StatedLength::Ambiguous, StatedLength::Length)
}

fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = line.get(..digits.count())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "POST /a HTTP/1.1\r\nHost: b\r\ncontent-length: 5\r\n\r\n12\r\n5";
    const PIECES: &str = "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: b\r\n\r\n\
        5\r\n\r\nCon\r\n11;x=y\r\ntent-Length: 5\r\n\r\r\n0\r\n\r\n";
    const NONE: &str = "\r\nGET / HTTP/1.1\nHost: a\n\n";
    const TWICE: [&str; 5] = [
        "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nA: b\r\nCONTENT-LENGTH:5\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length:                                                   5\r\n\
         \r\n",
    ];

    /// The ambiguous heads in a text that arrives in pieces of this size.
    fn found(text: &str, piece: usize) -> Vec<usize> {
        let mut framing = RequestFraming::default();
        let pieces = text.as_bytes().chunks(piece);
        pieces.filter_map(|piece| framing.feed(piece)).collect()
    }

    /// reliability F81, reliability T8: whatever precedes it, and in whatever pieces it arrives.
    #[test]
    fn a_head_with_two_lengths_is_found_in_any_position() {
        for twice in TWICE {
            for (before, number) in [
                (String::new(), 1),
                (NONE.to_owned(), 2),
                ([PLAIN, PIECES, NONE].concat(), 4),
            ] {
                let text = [&before, twice, "5\r\nhello\r\n0\r\n\r\n", twice].concat();
                for piece in 1..=text.len() {
                    assert_eq!(found(&text, piece), [number], "by {piece}: {text}");
                }
            }
        }
    }

    #[test]
    fn unambiguous_requests_pass() {
        let text = [PIECES, PLAIN, NONE, PLAIN, PIECES, PIECES, NONE].concat();
        for piece in 1..=text.len() {
            assert_eq!(found(&text, piece), [0; 0], "by {piece}");
        }
    }

    #[test]
    fn nothing_is_read_after_an_unknown_framing() {
        let trailed = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n";
        let text = [trailed, NONE, TWICE[0]].concat();
        for piece in 1..=text.len() {
            assert_eq!(found(&text, piece), [2], "by {piece}");
        }
    }
}
