//! A client session is over: what it wanted of a session that others share is taken back.

use std::sync::Arc;

use warmline_core::key::Digest;

use super::{Entered, ServerHandle};
use crate::route::{self, Route};
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
    /// A client session of this name is over, which shared a session of this server with others.
    /// What it alone wanted to hear of is taken back.
    pub async fn leave(&self, client: Digest) {
        let Entered::Known(entry) = &self.entry else {
            return;
        };
        let Ok(Route::Held(cell)) = route::route(&self.caller, entry, None).await else {
            return;
        };
        for uri in cell.setup().left_by(client) {
            let leaving = Arc::new(Leaving(client));
            if let Err(error) = self.unsubscribe(&uri).listened_by(leaving).await {
                tracing::debug!(server = %entry.name, %error, "a subscription was not taken back");
            }
        }
    }
}
