//! The members of one JSON object, one after another, without a tree.
//!
//! Everything that looks into a message comes through here: the text is checked whole, values
//! stay raw, names are compared unescaped, and a name that stands there twice is refused. Two
//! readers of one message must not see two different things.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::malformed::{Fault, Malformed, position};

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
pub(crate) fn walk<'a, F>(text: &'a str, each: F) -> Result<(), Malformed>
where
    F: FnMut(Member<'a>) -> Result<(), Malformed>,
{
    expect_object(text)?;
    let mut fault = None;
    let mut source = serde_json::Deserializer::from_str(text);
    let walker = Walker {
        text,
        each,
        fault: &mut fault,
    };
    if let Err(error) = source.deserialize_map(walker) {
        return Err(fault.unwrap_or_else(|| Malformed::of(&error, text)));
    }
    source
        .end()
        .map_err(|error| Malformed::new(Fault::Trailing, position(&error, text)))
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
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            Err(Malformed::new(Fault::NotObject, at))
        },
        Some(_) => Err(Malformed::new(Fault::NotJson, at)),
        None => Err(Malformed::new(Fault::Truncated, at)),
    }
}

/// Whether a byte is white space between the tokens of JSON.
pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

struct Walker<'a, 'f, F> {
    text: &'a str,
    each: F,
    // What `each` said against a member: an error type of serde's cannot carry it.
    fault: &'f mut Option<Malformed>,
}

impl<'a, F> Visitor<'a> for Walker<'a, '_, F>
where
    F: FnMut(Member<'a>) -> Result<(), Malformed>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut seen = Seen::default();
        while let Some(Name(name)) = members.next_key::<Name<'a>>()? {
            let value = members.next_value::<&'a RawValue>()?.get();
            let at = value.as_ptr().addr() - self.text.as_ptr().addr();
            let told = if seen.add(&name) {
                (self.each)(Member { name, value, at })
            } else {
                Err(Malformed::new(Fault::Duplicate, at))
            };
            if let Err(fault) = told {
                *self.fault = Some(fault);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// A name of a member; borrowed unless it holds escapes.
struct Name<'a>(Cow<'a, str>);

impl<'a> Deserialize<'a> for Name<'a> {
    fn deserialize<D: Deserializer<'a>>(source: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'a> Visitor<'a> for NameVisitor {
            type Value = Name<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'a str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        source.deserialize_str(NameVisitor)
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
