//! Digests that make keys: of the way to a server, and of a client profile.

use std::path::Path;
use std::sync::Arc;

use warmline_core::era::Version;
use warmline_core::pool_key::{ClientProfileId, ConfigRevision, CredentialId, Digest, Transport};

use super::ServerState;
use warmline_store::keyring::{Keyring, Purpose};
use warmline_upstream::{ClientProfile, HttpConfig, StdioConfig, TransportConfig};

/// The digest of the way to a server, without policy and without secrets.
pub(super) fn revision(
    reach: &TransportConfig,
    entry: &ServerState,
    vault: &Keyring,
) -> ConfigRevision {
    let mut parts: Vec<&[u8]> = Vec::new();
    match reach {
        TransportConfig::Http(HttpConfig {
            url,
            headers,
            ca_file,
            // Part of the URL.
            substituted: _,
        }) => {
            parts.extend([b"http", url.as_str().as_bytes()]);
            for (name, value) in headers {
                // Only that a secret exists counts, not its value.
                let shown = match value.is_sensitive() {
                    true => b"",
                    false => value.as_bytes(),
                };
                parts.extend([name.as_str().as_bytes(), shown]);
            }
            parts.extend([b"ca", path_bytes(ca_file.as_deref())]);
        },
        TransportConfig::Stdio(StdioConfig {
            program,
            args,
            env,
            env_pass,
            cwd,
            // Their values at the start of the program count, as for our own variables.
            base_env: _,
            // Part of the arguments.
            substituted: _,
        }) => {
            parts.extend([b"stdio", program.as_bytes()]);
            parts.extend(args.iter().map(String::as_bytes));
            parts.push(b"env");
            // Names only: values may be secrets.
            parts.extend(env.keys().map(String::as_bytes));
            parts.push(b"pass");
            parts.extend(env_pass.iter().map(String::as_bytes));
            parts.extend([b"cwd", path_bytes(cwd.as_deref())]);
        },
    }
    if let Some(dial) = &entry.declaration.dial {
        parts.extend([b"dial", dial.label().as_bytes()]);
    }
    ConfigRevision(vault.digest(Purpose::Revision, &parts))
}

fn path_bytes(path: Option<&Path>) -> &[u8] {
    path.map_or(b"", |path| path.as_os_str().as_encoded_bytes())
}

#[derive(Debug)]
pub(crate) struct KeyedClientProfile {
    pub(crate) profile: ClientProfile,
    pub(crate) id: ClientProfileId,
    /// Keeps shared sessions apart: the same digest, except for an undeclared server, whose handles
    /// share with no others.
    pub(crate) sharing_id: ClientProfileId,
}

impl KeyedClientProfile {
    pub(crate) fn new(declared: ClientProfile, vault: &Keyring) -> Arc<Self> {
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
            profile: declared,
            id: ClientProfileId(digest),
            sharing_id: ClientProfileId(digest),
        })
    }

    /// The same profile with its own shared sessions.
    pub(crate) fn with_sharing_id(&self, shared_by: ClientProfileId) -> Arc<Self> {
        Arc::new(Self {
            profile: self.profile.clone(),
            id: self.id,
            sharing_id: shared_by,
        })
    }
}

/// The credential of a server that has none.
pub(crate) const NO_CREDENTIAL: CredentialId = CredentialId(Digest::new([0; 16]));

pub(crate) fn transport_of(reach: &TransportConfig) -> Transport {
    match reach {
        TransportConfig::Http(_) => Transport::Http,
        TransportConfig::Stdio(_) => Transport::Stdio,
    }
}
