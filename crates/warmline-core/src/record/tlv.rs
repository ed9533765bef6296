//! Tagged fields as bytes: a tag, a length of four bytes, and so many bytes.

use super::{FORMAT_VERSION, MAX_BYTES, RecordDecodeError};

/// From this tag on, a reader that does not know it goes on without it.
pub(super) const FIRST_OPTIONAL_TAG: u8 = 128;

/// Appends a field. A record that became too large stays too large.
pub(super) fn write_field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.push(tag);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

/// The fields of some bytes, one after another.
#[derive(Debug)]
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
    last_tag: u8,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Result<Self, RecordDecodeError> {
        if raw.len() > MAX_BYTES {
            return Err(RecordDecodeError::Corrupt("size"));
        }
        match raw.split_first() {
            Some((&FORMAT_VERSION, rest)) => Ok(Self { rest, last_tag: 0 }),
            Some((&version, _)) if version > FORMAT_VERSION => Err(RecordDecodeError::TooNew),
            Some(_) | None => Err(RecordDecodeError::Corrupt("version")),
        }
    }

    /// The next field; none at the end. Only `repeated` may occur more than once.
    pub(super) fn next_field(
        &mut self,
        repeated: u8,
    ) -> Result<Option<(u8, &'a [u8])>, RecordDecodeError> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        let (length, rest) = rest
            .split_first_chunk::<4>()
            .ok_or(RecordDecodeError::Corrupt("length"))?;
        let length = usize::try_from(u32::from_le_bytes(*length))
            .map_err(|_| RecordDecodeError::Corrupt("length"))?;
        let (value, rest) = rest
            .split_at_checked(length)
            .ok_or(RecordDecodeError::Corrupt("length"))?;
        if tag < self.last_tag || (tag == self.last_tag && tag != repeated) {
            return Err(RecordDecodeError::Corrupt("order"));
        }
        self.last_tag = tag;
        self.rest = rest;
        Ok(Some((tag, value)))
    }
}
