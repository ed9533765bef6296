//! What a program needs that relays calls of others: gateway, command line and SDK client.
//!
//! The facade does not re-export this module.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use warmline_core::era::Era;
use warmline_core::message::params::Params;
use warmline_core::policy::SessionScope;
use warmline_core::pool_key::Digest;

use crate::call::builder::CallBuilder;
pub use crate::call::builder::RelayCall;
use crate::call::lists::{self, ListFreshness, handshake_facts, newest_session};
use crate::call::output::ToolResult;
use crate::call::route;
use crate::call::send_cleanup_requests;
use crate::call::server_handle::ServerHandle;
use crate::error::{Error, Result};
use crate::server_state::KeyedClientProfile;
use crate::session_factory::{SessionEntry, SessionSetup};
use crate::subscription::{self, Subscription};
use crate::tools::{Tool, ToolList};
use warmline_platform::clock::Instant;
use warmline_upstream::{ClientProfile, ListKind, ServerFacts, UnsolicitedListener};

/// The methods of a [`ServerHandle`] for programs that relay calls.
#[expect(
    async_fn_in_trait,
    reason = "implemented for one type, whose futures are Send"
)]
pub trait RelayHandle: AsRef<ServerHandle> + Into<ServerHandle> + Sync {
    /// Sends a request whose parameters are raw JSON.
    fn request_raw(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Params,
    ) -> CallBuilder<Bytes> {
        self.as_ref().build_call(method, Ok::<_, String>(params))
    }

    /// Calls a tool by its name at the server or its exposed name.
    ///
    /// # Errors
    /// As [`RelayHandle::tool`], and as a call.
    async fn call_by_exposed_name(
        &self,
        name: &str,
        arguments: impl Serialize + Send,
    ) -> Result<ToolResult> {
        let tools = self.as_ref().tools().await?;
        let name = tools.find(name).map_err(Error::unsent)?.name().to_owned();
        self.as_ref().call(name, arguments).await
    }

    /// Pings the server.
    fn ping(&self) -> CallBuilder<Bytes> {
        self.request_raw("ping", Params::empty())
    }

    /// Sets the lowest log level. A session that replaces this one gets it, too.
    fn set_log_level(&self, level: &str) -> CallBuilder<Bytes> {
        let params = json!({ "level": level });
        self.as_ref().request("logging/setLevel", params)
    }

    /// Whether a gateway requires the server.
    fn is_required(&self) -> bool {
        let server = self.as_ref().declared_state();
        server.is_some_and(|server| server.settings.load().policy.required)
    }

    /// Whether the credential of the server comes from a header of the caller's request.
    fn uses_caller_credential(&self) -> bool {
        let server = self.as_ref().declared_state();
        server.is_some_and(|server| server.uses_caller_credential())
    }

    /// Takes a credential that is declared as a header of the caller's request
    /// ([`Secret::header`](crate::credentials::Secret::header)) from these headers.
    #[must_use]
    fn with_caller_credential(self, headers: &http::HeaderMap) -> ServerHandle {
        let mut handle = self.into();
        let identity = handle.declared_state().and_then(|server| {
            let vault = &handle.caller.engine.context.vault;
            server.with_request_credential(&handle.caller.identity, headers, vault)
        });
        if let Some(identity) = identity {
            handle.caller.identity = Arc::new(identity);
        }
        handle
    }

    /// Whether the policy of the server allows a tool.
    fn may_call(&self, tool: &str) -> bool {
        let handle = self.as_ref();
        let server = handle.declared_state();
        let rules = server.map(|server| handle.caller.engine.ruling_settings(server));
        rules.is_none_or(|rules| rules.policy.allows_tool(tool))
    }

    /// Whether the policy allows sessions per run.
    fn has_session_per_run(&self) -> bool {
        let server = self.as_ref().declared_state();
        server.is_some_and(|server| {
            matches!(
                server.settings.load().policy.session_per,
                None | Some(SessionScope::Run)
            )
        })
    }

