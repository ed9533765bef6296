//! The handshake of each era: what we write, and what the server says of itself.
//!
//! `initialize` opens a legacy session; `server/discover` only tells. Neither is a promise: what
//! a server says of its name is for display.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::malformed::{Fault, Malformed};
use super::meta::{self, ClientMeta, write_implementation};
use super::object;
use super::params::Params;
use super::splice::{write_notification, write_number, write_request, write_text};
use crate::era::Version;

/// What a server said to `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialized {
    /// The version it chose, as it wrote it.
    pub version: String,
    /// Its raw capabilities.
    pub capabilities: Bytes,
    /// Its raw name and version, if it gave them.
    pub server_info: Option<Bytes>,
    /// What it tells models about itself.
    pub instructions: Option<String>,
    /// How long the server keeps the session, where it says so.
    pub expires_in: Option<Duration>,
}

/// What a server said to `server/discover`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The versions it speaks, as it wrote them.
    pub supported: Vec<String>,
    /// Its raw capabilities.
    pub capabilities: Bytes,
    /// Its raw name and version, if it gave them.
    pub server_info: Option<Bytes>,
    /// What it tells models about itself.
    pub instructions: Option<String>,
    /// How long this may be kept; none means it is stale at once.
    pub ttl_ms: u64,
    /// Who may share it.
    pub scope: CacheScope,
}

/// Who may share a cached result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheScope {
    /// Only those who asked with the same credential; also where nothing is said.
    #[default]
    Private,
    /// Everybody.
    Public,
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
    write_text(out, version.as_str());
    out.extend_from_slice(b",\"capabilities\":");
    out.extend_from_slice(capabilities);
    out.extend_from_slice(b",\"clientInfo\":");
    write_implementation(out, client_name, client_version);
    out.extend_from_slice(b"}}");
}

/// Writes `notifications/initialized`.
pub fn write_initialized(out: &mut Vec<u8>) {
    write_notification(out, "notifications/initialized", None);
}

/// Writes `server/discover`.
pub fn write_discover(out: &mut Vec<u8>, id: u64, client: &ClientMeta) {
    write_request(
        out,
        id,
        "server/discover",
        &Params::empty(),
        &[],
        &client.edits(),
    );
}

/// Writes `notifications/cancelled` for a request of ours.
pub fn write_cancelled(out: &mut Vec<u8>, request_id: u64, reason: Option<&str>) {
    let mut params = b"{\"requestId\":".to_vec();
    write_number(&mut params, request_id);
    if let Some(reason) = reason {
        params.extend_from_slice(b",\"reason\":");
        write_text(&mut params, reason);
    }
    params.push(b'}');
    write_notification(out, "notifications/cancelled", Some(&params));
}

/// Reads the raw result of `initialize`.
pub fn read_initialize_result(raw: &[u8]) -> Result<Initialized, Malformed> {
    let mut said = Said::default();
    said.read(raw)?;
    Ok(Initialized {
        version: said.version.ok_or(missing("protocolVersion"))?,
        capabilities: said.capabilities.ok_or(missing("capabilities"))?,
        server_info: said.server_info,
        instructions: said.instructions,
        expires_in: said.expires_in,
    })
}

/// Reads the raw result of `server/discover`.
pub fn read_discover_result(raw: &[u8]) -> Result<Discovered, Malformed> {
    let mut said = Said::default();
    said.read(raw)?;
    Ok(Discovered {
        supported: said.supported.ok_or(missing("supportedVersions"))?,
        capabilities: said.capabilities.ok_or(missing("capabilities"))?,
        server_info: said.meta_server_info.or(said.server_info),
        instructions: said.instructions,
        ttl_ms: said.ttl_ms,
        scope: said.scope,
    })
}

/// The versions in a raw JSON array; what is no text is left out.
pub(crate) fn versions(raw: &str) -> Option<Vec<String>> {
    let list: Vec<&serde_json::value::RawValue> = serde_json::from_str(raw).ok()?;
    let texts = list
        .into_iter()
        .filter_map(|item| object::text_of(item.get()));
    Some(texts.map(Cow::into_owned).collect())
}

/// Everything a result of either handshake may say.
#[derive(Default)]
struct Said {
    version: Option<String>,
    supported: Option<Vec<String>>,
    capabilities: Option<Bytes>,
    server_info: Option<Bytes>,
    meta_server_info: Option<Bytes>,
    instructions: Option<String>,
    expires_in: Option<Duration>,
    ttl_ms: u64,
    scope: CacheScope,
}

impl Said {
    fn read(&mut self, raw: &[u8]) -> Result<(), Malformed> {
        object::walk(object::utf8(raw)?, |member| {
            let text = || object::text_of(member.value).map(Cow::into_owned);
            let bytes = || {
                let is_object = member.value.starts_with('{');
                is_object.then(|| Bytes::copy_from_slice(member.value.as_bytes()))
            };
            match member.name.as_ref() {
                "protocolVersion" => self.version = text(),
                "supportedVersions" => self.supported = versions(member.value),
                "capabilities" => self.capabilities = bytes(),
                "serverInfo" => self.server_info = bytes(),
                "instructions" => self.instructions = text(),
                // Negative, fractional and missing lifetimes count as none.
                "ttlMs" => self.ttl_ms = member.value.parse().unwrap_or(0),
                "cacheScope" if member.value == "\"public\"" => self.scope = CacheScope::Public,
                "_meta" if member.value.starts_with('{') => {
                    self.meta_server_info = object::member(member.value, meta::SERVER_INFO)
                        .map_err(|fault| fault.shifted(member.at))?
                        .map(|info| Bytes::copy_from_slice(info.as_bytes()));
                    self.expires_in = lifetime(member.value);
                },
                _ => {},
            }
            Ok(())
        })
    }
}

/// How long the server keeps the session, in seconds, where it says so. The protocol has no word
/// for it; these are the members of `_meta` that are believed.
fn lifetime(meta: &str) -> Option<Duration> {
    let said = [
        "dev.warmline/sessionExpiresIn",
        "sessionExpiresIn",
        "expiresIn",
    ];
    let seconds = |name: &&str| object::member(meta, name).ok()??.parse::<u32>().ok();
    let seconds = said.iter().find_map(seconds).filter(|left| *left > 0)?;
    Some(Duration::from_secs(u64::from(seconds)))
}

const fn missing(member: &'static str) -> Malformed {
    Malformed::new(Fault::Missing(member), 0)
}

#[cfg(test)]
mod tests;
