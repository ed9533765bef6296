//! Where the tokens of a JSON text end, found without a tree and without the heap.
//!
//! Asked by: [`object`](super::object), for every message that passes.  It takes exactly what
//! `serde_json` takes; what is wrong with a text, and where, is then said by that. Names are read by
//! whoever asks.

use smallvec::SmallVec;

/// What a text is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// So deep an object may be nested before the stack of its brackets needs the heap.
const SHALLOW: usize = 32;

/// The place of the first byte from here on that is no white space.
pub(super) fn blanks(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The end of the value that begins here.
pub(super) fn value(text: &[u8], at: usize) -> Result<usize, NotJson> {
    // Most values are no deeper than this.
    let mut open: SmallVec<[u8; SHALLOW]> = SmallVec::new();
    let mut at = at;
    loop {
        match text.get(at) {
            Some(b'{') => {
                let first = blanks(text, at + 1);
                if text.get(first) == Some(&b'}') {
                    at = first + 1;
                } else {
                    open.push(b'}');
                    at = name(text, first)?;
                    continue;
                }
            },
            Some(b'[') => {
                let first = blanks(text, at + 1);
                if text.get(first) == Some(&b']') {
                    at = first + 1;
                } else {
                    open.push(b']');
                    at = first;
                    continue;
                }
            },
            _ => at = scalar(text, at)?,
        }
        // A value is over: what it stands in goes on, or is over as well.
        loop {
            let Some(close) = open.last() else {
                return Ok(at);
            };
            at = blanks(text, at);
            match text.get(at) {
                Some(b',') if *close == b'}' => {
                    at = name(text, blanks(text, at + 1))?;
                    break;
                },
                Some(b',') => {
                    at = blanks(text, at + 1);
                    break;
                },
                Some(byte) if byte == close => {
                    open.pop();
                    at += 1;
                },
                _ => return Err(NotJson),
            }
        }
    }
}

/// The place of the value behind a name and its colon.
pub(super) fn name(text: &[u8], at: usize) -> Result<usize, NotJson> {
    let colon = blanks(text, string(text, at)?);
    if text.get(colon) == Some(&b':') {
        Ok(blanks(text, colon + 1))
    } else {
        Err(NotJson)
    }
}

fn scalar(text: &[u8], at: usize) -> Result<usize, NotJson> {
    match text.get(at) {
        Some(b'"') => string(text, at),
        Some(b'-' | b'0'..=b'9') => number(text, at),
        Some(b't') => word(text, at, b"true"),
        Some(b'f') => word(text, at, b"false"),
        Some(b'n') => word(text, at, b"null"),
        _ => Err(NotJson),
    }
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Result<usize, NotJson> {
    let rest = text.get(at..).unwrap_or_default();
    rest.starts_with(word)
        .then_some(at + word.len())
        .ok_or(NotJson)
}

/// The end of the string that begins here, behind its closing quote.
pub(super) fn string(text: &[u8], at: usize) -> Result<usize, NotJson> {
    if text.get(at) != Some(&b'"') {
        return Err(NotJson);
    }
    let mut at = at + 1;
    loop {
        at += plain(text.get(at..).unwrap_or_default());
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = escape(text, at + 1)?,
            Some(0x20..) => at += 1,
            _ => return Err(NotJson),
        }
    }
}

/// How many whole words of eight bytes hold neither a quote, nor an escape, nor a control
/// character, in bytes. The last ones before such a byte are left to be looked at one by one.
fn plain(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    // The top bit of some byte is set if one of them is zero.
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & TOPS;
    let is_plain = |word: u64| {
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        let quote = has_zero(word ^ (ONES * u64::from(b'"')));
        let escape = has_zero(word ^ (ONES * u64::from(b'\\')));
        (control | quote | escape) == 0
    };
    let (words, _) = text.as_chunks::<8>();
    let plain = words
        .iter()
        .position(|word| !is_plain(u64::from_ne_bytes(*word)));
    plain.unwrap_or(words.len()) * 8
}

/// The end of an escape, behind its backslash. A half of a pair of surrogates may stand alone.
fn escape(text: &[u8], at: usize) -> Result<usize, NotJson> {
    match text.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => {
            let digits = text.get(at + 1..at + 5).ok_or(NotJson)?;
            let all = digits.iter().all(u8::is_ascii_hexdigit);
            all.then_some(at + 5).ok_or(NotJson)
        },
        _ => Err(NotJson),
    }
}

