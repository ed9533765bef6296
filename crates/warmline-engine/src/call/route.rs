//! The route of a call: server location, credential, era and pool entry. A run caches its routes, so
//! that a call on a held session needs one lookup in the run's session table.

mod discovery;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::SessionScope;
use warmline_core::pool::EndReason;
use warmline_core::pool_key::{KeyCaller, KeyOwner, KeyScope, PoolKey, ScopeKind, TargetKey};
use warmline_core::session_plan::{self, PlanRequest, PooledPlan, ServerProfile, SessionPlan};

use super::server_handle::CallerContext;
use crate::list_cache::{ListOwner, ServerPrincipal};
use crate::run_state::session_table::{CredentialTag, RouteSelector};
use crate::run_state::{RunOrigin, RunState};
use crate::server_state::{NO_CREDENTIAL, RouteFlightKey, ServerAccess, ServerState};
use crate::session_factory::{SessionEntry, SessionSetup};
use warmline_pool::SpareKey;

#[derive(Clone)]
pub(crate) enum Route {
    /// A pool entry holds the session.
    Pooled(Arc<SessionEntry>),
    /// The call gets a session for itself.
    PerCall(Arc<PerCallSession>),
}

/// A session for one call, not leased yet.
pub(crate) struct PerCallSession {
    pub(super) spare_key: SpareKey,
    pub(super) setup: Arc<SessionSetup>,
    pub(super) owner: KeyOwner,
}

impl Route {
    pub(crate) fn setup(&self) -> &Arc<SessionSetup> {
        match self {
            Self::Pooled(entry) => &entry.setup,
            Self::PerCall(own) => &own.setup,
        }
    }

    pub(crate) fn pool_entry(&self) -> Option<&SessionEntry> {
        match self {
            Self::Pooled(entry) => Some(entry),
            Self::PerCall(_) => None,
        }
    }

    /// The route for an exclusive holder. Where a server has no sessions, all callers share one entry:
    /// the holder gets another session, so that nobody waits for it.
    pub(super) fn for_exclusive_use(self, caller: &CallerContext) -> Self {
        match self {
            Self::Pooled(entry)
                if entry.key.owner == KeyOwner::AnyIdentity
                    && !entry.setup.server_profile.has_sessions =>
            {
                Self::PerCall(Arc::new(PerCallSession {
                    spare_key: SpareKey::for_key(&entry.key, caller.client_profile.sharing_id),
                    setup: Arc::clone(&entry.setup),
                    owner: KeyOwner::Identity(caller.identity.id),
                }))
            },
            other @ (Self::Pooled(_) | Self::PerCall(_)) => other,
        }
    }
}

/// The route of a call, cached or resolved. `per_tool` is the scope of a tool that has sessions of its
/// own.
pub(crate) async fn find_route(
    caller: &CallerContext,
    server: &Arc<ServerState>,
    per_tool: Option<SessionScope>,
) -> Result<Route, Diagnostic> {
    if per_tool.is_none()
        && let Some(entry) = cached_entry(caller, server)
    {
        return Ok(Route::Pooled(entry));
    }
    resolve_route(caller, server, per_tool).await
}

pub(crate) fn cached_entry(
    caller: &CallerContext,
    server: &ServerState,
) -> Option<Arc<SessionEntry>> {
    let run = caller.run.as_ref()?;
    run.session_table
        .find(server, route_selector(caller))
        .filter(|entry| entry.key.run().is_some() || entry.is_live())
}

fn route_selector(caller: &CallerContext) -> RouteSelector {
    match (&caller.identity.request_credential, caller.era) {
        (Some(credential), _) => RouteSelector::RequestCredential(
            CredentialTag::from_credential(credential.id()),
            caller.era,
        ),
        (None, Some(era)) => RouteSelector::Era(era),
        (None, None) => RouteSelector::Server,
    }
}

pub(super) fn forget_route(caller: &CallerContext, server: &ServerState) {
    if let Some(run) = &caller.run {
        run.session_table.mark_stale(server, route_selector(caller));
    }
}

/// Who may see the lists that the sessions of a pool entry give.
pub(super) fn list_owner(
    caller: &CallerContext,
    server: &ServerState,
    entry: Option<&SessionEntry>,
) -> ListOwner {
    let run = entry.and_then(|entry| entry.key.run());
    ListOwner {
        principal: server_principal(caller, server),
        scope: match run {
            Some(run) => KeyScope::Run(run),
            None => KeyScope::Shared(caller.client_profile.sharing_id),
        },
        era: caller.era,
    }
}

