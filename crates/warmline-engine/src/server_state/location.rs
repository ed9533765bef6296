//! Where a server is, and as whom it is called: the credentials by identity or for all, and those that
//! callers sent.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, TargetKey, Transport,
};
use warmline_core::session_plan::ServerProfile;

use super::ServerState;
use crate::credentials::{CallerIdentity, Credential, CredentialSource};
use crate::identity::IdentityName;
use crate::metrics::ServerMetrics;
use crate::server::{DeclaredEndpoint, Server};
use warmline_platform::lock::Mutex;
use warmline_store::keyring::{Keyring, Purpose};
use warmline_upstream::{
    ClientProfile, HttpConfig, StdioConfig, TransportConfig, UnsolicitedListener,
};

#[derive(Debug)]
pub(crate) struct ServerLocation {
    pub(crate) transport: TransportConfig,
    pub(crate) revision: ConfigRevision,
}

/// Where a caller finds a server, and as whom it speaks there.
#[derive(Clone)]
pub(crate) struct ServerAccess {
    pub(crate) location: Arc<ServerLocation>,
    pub(crate) credential: Option<Arc<Credential>>,
}

impl ServerAccess {
    pub(crate) fn credential_id(&self) -> CredentialId {
        let credential = self.credential.as_ref();
        credential.map_or(NO_CREDENTIAL, |credential| credential.id())
    }
}

impl ServerState {
    /// Whether another declaration leads to the same server with the same credential: then only its
    /// settings differ.
    pub(crate) fn has_same_target(&self, other: &Server, vault: &Keyring) -> bool {
        let credential = |server: &Server| {
            let source = server.credential.clone()?;
            Some(Credential::new(source, &self.name, None, vault).id())
        };
        let dial = |server: &Server| server.dial.as_ref().map(|dial| dial.label().to_owned());
        let reach = match (&self.declaration.endpoint, &other.endpoint) {
            (DeclaredEndpoint::Static(one), DeclaredEndpoint::Static(other)) => one == other,
            (
                DeclaredEndpoint::Resolver { resolver: one, .. },
                DeclaredEndpoint::Resolver {
                    resolver: other, ..
                },
            ) => Arc::ptr_eq(one, other),
            (DeclaredEndpoint::Static(_), DeclaredEndpoint::Resolver { .. })
            | (DeclaredEndpoint::Resolver { .. }, DeclaredEndpoint::Static(_)) => false,
        };
        reach
            && dial(&self.declaration) == dial(other)
            && credential(&self.declaration) == credential(other)
    }

    /// Where the server is; resolved once, unless the declaration says it.
    pub(crate) async fn locate(&self, vault: &Keyring) -> Result<Arc<ServerLocation>, Diagnostic> {
        if let Some(found) = self.location.lock().clone() {
            return Ok(found);
        }
        let reach = self.resolve_transport().await?;
        let revision = revision(&reach, self, vault);
        let found = Arc::new(ServerLocation {
            transport: reach,
            revision,
        });
        Ok(Arc::clone(self.location.lock().get_or_insert(found)))
    }

    async fn resolve_transport(&self) -> Result<TransportConfig, Diagnostic> {
        let (headers, ca_file) = match &self.declaration.endpoint {
            DeclaredEndpoint::Static(reach) => return Ok(reach.clone()),
            DeclaredEndpoint::Resolver {
                headers, ca_file, ..
            } => (headers, ca_file),
        };
        let Some(lookup) = &self.lookup else {
            return Err(Diagnostic::new(
                Reason::Internal,
                "a server has no resolver",
            ));
        };
        let resolved = lookup.resolve().await?;
        let mut all: Vec<(HeaderName, HeaderValue)> = headers.clone();
        // The resolver overrides declared headers.
        for (name, value) in &resolved.headers {
            all.retain(|(known, _)| known != name);
            all.push((name.clone(), value.clone()));
        }
        Ok(TransportConfig::Http(HttpConfig {
            url: resolved.url.clone(),
            headers: all,
            ca_file: ca_file.clone(),
            substituted: BTreeMap::new(),
        }))
    }

    pub(crate) fn known_location(&self) -> Option<Arc<ServerLocation>> {
        self.location.lock().clone()
    }

    /// Where the server is, for people: a URL without its query, or a program.
    pub(crate) fn display_location(&self) -> Option<String> {
        let found = self.known_location()?;
        Some(match &found.transport {
            TransportConfig::Http(reach) => warmline_upstream::display_url(reach),
            TransportConfig::Stdio(reach) => reach.redact_substituted(reach.program.clone()),
        })
    }

