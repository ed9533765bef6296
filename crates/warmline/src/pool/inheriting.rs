//! Inheriting: a lost session, its replacement, and the room of the one for the other.
//!
//! Asked by: cells, when they lose a session; closings, which hand the room on.

use std::sync::Arc;

use tokio::sync::oneshot;
use warmline_core::pool::limits::Kind;
use warmline_core::pool::{Ends, Generation, Sharing, Why};

use super::Connector;
use super::cell::{CellOf, Inside};
use super::rooms::Room;

/// A session that was lost, until another takes its place. A run keeps its room for the first try
/// of that: it must not lose its place in the world because its server restarted. If the try
/// fails, the room is for whoever waits longest: a server that stays away must not take up room.
pub(super) struct Kept<C: Connector> {
    pub(super) generation: Generation,
    pub(super) session: Arc<C::Session>,
    pub(super) room: Option<Inherited>,
}

/// The room of a lost session, which comes as soon as nothing is left of it.
pub(super) type Inherited = oneshot::Receiver<Room>;
/// Who gets the room of a session that is over.
pub(super) type Heir = oneshot::Sender<Room>;

impl<C: Connector> Inside<C> {
    /// Remembers a lost session for the one that replaces it.
    pub(super) fn keep(&mut self, cell: &CellOf<C>, generation: Generation, why: Why) {
        let policy = *self.core.policy();
        if policy.sharing == Sharing::OneEach {
            return;
        }
        let held_by_a_run = policy.ends == Ends::WithRun;
        // A server that says so holds nothing any more. A process that ends is still there.
        let is_over = why == Why::Gone && Kind::of(cell.key().place()) == Some(Kind::Session);
        let Some(slot) = self.slot(generation) else {
            return;
        };
        let session = Arc::clone(&slot.session);
        let room = slot.room.take_if(|_| held_by_a_run && is_over);
        let has_room = held_by_a_run && slot.room.is_some();
        let (heir, inherited) = oneshot::channel();
        let busy = self.busy();
        let room = match room {
            Some(room) => {
                // The other end is here: it arrives.
                drop(heir.send(room));
                Some(inherited)
            },
            None if has_room => {
                busy.heir = Some((generation, heir));
                Some(inherited)
            },
            None => None,
        };
        busy.kept = Some(Kept {
            generation,
            session,
            room,
        });
    }
}