    /// The same server for a client with another profile. Shared sessions are kept apart by profile;
    /// in a run the first client's profile counts.
    #[must_use]
    fn with_client_profile(self, profile: ClientProfile) -> ServerHandle {
        let mut handle = self.into();
        let vault = &handle.caller.engine.context.vault;
        let keyed = KeyedClientProfile::new(profile, vault);
        handle.caller.client_profile = match &handle.undeclared {
            Some(undeclared) => keyed.with_sharing_id(undeclared.sharing_id),
            None => keyed,
        };
        handle
    }

    /// The same server in this era only.
    #[must_use]
    fn with_era(self, era: Era) -> ServerHandle {
        let mut handle = self.into();
        handle.caller.era = Some(era);
        handle
    }

    /// The tools, read again after each call that may have changed them without a notification, and
    /// after the time that the server allows caching for.
    ///
    /// # Errors
    /// As a call.
    async fn fresh_tools(&self) -> Result<Arc<ToolList>> {
        let handle = self.as_ref();
        let freshness = ListFreshness::WithinServerTtl;
        lists::tool_list(&handle.caller, &handle.server_state()?, freshness).await
    }

    /// One tool, by its name at the server or its exposed name.
    ///
    /// # Errors
    /// `tool-unknown`, with the nearest name.
    async fn tool(&self, name: &str) -> Result<Tool> {
        let tools = self.as_ref().tools().await?;
        tools.find(name).cloned().map_err(Error::unsent)
    }

    /// Drops the cached tools.
    fn forget_tools(&self) {
        if let Ok(server) = self.as_ref().server_state() {
            server.tool_lists.forget_all();
        }
    }

    /// A list with all its pages from the cache, as fresh as [`RelayHandle::fresh_tools`].
    ///
    /// # Errors
    /// As a call.
    async fn cached_list(&self, list: ListKind) -> Result<Arc<[Bytes]>> {
        let (handle, freshness) = (self.as_ref(), ListFreshness::WithinServerTtl);
        lists::cached_list(&handle.caller, &handle.server_state()?, (list, freshness)).await
    }

    /// The same, also after the time that the server allows caching for.
    ///
    /// # Errors
    /// As a call.
    async fn recently_cached_list(&self, list: ListKind) -> Result<Arc<[Bytes]>> {
        let (handle, freshness) = (self.as_ref(), ListFreshness::UnchangedByCalls);
        lists::cached_list(&handle.caller, &handle.server_state()?, (list, freshness)).await
    }

    /// The facts of the last handshake of the same identity. Opens a session where there was none.
    ///
    /// # Errors
    /// As a call without a session.
    async fn cached_info(&self) -> Result<Arc<ServerFacts>> {
        let handle = self.as_ref();
        handshake_facts(&handle.caller, &handle.server_state()?).await
    }

    /// The facts in this era that the same credential learned last. Sends nothing.
    async fn known_facts(&self, era: Era) -> Option<Arc<ServerFacts>> {
        let handle = self.as_ref();
        let server = handle.server_state().ok()?;
        let access = route::server_access(&handle.caller, &server).await.ok()?;
        let factory = &handle.caller.engine.session_factory;
        let known = factory.known_eras(&server, &access, &handle.caller.client_profile)?;
        known.facts_of(era).cloned()
    }

    /// Whether the last attempt to reach the server failed. Sends nothing.
    fn seems_unreachable(&self) -> bool {
        let server = self.as_ref().server_state();
        server.is_ok_and(|server| server.seems_unreachable())
    }

    /// Whether the server is configured or known not to speak an era. Sends nothing.
    async fn lacks_era(&self, era: Era) -> bool {
        let caller = &self.as_ref().caller;
        let Ok(server) = self.as_ref().server_state() else {
            return false;
        };
        match route::server_access(caller, &server).await {
            Ok(access) => route::lacks_era(caller, &server, &access, era),
            Err(_) => false,
        }
    }

