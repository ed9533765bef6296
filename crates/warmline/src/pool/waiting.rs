//! A caller in line, as a value with a destructor: dropping it leaves the line, and whatever was
//! on its way to it goes to the next.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use warmline_core::pool::{Event, Generation, Sharing, WaiterId};

use super::cell::{Answer, CellOf, Stage, Unserved};
use super::{Connector, How, wording};
use crate::clock::{self, Home, Instant};

/// Until when a caller waits for its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// While it stands in line for one.
    pub(crate) in_line: Instant,
    /// While one is being opened, which has a time of its own: whoever stood in line for long may
    /// still have a lost session healed.
    pub(crate) opened: Instant,
    /// While the server is at it, which has limits of its own: programs start slowly.
    pub(crate) on_the_wire: Instant,
}

impl From<Instant> for Until {
    fn from(by: Instant) -> Self {
        Self {
            in_line: by,
            opened: by,
            on_the_wire: by,
        }
    }
}

/// A caller in line.
pub(super) struct Waiting<C: Connector> {
    cell: Arc<CellOf<C>>,
    waiter: WaiterId,
    heard: oneshot::Receiver<Answer<C>>,
    /// How it came to its session, if it gets one.
    pub(super) how: How,
}

impl<C: Connector> Waiting<C> {
    pub(super) fn new(
        cell: &Arc<CellOf<C>>,
        waiter: WaiterId,
        heard: oneshot::Receiver<Answer<C>>,
        opens: bool,
    ) -> Self {
        Self {
            cell: Arc::clone(cell),
            waiter,
            heard,
            how: if opens { How::Miss } else { How::Waited },
        }
    }

    /// Waits for its turn, at the latest until then. An opening that rests with the runtime of
    /// whoever began it is taken from there.
    pub(super) async fn turn(&mut self, since: Instant, until: Until) -> Answer<C> {
        let Some((home, generation)) = self.opened_elsewhere() else {
            return self.turn_in_time(since, until).await;
        };
        tokio::select! {
            biased;
            answer = self.turn_in_time(since, until) => return answer,
            () = clock::rests(Some(home)) => self.cell.desert(generation),
        }
        self.turn_in_time(since, until).await
    }

    async fn turn_in_time(&mut self, since: Instant, until: Until) -> Answer<C> {
        let mut heard = clock::timeout_at(until.in_line, &mut self.heard).await;
        if heard.is_err() && until.in_line < until.opened && self.is_being_opened() {
            heard = clock::timeout_at(until.opened, &mut self.heard).await;
        }
        if heard.is_err() && until.opened < until.on_the_wire && self.is_on_the_wire() {
            heard = clock::timeout_at(until.on_the_wire, &mut self.heard).await;
        }
        match heard {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Unserved::AskAgain),
            Err(_) => self.too_late(clock::now().saturating_duration_since(since)),
        }
    }

    /// An opening for this line that is carried out in another runtime than the caller's.
    fn opened_elsewhere(&self) -> Option<(Home, Generation)> {
        let all = self.cell.enter(|inside, _, _| {
            let flights = inside.flights().iter();
            let all = flights.filter_map(|one| Some((one.home.clone()?, one.generation)));
            all.collect::<SmallVec<[_; 2]>>()
        });
        all.into_iter().find(|(home, _)| !home.is_here())
    }

    fn is_being_opened(&self) -> bool {
        self.cell.enter(|inside, _, _| !inside.flights().is_empty())
    }

    /// Whether the server is about to give the session that this caller will have. What it gives
    /// to one each is for whoever stood in line first.
    fn is_on_the_wire(&self) -> bool {
        self.cell.enter(|inside, _, _| {
            let is_for_all = inside.core.policy().sharing == Sharing::SideBySide;
            let mut flights = inside.flights().iter();
            (is_for_all || self.how == How::Miss) && flights.any(|one| one.stage == Stage::Wire)
        })
    }

    /// The time is over. An answer that came in the same moment counts.
    fn too_late(&mut self, waited: Duration) -> Answer<C> {
        let server = self.cell.server();
        // Asked before the cell is entered: locks are never held two at once.
        let most = self.cell.connector().max_sessions(self.cell.setup());
        let full = self.cell.ground.rooms.full(self.cell.any_key(), most);
        let trouble = self.cell.enter(|inside, _, _| {
            if inside.flights().iter().any(|one| one.stage == Stage::Wire) {
                wording::too_slow(server, waited)
            } else {
                let (policy, counts) = (inside.core.policy(), inside.core.counts());
                wording::pool_full((server, waited), policy, &counts, full.as_ref())
            }
        });
        self.leave();
        self.heard
            .try_recv()
            .unwrap_or_else(|_| Err(Unserved::Trouble(Arc::new(trouble))))
    }

    fn leave(&self) {
        let waiter = self.waiter;
        // The sender goes after the lock: it may wake somebody.
        let answer = self.cell.enter(|inside, now, steps| {
            let answer = inside.out_of_line(waiter)?;
            inside.take_in(&self.cell, Event::Left { waiter }, now, steps);
            Some(answer)
        });
        drop(answer);
    }
}

impl<C: Connector> Drop for Waiting<C> {
    fn drop(&mut self) {
        self.leave();
        // A lease that came in the meantime falls out of the channel, and goes to the next.
    }
}
