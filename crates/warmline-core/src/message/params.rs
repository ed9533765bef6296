//! The parameters of a request: a checked JSON object, kept as bytes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Serialize;

use crate::message::json;
use crate::message::parse_error::{ParseError, ParseErrorKind};
use crate::message::splice;
use crate::message::splice::Edit;

/// A JSON object without duplicate members, also in its `_meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    raw: Bytes,
    is_empty: bool,
    /// Where `_meta` is, if it is an object.
    meta: Option<(usize, usize)>,
}

/// Stands for absent parameters, which read as an object without members and are not written. It is
/// recognised by its address.
static ABSENT_PARAMS: [u8; 2] = *b"{}";

/// The raw parameters of a message that has none.
pub const fn absent_params() -> Bytes {
    Bytes::from_static(&ABSENT_PARAMS)
}

/// Whether raw parameters stand for absent ones.
pub fn is_absent_params(raw: &[u8]) -> bool {
    std::ptr::eq(raw.as_ptr(), ABSENT_PARAMS.as_ptr())
}

impl Params {
    /// Absent parameters: an object without members.
    pub const fn empty() -> Self {
        Self {
            raw: absent_params(),
            is_empty: true,
            meta: None,
        }
    }

    pub fn parse(raw: Bytes) -> Result<Self, ParseError> {
        let text = json::parse_utf8(&raw)?;
        let (mut is_empty, mut meta) = (true, None);
        json::walk_members(text, |member| {
            is_empty = false;
            match (member.name.as_ref(), member.value.as_bytes().first()) {
                ("_meta", Some(b'{')) => {
                    let Range { start, end } = member.range();
                    meta = Some((start, end));
                    json::walk_members(member.value, |_| Ok(()))
                        .map_err(|fault| fault.with_offset(member.offset))
                },
                ("_meta", Some(b'n')) => Ok(()),
                ("_meta", _) => Err(ParseError::new(ParseErrorKind::BadMeta, member.offset)),
                _ => Ok(()),
            }
        })?;
        Ok(Self {
            raw,
            is_empty,
            meta,
        })
    }

    /// The parameters that a value serializes to.
    pub fn from_serialize(value: &impl Serialize) -> Result<Self, ParseError> {
        let raw =
            serde_json::to_vec(value).map_err(|_| ParseError::new(ParseErrorKind::NotJson, 0))?;
        Self::parse(raw.into())
    }

    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub fn member(&self, name: &str) -> Option<&[u8]> {
        self.raw_member(name).map(str::as_bytes)
    }

    /// `name`: of the requested tool or prompt.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        self.string_member("name")
    }

    /// `uri`: of the requested resource.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        self.string_member("uri")
    }

    pub fn meta(&self) -> Option<&[u8]> {
        let (start, end) = self.meta?;
        self.raw.get(start..end)
    }

    pub fn meta_member(&self, name: &str) -> Option<&[u8]> {
        let meta = json::parse_utf8(self.meta()?).ok()?;
        json::find_member(meta, name)
            .ok()
            .flatten()
            .map(str::as_bytes)
    }

    /// Writes the object with edits made to it and to its `_meta`. An edit of `_meta` as a whole
    /// wins over edits inside it.
    pub fn write_edited(&self, out: &mut Vec<u8>, edits: &[Edit<'_>], meta_edits: &[Edit<'_>]) {
        let nested = (!meta_edits.is_empty()).then_some(("_meta", meta_edits));
        let written = splice::edit_object_nested(&self.raw, edits, nested, out);
        debug_assert!(
            written.is_ok(),
            "these bytes were checked when they were parsed"
        );
    }

    /// The parameters with edits made to them and to their `_meta`, as in [`Self::write_edited`].
    #[must_use]
    pub fn edited(&self, edits: &[Edit<'_>], meta_edits: &[Edit<'_>]) -> Self {
        let mut raw = Vec::with_capacity(self.raw.len() + 256);
        self.write_edited(&mut raw, edits, meta_edits);
        // Edits of a checked object make a checked object.
        Self::parse(raw.into()).unwrap_or_else(|_| self.clone())
    }

    /// The text of a member, unescaped.
    pub(crate) fn string_member(&self, name: &str) -> Option<Cow<'_, str>> {
        json::decode_string(self.raw_member(name)?)
    }

    fn raw_member(&self, name: &str) -> Option<&str> {
        json::find_member(json::parse_utf8(&self.raw).ok()?, name)
            .ok()
            .flatten()
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::empty()
    }
}

#[cfg(test)]
mod tests;
