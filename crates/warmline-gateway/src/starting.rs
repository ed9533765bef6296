//! Why a gateway did not start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
        };
        Self::new(kind, not_started)
    }
}
