//! Where the requests of a connection begin and end, and whether two readers would agree on it.
//!
//! Asked by: [`pace`](super::pace), with all that comes in, before anybody reads it.  A head that
//! states the length of its body twice can be read in two ways, and somebody between its client
//! and us may have read it in the other one. The library of HTTP picks one length and forgets the
//! other, so this is seen here or nowhere. Nothing is kept of what passes but the beginning of a
//! line that came in pieces.

/// No line that matters here is longer: `Content-Length`, a colon, some blanks, all digits of a
/// number.
const LONGEST: usize = 64;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    at: At,
    line: Line,
    stated: Stated,
    /// How many heads began.
    heads: usize,
}

/// Which part of a request comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The request line; empty lines before it count for nothing.
    #[default]
    Start,
    /// Headers.
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// The line that says how long the next piece of a body is.
    Size,
    /// So many bytes of a piece, and the line break behind it.
    Piece(u64),
    /// The empty line behind the last piece.
    Last,
    /// Nothing that follows is believed.
    Lost,
}

/// What a head says of the length of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stated {
    /// Nothing: there is none.
    #[default]
    Nothing,
    Length(u64),
    Pieces,
    /// More than one thing.
    Twice,
}

/// The beginning of a line that is not whole yet.
#[derive(Debug)]
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; LONGEST],
            length: 0,
        }
    }
}

impl Line {
    /// Adds to it; what is too long is cut, and can be told by its length.
    fn add(&mut self, more: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(more) {
            *place = *byte;
        }
        self.length = self.length.saturating_add(more.len()).min(LONGEST);
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Framing {
    /// Bytes came. Gives the number of the first head that is not to be believed, once: it could be
    /// read in two ways, or nobody knows where it begins. What follows it is not looked at.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Option<usize> {
        while !bytes.is_empty() {
            match self.at {
                At::Lost => return None,
                At::Body(left) => bytes = self.skip(bytes, left, At::Body, At::Start),
                At::Piece(left) => bytes = self.skip(bytes, left, At::Piece, At::Size),
                At::Start | At::Head | At::Size | At::Last => {
                    let Some(end) = memchr::memchr(b'\n', bytes) else {
                        self.line.add(bytes);
                        return None;
                    };
                    let (line, rest) = bytes.split_at(end + 1);
                    bytes = rest;
                    self.whole_line(line);
                    if self.at == At::Lost {
                        return Some(self.heads);
                    }
                },
            }
        }
        None
    }

    /// Passes over bytes of a body.
    fn skip<'a>(
        &mut self,
        bytes: &'a [u8],
        left: u64,
        more: impl FnOnce(u64) -> At,
        then: At,
    ) -> &'a [u8] {
        let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left.saturating_sub(here as u64);
        self.at = if left == 0 { then } else { more(left) };
        bytes.get(here..).unwrap_or_default()
    }

    fn whole_line(&mut self, line: &[u8]) {
        if self.line.length == 0 {
            return self.read(line);
        }
        let mut begun = std::mem::take(&mut self.line);
        begun.add(line);
        self.read(begun.text());
    }

    fn read(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match self.at {
            At::Start if text.is_empty() => {},
            At::Start => (self.at, self.heads) = (At::Head, self.heads + 1),
            At::Head if text.is_empty() => self.at = std::mem::take(&mut self.stated).then(),
            At::Head => self.stated = self.stated.and(header(text)),
            At::Size => match size(text) {
                Some(0) => self.at = At::Last,
                // Behind each piece stands a line break.
                Some(size) => self.at = At::Piece(size.saturating_add(2)),
                None => self.lose_the_next(),
            },
            At::Last if text.is_empty() => self.at = At::Start,
            // Headers behind a body are followed by nobody here.
            At::Last | At::Body(_) | At::Piece(_) | At::Lost => self.lose_the_next(),
        }
    }

    /// Nobody knows where the next head begins.
    const fn lose_the_next(&mut self) {
        (self.at, self.heads) = (At::Lost, self.heads + 1);
    }
}

impl Stated {
    /// What follows the head.
    const fn then(self) -> At {
        match self {
            Self::Nothing | Self::Length(0) => At::Start,
            Self::Length(length) => At::Body(length),
            Self::Pieces => At::Size,
            Self::Twice => At::Lost,
        }
    }

    fn and(self, more: Self) -> Self {
        match (self, more) {
            (one, Self::Nothing) | (Self::Nothing, one) => one,
            _ => Self::Twice,
        }
    }
}

/// What a header says of the length of the body.
fn header(line: &[u8]) -> Stated {
    let Some(colon) = memchr::memchr(b':', line) else {
        return Stated::Nothing;
    };
    let (name, value) = line.split_at(colon);
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return Stated::Pieces;
    }
    if !name.eq_ignore_ascii_case(b"content-length") {
        return Stated::Nothing;
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let is_whole = line.len() < LONGEST;
    let length = std::str::from_utf8(value).ok().filter(|_| is_whole);
    let length = length.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    // What is no number is refused by whoever reads it.
    length
        .and_then(|text| text.parse().ok())
        .map_or(Stated::Twice, Stated::Length)
}

/// How long a piece is.
fn size(line: &[u8]) -> Option<u64> {
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

    /// What is found in a text that comes in pieces of some size.
    fn found(text: &str, piece: usize) -> Vec<usize> {
        let mut framing = Framing::default();
        let pieces = text.as_bytes().chunks(piece);
        pieces.filter_map(|piece| framing.take(piece)).collect()
    }

    /// reliability F81, reliability T8: whatever stands before it, and in whatever pieces it comes.
    #[test]
    fn a_head_that_states_its_length_twice_is_found_wherever_it_stands() {
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
    fn requests_of_one_meaning_are_left_alone() {
        let text = [PIECES, PLAIN, NONE, PLAIN, PIECES, PIECES, NONE].concat();
        for piece in 1..=text.len() {
            assert_eq!(found(&text, piece), [0; 0], "by {piece}");
        }
    }

    #[test]
    fn what_nobody_can_follow_is_not_believed_again() {
        let trailed = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n";
        let text = [trailed, NONE, TWICE[0]].concat();
        for piece in 1..=text.len() {
            assert_eq!(found(&text, piece), [2], "by {piece}");
        }
    }
}
