//! The credential of a server as a file declares it: its source and its header, never the secret.

use std::path::{Path, PathBuf};

use warmline_engine::credentials::{CredentialHeader, CredentialSource, Secret};
use warmline_engine::settings::config_error::{ConfigError, FileLocation};

/// The source of the secret of a server, and the header that carries it.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredCredential {
    pub(crate) secret: DeclaredSecret,
    /// `Authorization` if none is named.
    pub(crate) header: Option<String>,
    /// The text around the secret, which `{}` stands for.
    pub(crate) format: Option<String>,
    pub(crate) location: FileLocation,
}

/// The source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredSecret {
    Env(String),
    File(PathBuf),
    Command(Vec<String>),
    /// A header of the caller's request.
    Header(String),
}

impl DeclaredCredential {
    /// The source for the engine; relative paths start from `base`. Nothing is read.
    pub(crate) fn to_credential_source(
        &self,
        base: &Path,
    ) -> Result<CredentialSource, ConfigError> {
        let secret = match &self.secret {
            DeclaredSecret::Env(name) => Secret::env(name),
            DeclaredSecret::File(path) => Secret::file(base.join(path)),
            DeclaredSecret::Command(words) => Secret::command(words),
            DeclaredSecret::Header(name) => Secret::header(name)
                .map_err(|why| ConfigError::from_diagnostic(why, &self.location))?,
        };
        let header = self.credential_header()?;
        Ok(CredentialSource::in_header(secret, header))
    }

    /// The header that carries the secret.
    pub(crate) fn credential_header(&self) -> Result<CredentialHeader, ConfigError> {
        let header = self.header.as_deref().unwrap_or("Authorization");
        let format = match header.eq_ignore_ascii_case("authorization") {
            true => "Bearer {}",
            false => "{}",
        };
        CredentialHeader::new(header, self.format.as_deref().unwrap_or(format))
            .map_err(|why| ConfigError::from_diagnostic(why, &self.location))
    }
}
