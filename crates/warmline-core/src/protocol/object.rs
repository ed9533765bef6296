//! The members of one JSON object, one after another, without a tree.
//!
//! Everything that looks into a message comes through here: the text is checked whole, values
//! stay raw, names are compared unescaped, and a name that stands there twice is refused. Two
//! readers of one message must not see two different things.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::malformed::{Fault, Malformed, position};
use super::scan::{self, NotJson};

/// One member of an object.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// Its name, unescaped.
    pub(crate) name: Cow<'a, str>,
    /// Its value as it stands there.
    pub(crate) value: &'a str,
    /// Where the value begins in the text.
    pub(crate) at: usize,
}

impl Member<'_> {
    /// Where the value stands in the text.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + self.value.len()
    }
}

/// Shows each member of the object `text` in order. The text must hold nothing else.
pub(crate) fn walk<'a, F>(text: &'a str, mut each: F) -> Result<(), Malformed>
where
    F: FnMut(Member<'a>) -> Result<(), Malformed>,
{
    expect_object(text)?;
    let mut members = Members::of(text);
    let mut seen = Seen::default();
    loop {
        match members.next() {
            Ok(Some(member)) if seen.add(&member.name) => each(member)?,
            Ok(Some(member)) => return Err(Malformed::new(Fault::Duplicate, member.at)),
            Ok(None) => return Ok(()),
            Err(NotJson) => return Err(what_is_wrong(text)),
        }
    }
}

/// The members of an object, one after the other.
struct Members<'a> {
    text: &'a str,
    /// Where the next token stands.
    at: usize,
    is_first: bool,
}

impl<'a> Members<'a> {
    fn of(text: &'a str) -> Self {
        let brace = scan::blanks(text.as_bytes(), 0);
        Self {
            text,
            at: brace + 1,
            is_first: true,
        }
    }

    /// The next member; none behind the last, where nothing may follow.
    fn next(&mut self) -> Result<Option<Member<'a>>, NotJson> {
        let bytes = self.text.as_bytes();
        let mut at = scan::blanks(bytes, self.at);
        match bytes.get(at) {
            Some(b'}') => {
                let is_all = scan::blanks(bytes, at + 1) == bytes.len();
                return if is_all { Ok(None) } else { Err(NotJson) };
            },
            Some(b',') if !self.is_first => at = scan::blanks(bytes, at + 1),
            Some(_) if self.is_first => {},
            _ => return Err(NotJson),
        }
        self.is_first = false;
        let name_ends = scan::string(bytes, at)?;
        let name = self.text.get(at..name_ends).and_then(text_of);
        let at = scan::name(bytes, at)?;
        self.at = scan::value(bytes, at)?;
        match (name, self.text.get(at..self.at)) {
            (Some(name), Some(value)) => Ok(Some(Member { name, value, at })),
            _ => Err(NotJson),
        }
    }
}

/// What is wrong with a text that is no object, or not only one.
#[cold]
fn what_is_wrong(text: &str) -> Malformed {
    let mut source = serde_json::Deserializer::from_str(text);
    if let Err(error) = source.deserialize_map(Walker) {
        return Malformed::of(&error, text);
    }
    match source.end() {
        Err(error) => Malformed::new(Fault::Trailing, position(&error, text)),
        Ok(()) => Malformed::new(Fault::NotJson, 0),
    }
}

/// The value of one member, if the object has it.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, Malformed> {
    let mut found = None;
    walk(text, |member| {
        if member.name == name {
            found = Some(member.value);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The text that a raw JSON string stands for; nothing if it is no string.
pub(crate) fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inside))
    }
}

/// The bytes as text, or where they stop being UTF-8.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|error| Malformed::new(Fault::NotUtf8, error.valid_up_to()))
}

fn expect_object(text: &str) -> Result<(), Malformed> {
    let at = text
        .bytes()
        .position(|b| !is_blank(b))
        .unwrap_or(text.len());
    match text.as_bytes().get(at) {
        Some(b'{') => Ok(()),
        // Whether it is an array of messages is looked at by whoever knows those.
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            let ends = scan::value(text.as_bytes(), at);
            let is_json = ends.is_ok_and(|end| scan::blanks(text.as_bytes(), end) == text.len());
            let what = if is_json {
                Fault::NotObject
            } else {
                Fault::NotJson
            };
            Err(Malformed::new(what, at))
        },
        Some(_) => Err(Malformed::new(Fault::NotJson, at)),
        None => Err(Malformed::new(Fault::Truncated, at)),
    }
}

/// Whether a byte is white space between the tokens of JSON.
pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Reads an object as `serde_json` does, for what it says against it.
struct Walker;

impl<'a> Visitor<'a> for Walker {
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
struct Seen<'a> {
    few: [Option<&'a str>; 8],
    many: BTreeSet<Cow<'a, str>>,
}

impl<'a> Seen<'a> {
    /// Notes a name; false if it was there.
    #[expect(
        clippy::ptr_arg,
        reason = "whether the name is borrowed decides where it is kept"
    )]
    fn add(&mut self, name: &Cow<'a, str>) -> bool {
        if self
            .few
            .iter()
            .flatten()
            .any(|known| *known == name.as_ref())
        {
            return false;
        }
        match (name, self.few.iter_mut().find(|place| place.is_none())) {
            (Cow::Borrowed(plain), Some(place)) if !self.many.contains(*plain) => {
                *place = Some(plain);
                true
            },
            _ => self.many.insert(name.clone()),
        }
    }
}
