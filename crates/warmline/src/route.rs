//! Which session serves a call: where the server is, as whom, on which leg, in which cell.
//!
//! Asked by: [`call`](crate::call), at every attempt. Inside a run the answer is remembered, so
//! that a call on a held session finds its cell with one look into the run's own table.

mod meeting;
pub(crate) mod told;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Owner, Scope};
use warmline_core::plan::{self, Asking, Leg, Ownership, Plan, Reach};
use warmline_core::policy::SessionPer;
use warmline_core::pool::{Turn, Want, Why};

use crate::connect::{Connect, Setup};
use crate::credentials::Credential;
use crate::engine::Caller;
use crate::entry::{Entry, Found, NO_CREDENTIAL, Together};
use crate::pool::{CellOf, Lease, SpareKey, Until};
use crate::run::routes::{By, Inserted, Mark};
use crate::run::{Coming, RunShared};

/// The way of a call to its session.
#[derive(Clone)]
pub(crate) enum Route {
    /// A cell holds it.
    Held(Arc<CellOf<Connect>>),
    /// It gets one of its own.
    Once(Arc<Own>),
}

/// A session of one's own, still to be had.
pub(crate) struct Own {
    shelf: SpareKey,
    setup: Arc<Setup>,
    owner: Owner,
}

impl Route {
    pub(crate) fn setup(&self) -> &Arc<Setup> {
        match self {
            Self::Held(cell) => cell.setup(),
            Self::Once(own) => &own.setup,
        }
    }

    /// The cell that holds it, if one does.
    pub(crate) fn cell(&self) -> Option<&CellOf<Connect>> {
        match self {
            Self::Held(cell) => Some(cell),
            Self::Once(_) => None,
        }
    }

    /// The same for a holder who has its session alone. Where nothing is held per session one way
    /// serves everybody: there the holder gets one of its own, and nobody waits for it.
    pub(crate) fn alone(self, caller: &Caller) -> Self {
        match self {
            Self::Held(cell)
                if cell.key().owner() == Owner::Everybody && !cell.setup().leg.keeps_session =>
            {
                Self::Once(Arc::new(Own {
                    shelf: SpareKey::of(cell.key(), caller.said.shared_by),
                    setup: Arc::clone(cell.setup()),
                    owner: Owner::Identity(caller.who.id),
                }))
            },
            other @ (Self::Held(_) | Self::Once(_)) => other,
        }
    }

    pub(crate) async fn lease(
        &self,
        caller: &Caller,
        (want, turn): (Want, Turn),
        until: Until,
    ) -> Result<Lease<Connect>, Trouble> {
        let pool = caller.engine.pool();
        match self {
            Self::Held(cell) => pool.lease_in_turn(cell, want, turn, until).await,
            Self::Once(own) => pool.once(&own.shelf, &own.setup, own.owner, until).await,
        }
    }
}

/// The way of a call, remembered or found.
pub(crate) async fn route(
    caller: &Caller,
    entry: &Arc<Entry>,
    tool: Option<&str>,
) -> Result<Route, Trouble> {
    let per_tool = tool.and_then(|tool| entry.policy().tools.get(tool)?.session_per);
    if per_tool.is_none()
        && let Some(cell) = remembered(caller, entry)
    {
        return Ok(Route::Held(cell));
    }
    find(caller, entry, per_tool).await
}

/// The cell that served this run before, if one did.
pub(crate) fn remembered(caller: &Caller, entry: &Entry) -> Option<Arc<CellOf<Connect>>> {
    let run = caller.run.as_ref()?;
    run.routes
        .find(entry, by(caller))
        .filter(|cell| cell.key().run().is_some() || cell.is_live())
}

/// By what a caller's cell is chosen, beside the server.
fn by(caller: &Caller) -> By {
    match &caller.who.handed {
        Some(handed) => By::Handed(Mark::of(handed.id()), caller.era),
        None => caller.era.map_or(By::Server, By::Era),
    }
}

/// What was remembered turned out wrong.
pub(crate) fn forget(caller: &Caller, entry: &Entry) {
    if let Some(run) = &caller.run {
        run.routes.forget(entry, by(caller));
    }
}

