//! What is wrong with a message, and where.

use std::fmt;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong.
    pub what: Fault,
    /// The position of the byte where it shows.
    pub at: usize,
}

/// The kinds of malformed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text is not JSON.
    NotJson,
    /// The JSON ends too early.
    Truncated,
    /// Something follows the JSON.
    Trailing,
    /// An array of messages, which no version but 2025-03-26 knows.
    Batch,
    /// JSON, but not an object.
    NotObject,
    /// An object has two members of the same name.
    Duplicate,
    /// `jsonrpc` is missing or not `"2.0"`.
    NotJsonRpc,
    /// `id` has a type that no id may have.
    BadId,
    /// `method` is not a string, or empty.
    BadMethod,
    /// `params` is not an object.
    BadParams,
    /// `_meta` is not an object.
    BadMeta,
    /// `error` is not an object with a number `code` and a text `message`.
    BadError,
    /// Neither a request, nor a notification, nor a response.
    NoKind,
    /// Nested deeper than we read.
    TooDeep,
    /// A member that must be there is missing, or has another type than it must have.
    Missing(&'static str),
}

impl Malformed {
    /// A fault at a position.
    pub(crate) const fn new(what: Fault, at: usize) -> Self {
        Self { what, at }
    }

    /// Whether it is JSON at all.
    pub const fn is_json(&self) -> bool {
        let fault = self.what;
        !matches!(
            fault,
            Fault::NotUtf8 | Fault::NotJson | Fault::Truncated | Fault::Trailing | Fault::TooDeep
        )
    }

    /// The fault that `serde_json` found in a text.
    pub(crate) fn of(error: &serde_json::Error, text: &str) -> Self {
        if error.is_eof() {
            return Self::new(Fault::Truncated, text.len());
        }
        Self::new(Fault::NotJson, position(error, text))
    }

    /// The same fault, counted from the start of a text that holds this one at `offset`.
    pub(crate) const fn shifted(self, offset: usize) -> Self {
        Self {
            what: self.what,
            at: self.at + offset,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

impl std::error::Error for Malformed {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf8 => "not UTF-8",
            Self::NotJson => "not JSON",
            Self::Truncated => "the JSON ends too early",
            Self::Trailing => "something follows the JSON",
            Self::Batch => "a batch of messages",
            Self::NotObject => "not a JSON object",
            Self::Duplicate => "a member stands there twice",
            Self::NotJsonRpc => "`jsonrpc` is not \"2.0\"",
            Self::BadId => "`id` is neither text nor integer",
            Self::BadMethod => "`method` is not a text",
            Self::BadParams => "`params` is not an object",
            Self::BadMeta => "`_meta` is not an object",
            Self::BadError => "`error` lacks a number `code` or a text `message`",
            Self::NoKind => "neither request, notification nor response",
            Self::TooDeep => "nested too deep",
            Self::Missing(member) => return write!(f, "`{member}` is missing or of a wrong type"),
        })
    }
}

/// The byte that a `serde_json` error speaks of; it counts in lines and columns.
pub(crate) fn position(error: &serde_json::Error, text: &str) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    (before + error.column().saturating_sub(1)).min(text.len())
}
