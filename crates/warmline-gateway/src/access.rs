//! Access policy: authentication, rules and limits on requests. A reload replaces it whole, so
//! that no caller is authenticated by one configuration and checked by the rules of another.

pub(crate) mod audit;
pub(crate) mod rules;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderName;
use http::request::Parts;
use tokio::sync::watch;
use warmline_engine::Warmline;
use warmline_engine::admin::EngineAdmin as _;
use warmline_platform::clock;

use self::rules::AccessRules;
use crate::auth::protected_resource::ProtectedResource;
use crate::auth::{Auth, AuthError, Authenticators, KeyLookup, Peer, Subject};
use crate::endpoint::AllowedHosts;
use crate::{GatewayOptions, GatewayState, shutdown};

/// How often tokens and keys are checked for the callers of open streams.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The wall clock may be set: no task sleeps longer than this until a credential expires.
const MAX_SLEEP: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct AccessPolicy {
    pub(crate) authenticators: Arc<Authenticators>,
    /// During a reload, a caller must pass both.
    previous_authenticators: Option<Arc<Authenticators>>,
    pub(crate) rules: AccessRules,
    /// Removed servers that live runs still use. Their rules stay in force.
    removed_servers: Vec<String>,
    pub(crate) protected_resource: Option<ProtectedResource>,
    pub(crate) run_from: Vec<RunSource>,
    pub(crate) hosts: AllowedHosts,
    pub(crate) max_request: usize,
}

impl AccessPolicy {
    /// The policy of a listener at this address. Keeps the caches of `previous`.
    fn from_options(
        options: &GatewayOptions,
        address: SocketAddr,
        warm: &Warmline,
        previous: Option<&Self>,
    ) -> Self {
        let previous = previous.map(|previous| &*previous.authenticators);
        let resource = options.protected_resource.as_ref();
        let hosts =
            AllowedHosts::for_listener(address, &options.allowed_hosts, &options.allowed_origins)
                .with_url_host(resource.map(|resource| resource.url.as_str()));
        let authenticators = Authenticators::new(options.auth.clone(), warm.clone(), previous);
        Self {
            authenticators: Arc::new(authenticators),
            previous_authenticators: None,
            rules: options.rules.clone(),
            removed_servers: Vec::new(),
            protected_resource: options.protected_resource.clone(),
            run_from: options.run_from.clone(),
            hosts,
            max_request: options.max_request,
        }
    }

    fn keeping_removed_rules(mut self, previous: &Self, warm: &Warmline) -> Self {
        let declared = warm.server_names();
        let is_in_use = |name: &str| {
            !declared.iter().any(|declared| declared == name) && warm.has_removed_server(name)
        };
        self.removed_servers = self.rules.inherit_missing(&previous.rules, is_in_use);
        self
    }

    /// Drops the rules of removed servers that no run uses any more; `None` if there are none.
    fn without_gone_servers(&self, warm: &Warmline) -> Option<Self> {
        let is_in_use = |name: &&String| warm.has_removed_server(name);
        let (in_use, gone): (Vec<_>, Vec<_>) = self.removed_servers.iter().partition(is_in_use);
        (!gone.is_empty()).then(|| Self {
            rules: self.rules.without_servers(&gone),
            removed_servers: in_use.into_iter().cloned().collect(),
            ..self.clone()
        })
    }

    pub(crate) async fn authenticate(
        &self,
        head: &Parts,
        peer: Peer,
        lookup: KeyLookup,
    ) -> Result<Subject, AuthError> {
        if let Some(previous) = &self.previous_authenticators {
            previous.authenticate(head, peer, lookup).await?;
        }
        self.authenticators.authenticate(head, peer, lookup).await
    }

    /// Whether a caller who authenticated earlier would be accepted now.
    fn still_accepts(&self, subject: &Subject) -> bool {
        // During a reload the streams of both stay; the new policy decides when it is in force.
        let previous = self.previous_authenticators.iter();
        let mut all = previous.chain([&self.authenticators]);
        all.any(|authenticators| authenticators.still_accepts(subject))
    }
}

pub(crate) struct CurrentAccessPolicy {
    pub(crate) policy: ArcSwap<AccessPolicy>,
    pub(crate) changed: watch::Sender<()>,
}

impl CurrentAccessPolicy {
    pub(crate) fn new(options: &GatewayOptions, address: SocketAddr, warm: &Warmline) -> Self {
        Self {
            policy: ArcSwap::from_pointee(AccessPolicy::from_options(options, address, warm, None)),
            changed: watch::Sender::new(()),
        }
    }