fn number(text: &[u8], at: usize) -> Result<usize, NotJson> {
    let mut at = at + usize::from(text.get(at) == Some(&b'-'));
    at = match text.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits(text, at),
        _ => return Err(NotJson),
    };
    if matches!(text.get(at), Some(b'0'..=b'9')) {
        return Err(NotJson);
    }
    if text.get(at) == Some(&b'.') {
        at = some_digits(text, at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = some_digits(text, at + 1 + usize::from(signed))?;
    }
    Ok(at)
}

fn digits(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    at
}

fn some_digits(text: &[u8], at: usize) -> Result<usize, NotJson> {
    let end = digits(text, at);
    (end > at).then_some(end).ok_or(NotJson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// Whether a text is one value and nothing else.
    fn is_taken(text: &str) -> bool {
        let text = text.as_bytes();
        let end = value(text, blanks(text, 0));
        end.is_ok_and(|end| blanks(text, end) == text.len())
    }

    fn assert_as_serde(text: &str) {
        let expected = serde_json::from_str::<&RawValue>(text.trim_start_matches(char::is_control));
        let text = text.trim_start_matches(char::is_control);
        assert_eq!(is_taken(text), expected.is_ok(), "{text:?}: {expected:?}");
    }

    #[test]
    fn it_takes_what_serde_takes() {
        let texts = [
            "",
            " ",
            "{}",
            "[]",
            " { } ",
            "[ ]",
            "{\"a\":1}",
            "{\"a\" : [1 , 2 ] }",
            "{\"a\"}",
            "{\"a\":}",
            "{,}",
            "[,]",
            "[1,]",
            "{\"a\":1,}",
            "[1 2]",
            "{a:1}",
            "0",
            "00",
            "01",
            "-",
            "-0",
            "-01",
            "1.",
            "1.5",
            ".5",
            "1e",
            "1e5",
            "1E+5",
            "1e-",
            "1.5e3",
            "+1",
            "true",
            "tru",
            "truex",
            "null",
            "false",
            "\"\"",
            "\"",
            "\"\\\"",
            "\"\\u12\"",
            "\"\\uD800\"",
            "\"\\u00e9\"",
            "\"\\x\"",
            "\"\u{1}\"",
            "\"\u{7f}\"",
            "\"é\"",
            "[[[[]]]]",
            "[[[[]]]",
            "[}",
            "{]",
            "{\"a\":{\"b\":[{}]}}",
            "NaN",
            "\"long enough for a word \u{1f} inside\"",
            "\"long enough for a word \\\" inside\"",
            "[1]]",
        ];
        for text in texts {
            assert_as_serde(text);
        }
    }

    #[test]
    fn depth_has_no_limit() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(is_taken(&deep));
        assert!(!is_taken(deep.trim_end_matches("]]")));
    }

    proptest! {
        #[test]
        fn it_takes_what_serde_takes_of_any_tokens(
            tokens in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\n\"", "\"\\u0041\"", "1", "-1.5e2",
                    "0", "true", "null", " ", "\n", "\"", "\\", "é", "x", "\u{1f}",
                    "\"twelve bytes\"",
                ]),
                0..12,
            ),
        ) {
            assert_as_serde(&tokens.concat());
        }

        #[test]
        fn it_takes_what_serde_takes_of_a_text_with_a_byte_changed(
            place in 0_usize..120,
            byte in 0_u8..128,
        ) {
            let text = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a\"b","arguments":{"a":[1,-2.5e3,{}],"b":null}}}"#;
            let mut bytes = text.as_bytes().to_vec();
            let place = place % bytes.len();
            bytes[place] = byte;
            assert_as_serde(std::str::from_utf8(&bytes).unwrap());
        }
    }
}
