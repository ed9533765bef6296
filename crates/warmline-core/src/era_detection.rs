//! Which era a server speaks, by its answer to `server/discover`.
//!
//! An answer that is not the server's own (no connection, a timeout, a gateway's 5xx) or that says
//! "not now" (401, 403, 429) is no verdict: an outage is not a legacy server. Every answer that is
//! not recognised as modern is legacy: servers refuse an unknown first request in countless ways.

use crate::era::{Era, Version};
use crate::message::envelope::{Message, MessageKind, RpcError};
use crate::protocol::handshake::{read_discover_result, read_version_list};

/// The result of a probe, and the row of the table that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EraProbeResult {
    /// The name of the row: `P1` to `P17` over HTTP, `Q1` to `Q7` over stdio.
    pub row: &'static str,
    pub verdict: EraVerdict,
}

/// What the answer to a probe says about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EraVerdict {
    Modern(Version),
    /// It is to be greeted with `initialize`, at the best legacy version it named.
    Legacy {
        /// That version, if it named one we speak.
        best: Option<Version>,
    },
    /// It is modern: ask once more at this version.
    RetryAt(Version),
    /// It speaks only unknown versions.
    Incompatible {
        /// Its versions, as it wrote them.
        supported: Vec<String>,
    },
    /// It says nothing about the era.
    Undetermined,
}

/// Reads the answer to `server/discover` over HTTP, asked at that version: its status, and the JSON-RPC
/// message of its body or event stream, if there is one. None: the connection failed, or the time was
/// over.
pub fn classify_http_probe(
    answer: Option<(u16, Option<&Message>)>,
    asked: Version,
) -> EraProbeResult {
    let Some((status, message)) = answer else {
        return undetermined_result("P15");
    };
    if let Some(error) = message.and_then(rpc_error) {
        match error.code {
            UNSUPPORTED_VERSION => return classify_unsupported_version(&error, HTTP_ROWS),
            // Only a modern server knows these: our request is wrong, not the era.
            HEADER_MISMATCH | MISSING_CAPABILITY => {
                return probe_result("P8", EraVerdict::Modern(asked));
            },
            METHOD_NOT_FOUND if status == 404 => return legacy_result("P10", None),
            _ => {},
        }
    }
    match status {
        202 => undetermined_result("P17"),
        200..=299 => message.map_or_else(
            || legacy_result("P3", None),
            |message| classify_discover_result(message, HTTP_ROWS),
        ),
        401 | 403 => undetermined_result("P13"),
        400 => legacy_result("P9", None),
        404 | 405 => legacy_result("P11", None),
        402 | 406 | 409..=428 | 430..=499 => legacy_result("P12", None),
        // Of the way to the server, not of the server.
        _ => undetermined_result("P14"),
    }
}

/// Reads the answer to `server/discover` over stdio.
pub fn classify_stdio_probe(message: &Message) -> EraProbeResult {
    match rpc_error(message) {
        Some(error) if error.code == UNSUPPORTED_VERSION => {
            classify_unsupported_version(&error, STDIO_ROWS)
        },
        Some(_) => legacy_result("Q4", None),
        None => classify_discover_result(message, STDIO_ROWS),
    }
}

/// Reads the answer to the `initialize` that was sent after silence over stdio.
pub fn classify_late_initialize(message: &Message) -> EraProbeResult {
    match rpc_error(message) {
        // It was only slow, took the late probe, and serves the modern era now.
        Some(error) if error.code == UNSUPPORTED_VERSION => {
            probe_result("Q7", EraVerdict::RetryAt(Version::NEWEST_MODERN))
        },
        Some(_) => undetermined_result("Q5"),
        None => legacy_result("Q5", None),
    }
}

const METHOD_NOT_FOUND: i64 = -32601;
const HEADER_MISMATCH: i64 = -32020;
const MISSING_CAPABILITY: i64 = -32021;
const UNSUPPORTED_VERSION: i64 = -32022;

