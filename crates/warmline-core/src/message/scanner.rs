//! Where the tokens of a JSON text end, found without a tree and without the heap.
//!
//! It accepts exactly what `serde_json` accepts, which then reports what is wrong with a text.

use smallvec::SmallVec;

/// What a text is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidJson;

/// So deep an object may be nested before the stack of its brackets needs the heap.
const INLINE_DEPTH: usize = 32;

/// The place of the first byte from here on that is no white space.
pub(super) fn skip_whitespace(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The end of the value that begins here.
pub(super) fn value_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    // Most values are no deeper than this.
    let mut open: SmallVec<[u8; INLINE_DEPTH]> = SmallVec::new();
    let mut at = at;
    loop {
        match text.get(at) {
            Some(b'{') => {
                let first = skip_whitespace(text, at + 1);
                if text.get(first) == Some(&b'}') {
                    at = first + 1;
                } else {
                    open.push(b'}');
                    at = skip_name(text, first)?;
                    continue;
                }
            },
            Some(b'[') => {
                let first = skip_whitespace(text, at + 1);
                if text.get(first) == Some(&b']') {
                    at = first + 1;
                } else {
                    open.push(b']');
                    at = first;
                    continue;
                }
            },
            _ => at = scalar_end(text, at)?,
        }
        // A value ends: what contains it continues, or ends as well.
        loop {
            let Some(close) = open.last() else {
                return Ok(at);
            };
            at = skip_whitespace(text, at);
            match text.get(at) {
                Some(b',') if *close == b'}' => {
                    at = skip_name(text, skip_whitespace(text, at + 1))?;
                    break;
                },
                Some(b',') => {
                    at = skip_whitespace(text, at + 1);
                    break;
                },
                Some(byte) if byte == close => {
                    open.pop();
                    at += 1;
                },
                _ => return Err(InvalidJson),
            }
        }
    }
}

/// The place of the value behind a name and its colon.
pub(super) fn skip_name(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    let colon = skip_whitespace(text, string_end(text, at)?);
    if text.get(colon) == Some(&b':') {
        Ok(skip_whitespace(text, colon + 1))
    } else {
        Err(InvalidJson)
    }
}

fn scalar_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    match text.get(at) {
        Some(b'"') => string_end(text, at),
        Some(b'-' | b'0'..=b'9') => number_end(text, at),
        Some(b't') => literal_end(text, at, b"true"),
        Some(b'f') => literal_end(text, at, b"false"),
        Some(b'n') => literal_end(text, at, b"null"),
        _ => Err(InvalidJson),
    }
}

fn literal_end(text: &[u8], at: usize, word: &[u8]) -> Result<usize, InvalidJson> {
    let rest = text.get(at..).unwrap_or_default();
    rest.starts_with(word)
        .then_some(at + word.len())
        .ok_or(InvalidJson)
}

/// The end of the string that begins here, behind its closing quote.
pub(super) fn string_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    if text.get(at) != Some(&b'"') {
        return Err(InvalidJson);
    }
    let mut at = at + 1;
    loop {
        at += plain_prefix_len(text.get(at..).unwrap_or_default());
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = escape_end(text, at + 1)?,
            Some(0x20..) => at += 1,
            _ => return Err(InvalidJson),
        }
    }
}

/// How many whole words of eight bytes hold neither a quote, nor an escape, nor a control
/// character, in bytes. The last ones before such a byte are left to be looked at one by one.
fn plain_prefix_len(text: &[u8]) -> usize {
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

/// The end of an escape, behind its backslash. A lone surrogate is allowed.
fn escape_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    match text.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => {
            let digits = text.get(at + 1..at + 5).ok_or(InvalidJson)?;
            let all = digits.iter().all(u8::is_ascii_hexdigit);
            all.then_some(at + 5).ok_or(InvalidJson)
        },
        _ => Err(InvalidJson),
    }
}

fn number_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    let mut at = at + usize::from(text.get(at) == Some(&b'-'));
    at = match text.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits_end(text, at),
        _ => return Err(InvalidJson),
    };
    if matches!(text.get(at), Some(b'0'..=b'9')) {
        return Err(InvalidJson);
    }
    if text.get(at) == Some(&b'.') {
        at = required_digits_end(text, at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = required_digits_end(text, at + 1 + usize::from(signed))?;
    }
    Ok(at)
}

fn digits_end(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    at
}

fn required_digits_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
    let end = digits_end(text, at);
    (end > at).then_some(end).ok_or(InvalidJson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// Whether a text is one value and nothing else.
    fn is_taken(text: &str) -> bool {
        let text = text.as_bytes();
        let end = value_end(text, skip_whitespace(text, 0));
        end.is_ok_and(|end| skip_whitespace(text, end) == text.len())
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
