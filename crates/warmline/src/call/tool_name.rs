//! The name of the tool that a call is for, where it stands in the parameters that name it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use warmline_core::protocol::params::Params;

/// The name of a tool, held without a copy where nothing in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolName(Bytes);

/// Whether a method calls a tool.
pub(super) fn is_call(method: &str) -> bool {
    method == "tools/call"
}

impl ToolName {
    /// The tool that such a request calls, if it calls one and names it by a text.
    pub(crate) fn of(method: &str, params: &Params) -> Option<Self> {
        if !is_call(method) {
            return None;
        }
        Some(Self(match params.name()? {
            Cow::Borrowed(plain) => params.raw().slice_ref(plain.as_bytes()),
            Cow::Owned(unescaped) => unescaped.into(),
        }))
    }
}

impl Deref for ToolName {
    type Target = str;

    fn deref(&self) -> &str {
        // It was a text when it was taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}
