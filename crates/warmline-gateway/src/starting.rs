//! Why a gateway did not start, and the servers without which it does not.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::future::try_join_all;
use warmline::{Code, ServerHandle, Warmline};

/// Why a gateway did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotStarted {
    /// Others can reach the address, and nobody would be asked who they are.
    Unguarded(SocketAddr),
    /// The address cannot be listened on.
    Address((SocketAddr, io::Error)),
    /// The address for those who watch cannot be listened on.
    Ops((SocketAddr, io::Error)),
    /// The socket of this machine cannot be listened on.
    Socket(PathBuf, io::Error),
    /// The certificate or its key cannot be used.
    Tls(String),
    /// The audit cannot be written.
    Audit(PathBuf, io::Error),
    /// A server that is required does not answer.
    Required(Box<warmline::Error>),
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unguarded(address) => write!(
                f,
                "{address} can be reached from elsewhere, and nobody would be asked who they are"
            ),
            Self::Address((address, error)) | Self::Ops((address, error)) => {
                write!(f, "cannot listen on {address}: {error}")
            },
            Self::Socket(path, error) => {
                write!(f, "cannot listen on {}: {error}", path.display())
            },
            Self::Tls(why) => write!(f, "the certificate of the listener: {why}"),
            Self::Audit(path, error) => {
                write!(
                    f,
                    "the audit cannot be written to {}: {error}",
                    path.display()
                )
            },
            Self::Required(error) => write!(f, "a server that is required: {error}"),
        }
    }
}

impl std::error::Error for NotStarted {}

impl From<NotStarted> for io::Error {
    fn from(not_started: NotStarted) -> Self {
        let kind = match &not_started {
            NotStarted::Address((_, error))
            | NotStarted::Ops((_, error))
            | NotStarted::Socket(_, error)
            | NotStarted::Audit(_, error) => error.kind(),
            NotStarted::Unguarded(_) | NotStarted::Tls(_) => io::ErrorKind::InvalidInput,
            NotStarted::Required(_) => io::ErrorKind::NotConnected,
        };
        Self::new(kind, not_started)
    }
}

/// Meets every server that is required, all at the same time. Others may be dead: they are met when
/// somebody calls them.
pub(crate) async fn meet_required(warm: &Warmline) -> Result<(), NotStarted> {
    let servers = warm.servers().into_iter();
    let required = servers
        .filter_map(|name| warm.server(&name).ok())
        .filter(ServerHandle::is_required);
    let meeting = required.map(|server| async move {
        match server.facts().await {
            // It wants to know who is calling, and nobody is yet.
            Err(error) if error.code() == Code::CredentialUnavailable => Ok(()),
            met => met.map(drop),
        }
    });
    let met = try_join_all(meeting).await;
    met.map(drop)
        .map_err(|error| NotStarted::Required(Box::new(error)))
}
