//! How a text may be spelled inside JSON: any letter of it as an escape, and once more where JSON
//! stands in a string of JSON.
//!
//! Asked by: [`Hidden`](super::Hidden), for what servers say.
//!
//! Why letter by letter: which letters are escaped is each server's own affair (.NET writes `+` as
//!   `\u002B`), so there is no list of spellings to look for. Nothing is decoded into a text of its
//!   own, so that all that is not looked for stays byte for byte.

use super::SHORTEST_END;

/// So often a text may have been escaped.
pub(super) const DEEPEST: usize = 3;
/// The sign of what was shortened.
pub(super) const CUT: char = '…';
/// No escape has more letters.
const LONGEST_ESCAPE: usize = 12;

/// How many bytes at the beginning of `raw` say this value, escaped so often; or its beginning, where
/// the rest was cut off.
pub(super) fn spelled(raw: &str, value: &str, depth: usize) -> Option<usize> {
    let mut end = 0;
    for (known, letter) in value.chars().enumerate() {
        let rest = raw.get(end..)?;
        match first_letter(rest, depth)? {
            (found, length) if found == letter => end += length,
            (found, _) => {
                let mut behind = rest.chars().take(LONGEST_ESCAPE);
                let is_cut = found == CUT || (found == '\\' && behind.any(|one| one == CUT));
                return (is_cut && known >= SHORTEST_END).then_some(end);
            },
        }
    }
    Some(end)
}

/// The first letter of a text that was escaped so often, and how many bytes say it.
pub(super) fn first_letter(raw: &str, depth: usize) -> Option<(char, usize)> {
    let Some(below) = depth.checked_sub(1) else {
        let letter = raw.chars().next()?;
        return Some((letter, letter.len_utf8()));
    };
    let (letter, length) = first_letter(raw, below)?;
    let escape = match letter {
        '\\' => of_escape(raw.get(length..)?, below),
        _ => None,
    };
    // A backslash that escapes nothing is one.
    Some(escape.map_or((letter, length), |(letter, more)| (letter, length + more)))
}

/// The letter of an escape, of which this stands behind its backslash.
fn of_escape(raw: &str, below: usize) -> Option<(char, usize)> {
    let (kind, length) = first_letter(raw, below)?;
    let letter = match kind {
        '"' | '\\' | '/' => kind,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return of_units(raw, below),
        _ => return None,
    };
    Some((letter, length))
}

/// The letter of `uXXXX`, or of a pair of them.
fn of_units(raw: &str, below: usize) -> Option<(char, usize)> {
    let (first, length) = unit(raw, below)?;
    let mut units = char::decode_utf16([first]);
    if let Some(Ok(letter)) = units.next() {
        return Some((letter, length));
    }
    let pair = || {
        let rest = raw.get(length..)?;
        let (_, slash) = first_letter(rest, below).filter(|(letter, _)| *letter == '\\')?;
        let (second, more) = unit(rest.get(slash..)?, below)?;
        let letter = char::decode_utf16([first, second]).next()?.ok()?;
        Some((letter, length + slash + more))
    };
    Some(pair().unwrap_or((char::REPLACEMENT_CHARACTER, length)))
}

fn unit(raw: &str, below: usize) -> Option<(u16, usize)> {
    let (_, mut length) = first_letter(raw, below).filter(|(letter, _)| *letter == 'u')?;
    let mut unit = 0;
    for _ in 0..4 {
        let (digit, more) = first_letter(raw.get(length..)?, below)?;
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
            assert_eq!(first_letter(raw, depth), letter, "{raw} at {depth}");
        }
    }
}
