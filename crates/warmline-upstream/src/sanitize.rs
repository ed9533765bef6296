//! Turns what servers send (terminal escapes, bidi marks, web pages) into one short line of plain text.

use bytes::Bytes;
use warmline_core::message::envelope::{Message, MessageKind, RpcError};

/// The status, and the code and text of an error.
pub(crate) fn summarize_response(status: u16, message: Option<&Message>, body: &[u8]) -> String {
    let said = match message {
        Some(message) => summarize_message(message),
        None if body.is_empty() => "no body".to_owned(),
        None => summarize_body(body).unwrap_or_else(|| "an unreadable body".to_owned()),
    };
    format!("HTTP {status}, {said}")
}

pub(crate) fn summarize_message(message: &Message) -> String {
    match (message.kind(), message.error()) {
        (MessageKind::Error, Some(error)) => summarize_error(&error),
        (MessageKind::Result, _) => "a result".to_owned(),
        (MessageKind::Error | MessageKind::Request | MessageKind::Notification, _) => {
            "a message that is no answer".to_owned()
        },
    }
}

pub(crate) fn summarize_error(error: &[u8]) -> String {
    RpcError::parse(error).map_or_else(
        |_| "an unreadable error".to_owned(),
        |error| {
            format!(
                "{} \"{}\"",
                error.code,
                sanitize_line(error.message.as_bytes(), 200)
            )
        },
    )
}

pub(crate) fn summarize_body(body: &[u8]) -> Option<String> {
    if let Ok(message) = Message::parse(Bytes::copy_from_slice(body))
        && let Some(error) = message.error()
    {
        return Some(summarize_error(&error));
    }
    if let Some(page) = summarize_html(body) {
        return Some(page);
    }
    let text = sanitize_line(body, 160);
    (!text.is_empty()).then(|| format!("\"{text}\""))
}

fn summarize_html(body: &[u8]) -> Option<String> {
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
        Some(title) => format!("a web page: {}", sanitize_line(title, 80)),
        None => "a web page".to_owned(),
    })
}

/// Marks that change the direction of the text around them.
pub(crate) const fn is_bidi_control(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// One bounded line without control characters.
pub(crate) fn sanitize_line(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes.get(..max * 4).unwrap_or(bytes));
    let mut shown = String::new();
    let mut blank = true;
    for character in text.chars() {
        if character.is_whitespace() || character.is_control() || is_bidi_control(character) {
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
            assert_eq!(summarize_body(body).as_deref(), said);
        }
    }
}