    /// Subscribes to what the session of this caller sends outside calls, until the subscription is
    /// dropped. `away_since` is the end of an earlier subscription: list changes since then are
    /// reported at once.
    fn subscribe_shared(
        &self,
        listener: Arc<dyn UnsolicitedListener>,
        away_since: Option<Instant>,
    ) -> Option<Subscription> {
        let handle = self.as_ref();
        let server = handle.server_state().ok()?;
        let receiver = (listener, away_since);
        Some(subscription::subscribe(
            handle.caller.clone(),
            server,
            receiver,
        ))
    }

    /// The session that is held for this caller. Changes nothing.
    fn current_session(&self) -> Option<CurrentSession> {
        let handle = self.as_ref();
        let server = handle.server_state().ok()?;
        let newest = newest_session(&*route::cached_entry(&handle.caller, &server)?)?;
        Some(CurrentSession {
            id: newest.session.session_id().map(str::to_owned),
            generation: newest.generation.number(),
        })
    }

    /// The log level that a client session set on the session held for this caller, as its index
    /// among all levels.
    fn client_log_level(&self, client: Digest) -> Option<usize> {
        let level_of =
            |setup: &SessionSetup| setup.with_client_state(|state| state.log_level_of(client));
        cached_setup(self.as_ref(), level_of)??
    }

    /// Whether the session held for this caller is subscribed to a resource.
    fn is_subscribed(&self, uri: &str) -> bool {
        let is_in = |setup: &SessionSetup| setup.client_state().subscriptions.contains(uri);
        cached_setup(self.as_ref(), is_in).unwrap_or(false)
    }

    /// Whether the session held for this caller outlives its run.
    fn shares_session(&self) -> bool {
        cached_entry(self.as_ref()).is_some_and(|entry| entry.key.run().is_none())
    }

    /// Removes a client session that shared the session of this server. The future unsubscribes what
    /// only that client wanted, even after the end of this handle's run.
    fn remove_client(&self, client: Digest) -> impl Future<Output = ()> + Send + use<Self> {
        let handle = self.as_ref().clone();
        let entry = cached_entry(&handle);
        async move {
            if let (Some(entry), Some(server)) = (entry, handle.declared_state()) {
                let unwanted = entry.setup.remove_client(client);
                send_cleanup_requests(handle.caller.clone(), Arc::clone(server), entry, unwanted)
                    .await;
            }
        }
    }

    /// The scope of the server's lists, and the server outside any run to watch them. None where the
    /// lists may differ per run or per caller.
    fn list_scope(&self) -> Option<(ListScope, ServerHandle)> {
        let handle = self.as_ref();
        let server = handle.declared_state()?;
        let is_per_run = server.settings.load().policy.session_per == Some(SessionScope::Run);
        if server.uses_caller_credential() || (is_per_run && handle.caller.run.is_some()) {
            return None;
        }
        let scope = ListScope {
            identity: handle.caller.identity.id.0,
            server_address: Arc::as_ptr(server).addr(),
        };
        let mut outside = handle.clone();
        outside.caller.run = None;
        Some((scope, outside))
    }

    /// Whether all callers may share what a session of this server holds: it has no id, or the
    /// policy shares it.
    fn shares_session_state(&self, facts: &ServerFacts) -> bool {
        let server = self.as_ref().declared_state();
        let shares_all = server.is_some_and(|server| {
            server.settings.load().policy.session_per == Some(SessionScope::Server)
        });
        shares_all || !facts.keeps_session
    }
}

impl AsRef<Self> for ServerHandle {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl RelayHandle for ServerHandle {}

fn cached_entry(handle: &ServerHandle) -> Option<Arc<SessionEntry>> {
    route::cached_entry(&handle.caller, handle.declared_state()?)
}

fn cached_setup<T>(handle: &ServerHandle, read: impl FnOnce(&SessionSetup) -> T) -> Option<T> {
    cached_entry(handle).map(|entry| read(&entry.setup))
}

/// The session that is held for a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentSession {
    /// The server's id for it, if it has one.
    pub id: Option<String>,
    /// Its number within its key.
    pub generation: u32,
}

/// Identifies lists: two equal scopes get the same list changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListScope {
    identity: Digest,
    /// The address of the server's state: a server with another endpoint after a reload has another.
    server_address: usize,
}
