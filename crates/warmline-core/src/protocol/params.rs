//! The parameters of a request: a checked JSON object, kept as bytes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Serialize;

use super::malformed::{Fault, Malformed};
use super::object;
use super::splice::{self, Edit};

/// A JSON object whose members, and those of its `_meta`, have different names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    raw: Bytes,
    is_empty: bool,
    /// Where `_meta` stands, if it is an object.
    meta: Option<(usize, usize)>,
}

/// Stands for parameters that were not said. Whoever reads it finds an object without members; it
/// is told from one that was said by its place, and not written.
static UNSAID: [u8; 2] = *b"{}";

/// The raw parameters of a message that has none.
pub const fn unsaid() -> Bytes {
    Bytes::from_static(&UNSAID)
}

/// Whether raw parameters stand for those that were not said.
pub fn are_unsaid(raw: &[u8]) -> bool {
    std::ptr::eq(raw.as_ptr(), UNSAID.as_ptr())
}

impl Params {
    /// Parameters that were not said: an object without members.
    pub const fn empty() -> Self {
        Self {
            raw: unsaid(),
            is_empty: true,
            meta: None,
        }
    }

    /// Checks raw JSON.
    pub fn parse(raw: Bytes) -> Result<Self, Malformed> {
        let text = object::utf8(&raw)?;
        let (mut is_empty, mut meta) = (true, None);
        object::walk(text, |member| {
            is_empty = false;
            match (member.name.as_ref(), member.value.as_bytes().first()) {
                ("_meta", Some(b'{')) => {
                    let Range { start, end } = member.range();
                    meta = Some((start, end));
                    object::walk(member.value, |_| Ok(())).map_err(|fault| fault.shifted(member.at))
                },
                ("_meta", Some(b'n')) => Ok(()),
                ("_meta", _) => Err(Malformed::new(Fault::BadMeta, member.at)),
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
    pub fn of(value: &impl Serialize) -> Result<Self, Malformed> {
        let raw = serde_json::to_vec(value).map_err(|_| Malformed::new(Fault::NotJson, 0))?;
        Self::parse(raw.into())
    }

    /// The raw JSON.
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Whether there are no members.
    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The raw value of a member.
    pub fn member(&self, name: &str) -> Option<&[u8]> {
        self.raw_member(name).map(str::as_bytes)
    }

    /// `name`: of the tool or prompt asked for.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        self.text("name")
    }

    /// `uri`: of the resource asked for.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        self.text("uri")
    }

    /// `taskId`: of the task asked for.
    pub fn task_id(&self) -> Option<Cow<'_, str>> {
        self.text("taskId")
    }

    /// The raw `_meta` object.
    pub fn meta(&self) -> Option<&[u8]> {
        let (start, end) = self.meta?;
        self.raw.get(start..end)
    }

    /// The raw value of a member of `_meta`.
    pub fn meta_member(&self, name: &str) -> Option<&[u8]> {
        let meta = object::utf8(self.meta()?).ok()?;
        object::member(meta, name).ok().flatten().map(str::as_bytes)
    }

    /// Writes the object with edits made to it and to its `_meta`. An edit of `_meta` as a whole
    /// wins over edits inside it.
    pub fn write_with(&self, out: &mut Vec<u8>, edits: &[Edit<'_>], meta_edits: &[Edit<'_>]) {
        let nested = (!meta_edits.is_empty()).then_some(("_meta", meta_edits));
        let written = splice::edit_with_nested(&self.raw, edits, nested, out);
        debug_assert!(
            written.is_ok(),
            "these bytes were checked when they were parsed"
        );
    }

    /// The text of a member, unescaped.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        object::text_of(self.raw_member(name)?)
    }

    fn raw_member(&self, name: &str) -> Option<&str> {
        object::member(object::utf8(&self.raw).ok()?, name)
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
