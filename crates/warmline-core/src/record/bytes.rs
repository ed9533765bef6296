//! Tagged fields of a record as bytes: a tag, a length of four bytes, and so many bytes.
//!
//! Told by: `fields.rs`, which knows what the tags mean.

use super::{FORMAT, MAX_BYTES, Unreadable};

/// From this tag on, a reader that does not know it goes on without it.
pub(super) const MAY_BE_IGNORED: u8 = 128;

/// Writes fields one after another.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        let mut out = Vec::with_capacity(512);
        out.push(FORMAT);
        Self(out)
    }

    /// Adds a field. A record that grew too large stays too large, however small the rest is.
    pub(super) fn field(&mut self, tag: u8, value: &[u8]) {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.0.push(tag);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(value);
    }

    /// What was written; nothing if it is too much.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (self.0.len() <= MAX_BYTES).then_some(self.0)
    }
}

/// The fields of some bytes, one after another.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    last_tag: u8,
}

impl<'a> Reader<'a> {
    /// Reads the version, and refuses what is not of ours.
    pub(super) fn new(raw: &'a [u8]) -> Result<Self, Unreadable> {
        if raw.len() > MAX_BYTES {
            return Err(Unreadable::Broken("size"));
        }
        match raw.split_first() {
            Some((&FORMAT, rest)) => Ok(Self { rest, last_tag: 0 }),
            Some((&version, _)) if version > FORMAT => Err(Unreadable::TooNew),
            Some(_) | None => Err(Unreadable::Broken("version")),
        }
    }

    /// The next field; none at the end. Only `repeated` may stand there more than once.
    pub(super) fn next(&mut self, repeated: u8) -> Result<Option<(u8, &'a [u8])>, Unreadable> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        let (length, rest) = rest
            .split_first_chunk::<4>()
            .ok_or(Unreadable::Broken("length"))?;
        let length = usize::try_from(u32::from_le_bytes(*length))
            .map_err(|_| Unreadable::Broken("length"))?;
        let (value, rest) = rest
            .split_at_checked(length)
            .ok_or(Unreadable::Broken("length"))?;
        if tag < self.last_tag || (tag == self.last_tag && tag != repeated) {
            return Err(Unreadable::Broken("order"));
        }
        self.last_tag = tag;
        self.rest = rest;
        Ok(Some((tag, value)))
    }
}
