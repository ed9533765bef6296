//! Onto the wire: a fresh session, if the breaker lets it pass, and not too many at a time.
//!
//! Asked by: openings, when nothing else could be had, and the shelves, whose trouble is nobody's.

use std::sync::Arc;

use tokio::sync::Semaphore;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Revision};

use super::breakers::Opener;
use super::ground::Ground;
use super::{Connector, Order};

/// So many sessions of one server are opened at the same time. A thousand runs that begin at once
/// would otherwise take a thousand sockets; none of them would be open any sooner.
const AT_ONCE: usize = 64;

/// Where openings of a server wait for one another. Those of another server never do.
pub(super) type Gates = papaya::HashMap<(Arc<str>, Revision), Arc<Semaphore>>;

impl<C: Connector> Ground<C> {
    /// Opens a session for whoever the key names.
    pub(super) async fn open(
        &self,
        order: &Order<C>,
        key: &Key,
    ) -> Result<Arc<C::Session>, Trouble> {
        let gate = self.gate(key);
        // The gate is never closed: whoever waits there gets through.
        let turn = gate.acquire().await.ok();
        let setup = &order.setup;
        let policy = self.connector.breaker(setup);
        let (passing, changes) = self.breakers.pass(Opener::of(key), policy)?;
        self.breakers_changed(setup, key, changes);
        let opened = self.connector.open(order).await;
        let changes = match &opened {
            Ok(_) => passing.succeeded(),
            Err(trouble) => passing.failed(trouble),
        };
        drop(turn);
        self.breakers_changed(setup, key, changes);
        opened
    }

    /// Opens a session that nobody waits for. How that ends counts against nobody, and while openings
    /// pause it is not tried: none.
    pub(super) async fn open_ahead(
        &self,
        order: &Order<C>,
        key: &Key,
    ) -> Option<Result<Arc<C::Session>, Trouble>> {
        let gate = self.gate(key);
        let _turn = gate.acquire().await.ok();
        if self.breakers.pause(&Opener::of(key)).is_some() {
            return None;
        }
        Some(self.connector.open(order).await)
    }

    fn gate(&self, key: &Key) -> Arc<Semaphore> {
        let place = key.place();
        let of = (Arc::clone(&place.server), place.revision);
        let gates = self.gates.pin();
        let new = || Arc::new(Semaphore::new(AT_ONCE));
        Arc::clone(gates.get_or_insert_with(of, new))
    }
}