/// The same for the cached route.
pub(super) fn known_list_owner(caller: &CallerContext, server: &ServerState) -> ListOwner {
    let entry = cached_entry(caller, server);
    list_owner(caller, server, entry.as_deref())
}

pub(super) fn server_principal(caller: &CallerContext, server: &ServerState) -> ServerPrincipal {
    let credential = server.credential(&caller.identity, &caller.engine.context.vault);
    let id = credential.map_or(NO_CREDENTIAL, |credential| credential.id());
    (caller.identity.id, id)
}

async fn resolve_route(
    caller: &CallerContext,
    server: &Arc<ServerState>,
    per_tool: Option<SessionScope>,
) -> Result<Route, Diagnostic> {
    let engine = &caller.engine;
    if let Some(run) = &caller.run {
        run.check_quota(&engine.run_quota, engine.context.limits.runs_per_identity)?;
        run.wait_for_previous().await;
        run.remove_ended_routes(&server.name);
    }
    let access = server_access(caller, server).await?;
    if let Some(credential) = &access.credential {
        let ready = credential.ensure_ready().await;
        let factory = &engine.session_factory;
        factory.record_credential_result(server, &caller.identity, &ready);
        ready?;
    }
    let query = RouteQuery {
        caller,
        server,
        access: &access,
    };
    if per_tool.is_none()
        && let Some(run) = &caller.run
        && !query.is_discovered()
        && let Some(entry) = query.find_shared_route(run).await?
    {
        return Ok(Route::Pooled(entry));
    }
    query.plan_route(per_tool).await
}

pub(crate) async fn server_access(
    caller: &CallerContext,
    server: &ServerState,
) -> Result<ServerAccess, Diagnostic> {
    let vault = &caller.engine.context.vault;
    Ok(ServerAccess {
        location: server.locate(vault).await?,
        credential: server.credential(&caller.identity, vault),
    })
}

/// Whether a server is configured or known not to speak an era.
pub(crate) fn lacks_era(
    caller: &CallerContext,
    server: &ServerState,
    access: &ServerAccess,
    era: Era,
) -> bool {
    if let Some(decided) = server.configured_era() {
        return decided != era;
    }
    let factory = &caller.engine.session_factory;
    let known = factory.known_eras(server, access, &caller.client_profile);
    known.is_some_and(|known| known.missing == Some(era))
}

/// A route that is resolved: who calls, which server, where it is and as whom it is called.
#[derive(Clone, Copy)]
struct RouteQuery<'a> {
    caller: &'a CallerContext,
    server: &'a Arc<ServerState>,
    access: &'a ServerAccess,
}

