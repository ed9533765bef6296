//! JSON without a tree: the members of an object, one after another, and where values end.
//!
//! Every read of a message goes through here: the text is checked whole, values stay raw, names are
//! compared unescaped, and a duplicate name is refused. Two readers must not see two different
//! messages. Accepted is exactly what `serde_json` accepts, which then reports what is wrong with a
//! text.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::message::parse_error::{ParseError, ParseErrorKind, error_offset};

/// One member of an object.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) value: &'a str,
    /// Where the value begins in the text.
    pub(crate) offset: usize,
}

impl Member<'_> {
    /// Where its value is in the text.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.value.len()
    }
}

/// Shows each member of the object `text` in order. The text must hold nothing else.
pub(crate) fn walk_members<'a, F>(text: &'a str, mut each: F) -> Result<(), ParseError>
where
    F: FnMut(Member<'a>) -> Result<(), ParseError>,
{
    expect_object(text)?;
    let mut members = MemberReader::new(text);
    let mut seen = MemberNames::default();
    loop {
        match members.next_member() {
            Ok(Some(member)) if seen.insert(&member.name) => each(member)?,
            Ok(Some(member)) => {
                return Err(ParseError::new(
                    ParseErrorKind::DuplicateMember,
                    member.offset,
                ));
            },
            Ok(None) => return Ok(()),
            Err(InvalidJson) => return Err(find_parse_error(text)),
        }
    }
}

/// The members of an object, one after the other.
struct MemberReader<'a> {
    text: &'a str,
    offset: usize,
    is_first: bool,
}

impl<'a> MemberReader<'a> {
    fn new(text: &'a str) -> Self {
        let brace = skip_whitespace(text.as_bytes(), 0);
        Self {
            text,
            offset: brace + 1,
            is_first: true,
        }
    }

    /// The next member; none behind the last, where nothing may follow.
    fn next_member(&mut self) -> Result<Option<Member<'a>>, InvalidJson> {
        let bytes = self.text.as_bytes();
        let mut at = skip_whitespace(bytes, self.offset);
        match bytes.get(at) {
            Some(b'}') => {
                let is_all = skip_whitespace(bytes, at + 1) == bytes.len();
                return if is_all { Ok(None) } else { Err(InvalidJson) };
            },
            Some(b',') if !self.is_first => at = skip_whitespace(bytes, at + 1),
            Some(_) if self.is_first => {},
            _ => return Err(InvalidJson),
        }
        self.is_first = false;
        let name_ends = string_end(bytes, at)?;
        let name = self.text.get(at..name_ends).and_then(decode_string);
        let at = skip_name(bytes, at)?;
        self.offset = value_end(bytes, at)?;
        match (name, self.text.get(at..self.offset)) {
            (Some(name), Some(value)) => Ok(Some(Member {
                name,
                value,
                offset: at,
            })),
            _ => Err(InvalidJson),
        }
    }
}

/// For a text that is not exactly one object.
#[cold]
fn find_parse_error(text: &str) -> ParseError {
    let mut source = serde_json::Deserializer::from_str(text);
    if let Err(error) = source.deserialize_map(ObjectVisitor) {
        return ParseError::from_serde(&error, text);
    }
    match source.end() {
        Err(error) => ParseError::new(ParseErrorKind::TrailingData, error_offset(&error, text)),
        Ok(()) => ParseError::new(ParseErrorKind::NotJson, 0),
    }
}

/// The value of one member, if the object has it.
pub(crate) fn find_member<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, ParseError> {
    let mut found = None;
    walk_members(text, |member| {
        if member.name == name {
            found = Some(member.value);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The text of a raw JSON string; none if it is no string.
pub(crate) fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inside))
    }
}

/// The bytes as text, or where they stop being UTF-8.
pub(crate) fn parse_utf8(bytes: &[u8]) -> Result<&str, ParseError> {
    std::str::from_utf8(bytes)
        .map_err(|error| ParseError::new(ParseErrorKind::NotUtf8, error.valid_up_to()))
}

fn expect_object(text: &str) -> Result<(), ParseError> {
    let at = skip_whitespace(text.as_bytes(), 0);
    match text.as_bytes().get(at) {
        Some(b'{') => Ok(()),
        // The caller checks whether it is a batch.
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            let ends = value_end(text.as_bytes(), at);
            let is_json = ends.is_ok_and(|end| skip_whitespace(text.as_bytes(), end) == text.len());
            let what = if is_json {
                ParseErrorKind::NotObject
            } else {
                ParseErrorKind::NotJson
            };
            Err(ParseError::new(what, at))
        },
        Some(_) => Err(ParseError::new(ParseErrorKind::NotJson, at)),
        None => Err(ParseError::new(ParseErrorKind::Truncated, at)),
    }
}

/// Whether a byte is white space between the tokens of JSON.
pub(crate) const fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Reads an object as `serde_json` does, for its error.
struct ObjectVisitor;

impl<'a> Visitor<'a> for ObjectVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<String>()?.is_some() {
            members.next_value::<&'a RawValue>()?;
        }
        Ok(())
    }
}

/// The names seen so far. Up to eight plain ones need no heap; more are kept in order, so that
/// an object of a million members is still read in reasonable time.
#[derive(Default)]
struct MemberNames<'a> {
    inline: [Option<&'a str>; 8],
    overflow: BTreeSet<Cow<'a, str>>,
}

impl<'a> MemberNames<'a> {
    /// Notes a name; false if it was there.
    #[expect(
        clippy::ptr_arg,
        reason = "whether the name is borrowed decides where it is kept"
    )]
    fn insert(&mut self, name: &Cow<'a, str>) -> bool {
        if self
            .inline
            .iter()
            .flatten()
            .any(|known| *known == name.as_ref())
        {
            return false;
        }
        match (name, self.inline.iter_mut().find(|place| place.is_none())) {
            (Cow::Borrowed(plain), Some(place)) if !self.overflow.contains(*plain) => {
                *place = Some(plain);
                true
            },
            _ => self.overflow.insert(name.clone()),
        }
    }
}

/// What a text is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidJson;

/// So deep an object may be nested before the stack of its brackets needs the heap.
const INLINE_DEPTH: usize = 32;

/// The place of the first byte from here on that is no white space.
pub(super) fn skip_whitespace(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| is_whitespace(*byte)) {
        at += 1;
    }
    at
}

/// The end of the value that begins here.
pub(super) fn value_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
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
fn skip_name(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
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
fn string_end(text: &[u8], at: usize) -> Result<usize, InvalidJson> {
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
mod tests;