async fn find(
    caller: &Caller,
    entry: &Arc<Entry>,
    per_tool: Option<SessionPer>,
) -> Result<Route, Trouble> {
    if let Some(run) = &caller.run {
        let most = caller.engine.ceilings().runs_per_identity;
        run.check_place(&caller.engine.run_places, most)?;
        run.has_its_id().await;
        run.gives_up_what_ended(&entry.name);
    }
    let as_whom = speaking(caller, entry).await?;
    if let Some(credential) = &as_whom.credential {
        let ready = credential.ready().await;
        let connector = caller.engine.connector();
        connector.credential_asked(entry, &caller.who, &ready);
        ready?;
    }
    if per_tool.is_none()
        && let Some(run) = &caller.run
        && !meeting::has_met(caller, entry, &as_whom)
        && let Some(cell) = found_together(run, caller, entry, &as_whom).await?
    {
        return Ok(Route::Held(cell));
    }
    way(caller, entry, &as_whom, per_tool).await
}

/// The way to a server that is met by this run for the first time, looked for once for all its
/// clients: they may say different things of themselves, and the session of the run is one. None
/// where the server leaves each of them to its own.
async fn found_together(
    run: &Arc<RunShared>,
    caller: &Caller,
    entry: &Arc<Entry>,
    as_whom: &Speaking,
) -> Result<Option<Arc<CellOf<Connect>>>, Trouble> {
    let key = Together {
        // Nobody else has it as long as this goes on: the run is held by it.
        run: Arc::as_ptr(run).addr(),
        credential: as_whom.id(),
        era: caller.era,
    };
    let work = || {
        let (caller, entry, as_whom) = (caller.clone(), Arc::clone(entry), as_whom.clone());
        async move {
            // Whoever was on the way here comes when the others have found it already.
            if remembered(&caller, &entry).is_none() {
                way(&caller, &entry, &as_whom, None).await?;
            }
            Ok(())
        }
    };
    if let Some(found) = entry.finding.join("way", key, work).await {
        found?;
    }
    let cell = remembered(caller, entry);
    Ok(cell.filter(|cell| cell.key().run().is_some()))
}

/// The way of a call to a server, which is met unless it was.
async fn way(
    caller: &Caller,
    entry: &Arc<Entry>,
    as_whom: &Speaking,
    per_tool: Option<SessionPer>,
) -> Result<Route, Trouble> {
    let shared = caller.engine.shared();
    let contact = meeting::meet(caller, entry, as_whom).await?;
    let asking = Asking {
        tool: per_tool,
        inside_run: caller.run.is_some(),
        pool_enabled: shared.ceilings.pool_enabled,
        comes_back: caller.who.said.comes_back(),
    };
    let leg = contact.leg;
    let own = || Own {
        shelf: as_whom.shelf(caller, entry, leg),
        owner: Owner::Identity(caller.who.id),
        setup: Arc::new(as_whom.setup(caller, entry, leg)),
    };
    match plan::plan(leg, &entry.policy(), asking) {
        Plan::Once => Ok(Route::Once(Arc::new(own()))),
        // For a server that is gone nothing is held any more, but what runs have there.
        Plan::Held(holding) if holding.reach == Reach::Shared && entry.is_withdrawn() => {
            Ok(Route::Once(Arc::new(own())))
        },
        Plan::Held(holding) => {
            let owner = match holding.owner {
                Ownership::Identity => Owner::Identity(caller.who.id),
                Ownership::Everybody => Owner::Everybody,
            };
            let scope = match (holding.reach, &caller.run) {
                (Reach::Run, Some(run)) => Scope::Run(run.id),
                (Reach::Run | Reach::Shared, _) => Scope::Shared(caller.said.shared_by),
            };
            let place = entry.place(&as_whom.found, leg);
            let key = Key::of(place, owner, as_whom.id(), scope);
            let waiters = shared.ceilings.waiters_per_key;
            let cell = caller.engine.pool().cell(
                &key,
                || plan::cell_policy(leg, holding, &entry.policy(), waiters),
                || {
                    let setup = as_whom.setup(caller, entry, leg).held(asking, holding);
                    let run = caller.run.as_ref();
                    match (scope, run) {
                        // Its record tells what was lost, should nobody else come to tell it.
                        (Scope::Run(_), Some(run)) if run.has_lost(&entry.name) => {
                            setup.come_back_to()
                        },
                        _ => setup,
                    }
                },
            );
            remember(caller, entry, &cell, per_tool)?;
            if let (Some(run), Scope::Run(_)) = (&caller.run, scope) {
                // Another client of the run was here first: what was opened for us serves nobody.
                if cell.setup().said.shared_by != caller.said.shared_by {
                    let shelf = as_whom.shelf(caller, entry, leg);
                    caller.engine.pool().end_met_on(&shelf, run.id);
                }
            }
            Ok(Route::Held(cell))
        },
    }
}

