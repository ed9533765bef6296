//! The credential of a server as a file declares it: where it comes from, and how it is shown.

use std::path::{Path, PathBuf};

use crate::credentials::{CredentialSource, Form, Secret};
use crate::settings::place::{ConfigError, Place};

/// Where the secret of a server comes from, and how it is shown. Never the secret itself.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredCredential {
    pub(crate) from: From,
    /// The header it is shown in; `Authorization` if none is named.
    pub(crate) header: Option<String>,
    /// What stands around it, with `{}` in its place.
    pub(crate) form: Option<String>,
    pub(crate) place: Place,
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Env(String),
    File(PathBuf),
    Command(Vec<String>),
    /// A header of the caller's request.
    Header(String),
}

impl DeclaredCredential {
    /// The source as the engine asks it; relative paths start from `base`. Nothing is read.
    pub(crate) fn source(&self, base: &Path) -> Result<CredentialSource, ConfigError> {
        let secret = match &self.from {
            From::Env(name) => Secret::env(name),
            From::File(path) => Secret::file(base.join(path)),
            From::Command(words) => Secret::command(words.iter().cloned()),
            From::Header(name) => {
                Secret::header(name).map_err(|why| ConfigError::of_trouble(why, &self.place))?
            },
        };
        Ok(CredentialSource::shown(secret, self.shown()?))
    }

    /// How it is shown.
    pub(crate) fn shown(&self) -> Result<Form, ConfigError> {
        let header = self.header.as_deref().unwrap_or("Authorization");
        let usual = if header.eq_ignore_ascii_case("authorization") {
            "Bearer {}"
        } else {
            "{}"
        };
        Form::of(header, self.form.as_deref().unwrap_or(usual))
            .map_err(|why| ConfigError::of_trouble(why, &self.place))
    }
}