/// The names of the rows that both transports have.
#[derive(Clone, Copy)]
struct RowNames {
    common_modern: &'static str,
    only_legacy: &'static str,
    no_discover: &'static str,
    refused: &'static str,
    unsupported_modern: &'static str,
    unsupported_legacy: &'static str,
    incompatible: &'static str,
    unusable: &'static str,
}

const HTTP_ROWS: RowNames = RowNames {
    common_modern: "P1",
    only_legacy: "P2",
    no_discover: "P3",
    refused: "P9",
    unsupported_modern: "P4",
    unsupported_legacy: "P5",
    incompatible: "P6",
    unusable: "P7",
};

const STDIO_ROWS: RowNames = RowNames {
    common_modern: "Q1",
    only_legacy: "Q3",
    no_discover: "Q4",
    refused: "Q4",
    unsupported_modern: "Q2",
    unsupported_legacy: "Q3",
    incompatible: "Q2",
    unusable: "Q3",
};

fn classify_discover_result(message: &Message, rows: RowNames) -> EraProbeResult {
    let found = message
        .result()
        .and_then(|raw| read_discover_result(&raw).ok());
    let Some(found) = found else {
        // An error that names no version is like any other refusal.
        let is_error = message.kind() == MessageKind::Error;
        let row = if is_error {
            rows.refused
        } else {
            rows.no_discover
        };
        return legacy_result(row, None);
    };
    match CommonVersion::from_supported(&found.supported_versions) {
        CommonVersion::Modern(version) => {
            probe_result(rows.common_modern, EraVerdict::Modern(version))
        },
        CommonVersion::Legacy(best) => legacy_result(rows.only_legacy, best),
        CommonVersion::Unsupported => probe_result(
            rows.incompatible,
            EraVerdict::Incompatible {
                supported: found.supported_versions,
            },
        ),
        CommonVersion::Unusable => legacy_result(rows.no_discover, None),
    }
}

fn classify_unsupported_version(error: &RpcError, rows: RowNames) -> EraProbeResult {
    let supported = supported_versions(error).unwrap_or_default();
    match CommonVersion::from_supported(&supported) {
        CommonVersion::Modern(version) => {
            probe_result(rows.unsupported_modern, EraVerdict::RetryAt(version))
        },
        CommonVersion::Legacy(best) => legacy_result(rows.unsupported_legacy, best),
        CommonVersion::Unsupported => {
            probe_result(rows.incompatible, EraVerdict::Incompatible { supported })
        },
        CommonVersion::Unusable => legacy_result(rows.unusable, None),
    }
}

/// The versions that a refusal names as those it supports, as the server wrote them.
pub fn supported_versions(error: &RpcError) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct UnsupportedVersionData<'a> {
        #[serde(borrow)]
        supported: &'a serde_json::value::RawValue,
    }
    let data: UnsupportedVersionData<'_> = serde_json::from_slice(error.data.as_ref()?).ok()?;
    read_version_list(data.supported.get())
}

/// What we have in common with the versions a server names.
enum CommonVersion {
    Modern(Version),
    /// No modern one; the best legacy one we speak, if there is any.
    Legacy(Option<Version>),
    /// Only modern ones that we do not speak.
    Unsupported,
    /// No list of versions at all.
    Unusable,
}

impl CommonVersion {
    fn from_supported(supported: &[String]) -> Self {
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
            (None, None) if dates.iter().any(is_later) => Self::Unsupported,
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

fn rpc_error(message: &Message) -> Option<RpcError> {
    RpcError::parse(&message.error()?).ok()
}

const fn probe_result(row: &'static str, probe: EraVerdict) -> EraProbeResult {
    EraProbeResult {
        row,
        verdict: probe,
    }
}

const fn legacy_result(row: &'static str, best: Option<Version>) -> EraProbeResult {
    probe_result(row, EraVerdict::Legacy { best })
}

const fn undetermined_result(row: &'static str) -> EraProbeResult {
    probe_result(row, EraVerdict::Undetermined)
}

#[cfg(test)]
mod tests;
