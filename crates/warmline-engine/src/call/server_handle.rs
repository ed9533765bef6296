//! A server as one caller uses it: the requests that it sends there, and a session that it holds alone
//! (begin … commit).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::params::Params;
use warmline_core::pool::LeaseMode;
use warmline_core::state_loss::{self, StateLossAction};

use super::builder::{CallBuilder, CallOutput, CallRequest, CallTarget, TOOL_CALL, named_params};
use super::lists::{self, ListFreshness, newest_session};
use super::output::ToolResult;
use super::route::Route;
use super::{CallState, route};
use crate::credentials::CallerIdentity;
use crate::engine::{Engine, UndeclaredServer};
use crate::error::{Error, Result};
use crate::lease::LeaseHolder;
use crate::run_state::RunState;
use crate::server::Server;
use crate::server_state::{KeyedClientProfile, ServerState};
use crate::tools::ToolList;
use warmline_upstream::{HeaderSource as _, ListKind, ServerFacts};

/// The caller of a request: an identity, and its run if there is one.
#[derive(Clone, Debug)]
pub(crate) struct CallerContext {
    pub(crate) engine: Arc<Engine>,
    pub(crate) identity: Arc<CallerIdentity>,
    pub(crate) run: Option<Arc<RunState>>,
    pub(crate) client_profile: Arc<KeyedClientProfile>,
    /// The era for servers that have both; none takes the best one.
    pub(crate) era: Option<Era>,
}

impl CallerContext {
    pub(crate) fn new(
        engine: Arc<Engine>,
        identity: Arc<CallerIdentity>,
        run: Option<Arc<RunState>>,
    ) -> Self {
        let client_profile = Arc::clone(&engine.client_profile);
        Self {
            engine,
            identity,
            run,
            client_profile,
            era: None,
        }
    }

    /// The server that governs a call of this caller: the one where its run has sessions of its
    /// own, else the current one of that name.
    pub(crate) fn governing_server(
        &self,
        server: &Arc<ServerState>,
    ) -> Result<Arc<ServerState>, Diagnostic> {
        if server.is_undeclared() {
            return Ok(Arc::clone(server));
        }
        let run = self.run.as_ref();
        if let Some(kept) = run.and_then(|run| run.session_table.run_server(&server.name))
            && !kept.is_removed()
        {
            return Ok(kept);
        }
        match server.is_withdrawn() {
            true => self.engine.server(&server.name),
            false => Ok(Arc::clone(server)),
        }
    }
}

/// A server, as one identity calls it, inside a run or outside.
#[derive(Clone)]
pub struct ServerHandle {
    pub(crate) caller: CallerContext,
    /// The server, or the reason why there is none, which the first call reports.
    pub(crate) target: Result<Arc<ServerState>, Box<Diagnostic>>,
    /// Shared by all handles of a server that is declared nowhere.
    pub(crate) undeclared: Option<Arc<UndeclaredServer>>,
}

impl ServerHandle {
    pub(crate) fn for_server(caller: CallerContext, name: &str) -> Result<Self> {
        // A run keeps the server it began with, even after its name is removed.
        let kept = caller
            .run
            .as_ref()
            .and_then(|run| run.session_table.run_server(name));
        let server = match kept {
            Some(kept) => caller.engine.check_usable(&kept).map(|()| kept),
            None => caller.engine.server(name),
        };
        Ok(Self {
            target: Ok(server.map_err(Error::unsent)?),
            caller,
            undeclared: None,
        })
    }

    pub(crate) fn for_undeclared(mut caller: CallerContext, server: Server) -> Self {
        let registered = UndeclaredServer::register(&caller.engine, caller.run.clone(), server);
        if let Ok(registered) = &registered {
            let sharing_id = registered.sharing_id;
            caller.client_profile = caller.client_profile.with_sharing_id(sharing_id);
        }
        let target = registered.as_ref().map(|it| Arc::clone(&it.server));
        Self {
            caller,
            target: target.map_err(|error| Box::new(error.diagnostic().clone())),
            undeclared: registered.ok(),
        }
    }

