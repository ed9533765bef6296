//! Refilling: spares are opened in tasks of their own.
//!
//! Asked by: the shelves, whenever one may lie there too few or too long.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Owner, Scope};
use warmline_core::pool::Why;
use warmline_core::pool::spares::{Need, Shelf, SpareKey};

use super::ground::{Errand, Ground};
use super::places::{Place, Trace, UntilGone};
use super::shelves::{self, Rack, Spare, happened};
use super::tally::Seldom;
use super::{Connector, Generation, Order, Purpose, What};
use crate::clock;

/// So long a spare may still take when everything is closed.
const NEARLY_OPEN: Duration = Duration::from_secs(2);

/// So long the next spare waits for the call that took the last one. To start a process takes
/// milliseconds of the thread that starts it, and that call should not wait behind them.
const TAKER_GOES_FIRST: Duration = Duration::from_millis(25);

/// A spare that is being opened. However its task ends, the shelf is told.
struct Refill<C: Connector> {
    ground: Arc<Ground<C>>,
    rack: Arc<Rack<C>>,
    open: bool,
    _errand: Errand<C>,
}

impl<C: Connector> Refill<C> {
    async fn open(mut self, key: SpareKey, setup: Arc<C::Setup>, place: Place) {
        let ground = Arc::clone(&self.ground);
        if clock::timeout_at(clock::after(TAKER_GOES_FIRST), ground.going_down())
            .await
            .is_ok()
        {
            return;
        }
        let began = clock::now();
        let (trace, traces) = Trace::new();
        let place = UntilGone::new((place, ground.errand()), traces);
        let came = tokio::select! {
            biased;
            came = self.session(&key, &setup, trace) => came,
            () = given_up(&ground) => return,
        };
        let Some(came) = came else { return };
        let took = clock::now().saturating_duration_since(began);
        match came {
            Ok(session) => {
                self.open = false;
                ground.tally.spares_opening(-1);
                shelves::opened(&ground, &key, &setup, took);
                let spare = Spare {
                    session,
                    setup: Arc::clone(&setup),
                    met: None,
                    _place: place.take().map(|(place, _)| place),
                };
                match self.rack.lay(&ground, Shelf::opened, spare) {
                    Some(spare) => shelves::close(&ground, &key, spare, Why::Evicted),
                    None => happened(&ground, &key, &setup, What::SpareOpened { took }),
                }
            },
            Err(trouble) => {
                self.open = false;
                ground.tally.spares_opening(-1);
                let mut inside = self.rack.inside.lock();
                inside.shelf.failed(trouble.reason, ground.tick());
                drop(inside);
                ground.tally.seldom(Seldom::OpenFailed);
                let trouble = &trouble;
                let what = What::OpenFailed { trouble, took };
                happened(&ground, &key, &setup, what);
            },
        }
    }

    /// A session for whoever comes; none where openings pause.
    async fn session(
        &self,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
        trace: Trace,
    ) -> Option<Result<Arc<C::Session>, Trouble>> {
        // A spare belongs to nobody yet.
        let scope = Scope::Shared(key.declared);
        let nobody = Key::of(key.place.clone(), Owner::Everybody, key.credential, scope);
        let order = Order {
            setup: Arc::clone(setup),
            key: None,
            generation: Generation::FIRST,
            purpose: Purpose::Spare,
            replaces: None,
            trace,
        };
        self.ground.open_ahead(&order, &nobody).await
    }
}

/// Waits until nobody will take a spare any more. One that is nearly open is still opened, so that
/// it can be ended in order: the server may have given it a session already.
async fn given_up<C: Connector>(ground: &Ground<C>) {
    ground.going_down().await;
    let never = std::future::pending::<()>();
    clock::timeout_at(clock::after(NEARLY_OPEN), never)
        .await
        .ok();
}

impl<C: Connector> Drop for Refill<C> {
    fn drop(&mut self) {
        if self.open {
            self.ground.tally.spares_opening(-1);
            self.rack.inside.lock().shelf.gave_up();
        }
    }
}

/// Closes what is old, and opens what is missing.
pub(super) fn refill<C: Connector>(ground: &Arc<Ground<C>>, key: &SpareKey, rack: &Arc<Rack<C>>) {
    let (Need { close: old, open }, setup) = {
        let mut inside = rack.inside.lock();
        let need = inside.shelf.look(ground.tick());
        (need, Arc::clone(&inside.setup))
    };
    for id in old {
        let spare = rack.inside.lock().lift(id);
        if let Some(spare) = spare {
            ground.tally.spares(-1);
            shelves::close(ground, key, spare, Why::Aged);
        }
    }
    for _ in 0..open {
        ground.tally.spares_opening(1);
        let refill = Refill {
            ground: Arc::clone(ground),
            rack: Arc::clone(rack),
            open: true,
            _errand: ground.errand(),
        };
        let place = if ground.is_open() {
            ground.shelves.spares.take()
        } else {
            None
        };
        let Some(place) = place else { continue };
        let (key, setup) = (key.clone(), Arc::clone(&setup));
        clock::spawn_if_running("spare", refill.open(key, setup, place));
    }
}