    pub(crate) fn target_key(&self, found: &ServerLocation, leg: ServerProfile) -> TargetKey {
        TargetKey {
            server: Arc::clone(&self.name),
            revision: found.revision,
            era: leg.era,
            transport: leg.transport,
        }
    }

    pub(crate) fn upstream_target(
        &self,
        found: &ServerLocation,
        credential: Option<&Arc<Credential>>,
        era: Option<Era>,
        notices: Option<Arc<dyn UnsolicitedListener>>,
    ) -> warmline_upstream::ServerTarget {
        let settings = self.settings.load();
        let policy = &settings.policy;
        warmline_upstream::ServerTarget {
            name: self.name.to_string(),
            transport: found.transport.clone(),
            era: era.or(settings.era),
            version: policy.version,
            sessions: policy.sessions,
            session_gone_matching: policy.dialects,
            credential: credential.map(|credential| Arc::clone(credential) as Arc<_>),
            credential_id: credential.map(|credential| credential.id().0),
            unsolicited_listener: notices,
            dial: self.declaration.dial.clone(),
            lifetime_token: None,
            metrics: Some(Arc::<ServerMetrics>::clone(&self.metrics)),
            timeouts: settings.timeouts,
            size_limits: settings.size_limits,
        }
    }
}

/// The digest of the way to a server, without policy and without secrets.
fn revision(reach: &TransportConfig, entry: &ServerState, vault: &Keyring) -> ConfigRevision {
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

/// From this many credentials on, those without a user are dropped.
const MAX_CREDENTIALS: usize = 10_000;

impl ServerState {
    pub(crate) fn credential(
        &self,
        who: &CallerIdentity,
        vault: &Keyring,
    ) -> Option<Arc<Credential>> {
        if let Some(handed) = &who.request_credential {
            return Some(Arc::clone(handed));
        }
        let source = self.declaration.credential.as_ref()?;
        let whose = source.secret.is_per_identity().then_some(who.id);
        Some(self.get_or_create_credential(whose, source, Some(&who.name), vault))
    }

    /// The caller with the credential that its request carries; none if this server reads no header.
    pub(crate) fn with_request_credential(
        &self,
        who: &CallerIdentity,
        headers: &HeaderMap,
        vault: &Keyring,
    ) -> Option<CallerIdentity> {
        let source = self.declaration.credential.as_ref()?;
        if !source.secret.is_caller_header() {
            return None;
        }
        let source = source.clone().with_caller_headers(headers);
        let made = Credential::new(source, &self.name, Some(&who.name), vault);
        let id = made.id();
        let kept = get_or_insert(&self.request_credentials, id, || made);
        Some(CallerIdentity {
            name: who.name.clone(),
            id: who.id,
            request_credential: Some(kept),
        })
    }

    fn get_or_create_credential(
        &self,
        whose: Option<Identity>,
        source: &CredentialSource,
        name: Option<&IdentityName>,
        vault: &Keyring,
    ) -> Arc<Credential> {
        get_or_insert(&self.credentials, whose, || {
            Credential::new(source.clone(), &self.name, name, vault)
        })
    }

    /// The credential that opened a session, if it is in use here.
    pub(crate) fn credential_by_id(
        &self,
        id: CredentialId,
        vault: &Keyring,
    ) -> Option<Arc<Credential>> {
        let common = self.common_credential(vault);
        let is_it = |credential: &&Arc<Credential>| credential.id() == id;
        common.as_ref().filter(is_it).cloned().or_else(|| {
            let known = self.credentials.lock();
            known.values().find(is_it).cloned()
        })
    }

    pub(crate) fn has_identity_credentials(&self) -> bool {
        let source = self.declaration.credential.as_ref();
        source.is_some_and(|source| source.secret.is_per_identity())
    }

    pub(crate) fn common_credential(&self, vault: &Keyring) -> Option<Arc<Credential>> {
        let source = self.declaration.credential.as_ref()?;
        if source.secret.is_per_identity() {
            return None;
        }
        Some(self.get_or_create_credential(None, source, None, vault))
    }
}

fn get_or_insert<K: Copy + Eq + Hash>(
    all: &Mutex<HashMap<K, Arc<Credential>>>,
    key: K,
    create: impl FnOnce() -> Credential,
) -> Arc<Credential> {
    let mut all = all.lock();
    if let Some(known) = all.get(&key) {
        return Arc::clone(known);
    }
    if all.len() >= MAX_CREDENTIALS {
        all.retain(|_, credential| Arc::strong_count(credential) > 1);
    }
    let created = Arc::new(create());
    all.insert(key, Arc::clone(&created));
    created
}
