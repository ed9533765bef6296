//! What keys are made of besides names: how a server is reached, and what we say of ourselves.

use std::sync::Arc;

use warmline_core::era::Version;
use warmline_core::key::{CredentialId, DeclaredId, Digest, Revision, Transport};

use super::Entry;
use crate::seal::{Purpose, Vault};
use crate::upstream::{Declared, HttpReach, Reach, StdioReach};

/// The digest of how a server is reached: neither policy nor the bytes of secrets.
pub(super) fn revision(reach: &Reach, entry: &Entry, vault: &Vault) -> Revision {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    match reach {
        Reach::Http(HttpReach {
            url,
            headers,
            ca_file,
            // What is filled in stands in the URL.
            filled: _,
        }) => {
            parts.push(b"http".to_vec());
            parts.push(url.as_str().as_bytes().to_vec());
            for (name, value) in headers {
                parts.push(name.as_str().as_bytes().to_vec());
                // A value that is secret is not looked at: only that it is there.
                let shown: &[u8] = if value.is_sensitive() {
                    b""
                } else {
                    value.as_bytes()
                };
                parts.push(shown.to_vec());
            }
            parts.push(b"ca".to_vec());
            parts.push(ca_file.as_ref().map_or_else(Vec::new, |path| {
                path.as_os_str().as_encoded_bytes().to_vec()
            }));
        },
        Reach::Stdio(StdioReach {
            program,
            args,
            env,
            env_pass,
            cwd,
            // As our own variables: what they hold when a program is started counts.
            surroundings: _,
            // It stands in the arguments.
            filled: _,
        }) => {
            parts.push(b"stdio".to_vec());
            parts.push(program.as_bytes().to_vec());
            parts.extend(args.iter().map(|arg| arg.as_bytes().to_vec()));
            parts.push(b"env".to_vec());
            // Names only: values may be secrets.
            parts.extend(env.keys().map(|name| name.as_bytes().to_vec()));
            parts.push(b"pass".to_vec());
            parts.extend(env_pass.iter().map(|name| name.as_bytes().to_vec()));
            parts.push(b"cwd".to_vec());
            parts.push(cwd.as_ref().map_or_else(Vec::new, |path| {
                path.as_os_str().as_encoded_bytes().to_vec()
            }));
        },
    }
    if let Some(dial) = &entry.server.dial {
        parts.push(b"dial".to_vec());
        parts.push(dial.label().as_bytes().to_vec());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Revision(vault.digest(Purpose::Revision, &parts))
}

/// What we say of ourselves, and its digest.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) declared: Declared,
    pub(crate) id: DeclaredId,
    /// By what sessions that are shared are told apart: by the same, but for a server that is
    /// declared nowhere, whose handles share with nobody.
    pub(crate) shared_by: DeclaredId,
}

impl Said {
    pub(crate) fn new(declared: Declared, vault: &Vault) -> Arc<Self> {
        let digest = vault.digest(
            Purpose::Declared,
            &[
                declared.client_name.as_bytes(),
                declared.client_version.as_bytes(),
                &declared.capabilities,
                declared.version.map_or("", Version::as_str).as_bytes(),
            ],
        );
        Arc::new(Self {
            declared,
            id: DeclaredId(digest),
            shared_by: DeclaredId(digest),
        })
    }

    /// The same words, whose shared sessions are told apart by something else.
    pub(crate) fn kept_by(&self, shared_by: DeclaredId) -> Arc<Self> {
        Arc::new(Self {
            declared: self.declared.clone(),
            id: self.id,
            shared_by,
        })
    }
}

/// The credential of a server that has none.
pub(crate) const NO_CREDENTIAL: CredentialId = CredentialId(Digest::new([0; 16]));

/// How a reach travels, before anything was found out.
pub(crate) fn transport_of(reach: &Reach) -> Transport {
    match reach {
        Reach::Http(_) => Transport::Http,
        Reach::Stdio(_) => Transport::Stdio,
    }
}
