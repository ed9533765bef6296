//! How a call comes by its session: the one that its caller holds, or one that the pool leases.

use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Owner, RunId};
use warmline_core::pool::{Turn, Want};

use super::Way;
use crate::clock;
use crate::connect::Connect;
use crate::error::Result;
use crate::events::{self, Event, Fingerprint, Which};
use crate::lease::Holder;
use crate::metrics::Acquired;
use crate::pool::{How, Lease, Until};
use crate::route::{self, Route};

impl<'a> Way<'a> {
    /// A lease on a session of this call's key.
    pub(super) async fn lease(&mut self) -> Result<(Route, Lease<Connect>)> {
        loop {
            let seen = self.entry.contacts_seen();
            match self.try_lease().await {
                Ok(leased) => return Ok(leased),
                // What was known of the server turned out wrong, or what was remembered of the way
                // was closed: found out anew, once.
                Err(trouble)
                    if !self.rerouted
                        && self.held.is_none()
                        && (self.entry.contacts_seen() != seen
                            || trouble.reason == Reason::Closed) =>
                {
                    self.rerouted = true;
                    route::forget(self.caller, self.entry);
                },
                Err(trouble) => {
                    let delivery = self.so_far.delivery(Delivery::Unsent);
                    return Err(self.over(trouble, delivery));
                },
            }
        }
    }

    async fn try_lease(&mut self) -> Result<(Route, Lease<Connect>), Trouble> {
        if let Some(held) = self.held {
            self.wait_for_turn(held).await?;
            self.credential_ready(held.route()).await?;
            let route = held.route().clone();
            let lease = self.remembering(&route, held.join()?);
            return Ok((route, lease));
        }
        let finding = route::route(self.caller, self.entry, self.job.tool.as_deref());
        let Ok(route) = clock::timeout_at(self.by, finding).await else {
            return Err(self.late("while the way to the server was looked for"));
        };
        let route = match self.want {
            Want::Exclusive => route?.alone(self.caller),
            Want::Shared => route?,
        };
        self.credential_ready(&route).await?;
        // From here on it is waited for a session: finding the way has limits of its own. A call that
        // is sent again keeps its place in line, and has stood there for a while already.
        let turn = match self.so_far.attempts() {
            1 => Turn::Last,
            _ => Turn::First,
        };
        let wait = self.entry.policy().wait;
        let in_line = clock::after(self.patience());
        let until = Until {
            in_line: in_line.min(self.by),
            opened: clock::after(wait).min(self.by),
            on_the_wire: clock::after(wait.max(self.entry.opens_within())).min(self.by),
        };
        match route.lease(self.caller, (self.want, turn), until).await {
            Ok(lease) => {
                if lease.how() == How::Waited {
                    let left = in_line.saturating_duration_since(clock::now());
                    self.in_line = wait.saturating_sub(left);
                }
                let lease = self.remembering(&route, lease);
                Ok((route, lease))
            },
            // It was the call's own time that ran out, not the time for waiting.
            Err(trouble) if trouble.code == Code::PoolFull && clock::now() >= self.by => {
                Err(self.late("while it waited for a session"))
            },
            Err(trouble) => Err(trouble),
        }
    }

    /// A lease for this caller: a run remembers what it was told of losses.
    fn remembering(&self, route: &Route, mut lease: Lease<Connect>) -> Lease<Connect> {
        lease.remembers(|| self.caller.run.as_ref()?.routes.heard(route.cell()?));
        lease
    }

    /// One call at a time where the server wants it so, also on a lease.
    async fn wait_for_turn(&mut self, held: &'a Holder) -> Result<(), Trouble> {
        if self.turn.is_none() && self.entry.policy().serial {
            let turn = clock::timeout_at(self.by, held.turn()).await;
            let late = || self.late("while another call was under way on the lease");
            self.turn = turn.map_err(|_| late())?;
        }
        Ok(())
    }

    async fn credential_ready(&self, route: &Route) -> Result<(), Trouble> {
        let Some(credential) = &route.setup().credential else {
            return Ok(());
        };
        let ready = clock::timeout_at(self.by, credential.ready()).await;
        if let Ok(ready) = &ready {
            let connector = self.caller.engine.connector();
            connector.credential_asked(self.entry, &self.caller.who, ready);
        }
        ready.unwrap_or_else(|_| Err(self.late("while the source of the credential was asked")))
    }

    pub(super) fn late(&self, when: &str) -> Trouble {
        let what = format!("the time for this call to `{}` was over", self.entry.name);
        Trouble::new(Reason::TimeoutUnsent, what).because(when)
    }

    /// Checks once more, at the last moment, that the session is the caller's own.
    pub(super) fn isolated(&mut self, route: &Route) -> Result<()> {
        let Route::Held(cell) = route else {
            return Ok(());
        };
        let key = cell.key();
        let is_own = match key.owner() {
            Owner::Identity(owner) => owner == self.caller.who.id,
            Owner::Everybody => true,
        };
        let is_of_run = match (key.run(), &self.caller.run) {
            (None, _) => true,
            (Some(of), Some(run)) => of == run.id,
            (Some(_), None) => false,
        };
        if is_own && is_of_run {
            return Ok(());
        }
        self.entry.metrics.isolation_violations.one_more();
        self.caller.engine.events().tell(Event::IsolationViolation {
            session: Which::of_key(key),
            caller: Some(Fingerprint::from(self.caller.who.id)),
        });
        let what = "a session of somebody else was about to be used";
        Err(self.over(Trouble::new(Reason::Internal, what), Delivery::Unsent))
    }
}

/// Logs how a call of a run, or of none, came by its session, for debugging.
pub(super) fn acquired(route: &Route, run: Option<RunId>, lease: &Lease<Connect>) {
    let how = match lease.how() {
        How::Hit => Acquired::Hit,
        How::Miss => Acquired::Miss,
        How::Waited => Acquired::Wait,
        How::Once => Acquired::Ephemeral,
    };
    let server = &route.setup().entry.name;
    let generation = lease.generation().number();
    let id = lease.session().session_id();
    events::acquired(how, server, run, generation, id);
}
