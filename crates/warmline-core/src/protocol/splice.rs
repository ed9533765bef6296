//! Editing and writing messages by their bytes.
//!
//! Members nobody named pass untouched, in their order, with the white space around them. A
//! member that is set where one of that name stands replaces its value; there is never a second.

use bytes::Bytes;

use super::malformed::Malformed;
use super::object;
use super::params::{Params, are_unsaid};

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
pub fn edit_object(raw: &[u8], edits: &[Edit<'_>], out: &mut Vec<u8>) -> Result<(), Malformed> {
    edit_with_nested(raw, edits, None, out)
}

/// Edits an object and, in place, one object inside it. The nested one is made if it is missing
/// and something is to be set in it.
pub(crate) fn edit_with_nested(
    raw: &[u8],
    edits: &[Edit<'_>],
    nested: Option<(&str, &[Edit<'_>])>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let before = out.len();
    let mut writer = Writer::begin(raw, edits, nested, out);
    let done = object::utf8(raw).and_then(|text| {
        object::walk(text, |member| writer.take(&member))?;
        writer.end()
    });
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// The same JSON on one line. Raw line breaks stand only between tokens, where they mean nothing.
pub fn one_line(raw: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &raw).is_none() {
        return raw;
    }
    raw.iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\n' | b'\r'))
        .collect()
}

/// Writes a request of ours. Parameters without a member are left out.
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
    write_text(out, method);
    if !params.is_empty() || edits.iter().chain(meta_edits).any(Edit::is_set) {
        out.extend_from_slice(b",\"params\":");
        params.write_with(out, edits, meta_edits);
    }
    out.push(b'}');
}

/// Writes a notification; `params` is a raw JSON object. Those that were not said are left out.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    write_text(out, method);
    if let Some(params) = params.filter(|raw| !are_unsaid(raw)) {
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
    if code < 0 {
        out.push(b'-');
    }
    write_number(out, code.unsigned_abs());
    out.extend_from_slice(b",\"message\":");
    write_text(out, message);
    out.extend_from_slice(b"}}");
}

/// Writes a response with an error that is raw JSON already, as the id is.
pub fn write_raw_error(out: &mut Vec<u8>, id: &[u8], error: &[u8]) {
    write_response_head(out, id);
    out.extend_from_slice(b",\"error\":");
    out.extend_from_slice(error);
    out.push(b'}');
}

/// Writes a text as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    let written = serde_json::to_writer(&mut *out, text);
    debug_assert!(written.is_ok(), "a vector takes every text");
}

/// Writes a number in decimal digits.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0_u8; 20];
    let mut rest = number;
    let mut start = digits.len();
    loop {
        start -= 1;
        if let (Some(place), Ok(digit)) = (digits.get_mut(start), u8::try_from(rest % 10)) {
            *place = b'0' + digit;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

fn write_response_head(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
}

/// Copies an object member by member. What stands between two commas is copied as it is.
struct Writer<'a, 'o> {
    raw: &'a [u8],
    edits: &'a [Edit<'a>],
    nested: Option<(&'a str, &'a [Edit<'a>])>,
    out: &'o mut Vec<u8>,
    // Where the text of the next member begins, behind the brace or the last comma.
    next: usize,
    is_first: bool,
    // Which of the first 64 edits found their member.
    met: u64,
    met_nested: bool,
}

impl<'a, 'o> Writer<'a, 'o> {
    fn begin(
        raw: &'a [u8],
        edits: &'a [Edit<'a>],
        nested: Option<(&'a str, &'a [Edit<'a>])>,
        out: &'o mut Vec<u8>,
    ) -> Self {
        let next = memchr::memchr(b'{', raw).map_or(0, |brace| brace + 1);
        out.push(b'{');
        Self {
            raw,
            edits,
            nested,
            out,
            next,
            is_first: true,
            met: 0,
            met_nested: false,
        }
    }

    fn take(&mut self, member: &object::Member<'_>) -> Result<(), Malformed> {
        let range = member.range();
        let (start, end) = (self.next, self.end_of_segment(range.end));
        self.next = end + 1;
        let edit = self
            .edits
            .iter()
            .position(|edit| edit.name() == member.name);
        self.met |= edit.and_then(bit).unwrap_or(0);
        match edit.and_then(|index| self.edits.get(index)) {
            Some(Edit::Remove(_)) => {},
            Some(Edit::Set(_, value)) => {
                self.copy(start, range.start);
                self.out.extend_from_slice(value);
                self.copy_tail(range.end, end);
            },
            None => match self.nested {
                Some((name, inner)) if name == member.name => {
                    self.met_nested = true;
                    self.copy(start, range.start);
                    let value = if member.value == "null" {
                        "{}"
                    } else {
                        member.value
                    };
                    edit_object(value.as_bytes(), inner, self.out)
                        .map_err(|fault| fault.shifted(member.at))?;
                    self.copy_tail(range.end, end);
                },
                _ => self.copy(start, end),
            },
        }
        Ok(())
    }

    /// Adds what was not there yet, and closes the object.
    fn end(&mut self) -> Result<(), Malformed> {
        for (index, edit) in self.edits.iter().enumerate() {
            let met = self.is_met(index, edit.name());
            let repeated = self
                .edits
                .iter()
                .take(index)
                .any(|other| other.name() == edit.name());
            if let (Edit::Set(name, value), false, false) = (edit, met, repeated) {
                self.name(name);
                self.out.extend_from_slice(value);
            }
        }
        let spoken_for = |name: &str| self.edits.iter().any(|edit| edit.name() == name);
        if let Some((name, inner)) = self.nested
            && !self.met_nested
            && !spoken_for(name)
            && inner.iter().any(Edit::is_set)
        {
            self.name(name);
            edit_object(b"{}", inner, self.out)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Whether an edit found its member. Beyond 64 edits it is looked up: nobody makes so many.
    fn is_met(&self, index: usize, name: &str) -> bool {
        bit(index).map_or_else(
            || object::utf8(self.raw).is_ok_and(|text| object::member(text, name) != Ok(None)),
            |bit| self.met & bit != 0,
        )
    }

    /// The comma or brace behind a value.
    fn end_of_segment(&self, from: usize) -> usize {
        let rest = self.raw.get(from..).unwrap_or_default();
        from + rest
            .iter()
            .position(|byte| !object::is_blank(*byte))
            .unwrap_or(rest.len())
    }

    fn comma(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
    }

    fn copy(&mut self, start: usize, end: usize) {
        self.comma();
        self.copy_tail(start, end);
    }

    fn copy_tail(&mut self, start: usize, end: usize) {
        self.out
            .extend_from_slice(self.raw.get(start..end).unwrap_or_default());
    }

    fn name(&mut self, name: &str) {
        self.comma();
        write_text(self.out, name);
        self.out.push(b':');
    }
}

/// The place of an edit in [`Writer::met`].
fn bit(index: usize) -> Option<u64> {
    u32::try_from(index)
        .ok()
        .and_then(|index| 1_u64.checked_shl(index))
}

#[cfg(test)]
mod tests;
