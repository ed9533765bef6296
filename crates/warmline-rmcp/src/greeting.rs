//! `initialize`, answered here in the words of the server.

use bytes::Bytes;
use rmcp::model::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use warmline::core::era::{Era, Version};
use warmline::core::protocol::params::Params;
use warmline::upstream::{Declared, Facts};

use crate::wire::{self, Incoming};

/// What a client says of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hello {
    protocol_version: String,
    #[serde(default)]
    capabilities: Option<Box<RawValue>>,
    client_info: ClientInfo,
}

#[derive(Debug, Deserialize)]
struct ClientInfo {
    name: String,
    #[serde(default)]
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Welcome<'a> {
    protocol_version: &'a str,
    capabilities: &'a RawValue,
    server_info: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

impl Hello {
    pub(crate) fn read(params: &Params) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(params.raw())
    }

    /// What a session is opened with for this client.
    pub(crate) fn declared(&self) -> Declared {
        let capabilities = self.capabilities.as_deref().map_or("{}", RawValue::get);
        Declared {
            client_name: self.client_info.name.clone(),
            client_version: self.client_info.version.clone(),
            capabilities: Bytes::copy_from_slice(capabilities.as_bytes()),
            version: None,
        }
    }

    /// The answer, made of what the server said when its session was opened.
    pub(crate) fn answer(&self, id: &RequestId, server: &str, facts: &Facts) -> Incoming {
        match self.welcome(server, facts) {
            Ok(welcome) => wire::result(id, &welcome),
            Err(error) => {
                let what = format!("what `{server}` says of itself cannot be read: {error}");
                wire::failure(id, rmcp::ErrorData::internal_error(what, None))
            },
        }
    }

    fn welcome(&self, server: &str, facts: &Facts) -> Result<Vec<u8>, serde_json::Error> {
        // The name we know it by stands in for a server that does not say what it is.
        let unnamed = to_raw_value(&serde_json::json!({ "name": server, "version": "" }))?;
        let server_info = match &facts.server_info {
            Some(said) => serde_json::from_slice(said)?,
            None => &*unnamed,
        };
        serde_json::to_vec(&Welcome {
            protocol_version: self.version(facts),
            capabilities: serde_json::from_slice(&facts.capabilities)?,
            server_info,
            instructions: facts.instructions.as_deref(),
        })
    }

    /// The version of the conversation with the client: that of the session, but never one that
    /// is newer than the client offered. A modern server speaks through us, in the client's own.
    fn version<'a>(&'a self, facts: &Facts) -> &'a str {
        match Version::parse(&self.protocol_version) {
            Some(offered) if offered.era() == Era::Legacy => {
                let agreed = match facts.era {
                    Era::Legacy => offered.min(facts.version),
                    Era::Modern => offered,
                };
                agreed.as_str()
            },
            Some(_) | None => Version::NEWEST_LEGACY.as_str(),
        }
    }
}
