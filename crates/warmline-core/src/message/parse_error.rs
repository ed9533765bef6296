//! What is wrong with a message, and where.

use std::fmt;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub kind: ParseErrorKind,
    /// The position of the byte where it shows.
    pub offset: usize,
}

/// The kinds of malformed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseErrorKind {
    NotUtf8,
    NotJson,
    /// The JSON ends too early.
    Truncated,
    /// Something follows the JSON.
    TrailingData,
    /// An array of messages, which no version but 2025-03-26 knows.
    Batch,
    /// JSON, but not an object.
    NotObject,
    /// An object has two members of the same name.
    DuplicateMember,
    /// `jsonrpc` is missing or not `"2.0"`.
    NotJsonRpc,
    BadId,
    /// `method` is not a string, or empty.
    BadMethod,
    BadParams,
    BadMeta,
    /// `error` is not an object with a number `code` and a text `message`.
    BadError,
    /// Neither a request, nor a notification, nor a response.
    UnknownMessageKind,
    TooDeep,
    /// A required member is missing, or has the wrong type.
    MissingMember(&'static str),
}

impl ParseError {
    pub(crate) const fn new(kind: ParseErrorKind, offset: usize) -> Self {
        Self { kind, offset }
    }

    /// A member is missing, or has the wrong type.
    pub(crate) const fn missing(member: &'static str, offset: usize) -> Self {
        Self::new(ParseErrorKind::MissingMember(member), offset)
    }

    pub const fn is_json(&self) -> bool {
        let fault = self.kind;
        !matches!(
            fault,
            ParseErrorKind::NotUtf8
                | ParseErrorKind::NotJson
                | ParseErrorKind::Truncated
                | ParseErrorKind::TrailingData
                | ParseErrorKind::TooDeep
        )
    }

    /// The fault that `serde_json` found in a text.
    pub(crate) fn from_serde(error: &serde_json::Error, text: &str) -> Self {
        if error.is_eof() {
            return Self::new(ParseErrorKind::Truncated, text.len());
        }
        Self::new(ParseErrorKind::NotJson, error_offset(error, text))
    }

    /// The same error, counted from the start of a text that holds this one at `offset`.
    pub(crate) const fn with_offset(self, offset: usize) -> Self {
        Self {
            kind: self.kind,
            offset: self.offset + offset,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf8 => "not UTF-8",
            Self::NotJson => "not JSON",
            Self::Truncated => "the JSON ends too early",
            Self::TrailingData => "something follows the JSON",
            Self::Batch => "a batch of messages",
            Self::NotObject => "not a JSON object",
            Self::DuplicateMember => "a member appears twice",
            Self::NotJsonRpc => "`jsonrpc` is not \"2.0\"",
            Self::BadId => "`id` is neither text nor integer",
            Self::BadMethod => "`method` is not a text",
            Self::BadParams => "`params` is not an object",
            Self::BadMeta => "`_meta` is not an object",
            Self::BadError => "`error` lacks a number `code` or a text `message`",
            Self::UnknownMessageKind => "neither request, notification nor response",
            Self::TooDeep => "nested too deep",
            Self::MissingMember(member) => {
                return write!(f, "`{member}` is missing or of a wrong type");
            },
        })
    }
}

/// The byte of a `serde_json` error, which counts in lines and columns.
pub(crate) fn error_offset(error: &serde_json::Error, text: &str) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    (before + error.column().saturating_sub(1)).min(text.len())
}
