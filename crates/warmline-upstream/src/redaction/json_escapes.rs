//! Matches a text inside JSON: any character may be escaped, and once more if JSON is in a string of
//! JSON.
//!
//! Each server escapes other characters (.NET writes `+` as `\u002B`), so there is no list of
//! spellings to search for. Nothing is decoded into a copy, so everything else stays byte for byte.

use super::MIN_SECRET_SUFFIX;

/// How often a text may have been escaped.
pub(super) const MAX_ESCAPE_DEPTH: usize = 3;
/// Marks a shortened text.
pub(super) const ELLIPSIS: char = '…';
const MAX_ESCAPE_CHARS: usize = 12;

/// How many bytes at the start of `raw` are this value, escaped so often; or its start, if the rest was
/// cut off.
pub(super) fn match_escaped(raw: &str, value: &str, depth: usize) -> Option<usize> {
    let mut end = 0;
    for (known, letter) in value.chars().enumerate() {
        let rest = raw.get(end..)?;
        match decode_first_char(rest, depth)? {
            (found, length) if found == letter => end += length,
            (found, _) => {
                let mut behind = rest.chars().take(MAX_ESCAPE_CHARS);
                let is_cut =
                    found == ELLIPSIS || (found == '\\' && behind.any(|one| one == ELLIPSIS));
                return (is_cut && known >= MIN_SECRET_SUFFIX).then_some(end);
            },
        }
    }
    Some(end)
}

/// The first character of a text that was escaped so often, and its length in bytes.
pub(super) fn decode_first_char(raw: &str, depth: usize) -> Option<(char, usize)> {
    let Some(below) = depth.checked_sub(1) else {
        let letter = raw.chars().next()?;
        return Some((letter, letter.len_utf8()));
    };
    let (letter, length) = decode_first_char(raw, below)?;
    let escape = match letter {
        '\\' => decode_escape(raw.get(length..)?, below),
        _ => None,
    };
    // A backslash that escapes nothing is a backslash.
    Some(escape.map_or((letter, length), |(letter, more)| (letter, length + more)))
}

/// The character of an escape; `raw` is what follows the backslash.
fn decode_escape(raw: &str, below: usize) -> Option<(char, usize)> {
    let (kind, length) = decode_first_char(raw, below)?;
    let letter = match kind {
        '"' | '\\' | '/' => kind,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return decode_unicode_escape(raw, below),
        _ => return None,
    };
    Some((letter, length))
}

/// The character of `uXXXX`, or of a pair of them.
fn decode_unicode_escape(raw: &str, below: usize) -> Option<(char, usize)> {
    let (first, length) = decode_utf16_unit(raw, below)?;
    let mut units = char::decode_utf16([first]);
    if let Some(Ok(letter)) = units.next() {
        return Some((letter, length));
    }
    let pair = || {
        let rest = raw.get(length..)?;
        let (_, slash) = decode_first_char(rest, below).filter(|(letter, _)| *letter == '\\')?;
        let (second, more) = decode_utf16_unit(rest.get(slash..)?, below)?;
        let letter = char::decode_utf16([first, second]).next()?.ok()?;
        Some((letter, length + slash + more))
    };
    Some(pair().unwrap_or((char::REPLACEMENT_CHARACTER, length)))
}

fn decode_utf16_unit(raw: &str, below: usize) -> Option<(u16, usize)> {
    let (_, mut length) = decode_first_char(raw, below).filter(|(letter, _)| *letter == 'u')?;
    let mut unit = 0;
    for _ in 0..4 {
        let (digit, more) = decode_first_char(raw.get(length..)?, below)?;
        unit = unit * 16 + digit.to_digit(16)?;
        length += more;
    }
    u16::try_from(unit).ok().map(|unit| (unit, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_read_however_it_is_escaped() {
        #[rustfmt::skip]
        let table = [
            ("+x",                 0, Some(('+', 1))),
            (r"\u002Bx",           0, Some(('\\', 1))),
            (r"\u002Bx",           1, Some(('+', 6))),
            (r"\u002bx",           1, Some(('+', 6))),
            (r"\\u002Bx",          1, Some(('\\', 2))),
            (r"\\u002Bx",          2, Some(('+', 7))),
            (r"\u005cu002Bx",      2, Some(('+', 11))),
            (r"\/",                1, Some(('/', 2))),
            (r"\n",                1, Some(('\n', 2))),
            (r"\q",                1, Some(('\\', 1))),
            (r"\u00",              1, Some(('\\', 1))),
            (r"\ud83d\uDE00!",     1, Some(('😀', 12))),
            (r"\\ud83d\\uDE00!",   2, Some(('😀', 14))),
            (r"\ud83d!",           1, Some(('\u{fffd}', 6))),
            ("é",                  1, Some(('é', 2))),
            ("\\",                 1, Some(('\\', 1))),
            ("",                   1, None),
        ];
        for (raw, depth, letter) in table {
            assert_eq!(decode_first_char(raw, depth), letter, "{raw} at {depth}");
        }
    }
}
