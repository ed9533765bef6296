//! Orders of clients that share a session: what they mean, with what the others want.
//!
//! Asked by: a call that has its session, before anything is sent.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;
use serde_json::json;
use warmline_core::exchange::{Request, Trouble};
use warmline_core::pool::{Outcome, Sharing};
use warmline_core::protocol::params::Params;

use super::asking::{newest, no_job};
use super::{Answered, Job, Way, carry, kind_of};
use crate::clock;
use crate::connect::{AskedFor, Connect, Giver, Line, Meant, Orders, SaidAgain};
use crate::engine::Caller;
use crate::entry::Entry;
use crate::pool::{CellOf, Lease, Seen};
use crate::route::Route;

/// A client asks for a subscription until this is dropped.
pub(super) struct AsksFor {
    caller: Caller,
    entry: Arc<Entry>,
    cell: Arc<CellOf<Connect>>,
    what: AskedFor,
}

impl Drop for AsksFor {
    fn drop(&mut self) {
        let unwanted = self.cell.setup().has_asked(&self.what);
        if !unwanted.is_empty() {
            let (caller, entry) = (self.caller.clone(), Arc::clone(&self.entry));
            let telling = take_back(caller, entry, Arc::clone(&self.cell), unwanted);
            clock::spawn_if_running("take back", telling);
        }
    }
}

impl Way<'_> {
    /// Who gives the order, if the call is one.
    pub(super) fn giver(&self, route: &Route) -> Giver {
        if self.job.takes_back {
            return Giver::Nobody;
        }
        let listener = self.job.listener.as_ref();
        let client = listener.and_then(|listener| listener.client());
        route.setup().giver(client, &self.caller.who)
    }

    /// What the call means for its session, if it is an order.
    pub(super) fn meant(&self, route: &Route) -> Meant {
        let (method, params) = (&self.job.method, &self.job.params);
        route.setup().meant(self.giver(route), method, params)
    }

    /// Notes what the call asks to hear of, until it is over.
    ///
    /// # Errors
    /// It is an order, and there is no room for it.
    pub(super) fn asks(&mut self, route: &Route) -> Result<(), Trouble> {
        let Route::Held(cell) = route else {
            return Ok(());
        };
        let known = self.asks_for.as_ref();
        if known.is_some_and(|known| Arc::ptr_eq(&known.cell, cell)) {
            return Ok(());
        }
        let (method, params) = (&self.job.method, &self.job.params);
        let (setup, giver) = (route.setup(), self.giver(route));
        let unwanted = setup.makes_room(giver, method, params)?;
        if !unwanted.is_empty() {
            let (caller, entry) = (self.caller.clone(), Arc::clone(self.entry));
            let telling = take_back(caller, entry, Arc::clone(cell), unwanted);
            clock::spawn_if_running("take back", telling);
        }
        let what = setup.asks_for(giver, method, params);
        self.asks_for = what.map(|what| {
            Box::new(AsksFor {
                caller: self.caller.clone(),
                entry: Arc::clone(self.entry),
                cell: Arc::clone(cell),
                what,
            })
        });
        Ok(())
    }

    /// Whether the call is an order, and another session took the place of the one that answered
    /// it: that one has not heard of it. One that comes later is told what was noted.
    pub(super) fn is_ordered_in_vain(&self, route: &Route, answered: &Arc<Line>) -> bool {
        let Some(cell) = route.cell() else {
            return false;
        };
        let is_only_one = route.setup().sharing() != Some(Sharing::OneEach);
        Orders::are_given_by(&self.job.method)
            && self.held.is_none()
            && is_only_one
            && newest(cell).is_some_and(|newest| !Arc::ptr_eq(&newest.session, answered))
    }

    /// What was ordered before the call, if it is an order and its key has several sessions.
    pub(super) fn ordered_so_far(&self, route: &Route) -> Option<Box<Orders>> {
        let setup = route.setup();
        let is_one_of_several = setup.sharing() == Some(Sharing::OneEach) && self.held.is_none();
        let is_order = Orders::are_given_by(&self.job.method);
        (is_one_of_several && is_order).then(|| Box::new(setup.orders()))
    }

    /// Says what is ordered since then to the other sessions of the key, in the background: whichever
    /// of them is heard, or has the next call, knows it as one that comes later does. One that is in
    /// use is told, too: what is ordered may come on it at any time.
    pub(super) fn tell_siblings(&self, route: &Route, before: Orders) {
        let Route::Held(cell) = route else { return };
        let is_other = |seen: &Seen<Connect>| {
            seen.is_usable && Some(seen.generation.number()) != self.generation
        };
        let others = cell.sessions().into_iter().filter(is_other);
        let others: Vec<Arc<Line>> = others.map(|seen| seen.session).collect();
        if others.is_empty() {
            return;
        }
        let setup = Arc::clone(route.setup());
        clock::spawn_if_running("tell siblings", async move {
            let telling = others.into_iter().map(|line| setup.tells(line, &before));
            future::join_all(telling).await;
        });
    }

    /// What is asked for is so already, because somebody else wants it.
    pub(super) fn granted(&mut self, route: &Route, lease: Lease<Connect>) -> Answered {
        let generation = lease.generation().number();
        lease.settle(Outcome::Unused);
        let setup = route.setup();
        setup.note_order(self.giver(route), &self.job.method, &self.job.params);
        let result = Bytes::from_static(b"{}");
        let kind = kind_of(&result);
        self.count(|counted| counted.answered(kind));
        Answered {
            unknown_tool: None,
            result,
            server: Arc::clone(&self.entry.name),
            tool: None,
            attempts: self.so_far.attempts(),
            generation,
            state_lost: false,
            leg: setup.leg,
        }
    }
}

/// Tells the session of a key what nobody wants any more. The run of the caller may end meanwhile
/// where the session is not its own.
pub(crate) async fn take_back(
    mut caller: Caller,
    entry: Arc<Entry>,
    cell: Arc<CellOf<Connect>>,
    unwanted: Vec<SaidAgain>,
) {
    if cell.key().run().is_none() {
        caller.run = None;
    }
    for (method, params) in unwanted {
        // No session is opened for what it would not be told anyway.
        if cell.sessions().is_empty() {
            return;
        }
        let job = Job {
            method: Cow::Borrowed(method),
            params,
            takes_back: true,
            ..no_job(&entry)
        };
        if let Err(error) = Box::pin(carry(&caller, &entry, None, job)).await {
            tracing::debug!(server = %entry.name, method, %error, "an order was not taken back");
        }
    }
}

/// The same request for another level.
pub(super) fn at_level(request: Request, level: &str) -> Request {
    match Params::of(&json!({ "level": level })) {
        Ok(params) => request.with_params(params),
        Err(_) => request,
    }
}
