//! Startup: its errors, and the check of required servers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::future::try_join_all;
use warmline_core::error::code::Code;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{ServerHandle, Warmline};

/// Why a gateway did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The address is reachable from the network, and callers need not authenticate.
    OpenToNetwork(SocketAddr),
    /// The gateway cannot listen on its address.
    Address((SocketAddr, io::Error)),
    /// The gateway cannot listen on the address of its ops pages.
    Ops((SocketAddr, io::Error)),
    /// The gateway cannot listen on a local socket.
    Socket(PathBuf, io::Error),
    /// The TLS certificate or its key cannot be used.
    Tls(String),
    /// The audit cannot be written.
    Audit(PathBuf, io::Error),
    /// A required server does not answer.
    RequiredServer(Box<warmline_engine::Error>),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenToNetwork(address) => write!(
                f,
                "{address} is reachable from the network, and callers need not authenticate"
            ),
            Self::Address((address, error)) | Self::Ops((address, error)) => {
                write!(f, "cannot listen on {address}: {error}")
            },
            Self::Socket(path, error) => {
                write!(f, "cannot listen on {}: {error}", path.display())
            },
            Self::Tls(why) => write!(f, "TLS certificate of the listener: {why}"),
            Self::Audit(path, error) => {
                write!(f, "cannot write the audit to {}: {error}", path.display())
            },
            Self::RequiredServer(error) => write!(f, "required server: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Connects to all required servers at once. Others are connected at their first call.
pub(crate) async fn check_required_servers(warm: &Warmline) -> Result<(), StartError> {
    let servers = warm.server_names().into_iter();
    let required = servers
        .filter_map(|name| warm.server(&name).ok())
        .filter(ServerHandle::is_required);
    let checks = required.map(|server| async move {
        match server.info().await {
            // It needs the credentials of a caller, and there is none yet.
            Err(error) if error.code() == Code::CredentialUnavailable => Ok(()),
            checked => checked.map(drop),
        }
    });
    let checked = try_join_all(checks).await;
    checked
        .map(drop)
        .map_err(|error| StartError::RequiredServer(Box::new(error)))
}
