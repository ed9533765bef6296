//! `initialize`, answered here with the facts of the server's session.

use bytes::Bytes;
use rmcp::model::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use warmline_core::era::{Era, Version};
use warmline_upstream::{ClientProfile, ServerFacts};

use crate::convert::{self, MessageToClient};

/// The parameters of a client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeParams {
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
struct InitializeResult<'a> {
    protocol_version: &'a str,
    capabilities: &'a RawValue,
    server_info: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

impl InitializeParams {
    pub(crate) fn client_profile(&self) -> ClientProfile {
        let capabilities = self.capabilities.as_deref().map_or("{}", RawValue::get);
        ClientProfile {
            client_name: self.client_info.name.clone(),
            client_version: self.client_info.version.clone(),
            capabilities: Bytes::copy_from_slice(capabilities.as_bytes()),
            version: None,
        }
    }

    pub(crate) fn response(
        &self,
        id: &RequestId,
        server: &str,
        facts: &ServerFacts,
    ) -> MessageToClient {
        match self.result_json(server, facts) {
            Ok(welcome) => convert::result_message(id, &welcome),
            Err(error) => {
                let what = format!("cannot read the facts of `{server}`: {error}");
                convert::error_message(id, rmcp::ErrorData::internal_error(what, None))
            },
        }
    }

    fn result_json(&self, server: &str, facts: &ServerFacts) -> Result<Vec<u8>, serde_json::Error> {
        // A server without a name gets the one we use.
        let unnamed = to_raw_value(&serde_json::json!({ "name": server, "version": "" }))?;
        let server_info = match &facts.server_info {
            Some(said) => serde_json::from_slice(said)?,
            None => &*unnamed,
        };
        serde_json::to_vec(&InitializeResult {
            protocol_version: self.negotiated_version(facts),
            capabilities: serde_json::from_slice(&facts.capabilities)?,
            server_info,
            instructions: facts.instructions.as_deref(),
        })
    }

    /// The version for the client: that of the session, but never newer than the client offered. For
    /// a modern server it is the client's own.
    fn negotiated_version<'a>(&'a self, facts: &ServerFacts) -> &'a str {
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
