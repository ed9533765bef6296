//! What a child says on its standard error: drained from the first byte, the end of it kept.
//!
//! Asked by: errors and `doctor`, for the last lines.  Told by: one small task per child.
//!
//! Why it exists: a child whose standard error nobody reads stops at 64 KiB, and the reason why a
//! server died stands nearly always in its last lines.
//! What it keeps: the last 64 KiB, whatever the child writes.
//! What it shows: text only. Control characters and terminal escapes are taken out, because this
//!   text comes from a stranger and is shown on terminals and in logs; values that the child was
//!   given in confidence are struck out, for the same reason.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::hidden::Hidden;
use crate::sync::Mutex;
use crate::upstream::wording::turns_around;

/// The end of what a child said on its standard error.
#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    ring: Mutex<Ring>,
    hidden: Hidden,
}

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    /// The ring begins in the middle of a line.
    cut: bool,
}

impl StderrTail {
    /// The tail of a child that must not tell these.
    pub(crate) fn without(hidden: Hidden) -> Self {
        Self {
            ring: Mutex::default(),
            hidden,
        }
    }

    /// What must not be told of what its child was given.
    pub(crate) fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// The beginning of another line of the same child, without what must not be shown.
    pub(crate) fn beside(&self, line: String) -> String {
        let line = self.hidden.strike(line);
        line.chars().take(SHOWN_BESIDE).collect()
    }

    /// Takes in what the child wrote; the oldest bytes make room.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let newest = bytes
            .get(bytes.len().saturating_sub(RING_BYTES)..)
            .unwrap_or_default();
        let mut ring = self.ring.lock();
        let surplus = (ring.bytes.len() + newest.len()).saturating_sub(RING_BYTES);
        ring.cut |= surplus > 0 || newest.len() < bytes.len();
        ring.bytes.drain(..surplus);
        ring.bytes.extend(newest);
    }

    /// The last lines as harmless text, without a newline at the end.
    pub(crate) fn text(&self) -> String {
        let (bytes, cut) = {
            let ring = self.ring.lock();
            (ring.bytes.iter().copied().collect::<Vec<u8>>(), ring.cut)
        };
        let clean = sanitise(&String::from_utf8_lossy(&bytes));
        let clean = if cut {
            self.hidden.strike_cut(clean)
        } else {
            self.hidden.strike(clean)
        };
        let mut lines: Vec<&str> = clean
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        if cut && lines.len() > 1 {
            lines.remove(0);
        }
        let first = lines.len().saturating_sub(SHOWN_LINES);
        let shown: Vec<String> = lines.iter().skip(first).map(|line| shorten(line)).collect();
        shown.join("\n")
    }
}

/// Reads a standard error to its end. Nothing it says can make this stop or grow.
pub(crate) async fn drain(mut from: impl AsyncRead + Unpin, tail: Arc<StderrTail>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        tail.push(chunk.get(..read).unwrap_or_default());
    }
}

/// Text without control characters, terminal escapes and marks that turn the reading direction.
/// Tabs and newlines stay; a lone carriage return ends a line, as it does on a terminal.
pub(crate) fn sanitise(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut escape = Escape::None;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let (next, keep) = escape.after(char);
        escape = next;
        match char {
            _ if !keep => {},
            '\r' if chars.peek() == Some(&'\n') => {},
            '\r' | '\n' => clean.push('\n'),
            '\t' => clean.push('\t'),
            _ if char.is_control() || turns_around(char) => {},
            _ => clean.push(char),
        }
    }
    clean
}

/// Where we are in a terminal escape.
#[derive(Clone, Copy)]
enum Escape {
    None,
    /// After the escape character.
    Begun,
    /// In a control sequence, until its final letter.
    Sequence,
    /// In a string for the terminal (a title, a link), until it is closed.
    Text,
}

impl Escape {
    /// The state after a character, and whether the character is text.
    fn after(self, char: char) -> (Self, bool) {
        match (self, char) {
            // A newline ends whatever was left open, or one bad escape would swallow the rest.
            (_, '\n') => (Self::None, true),
            (_, '\u{1b}') => (Self::Begun, false),
            (Self::None, '\u{9b}') | (Self::Begun, '[') => (Self::Sequence, false),
            (Self::None, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}')
            | (Self::Begun, 'P' | 'X' | ']' | '^' | '_') => (Self::Text, false),
            (Self::None, _) => (Self::None, true),
            // Intermediate characters: the final one is still to come.
            (Self::Begun, ' '..='/') => (Self::Begun, false),
            (Self::Begun, _) | (Self::Sequence, '@'..='~') | (Self::Text, '\u{7}' | '\u{9c}') => {
                (Self::None, false)
            },
            (Self::Sequence, _) => (Self::Sequence, false),
            (Self::Text, _) => (Self::Text, false),
        }
    }
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

const RING_BYTES: usize = 64 << 10;
const CHUNK_BYTES: usize = 8 << 10;
const SHOWN_LINES: usize = 20;
const SHOWN_CHARS: usize = 500;
const SHOWN_BESIDE: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_is_shown_as_text_only() {
        let table = [
            ("plain", "plain"),
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bcharset", "charset"),
            ("\u{1b}c reset", " reset"),
            ("\u{9b}31mred", "red"),
            ("bell\u{7} nul\0 del\u{7f}", "bell nul del"),
            ("10%\r20%\r\ndone", "10%\n20%\ndone"),
            ("\u{202e}drowssap", "drowssap"),
            ("open \u{1b}]0;title\nnext line", "open \nnext line"),
            ("ends in \u{1b}", "ends in "),
            ("ends in \u{1b}[3", "ends in "),
            ("größe ✓", "größe ✓"),
        ];
        for (given, shown) in table {
            assert_eq!(sanitise(given), shown, "{given:?}");
        }
    }

    /// A35: bytes that are no text are replaced.
    #[test]
    fn undecodable_bytes_are_replaced() {
        let tail = StderrTail::default();
        tail.push(b"caf\xe9 broken\n");
        assert_eq!(tail.text(), "caf\u{fffd} broken");
    }

    /// P70, reliability I25: only the end is kept.
    #[test]
    fn a_flood_keeps_only_its_end_and_whole_lines() {
        let tail = StderrTail::default();
        for number in 0..100_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        assert!(tail.ring.lock().bytes.len() <= RING_BYTES);
        let text = tail.text();
        assert_eq!(text.lines().count(), SHOWN_LINES);
        assert_eq!(text.lines().last(), Some("line 99999"));

        tail.push(&vec![b'x'; 10 * RING_BYTES]);
        assert_eq!(tail.ring.lock().bytes.len(), RING_BYTES);
        assert_eq!(tail.text().chars().count(), SHOWN_CHARS + 1);
    }
}
