//! The credentials of one server, by identity or for all, and those that callers sent.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use http::HeaderMap;
use warmline_core::pool_key::{CredentialId, Identity};

use super::ServerState;
use crate::credentials::{CallerIdentity, Credential, CredentialSource};
use crate::identity::IdentityName;
use warmline_platform::lock::Mutex;
use warmline_store::keyring::Keyring;

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

    pub(crate) fn uses_caller_credential(&self) -> bool {
        let source = self.declaration.credential.as_ref();
        source.is_some_and(|source| source.secret.is_caller_header())
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

    /// The credential that all identities share, if the server has one.
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
