//! What a client wants of a session that others share: known again when the client comes back, and
//! taken back when its session is over.

use std::sync::Arc;

use warmline_core::key::Digest;

use super::{Entered, ServerHandle};
use crate::route;
use crate::upstream::{Listener, Whose};

/// Speaks for a client that is gone.
struct Leaving(Digest);

impl Listener for Leaving {
    fn client(&self) -> Option<Digest> {
        Some(self.0)
    }

    fn whose(&self) -> Option<Whose> {
        None
    }
}

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
    /// What it alone wanted to hear of is taken back by whoever drives what is returned; the run of
    /// this handle may end meanwhile where the session is not its own.
    pub fn leave(&self, client: Digest) -> impl Future<Output = ()> + Send + use<> {
        let mut server = self.clone();
        let cell = match &self.entry {
            Entered::Known(entry) => route::remembered(&self.caller, entry),
            Entered::Bad(_) => None,
        };
        if cell.as_ref().is_some_and(|cell| cell.key().run().is_none()) {
            server.caller.run = None;
        }
        async move {
            let Some(cell) = cell else { return };
            for uri in cell.setup().left_by(client) {
                // No session is opened for what it would not be told anyway.
                if cell.sessions().is_empty() {
                    return;
                }
                let leaving = Arc::new(Leaving(client));
                if let Err(error) = server.unsubscribe(&uri).listened_by(leaving).await {
                    let server = server.name();
                    tracing::debug!(server, %error, "a subscription was not taken back");
                }
            }
        }
    }
}
