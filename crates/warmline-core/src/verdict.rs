//! The verdict on a server: which era it speaks, by its answer to `server/discover`.
//!
//! Asked by: whoever opens a server whose era nobody knows.
//!
//! What is no verdict: anything that is not the server's own word (no connection, a timeout, a
//!   gateway's 5xx) or that says "not now" (401, 403, 429). An outage is not a legacy server.
//! What is legacy: every answer that is not recognised as modern. Servers refuse an unknown first
//!   request in more ways than anybody can list.

use crate::code::Reason;
use crate::era::{Era, Version};
use crate::protocol::envelope::{Kind, Message, RpcError};
use crate::protocol::handshake::{read_discover_result, versions};

/// What an answer to a probe says, and the row of the table that says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The name of the row: `P1` to `P17` over HTTP, `Q1` to `Q7` over stdio.
    pub row: &'static str,
    /// What it says.
    pub probe: Probe,
}

/// What an answer to a probe says of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It speaks this modern version.
    Modern(Version),
    /// It is to be greeted with `initialize`, at the best legacy version it named.
    Legacy {
        /// That version, if it named one we speak.
        best: Option<Version>,
    },
    /// It is modern: ask once more at this version.
    RetryAt(Version),
    /// It speaks only versions that nobody here does.
    Incompatible {
        /// What it speaks, as it wrote it.
        supported: Vec<String>,
    },
    /// Nothing was said about the era.
    NoVerdict {
        /// Why not.
        reason: Reason,
    },
    /// Silence so far: send `initialize` as well, and let the answers decide.
    AskBoth,
    /// It does not do what any version asks for.
    Broken,
}

/// What came back over HTTP.
#[derive(Clone, Copy, Debug)]
pub enum HttpAnswer<'a> {
    /// A status, and the JSON-RPC message of its body or event stream, if there is one.
    Status(u16, Option<&'a Message>),
    /// No reply: the connection failed, or the time was over.
    None(Reason),
}

