//! What a client wants of a session that others share: known again when the client comes back, and
//! taken back when its session is over.

use std::sync::Arc;

use warmline_core::key::Digest;

use super::{Entered, ServerHandle};
use crate::{call, route};

impl ServerHandle {
    /// The level from which on a client session of this name wants log lines, by its place among
    /// all levels, if it said so to the session that is held for this caller.
    pub fn level_wanted_by(&self, client: Digest) -> Option<usize> {
        let Entered::Known(entry) = &self.entry else {
            return None;
        };
        let cell = route::remembered(&self.caller, entry)?;
        cell.setup().level_wanted_by(client)
    }

    /// Whether updates of a resource were asked for, on the session that calls of this handle go on.
    pub fn is_subscribed(&self, uri: &str) -> bool {
        let Entered::Known(entry) = &self.entry else {
            return false;
        };
        let cell = route::remembered(&self.caller, entry);
        cell.is_some_and(|cell| cell.setup().orders().subscriptions.contains(uri))
    }

    /// Whether the session that calls of this handle go on is not its run's own, and outlives it.
    pub fn shares_session(&self) -> bool {
        let Entered::Known(entry) = &self.entry else {
            return false;
        };
        let cell = route::remembered(&self.caller, entry);
        cell.is_some_and(|cell| cell.key().run().is_none())
    }

    /// A client session of this name is over, which shared a session of this server with others.
    /// What it alone wanted is taken back by whoever drives what is returned; the run of this handle
    /// may end meanwhile where the session is not its own.
    pub fn leave(&self, client: Digest) -> impl Future<Output = ()> + Send + use<> {
        let caller = self.caller.clone();
        let way = match &self.entry {
            Entered::Known(entry) => {
                route::remembered(&caller, entry).map(|cell| (Arc::clone(entry), cell))
            },
            Entered::Bad(_) => None,
        };
        async move {
            if let Some((entry, cell)) = way {
                let unwanted = cell.setup().left_by(client);
                call::take_back(caller, entry, cell, unwanted).await;
            }
        }
    }
}