    /// Replaces the policy, and does `meanwhile` what belongs to it, such as to declare servers.
    /// Both policies are in force during that. If it fails, the old one stays.
    pub(crate) fn replace<T, E>(
        &self,
        options: &GatewayOptions,
        address: SocketAddr,
        warm: &Warmline,
        meanwhile: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let previous = self.policy.load_full();
        let next = AccessPolicy::from_options(options, address, warm, Some(&previous));
        // A caller must pass both, and may do what both allow.
        self.policy.store(Arc::new(AccessPolicy {
            previous_authenticators: Some(Arc::clone(&previous.authenticators)),
            rules: next.rules.intersection(&previous.rules),
            ..next.clone()
        }));
        let done = meanwhile();
        let in_force = match &done {
            Ok(_) => Arc::new(next.keeping_removed_rules(&previous, warm)),
            Err(_) => previous,
        };
        in_force.authenticators.invalidate_keys();
        self.policy.store(in_force);
        self.changed.send_replace(());
        done
    }

    pub(crate) fn set_auth(&self, auth: Auth, warm: &Warmline) {
        let previous = self.policy.load_full();
        let known = Some(&*previous.authenticators);
        self.policy.store(Arc::new(AccessPolicy {
            authenticators: Arc::new(Authenticators::new(auth, warm.clone(), known)),
            ..AccessPolicy::clone(&previous)
        }));
        self.changed.send_replace(());
    }

    fn drop_gone_servers(&self, warm: &Warmline) {
        if self.policy.load().without_gone_servers(warm).is_some() {
            self.policy.rcu(|policy| {
                let fewer = policy.without_gone_servers(warm).map(Arc::new);
                fewer.unwrap_or_else(|| Arc::clone(policy))
            });
        }
    }
}

/// Checks for revoked tokens and keys until `stopping`. Requests check on their own; this is for
/// open streams, and refreshes keys ahead. It waits for no fetch of keys, so a revoked token does
/// not last longer.
pub(crate) async fn watch_auth_changes(
    shared: Weak<GatewayState>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = clock::sleep(CHECK_INTERVAL) => {},
            () = shutdown::wait_for_stop(&mut stopping) => return,
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let current = &shared.access;
        current.drop_gone_servers(&shared.warmline);
        if current.policy.load().authenticators.has_changed() {
            current.changed.send_replace(());
        }
    }
}

/// Whether a caller may use a server now: the rules allow it, and the server exists and is enabled.
pub(crate) fn may_use_server(shared: &GatewayState, subject: &Subject, server: &str) -> bool {
    let is_allowed = shared.access.policy.load().rules.may_use(subject, server);
    is_allowed && shared.warmline.check_server(server).is_ok()
}

/// Resolves when the caller's access ends, or its access to one of these servers: a credential was
/// revoked or expired, the rules changed, or a server was disabled or removed.
pub(crate) async fn access_revoked(
    shared: Arc<GatewayState>,
    subject: Subject,
    servers: Vec<String>,
) {
    let mut changed = shared.access.changed.subscribe();
    let mut declarations = shared.warmline.watch_servers();
    loop {
        let mut all = servers.iter();
        let may_use_all = all.all(|server| may_use_server(&shared, &subject, server));
        if !may_use_all || !shared.access.policy.load().still_accepts(&subject) {
            return;
        }
        let validity = subject.remaining_validity().map(|left| left.min(MAX_SLEEP));
        // Nothing notifies when the last run that uses a removed server ends.
        let mut all = servers.iter();
        let is_removed = all.any(|server| shared.warmline.has_removed_server(server));
        let polling = is_removed.then_some(CHECK_INTERVAL);
        let next_check = async {
            match validity.into_iter().chain(polling).min() {
                Some(next_check) => clock::sleep(next_check).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = declarations.changed() => {},
            // Its sender lives as long as the gateway.
            _ = changed.changed() => {},
            () = next_check => {},
        }
    }
}

/// Another place where clients name their conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunSource {
    /// A member of `_meta`.
    Meta(String),
    /// A header.
    Header(HeaderName),
}

impl RunSource {
    /// Reads `_meta:KEY` or `header:NAME`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("_meta", key) if !key.is_empty() => Some(Self::Meta(key.to_owned())),
            ("header", name) => HeaderName::try_from(name).ok().map(Self::Header),
            _ => None,
        }
    }

    /// The default sources: some hosts never send a session id back, but name their conversation.
    pub fn defaults() -> Vec<Self> {
        vec![Self::Meta("openai/session".to_owned())]
    }
}

#[cfg(test)]
mod tests;