/// What came back over stdio.
#[derive(Clone, Copy, Debug)]
pub enum StdioAnswer<'a> {
    /// A response to the probe.
    Probe(&'a Message),
    /// Nothing within the time for a probe.
    Silence,
    /// The process ended.
    Exit,
    /// A response to the `initialize` that was sent after silence.
    Initialize(&'a Message),
}

/// Reads the answer to `server/discover` over HTTP, asked at that version.
pub fn read_probe_http(answer: HttpAnswer<'_>, asked: Version) -> Reading {
    let (status, message) = match answer {
        HttpAnswer::Status(status, message) => (status, message),
        HttpAnswer::None(reason) => return no_verdict("P15", reason),
    };
    if let Some(error) = message.and_then(error_of) {
        match error.code {
            UNSUPPORTED_VERSION => return unsupported(&error, HTTP_ROWS),
            // Only a modern server knows these: our request is wrong, not the era.
            HEADER_MISMATCH | MISSING_CAPABILITY => return at("P8", Probe::Modern(asked)),
            METHOD_NOT_FOUND if status == 404 => return legacy("P10", None),
            _ => {},
        }
    }
    match status {
        202 => at("P17", Probe::Broken),
        200..=299 => message.map_or_else(
            || legacy("P3", None),
            |message| discovered(message, HTTP_ROWS),
        ),
        401 => no_verdict("P13", Reason::Unauthorized),
        403 => no_verdict("P13", Reason::Forbidden),
        // Of the way to the server, not of the server.
        407 => no_verdict("P14", Reason::Proxy),
        408 => no_verdict("P14", Reason::Timeout),
        429 => no_verdict("P14", Reason::RateLimited),
        400 => legacy("P9", None),
        404 | 405 => legacy("P11", None),
        402 | 406 | 409..=428 | 430..=499 => legacy("P12", None),
        300..=399 => no_verdict("P14", Reason::Redirect),
        502 | 504 | 520..=527 | 530 => no_verdict("P14", Reason::GatewayError),
        503 => no_verdict("P14", Reason::Unavailable),
        _ => no_verdict("P14", Reason::ServerError),
    }
}

/// Reads the answer to `server/discover` over stdio.
pub fn read_probe_stdio(answer: StdioAnswer<'_>) -> Reading {
    match answer {
        StdioAnswer::Silence => at("Q5", Probe::AskBoth),
        StdioAnswer::Exit => legacy("Q6", None),
        StdioAnswer::Probe(message) => match error_of(message) {
            Some(error) if error.code == UNSUPPORTED_VERSION => unsupported(&error, STDIO_ROWS),
            Some(_) => legacy("Q4", None),
            None => discovered(message, STDIO_ROWS),
        },
        StdioAnswer::Initialize(message) => match error_of(message) {
            // It was only slow, took the late probe, and serves the modern era now.
            Some(error) if error.code == UNSUPPORTED_VERSION => {
                at("Q7", Probe::RetryAt(Version::NEWEST_MODERN))
            },
            Some(_) => no_verdict("Q5", Reason::Handshake),
            None => legacy("Q5", None),
        },
    }
}

const METHOD_NOT_FOUND: i64 = -32601;
const HEADER_MISMATCH: i64 = -32020;
const MISSING_CAPABILITY: i64 = -32021;
const UNSUPPORTED_VERSION: i64 = -32022;

/// The names of the rows that both transports have.
#[derive(Clone, Copy)]
struct Rows {
    shares_modern: &'static str,
    only_legacy: &'static str,
    no_discover: &'static str,
    refused: &'static str,
    unsupported_modern: &'static str,
    unsupported_legacy: &'static str,
    incompatible: &'static str,
    unusable: &'static str,
}

const HTTP_ROWS: Rows = Rows {
    shares_modern: "P1",
    only_legacy: "P2",
    no_discover: "P3",
    refused: "P9",
    unsupported_modern: "P4",
    unsupported_legacy: "P5",
    incompatible: "P6",
    unusable: "P7",
};

const STDIO_ROWS: Rows = Rows {
    shares_modern: "Q1",
    only_legacy: "Q3",
    no_discover: "Q4",
    refused: "Q4",
    unsupported_modern: "Q2",
    unsupported_legacy: "Q3",
    incompatible: "Q2",
    unusable: "Q3",
};

fn discovered(message: &Message, rows: Rows) -> Reading {
    let found = message
        .result()
        .and_then(|raw| read_discover_result(&raw).ok());
    let Some(found) = found else {
        // An error that names no version says nothing more than any other refusal.
        let is_error = message.kind() == Kind::Error;
        let row = if is_error {
            rows.refused
        } else {
            rows.no_discover
        };
        return legacy(row, None);
    };
    match Shared::of(&found.supported) {
        Shared::Modern(version) => at(rows.shares_modern, Probe::Modern(version)),
        Shared::Legacy(best) => legacy(rows.only_legacy, best),
        Shared::Nothing => at(
            rows.incompatible,
            Probe::Incompatible {
                supported: found.supported,
            },
        ),
        Shared::Unusable => legacy(rows.no_discover, None),
    }
}

fn unsupported(error: &RpcError, rows: Rows) -> Reading {
    let supported = supported_versions(error).unwrap_or_default();
    match Shared::of(&supported) {
        Shared::Modern(version) => at(rows.unsupported_modern, Probe::RetryAt(version)),
        Shared::Legacy(best) => legacy(rows.unsupported_legacy, best),
        Shared::Nothing => at(rows.incompatible, Probe::Incompatible { supported }),
        Shared::Unusable => legacy(rows.unusable, None),
    }
}

/// The versions that a refusal names as those it supports, as the server wrote them.
pub fn supported_versions(error: &RpcError) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        supported: &'a serde_json::value::RawValue,
    }
    let data: Data<'_> = serde_json::from_slice(error.data.as_ref()?).ok()?;
    versions(data.supported.get())
}

/// What we have in common with the versions a server names.
enum Shared {
    Modern(Version),
    /// No modern one; the best legacy one we speak, if there is any.
    Legacy(Option<Version>),
    /// Only modern ones that we do not speak.
    Nothing,
    /// No list of versions at all.
    Unusable,
}

impl Shared {
    fn of(supported: &[String]) -> Self {
        let newest = |era| {
            let spoken = supported.iter().filter_map(|date| Version::parse(date));
            spoken.filter(|version| version.era() == era).max()
        };
        let is_later = |date: &&String| date.as_str() > Version::NEWEST_LEGACY.as_str();
        let dates: Vec<&String> = supported.iter().filter(|text| is_date(text)).collect();
        match (newest(Era::Modern), newest(Era::Legacy)) {
            (Some(version), _) => Self::Modern(version),
            (None, Some(version)) => Self::Legacy(Some(version)),
            (None, None) if dates.is_empty() => Self::Unusable,
            (None, None) if dates.iter().any(is_later) => Self::Nothing,
            (None, None) => Self::Legacy(None),
        }
    }
}

/// Versions are dates; a string of another form is never guessed into an era.
fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

fn error_of(message: &Message) -> Option<RpcError> {
    RpcError::parse(&message.error()?).ok()
}

const fn at(row: &'static str, probe: Probe) -> Reading {
    Reading { row, probe }
}

const fn legacy(row: &'static str, best: Option<Version>) -> Reading {
    at(row, Probe::Legacy { best })
}

const fn no_verdict(row: &'static str, reason: Reason) -> Reading {
    at(row, Probe::NoVerdict { reason })
}

#[cfg(test)]
mod tests;
