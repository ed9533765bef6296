//! The members of one JSON object, one after another, without a tree.
//!
//! Every read of a message goes through here: the text is checked whole, values stay raw, names are
//! compared unescaped, and a duplicate name is refused. Two readers must not see two different
//! messages.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::message::parse_error::{ParseError, ParseErrorKind, error_offset};
use crate::message::scanner;
use crate::message::scanner::InvalidJson;

/// One member of an object.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// Its name, unescaped.
    pub(crate) name: Cow<'a, str>,
    /// Its raw value.
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
        let brace = scanner::skip_whitespace(text.as_bytes(), 0);
        Self {
            text,
            offset: brace + 1,
            is_first: true,
        }
    }

    /// The next member; none behind the last, where nothing may follow.
    fn next_member(&mut self) -> Result<Option<Member<'a>>, InvalidJson> {
        let bytes = self.text.as_bytes();
        let mut at = scanner::skip_whitespace(bytes, self.offset);
        match bytes.get(at) {
            Some(b'}') => {
                let is_all = scanner::skip_whitespace(bytes, at + 1) == bytes.len();
                return if is_all { Ok(None) } else { Err(InvalidJson) };
            },
            Some(b',') if !self.is_first => at = scanner::skip_whitespace(bytes, at + 1),
            Some(_) if self.is_first => {},
            _ => return Err(InvalidJson),
        }
        self.is_first = false;
        let name_ends = scanner::string_end(bytes, at)?;
        let name = self.text.get(at..name_ends).and_then(decode_string);
        let at = scanner::skip_name(bytes, at)?;
        self.offset = scanner::value_end(bytes, at)?;
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
    let at = text
        .bytes()
        .position(|b| !is_whitespace(b))
        .unwrap_or(text.len());
    match text.as_bytes().get(at) {
        Some(b'{') => Ok(()),
        // The caller checks whether it is a batch.
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            let ends = scanner::value_end(text.as_bytes(), at);
            let is_json =
                ends.is_ok_and(|end| scanner::skip_whitespace(text.as_bytes(), end) == text.len());
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