    /// The name of the server.
    ///
    /// ```
    /// # fn example(server: &warmline::ServerHandle) {
    /// println!("calling {}", server.name());
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.declared_state().map_or("", |server| &server.name)
    }

    pub(crate) fn declared_state(&self) -> Option<&Arc<ServerState>> {
        self.target.as_ref().ok()
    }

    /// The server that governs a call now.
    pub(crate) fn server_state(&self) -> Result<Arc<ServerState>> {
        let server = self.target.as_ref();
        let server = server.map_err(|problem| Error::unsent(Diagnostic::clone(problem)))?;
        self.caller.governing_server(server).map_err(Error::unsent)
    }

    /// Calls a tool by its name at the server. Arguments are anything that serializes to an object.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let page = server.call("open", serde_json::json!({ "url": "https://example.com" })).await?.ok()?;
    /// println!("{}", page.text());
    /// # Ok(()) }
    /// ```
    pub fn call(
        &self,
        tool: impl Into<String>,
        arguments: impl Serialize,
    ) -> CallBuilder<ToolResult> {
        self.build_call(TOOL_CALL, named_params(&tool.into(), arguments))
    }

    /// Sends any request and returns its raw result.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let raw = server.request("resources/templates/list", ()).await?;
    /// assert!(raw.starts_with(b"{"));
    /// # Ok(()) }
    /// ```
    pub fn request(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: impl Serialize,
    ) -> CallBuilder<Bytes> {
        self.build_call(method, Params::from_serialize(&params))
    }

    /// The tools that may be called, from the cache where that is valid.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// for tool in server.tools().await?.as_ref() {
    ///     println!("{}: {}", tool.name(), tool.description().unwrap_or_default());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As a call.
    pub async fn tools(&self) -> Result<Arc<ToolList>> {
        let server = self.server_state()?;
        lists::tool_list(&self.caller, &server, ListFreshness::WithinTtl).await
    }

    /// A list with all its pages; each item is raw JSON.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let prompts = server.list(warmline::ListKind::Prompts).await?;
    /// println!("{} prompts", prompts.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As a call.
    pub async fn list(&self, list: ListKind) -> Result<Vec<Bytes>> {
        let pages = lists::fetch_pages(&self.caller, &self.server_state()?, list).await?;
        Ok(pages.value)
    }

    /// Reads a resource.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let raw = server.read_resource("file:///notes.txt").await?;
    /// # Ok(()) }
    /// ```
    pub fn read_resource(&self, uri: &str) -> CallBuilder<Bytes> {
        self.request("resources/read", json!({ "uri": uri }))
    }

    /// Gets a prompt, filled in.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let raw = server.prompt("review", serde_json::json!({ "language": "rust" })).await?;
    /// # Ok(()) }
    /// ```
    pub fn prompt(&self, name: &str, arguments: impl Serialize) -> CallBuilder<Bytes> {
        self.build_call("prompts/get", named_params(name, arguments))
    }

    /// Asks for completions, with the parameters of `completion/complete`.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let raw = server
    ///     .complete(serde_json::json!({
    ///         "ref": { "type": "ref/prompt", "name": "review" },
    ///         "argument": { "name": "language", "value": "ru" },
    ///     }))
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn complete(&self, params: impl Serialize) -> CallBuilder<Bytes> {
        self.request("completion/complete", params)
    }

    /// Takes a session for this holder alone until it is dropped: begin … commit.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let session = server.lease().await?;
    /// session.call("begin", ()).await?.ok()?;
    /// session.call("commit", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As a call without a session.
    pub async fn lease(&self) -> Result<ExclusiveSession> {
        ExclusiveSession::acquire(&self.caller, &self.server_state()?).await
    }

    /// The facts that the server declared in its handshake. Opens a session where there is none.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let facts = server.info().await?;
    /// println!("{}", facts.instructions.as_deref().unwrap_or("no instructions"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As a call without a session.
    pub async fn info(&self) -> Result<Arc<ServerFacts>> {
        lists::session_facts(&self.caller, &self.server_state()?).await
    }

    /// Sends a notification on the session that is held for this caller; `params` is a raw JSON
    /// object. Without such a session nothing is sent.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// server.notify("notifications/roots/list_changed", b"{}").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The reason why it was not delivered.
    pub async fn notify(&self, method: &str, params: &[u8]) -> Result<()> {
        let server = self.server_state()?;
        let entry = route::cached_entry(&self.caller, &server);
        let Some(newest) = entry.and_then(|entry| newest_session(&entry)) else {
            return Ok(());
        };
        let vault = &self.caller.engine.context.vault;
        let credential = server.credential(&self.caller.identity, vault);
        let epoch = credential.as_ref().map_or(0, |it| it.epoch());
        let mut sent = newest.session.notify(method, params).await;
        // As every request: once more with a fresh token.
        if let (Err(failure), Some(credential)) = (&sent, credential)
            && failure.diagnostic.reason == Reason::Unauthorized
            && credential.renew(epoch).await
        {
            sent = newest.session.notify(method, params).await;
        }
        sent.map_err(|failure| Error::new(failure.diagnostic, failure.delivery))
    }

    pub(crate) fn build_call<T: CallOutput>(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Result<Params, impl fmt::Display>,
    ) -> CallBuilder<T> {
        CallBuilder::new(CallTarget::Server(self.clone()), method.into(), params)
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("server", &self.name())
            .field("run", &self.caller.run)
            .finish_non_exhaustive()
    }
}

