//! The members of `_meta`, and what a modern client says of itself there.

use bytes::Bytes;

use crate::era::Version;
use crate::message::splice::{Edit, write_string};

/// The version a modern request speaks.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client of a modern request can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The name and version of the client of a modern request.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on a modern request wants log lines.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The levels of log lines, in rising order.
pub const LOG_LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];
/// The name and version of the server of a modern result.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The listen request that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// What progress notifications of a request carry.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Trace context of the W3C: which trace a message belongs to.
pub const TRACE_PARENT: &str = "traceparent";
/// Trace context of the W3C: what vendors add.
pub const TRACE_STATE: &str = "tracestate";
/// Trace context of the W3C: what applications add.
pub const BAGGAGE: &str = "baggage";

/// What every modern request says about the client. Made once, spliced into each.
#[derive(Clone, Debug)]
pub struct ClientMeta {
    version: Bytes,
    capabilities: Bytes,
    info: Bytes,
}

impl ClientMeta {
    /// For a client of that name; `capabilities` is a raw JSON object.
    pub fn new(version: Version, capabilities: Bytes, name: &str, client_version: &str) -> Self {
        let mut stated = Vec::new();
        write_string(&mut stated, version.as_str());
        let mut info = Vec::new();
        write_implementation(&mut info, name, client_version);
        Self {
            version: stated.into(),
            capabilities,
            info: info.into(),
        }
    }

    /// The edits of `_meta` that say it.
    pub fn edits(&self) -> [Edit<'_>; 3] {
        [
            Edit::Set(PROTOCOL_VERSION, &self.version),
            Edit::Set(CLIENT_CAPABILITIES, &self.capabilities),
            Edit::Set(CLIENT_INFO, &self.info),
        ]
    }
}

/// Writes name and version as the protocol's `Implementation`.
pub(crate) fn write_implementation(out: &mut Vec<u8>, name: &str, version: &str) {
    out.extend_from_slice(b"{\"name\":");
    write_string(out, name);
    out.extend_from_slice(b",\"version\":");
    write_string(out, version);
    out.push(b'}');
}
