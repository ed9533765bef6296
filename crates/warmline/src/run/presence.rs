//! Who is in a run: calls that were let in, and whoever holds one of its sessions.
//!
//! Both are values with a destructor, so that nobody is counted who is not there any more.

use std::sync::Arc;

use warmline_core::exchange::Trouble;
use warmline_core::run::Admission;

use super::{RunShared, ended};
use crate::engine::Engine;

impl RunShared {
    /// Lets a call in, or says that the run is over.
    pub(crate) fn admit(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<Presence, Trouble> {
        match self.life.lock().admit(engine.tick()) {
            Admission::Admitted => Ok(Presence {
                engine: Arc::clone(engine),
                run: Arc::clone(self),
            }),
            Admission::TurnedAway => Err(ended(&self.name)),
        }
    }

    /// Lets somebody hold a session of this run, or says that the run is over.
    pub(crate) fn hold(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<Stay, Trouble> {
        match self.life.lock().hold() {
            Admission::Admitted => Ok(Stay {
                engine: Arc::clone(engine),
                run: Arc::clone(self),
            }),
            Admission::TurnedAway => Err(ended(&self.name)),
        }
    }
}

/// A call that was let in; dropping it lets it out.
pub(crate) struct Presence {
    engine: Arc<Engine>,
    run: Arc<RunShared>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        if self.run.life.lock().leave(self.engine.tick()) {
            self.run.quiet.notify_waiters();
        }
    }
}

/// A session of a run that somebody holds; dropping it lets it go.
pub(crate) struct Stay {
    engine: Arc<Engine>,
    run: Arc<RunShared>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.run.life.lock().let_go(self.engine.tick());
    }
}