/// A session that nobody else uses while it is held. Inside a run it is the run's own session: other
/// calls of the run wait until the lease is dropped. The end of the run, or of the engine, ends it.
#[must_use = "dropping the lease gives the session back"]
#[derive(Clone)]
pub struct ExclusiveSession {
    pub(super) caller: CallerContext,
    pub(super) route: Route,
    pub(super) holder: Arc<LeaseHolder>,
}

impl ExclusiveSession {
    /// A session for one holder alone, unless state was lost and the policy forbids going on.
    pub(super) async fn acquire(caller: &CallerContext, server: &Arc<ServerState>) -> Result<Self> {
        let mut call = CallState::begin(caller, server, CallRequest::lease(), None)?;
        call.lease_mode = LeaseMode::Exclusive;
        let (route, lease) = call.acquire_without_request().await?;
        // The holder wants to call tools.
        let policy = call.settings.policy.state_loss_policy();
        let action = state_loss::state_loss_action(policy, TOOL_CALL);
        if call.has_unreported_loss(&lease)
            && matches!(action, StateLossAction::Fail | StateLossAction::EndRun)
        {
            return Err(call.refuse_after_loss(&route, lease, action));
        }
        let engine = &caller.engine;
        let holder = LeaseHolder::hold(
            &engine.leases,
            &engine.context,
            caller.run.as_ref(),
            server,
            lease,
        );
        Ok(Self {
            caller: caller.clone(),
            route,
            holder: holder.map_err(Error::unsent)?,
        })
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.holder.server.name
    }

    /// The number of the session within its key.
    pub fn generation(&self) -> u32 {
        self.holder.generation
    }

    /// Whether the session is still held: it is over when the server forgot it, and when its run
    /// or the engine ended.
    pub fn is_held(&self) -> bool {
        self.holder.is_held()
    }

    /// Whether state of earlier calls was lost before this lease began.
    pub fn state_lost(&self) -> bool {
        self.holder.began_after_loss
    }

    /// Calls a tool on this session.
    pub fn call(
        &self,
        tool: impl Into<String>,
        arguments: impl Serialize,
    ) -> CallBuilder<ToolResult> {
        let params = named_params(&tool.into(), arguments);
        let target = CallTarget::Exclusive(self.clone());
        CallBuilder::new(target, Cow::Borrowed(TOOL_CALL), params)
    }

    /// Sends any request on this session and returns its raw result.
    pub fn request(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: impl Serialize,
    ) -> CallBuilder<Bytes> {
        let target = CallTarget::Exclusive(self.clone());
        CallBuilder::new(target, method.into(), Params::from_serialize(&params))
    }
}

impl fmt::Debug for ExclusiveSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExclusiveSession")
            .field("server", &self.server())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}
