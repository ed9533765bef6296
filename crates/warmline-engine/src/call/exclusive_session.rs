//! A session that one holder uses alone: begin … commit.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use warmline_core::message::params::Params;
use warmline_core::pool::LeaseMode;
use warmline_core::state_loss::{self, StateLossAction};

use super::CallState;
use super::builder::{CallBuilder, CallRequest, CallTarget, TOOL_CALL, named_params};
use super::output::ToolResult;
use super::route::Route;
use super::server_handle::CallerContext;
use crate::error::{Error, Result};
use crate::lease::LeaseHolder;
use crate::server_state::ServerState;

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
