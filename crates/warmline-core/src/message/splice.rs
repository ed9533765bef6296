//! Edits and writes messages by their bytes.
//!
//! Members that no edit names pass unchanged, in their order, with the white space around them.
//! Setting a member replaces the value of one with the same name; there is never a second.

use bytes::Bytes;
use serde::Serialize;
use smallvec::SmallVec;

use crate::message::json;
use crate::message::params::{Params, is_absent_params};
use crate::message::parse_error::ParseError;

/// One change to an object. Of several for one name the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// Gives a member this raw JSON value; new members go to the end.
    Set(&'a str, &'a [u8]),
    /// Takes a member out, if it is there.
    Remove(&'a str),
}

impl<'a> Edit<'a> {
    pub(crate) const fn name(&self) -> &'a str {
        match self {
            Self::Set(name, _) | Self::Remove(name) => name,
        }
    }

    pub(crate) const fn is_set(&self) -> bool {
        matches!(self, Self::Set(..))
    }
}

/// Writes the object `raw` with the edits made. On an error `out` is as it was.
pub fn edit_object(raw: &[u8], edits: &[Edit<'_>], out: &mut Vec<u8>) -> Result<(), ParseError> {
    edit_object_nested(raw, edits, None, out)
}

/// Edits an object and, in place, one object inside it. The nested one is made if it is missing
/// and something is to be set in it.
pub(crate) fn edit_object_nested(
    raw: &[u8],
    edits: &[Edit<'_>],
    nested: Option<(&str, &[Edit<'_>])>,
    out: &mut Vec<u8>,
) -> Result<(), ParseError> {
    let before = out.len();
    let mut writer = ObjectEditor::new(raw, edits, nested, out);
    let done = json::parse_utf8(raw).and_then(|text| {
        json::walk_members(text, |member| writer.copy_member(&member))?;
        writer.finish()
    });
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// The same JSON on one line. Raw line breaks are only between tokens, where they mean nothing.
pub fn to_single_line(raw: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &raw).is_none() {
        return raw;
    }
    raw.iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\n' | b'\r'))
        .collect()
}

/// Writes a request. Parameters without a member are left out.
pub fn write_request(
    out: &mut Vec<u8>,
    id: u64,
    method: &str,
    params: &Params,
    edits: &[Edit<'_>],
    meta_edits: &[Edit<'_>],
) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write_number(out, id);
    out.extend_from_slice(b",\"method\":");
    write_string(out, method);
    if !params.is_empty() || edits.iter().chain(meta_edits).any(Edit::is_set) {
        out.extend_from_slice(b",\"params\":");
        params.write_edited(out, edits, meta_edits);
    }
    out.push(b'}');
}

/// Writes a notification; `params` is a raw JSON object. Absent ones are left out.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    write_string(out, method);
    if let Some(params) = params.filter(|raw| !is_absent_params(raw)) {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    out.push(b'}');
}

/// Writes a response with a result; id and result are raw JSON.
pub fn write_result(out: &mut Vec<u8>, id: &[u8], result: &[u8]) {
    write_response_head(out, id);
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
}

/// Writes a response with an error; the id is raw JSON.
pub fn write_error(out: &mut Vec<u8>, id: &[u8], code: i64, message: &str) {
    write_response_head(out, id);
    out.extend_from_slice(b",\"error\":{\"code\":");
    write_json(out, &code);
    out.extend_from_slice(b",\"message\":");
    write_string(out, message);
    out.extend_from_slice(b"}}");
}

/// Writes a response with an error that is raw JSON already, as the id is.
pub fn write_raw_error(out: &mut Vec<u8>, id: &[u8], error: &[u8]) {
    write_response_head(out, id);
    out.extend_from_slice(b",\"error\":");
    out.extend_from_slice(error);
    out.push(b'}');
}

pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write_json(out, text);
}

/// Writes a number in decimal digits.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    write_json(out, &number);
}

fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "a vector takes every text and number");
}

fn write_response_head(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
}

/// Copies an object member by member. The text between two commas is copied unchanged.
struct ObjectEditor<'a, 'o> {
    raw: &'a [u8],
    edits: &'a [Edit<'a>],
    nested: Option<(&'a str, &'a [Edit<'a>])>,
    out: &'o mut Vec<u8>,
    // Where the text of the next member begins, behind the brace or the last comma.
    next_offset: usize,
    is_first: bool,
    // Which edits found their member, by index.
    matched_edits: SmallVec<[usize; 8]>,
    matched_nested: bool,
}

impl<'a, 'o> ObjectEditor<'a, 'o> {
    fn new(
        raw: &'a [u8],
        edits: &'a [Edit<'a>],
        nested: Option<(&'a str, &'a [Edit<'a>])>,
        out: &'o mut Vec<u8>,
    ) -> Self {
        let next_offset = memchr::memchr(b'{', raw).map_or(0, |brace| brace + 1);
        out.push(b'{');
        Self {
            raw,
            edits,
            nested,
            out,
            next_offset,
            is_first: true,
            matched_edits: SmallVec::new(),
            matched_nested: false,
        }
    }

    fn copy_member(&mut self, member: &json::Member<'_>) -> Result<(), ParseError> {
        let range = member.range();
        let (start, end) = (self.next_offset, self.end_of_segment(range.end));
        self.next_offset = end + 1;
        let edit = self
            .edits
            .iter()
            .position(|edit| edit.name() == member.name);
        self.matched_edits.extend(edit);
        match edit.and_then(|index| self.edits.get(index)) {
            Some(Edit::Remove(_)) => {},
            Some(Edit::Set(_, value)) => {
                self.copy_range(start, range.start);
                self.out.extend_from_slice(value);
                self.copy_tail(range.end, end);
            },
            None => match self.nested {
                Some((name, inner)) if name == member.name => {
                    self.matched_nested = true;
                    self.copy_range(start, range.start);
                    let value = if member.value == "null" {
                        "{}"
                    } else {
                        member.value
                    };
                    edit_object(value.as_bytes(), inner, self.out)
                        .map_err(|fault| fault.with_offset(member.offset))?;
                    self.copy_tail(range.end, end);
                },
                _ => self.copy_range(start, end),
            },
        }
        Ok(())
    }

    /// Adds the members that are missing, and closes the object.
    fn finish(&mut self) -> Result<(), ParseError> {
        for (index, edit) in self.edits.iter().enumerate() {
            let met = self.matched_edits.contains(&index);
            let repeated = self
                .edits
                .iter()
                .take(index)
                .any(|other| other.name() == edit.name());
            if let (Edit::Set(name, value), false, false) = (edit, met, repeated) {
                self.write_name(name);
                self.out.extend_from_slice(value);
            }
        }
        let spoken_for = |name: &str| self.edits.iter().any(|edit| edit.name() == name);
        if let Some((name, inner)) = self.nested
            && !self.matched_nested
            && !spoken_for(name)
            && inner.iter().any(Edit::is_set)
        {
            self.write_name(name);
            edit_object(b"{}", inner, self.out)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The comma or brace behind a value.
    fn end_of_segment(&self, from: usize) -> usize {
        let rest = self.raw.get(from..).unwrap_or_default();
        from + rest
            .iter()
            .position(|byte| !json::is_whitespace(*byte))
            .unwrap_or(rest.len())
    }

    fn write_comma(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
    }

    fn copy_range(&mut self, start: usize, end: usize) {
        self.write_comma();
        self.copy_tail(start, end);
    }

    fn copy_tail(&mut self, start: usize, end: usize) {
        self.out
            .extend_from_slice(self.raw.get(start..end).unwrap_or_default());
    }

    fn write_name(&mut self, name: &str) {
        self.write_comma();
        write_string(self.out, name);
        self.out.push(b':');
    }
}

#[cfg(test)]
mod tests;
