//! The handshake of each era. `initialize` opens a legacy session; `server/discover` only describes
//! the server.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::meta::{self, write_implementation};
use crate::era::Version;
use crate::message::json;
use crate::message::parse_error::ParseError;
use crate::message::splice::{write_number, write_string};

/// The result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitializeResult {
    /// The version it chose, as it wrote it.
    pub version: String,
    pub capabilities: Bytes,
    /// Its raw name and version, if it gave them.
    pub server_info: Option<Bytes>,
    pub instructions: Option<String>,
    /// How long the server keeps the session, if it says so.
    pub expires_in: Option<Duration>,
}

/// The result of `server/discover`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoverResult {
    /// The versions it speaks, as it wrote them.
    pub supported_versions: Vec<String>,
    pub capabilities: Bytes,
    /// Its raw name and version, if it gave them.
    pub server_info: Option<Bytes>,
    pub instructions: Option<String>,
}

/// Writes `initialize`; `capabilities` is a raw JSON object.
pub fn write_initialize(
    out: &mut Vec<u8>,
    id: u64,
    version: Version,
    capabilities: &[u8],
    client_name: &str,
    client_version: &str,
) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write_number(out, id);
    out.extend_from_slice(b",\"method\":\"initialize\",\"params\":{\"protocolVersion\":");
    write_string(out, version.as_str());
    out.extend_from_slice(b",\"capabilities\":");
    out.extend_from_slice(capabilities);
    out.extend_from_slice(b",\"clientInfo\":");
    write_implementation(out, client_name, client_version);
    out.extend_from_slice(b"}}");
}

pub fn read_initialize_result(raw: &[u8]) -> Result<InitializeResult, ParseError> {
    let mut said = HandshakeFields::default();
    said.read(raw)?;
    Ok(InitializeResult {
        version: said
            .version
            .ok_or(ParseError::missing("protocolVersion", 0))?,
        capabilities: said
            .capabilities
            .ok_or(ParseError::missing("capabilities", 0))?,
        server_info: said.server_info,
        instructions: said.instructions,
        expires_in: said.expires_in,
    })
}

pub fn read_discover_result(raw: &[u8]) -> Result<DiscoverResult, ParseError> {
    let mut said = HandshakeFields::default();
    said.read(raw)?;
    Ok(DiscoverResult {
        supported_versions: said
            .supported_versions
            .ok_or(ParseError::missing("supportedVersions", 0))?,
        capabilities: said
            .capabilities
            .ok_or(ParseError::missing("capabilities", 0))?,
        server_info: said.meta_server_info.or(said.server_info),
        instructions: said.instructions,
    })
}

/// The versions in a raw JSON array; other values are skipped.
pub(crate) fn read_version_list(raw: &str) -> Option<Vec<String>> {
    let list: Vec<&serde_json::value::RawValue> = serde_json::from_str(raw).ok()?;
    let texts = list
        .into_iter()
        .filter_map(|item| json::decode_string(item.get()));
    Some(texts.map(Cow::into_owned).collect())
}

/// Everything a result of either handshake may say.
#[derive(Default)]
struct HandshakeFields {
    version: Option<String>,
    supported_versions: Option<Vec<String>>,
    capabilities: Option<Bytes>,
    server_info: Option<Bytes>,
    meta_server_info: Option<Bytes>,
    instructions: Option<String>,
    expires_in: Option<Duration>,
}

impl HandshakeFields {
    fn read(&mut self, raw: &[u8]) -> Result<(), ParseError> {
        json::walk_members(json::parse_utf8(raw)?, |member| {
            let text = || json::decode_string(member.value).map(Cow::into_owned);
            let bytes = || {
                let is_object = member.value.starts_with('{');
                is_object.then(|| Bytes::copy_from_slice(member.value.as_bytes()))
            };
            match member.name.as_ref() {
                "protocolVersion" => self.version = text(),
                "supportedVersions" => self.supported_versions = read_version_list(member.value),
                "capabilities" => self.capabilities = bytes(),
                "serverInfo" => self.server_info = bytes(),
                "instructions" => self.instructions = text(),
                "_meta" if member.value.starts_with('{') => {
                    self.meta_server_info = json::find_member(member.value, meta::SERVER_INFO)
                        .map_err(|fault| fault.with_offset(member.offset))?
                        .map(|info| Bytes::copy_from_slice(info.as_bytes()));
                    self.expires_in = session_lifetime(member.value);
                },
                _ => {},
            }
            Ok(())
        })
    }
}

/// How long the server keeps the session, in seconds, where it says so. The protocol has no word
/// for it; these are the members of `_meta` that are believed.
fn session_lifetime(meta: &str) -> Option<Duration> {
    let said = [
        "dev.warmline/sessionExpiresIn",
        "sessionExpiresIn",
        "expiresIn",
    ];
    let seconds = |name: &&str| json::find_member(meta, name).ok()??.parse::<u32>().ok();
    let seconds = said.iter().find_map(seconds).filter(|left| *left > 0)?;
    Some(Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests;
