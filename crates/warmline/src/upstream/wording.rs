//! Wording: what came from outside, in a few words that are safe to show.
//!
//! Servers may send anything: terminal escapes, marks that turn text around, whole web pages.
//! Nothing of it reaches a message of ours but one bounded line of plain text.

use bytes::Bytes;
use warmline_core::protocol::envelope::{Kind, Message, RpcError};

/// What came back, for people: the status, and the code and text of an error.
pub(crate) fn words(status: u16, message: Option<&Message>, body: &[u8]) -> String {
    let said = match message {
        Some(message) => message_words(message),
        None if body.is_empty() => "no body".to_owned(),
        None => text_of(body).unwrap_or_else(|| "an unreadable body".to_owned()),
    };
    format!("HTTP {status}, {said}")
}

/// What a message says, in a few words.
pub(crate) fn message_words(message: &Message) -> String {
    match (message.kind(), message.error()) {
        (Kind::Error, Some(error)) => error_words(&error),
        (Kind::Result, _) => "a result".to_owned(),
        (Kind::Error | Kind::Request | Kind::Notification, _) => {
            "a message that is no answer".to_owned()
        },
    }
}

/// The code and the text of a JSON-RPC error.
pub(crate) fn error_words(error: &[u8]) -> String {
    RpcError::parse(error).map_or_else(
        |_| "an unreadable error".to_owned(),
        |error| {
            format!(
                "{} \"{}\"",
                error.code,
                plain(error.message.as_bytes(), 200)
            )
        },
    )
}

/// What a body says, on one short line without control characters.
pub(crate) fn text_of(body: &[u8]) -> Option<String> {
    if let Ok(message) = Message::split(Bytes::copy_from_slice(body))
        && let Some(error) = message.error()
    {
        return Some(error_words(&error));
    }
    if let Some(page) = page_of(body) {
        return Some(page);
    }
    let text = plain(body, 160);
    (!text.is_empty()).then(|| format!("\"{text}\""))
}

/// What a web page says of itself: its title. The rest of it is noise to whoever expected MCP.
fn page_of(body: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(body.get(..2048).unwrap_or(body));
    let lower = head.to_ascii_lowercase();
    let start = lower.trim_start();
    if !start.starts_with("<!doctype html") && !start.starts_with("<html") {
        return None;
    }
    let title = lower.split_once("<title>").and_then(|(before, rest)| {
        let from = before.len() + "<title>".len();
        head.as_bytes().get(from..from + rest.find("</title>")?)
    });
    Some(match title {
        Some(title) => format!("a web page: {}", plain(title, 80)),
        None => "a web page".to_owned(),
    })
}

/// Marks that change the direction of the text around them, so that it reads as something else.
pub(crate) const fn turns_around(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Bytes from outside made safe to show: one line, no control characters, bounded.
pub(crate) fn plain(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes.get(..max * 4).unwrap_or(bytes));
    let mut shown = String::new();
    let mut blank = true;
    for character in text.chars() {
        if character.is_whitespace() || character.is_control() || turns_around(character) {
            if !blank {
                shown.push(' ');
            }
            blank = true;
        } else {
            shown.push(character);
            blank = false;
        }
        if shown.chars().count() >= max {
            shown.push('…');
            break;
        }
    }
    shown.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_body_says_fits_on_one_safe_line() {
        let table: [(&[u8], Option<&str>); 6] = [
            (b"", None),
            (b"Session not found\n", Some("\"Session not found\"")),
            (b"a\x1b[31mred\r\nline", Some("\"a [31mred line\"")),
            (
                br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#,
                Some("-32001 \"Session not found\""),
            ),
            (
                b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>lots</body></html>",
                Some("a web page: Sign in"),
            ),
            (b"<HTML><body>old</body></HTML>", Some("a web page")),
        ];
        for (body, said) in table {
            assert_eq!(text_of(body).as_deref(), said);
        }
    }
}