impl RouteQuery<'_> {
    /// Resolves the first route of a run to a server once for all its clients: their profiles may differ,
    /// and the session of the run is one. None where clients do not share it.
    async fn find_shared_route(
        self,
        run: &Arc<RunState>,
    ) -> Result<Option<Arc<SessionEntry>>, Diagnostic> {
        let key = RouteFlightKey {
            // Unique while the flight holds the run.
            run_address: Arc::as_ptr(run).addr(),
            credential: self.access.credential_id(),
            era: self.caller.era,
        };
        let work = || {
            let (caller, server) = (self.caller.clone(), Arc::clone(self.server));
            let access = self.access.clone();
            async move {
                // Another flight may have resolved it meanwhile.
                if cached_entry(&caller, &server).is_none() {
                    let query = RouteQuery {
                        caller: &caller,
                        server: &server,
                        access: &access,
                    };
                    query.plan_route(None).await?;
                }
                Ok(())
            }
        };
        let flights = &self.server.route_flights;
        if let Some(found) = flights.join_or_start("way", key, work).await {
            found?;
        }
        let entry = cached_entry(self.caller, self.server);
        Ok(entry.filter(|entry| entry.key.run().is_some()))
    }

    /// Plans a route, after discovering the server if it is unknown.
    async fn plan_route(self, per_tool: Option<SessionScope>) -> Result<Route, Diagnostic> {
        let caller = self.caller;
        let profile = self.discover().await?;
        let request = PlanRequest {
            tool: per_tool,
            in_run: caller.run.is_some(),
            pool_enabled: caller.engine.context.limits.pool_enabled,
            is_returning: caller.identity.name.is_reusable(),
        };
        match session_plan::plan_session(profile, &self.server.settings.load().policy, request) {
            // A withdrawn server keeps only the sessions of runs.
            SessionPlan::Pooled(plan)
                if plan.scope == ScopeKind::Run || !self.server.is_withdrawn() =>
            {
                self.pooled_route(profile, (request, plan))
            },
            SessionPlan::PerCall | SessionPlan::Pooled(_) => {
                Ok(Route::PerCall(Arc::new(PerCallSession {
                    spare_key: self.spare_key(profile),
                    setup: Arc::new(self.session_setup(profile)),
                    owner: KeyOwner::Identity(caller.identity.id),
                })))
            },
        }
    }

    fn pooled_route(
        self,
        profile: ServerProfile,
        (request, plan): (PlanRequest, PooledPlan),
    ) -> Result<Route, Diagnostic> {
        let Self { caller, server, .. } = self;
        let pool = &caller.engine.pool;
        let key = self.pool_key(profile, plan);
        let run = caller.run.as_ref().filter(|run| key.run() == Some(run.id));
        let waiters = caller.engine.context.limits.waiters_per_key;
        let entry = pool.entry(
            &key,
            || session_plan::entry_policy(profile, plan, &server.settings.load().policy, waiters),
            || {
                let setup = self.session_setup(profile).with_holding(request, plan);
                match run {
                    // Its record reports the loss if no call does.
                    Some(run) if run.has_pending_loss(&server.name) => {
                        setup.with_previous_session()
                    },
                    _ => setup,
                }
            },
        );
        self.cache_route(&entry, request.tool)?;
        // Another client of the run came first: our first session is unused.
        if let Some(run) = run
            && entry.setup.client_profile.sharing_id != caller.client_profile.sharing_id
        {
            let spare_key = self.spare_key(profile);
            pool.spares().end_first_contact_of_key(&spare_key, run.id);
        }
        Ok(Route::Pooled(entry))
    }

    /// Caches an entry for later calls and for the end of the run.
    ///
    /// # Errors
    /// `closed`, where the server was replaced meanwhile: the call resolves its route once more.
    fn cache_route(
        self,
        entry: &Arc<SessionEntry>,
        per_tool: Option<SessionScope>,
    ) -> Result<(), Diagnostic> {
        let Self { caller, server, .. } = self;
        let pool = &caller.engine.pool;
        let replaced = || {
            let what = format!("`{}` was replaced while a call was on its way", server.name);
            Err(Diagnostic::new(Reason::Closed, what).with_hint("call again"))
        };
        let is_of_run = entry.key.run().is_some();
        // Either the withdrawal sees the entry, or we see that the server is withdrawn.
        fence(Ordering::SeqCst);
        if server.is_removed() || (!is_of_run && server.is_withdrawn()) {
            pool.end_entry(entry, EndReason::Reloaded);
            return replaced();
        }
        let Some(run) = &caller.run else {
            return Ok(());
        };
        // A tool's own session is resolved by each call, and cached so that it ends with the run and its
        // losses are reported.
        let by = per_tool.map_or_else(|| route_selector(caller), RouteSelector::Tool);
        if !run.add_route(server, by, entry) {
            if is_of_run {
                pool.end_entry(entry, EndReason::Reloaded);
            }
            return replaced();
        }
        // Either the end of the run sees the entry, or we see that the run was cancelled; the second of
        // both ends the entry.
        fence(Ordering::SeqCst);
        if run.cancel.is_set() && entry.key.run() == Some(run.id) {
            pool.end_entry(entry, EndReason::RunEnded);
        }
        Ok(())
    }

    fn pool_key(self, profile: ServerProfile, plan: PooledPlan) -> PoolKey {
        let caller = KeyCaller {
            identity: self.caller.identity.id,
            run: self.caller.run.as_ref().map(|run| run.id),
            profile: self.caller.client_profile.sharing_id,
        };
        let credential = self.access.credential_id();
        let shared_by = (plan.owner, plan.scope);
        PoolKey::for_caller(self.target_key(profile), credential, shared_by, caller)
    }

    fn target_key(self, profile: ServerProfile) -> TargetKey {
        self.server.target_key(&self.access.location, profile)
    }

    fn spare_key(self, profile: ServerProfile) -> SpareKey {
        SpareKey {
            target: self.target_key(profile),
            credential: self.access.credential_id(),
            client_profile: self.caller.client_profile.sharing_id,
        }
    }

    fn session_setup(self, profile: ServerProfile) -> SessionSetup {
        let setup = SessionSetup::new(
            Arc::clone(self.server),
            self.access,
            Arc::clone(&self.caller.client_profile),
            profile,
            self.caller.engine.context.records_of(self.server),
        );
        match &self.caller.run {
            Some(run) if run.origin == RunOrigin::Rejoined => setup.with_previous_session(),
            _ => setup,
        }
    }
}
