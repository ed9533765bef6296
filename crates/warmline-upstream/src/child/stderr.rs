//! Drains the standard error of a child, and keeps the last 64 KiB of it.
//!
//! A child whose standard error nobody reads stops at 64 KiB, and its last lines nearly always say why
//! it died. They are shown on terminals and in logs, so control characters, terminal escapes and the
//! secrets of the child are removed.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::redaction::Redactor;
use crate::sanitize::is_bidi_control;
use warmline_platform::lock::Mutex;

#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    ring: Mutex<StderrRing>,
    pub(crate) redactor: Redactor,
}

#[derive(Debug, Default)]
struct StderrRing {
    bytes: VecDeque<u8>,
    /// It starts in the middle of a line.
    is_truncated: bool,
}

impl StderrTail {
    pub(crate) fn with_redactor(redactor: Redactor) -> Self {
        Self {
            ring: Mutex::default(),
            redactor,
        }
    }

    pub(crate) fn redact_line(&self, line: String) -> String {
        let line = self.redactor.redact(line);
        line.chars().take(SHOWN_LINE_CHARS).collect()
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        let newest = bytes
            .get(bytes.len().saturating_sub(RING_BYTES)..)
            .unwrap_or_default();
        let mut ring = self.ring.lock();
        let surplus = (ring.bytes.len() + newest.len()).saturating_sub(RING_BYTES);
        ring.is_truncated |= surplus > 0 || newest.len() < bytes.len();
        ring.bytes.drain(..surplus);
        ring.bytes.extend(newest);
    }

    /// The last lines as harmless text, without a newline at the end.
    pub(crate) fn text(&self) -> String {
        let (bytes, cut) = {
            let ring = self.ring.lock();
            (
                ring.bytes.iter().copied().collect::<Vec<u8>>(),
                ring.is_truncated,
            )
        };
        let clean = sanitize_terminal_text(&String::from_utf8_lossy(&bytes));
        let clean = if cut {
            self.redactor.redact_truncated(clean)
        } else {
            self.redactor.redact(clean)
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
        let shown: Vec<String> = lines
            .iter()
            .skip(first)
            .map(|line| truncate_line(line))
            .collect();
        shown.join("\n")
    }
}

pub(crate) async fn drain_stderr(mut from: impl AsyncRead + Unpin, tail: Arc<StderrTail>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        tail.push(chunk.get(..read).unwrap_or_default());
    }
}

/// Removes control characters, terminal escapes and bidi marks. Tabs and newlines stay; a lone carriage
/// return ends a line, as on a terminal.
pub(crate) fn sanitize_terminal_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut escape = EscapeState::None;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let (next, keep) = escape.next_state(char);
        escape = next;
        match char {
            _ if !keep => {},
            '\r' if chars.peek() == Some(&'\n') => {},
            '\r' | '\n' => clean.push('\n'),
            '\t' => clean.push('\t'),
            _ if char.is_control() || is_bidi_control(char) => {},
            _ => clean.push(char),
        }
    }
    clean
}

#[derive(Clone, Copy)]
enum EscapeState {
    None,
    /// After the escape character.
    Escape,
    /// In a control sequence, until its final letter.
    ControlSequence,
    /// In a string for the terminal (a title, a link), until it is closed.
    StringSequence,
}

impl EscapeState {
    fn next_state(self, char: char) -> (Self, bool) {
        match (self, char) {
            // A newline ends whatever was left open, or one bad escape would swallow the rest.
            (_, '\n') => (Self::None, true),
            (_, '\u{1b}') => (Self::Escape, false),
            (Self::None, '\u{9b}') | (Self::Escape, '[') => (Self::ControlSequence, false),
            (Self::None, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}')
            | (Self::Escape, 'P' | 'X' | ']' | '^' | '_') => (Self::StringSequence, false),
            (Self::None, _) => (Self::None, true),
            // Intermediate characters: the final one is still to come.
            (Self::Escape, ' '..='/') => (Self::Escape, false),
            (Self::Escape, _)
            | (Self::ControlSequence, '@'..='~')
            | (Self::StringSequence, '\u{7}' | '\u{9c}') => (Self::None, false),
            (Self::ControlSequence, _) => (Self::ControlSequence, false),
            (Self::StringSequence, _) => (Self::StringSequence, false),
        }
    }
}

fn truncate_line(line: &str) -> String {
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

const RING_BYTES: usize = 64 << 10;
const CHUNK_BYTES: usize = 8 << 10;
const SHOWN_LINES: usize = 20;
const SHOWN_CHARS: usize = 500;
const SHOWN_LINE_CHARS: usize = 200;

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
            assert_eq!(sanitize_terminal_text(given), shown, "{given:?}");
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