/// Remembers a cell for the calls that come after, and for the end of its run.
///
/// # Errors
/// The server was replaced meanwhile, and nobody may be led to the old one any more.
fn remember(
    caller: &Caller,
    entry: &Arc<Entry>,
    cell: &Arc<CellOf<Connect>>,
    per_tool: Option<SessionPer>,
) -> Result<(), Trouble> {
    let is_of_run = cell.key().run().is_some();
    // Either whoever withdraws the server sees the cell, or we see that it is withdrawn.
    fence(Ordering::SeqCst);
    if entry.is_put_away() || (!is_of_run && entry.is_withdrawn()) {
        caller.engine.pool().end(cell, Why::Reloaded);
        return Err(replaced(entry));
    }
    let Some(run) = &caller.run else {
        return Ok(());
    };
    // What a tool has of its own is found anew by every call of it, and remembered so that it ends
    // with the run, and the run is told what is lost there.
    let by = per_tool.map_or_else(|| by(caller), By::Tool);
    if run.goes_to(entry, by, cell) == Inserted::Elsewhere {
        if is_of_run {
            caller.engine.pool().end(cell, Why::Reloaded);
        }
        return Err(replaced(entry));
    }
    // Either the end of the run sees what was put there, or we see that the run was cut: the one
    // who comes second in this order ends the cell.
    fence(Ordering::SeqCst);
    if run.is_cut() && cell.key().run() == Some(run.id) {
        caller.engine.pool().end(cell, Why::RunEnded);
    }
    Ok(())
}

/// Another server took the place of this one while the way to it was looked for. `Closed`, so that
/// the way is looked for once more.
fn replaced(entry: &Entry) -> Trouble {
    let what = format!("`{}` was replaced while a call was on its way", entry.name);
    Trouble::new(Reason::Closed, what).hint("call again")
}

/// As whom, and where.
pub(crate) struct Speaking {
    pub(crate) found: Arc<Found>,
    pub(crate) credential: Option<Arc<Credential>>,
}

impl Speaking {
    fn id(&self) -> warmline_core::key::CredentialId {
        self.credential
            .as_ref()
            .map_or(NO_CREDENTIAL, |credential| credential.id())
    }

    fn shelf(&self, caller: &Caller, entry: &Entry, leg: Leg) -> SpareKey {
        SpareKey {
            place: entry.place(&self.found, leg),
            credential: self.id(),
            declared: caller.said.shared_by,
        }
    }

    fn setup(&self, caller: &Caller, entry: &Arc<Entry>, leg: Leg) -> Setup {
        let setup = Setup::new(
            Arc::clone(entry),
            self,
            Arc::clone(&caller.said),
            leg,
            caller.engine.shared().records_of(entry),
        );
        match &caller.run {
            Some(run) if run.coming == Coming::Back => setup.come_back_to(),
            _ => setup,
        }
    }
}

/// Whether a server is decided, or known, not to speak an era.
pub(crate) fn lacks(caller: &Caller, entry: &Entry, speaking: &Speaking, era: Era) -> bool {
    if let Some(decided) = entry.decided_era() {
        return decided != era;
    }
    let connector = caller.engine.connector();
    let known = connector.remembered(entry, speaking, &caller.said);
    known.is_some_and(|known| known.lacks == Some(era))
}

fn other_era(entry: &Entry, era: Era) -> Trouble {
    let what = format!("`{}` does not speak the {era} era", entry.name);
    Trouble::new(Reason::Version, what).because("so it is decided, or so it said before")
}

/// Where a caller finds the server, and as whom it speaks there.
pub(crate) async fn speaking(caller: &Caller, entry: &Entry) -> Result<Speaking, Trouble> {
    let vault = &caller.engine.shared().vault;
    Ok(Speaking {
        found: entry.found(vault).await?,
        credential: entry.credential(&caller.who, vault),
    })
}

impl Clone for Speaking {
    fn clone(&self) -> Self {
        Self {
            found: Arc::clone(&self.found),
            credential: self.credential.clone(),
        }
    }
}
