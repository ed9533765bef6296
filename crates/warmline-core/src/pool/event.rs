//! Events and effects: what a cell is told, and what it answers the shell must do.
//!
//! Told by: the pool's shell.  Carried out by: the same, every effect by one branch.

use std::time::Duration;

use smallvec::SmallVec;

use super::session::{Origin, State};
use super::waiters::{Turn, WaiterId};
use super::{CellPolicy, Generation, Health, Loss, Outcome, Want, Why};
use crate::tick::Tick;

/// What a cell is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller wants a session.
    Asked {
        /// Which caller.
        waiter: WaiterId,
        /// What it wants.
        want: Want,
        /// Where in line it goes, if it has to wait.
        turn: Turn,
    },
    /// A caller does not wait any more.
    Left {
        /// Which.
        waiter: WaiterId,
    },
    /// A session was opened.
    Opened {
        /// Which.
        generation: Generation,
        /// In which way.
        arrival: Arrival,
    },
    /// A session could not be opened.
    OpenFailed {
        /// Which.
        generation: Generation,
    },
    /// An opening that nobody waited for was not begun.
    Withdrawn {
        /// Which.
        generation: Generation,
    },
    /// An opening ended without a word: whoever carried it out is not there any more.
    Deserted {
        /// Which.
        generation: Generation,
    },
    /// Whoever holds a session alone sends on it: a lease beside its own, if the session was not
    /// lost meanwhile.
    Joined {
        /// Which call of it.
        waiter: WaiterId,
        /// Which session.
        generation: Generation,
    },
    /// A lease was given back.
    Settled {
        /// Of which session.
        generation: Generation,
        /// What it tells of the session.
        outcome: Outcome,
    },
    /// Somebody was told of a loss, and of all before it.
    Told {
        /// Which loss that was.
        number: u16,
    },
    /// A session is over: by the server's word, or because somebody here ended it.
    Gone {
        /// Which.
        generation: Generation,
        /// In which way.
        why: Why,
    },
    /// A check ended.
    Checked {
        /// Of which session.
        generation: Generation,
        /// What it found.
        health: Health,
    },
    /// Keeping alive ended.
    KeptAlive {
        /// Which session.
        generation: Generation,
        /// What was found.
        health: Health,
    },
    /// The server lost sessions at that moment: what was not heard of since is checked first.
    Doubted {
        /// When.
        since: Tick,
    },
    /// Another policy counts from now on.
    Reconfigured(CellPolicy),
    /// Time went by.
    Swept {
        /// How long an empty key is remembered.
        forget_after: Duration,
    },
    /// Room is needed elsewhere: this session may have to go.
    RoomNeeded {
        /// Which.
        generation: Generation,
    },
    /// The key is over: nothing new is let in.
    Ended(Why),
    /// The time for ending is over too: what is still there is closed under its leases.
    Cut,
}

/// How a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Where it came from.
    pub origin: Origin,
    /// The number it has already; none takes the opening's.
    pub number: Option<Generation>,
    /// How long the server keeps it, from its opening on.
    pub expires_in: Option<Duration>,
    /// The age at which it is better replaced, if it has no state to lose: the server is known to
    /// drop sessions soon after.
    pub renew_in: Option<Duration>,
    /// How long it rested since it was opened.
    pub rested: Duration,
    /// A record told of state that died with an earlier session.
    pub lost_state: bool,
    /// It answered a call that was not repeatable before it was restored.
    pub left_state: bool,
}

impl Arrival {
    /// A session that was opened just now.
    pub const FRESH: Self = Self {
        origin: Origin::Fresh,
        number: None,
        expires_in: None,
        renew_in: None,
        rested: Duration::ZERO,
        lost_state: false,
        left_state: false,
    };
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give the caller a lease.
    Lease {
        /// Which caller.
        waiter: WaiterId,
        /// Of which session.
        generation: Generation,
        /// What the key lost last, told or not: whoever has a lease may be the first to touch what
        /// is lost, not every call can tell it, and of several runs each has to be told. None where
        /// a holder sends on a session that it had before: what it did not know then is not its own.
        loss: Option<Loss>,
    },
    /// Tell the caller that it gets none.
    Refuse {
        /// Which caller.
        waiter: WaiterId,
        /// Why.
        refusal: Refusal,
    },
    /// Open a session.
    Open {
        /// Its number.
        generation: Generation,
    },
    /// Nobody waits for this opening any more. If it has not begun, it need not, and
    /// [`Event::Withdrawn`] says so.
    Unwanted {
        /// Which.
        generation: Generation,
    },
    /// Stop this opening: there is no time to wait for it.
    Abandon {
        /// Which.
        generation: Generation,
    },
    /// The session that was just opened goes by another number.
    Renumber {
        /// The opening's.
        from: Generation,
        /// The session's.
        to: Generation,
    },
    /// Check a session, and tell.
    Check {
        /// Which.
        generation: Generation,
    },
    /// Keep a session alive, and tell.
    KeepAlive {
        /// Which.
        generation: Generation,
    },
    /// It was worth it to open this session. News, told once.
    Proven {
        /// Which.
        generation: Generation,
    },
    /// A session was opened in vain: it is over before it showed its worth. News, told once.
    InVain {
        /// Which.
        generation: Generation,
        /// When it was opened.
        opened: Tick,
    },
    /// A session was lost. News, nothing to do; what is to be closed is said apart.
    Lost {
        /// Which.
        generation: Generation,
        /// In which way.
        why: Why,
    },
    /// Close a session.
    Close {
        /// Which.
        generation: Generation,
        /// Why.
        why: Why,
    },
    /// Forget this key: nothing is there.
    Forget,
}

/// Why a caller gets no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many are in line already.
    LineFull,
    /// The opening it waited for failed.
    OpenFailed,
    /// The opening it waited for ended without a word. It may ask again: who does so first carries
    /// out the next one.
    Deserted,
    /// The key is over.
    Ended(Why),
}

/// What the shell must do, in this order.
pub type Effects = SmallVec<[Effect; 2]>;

/// How many there are of each state; always what a recount gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions being opened.
    pub opening: u32,
    /// Sessions at rest.
    pub idle: u32,
    /// Sessions in use.
    pub leased: u32,
    /// Sessions that end with their last lease.
    pub retiring: u32,
    /// Leases, those of checks included.
    pub leases: u32,
    /// Callers in line.
    pub waiting: u32,
}

impl Counts {
    pub(super) fn add(&mut self, state: &State) {
        if let Some(count) = self.of(state) {
            *count = count.saturating_add(1);
        }
        self.leases = self.leases.saturating_add(state.leases());
    }

    pub(super) fn subtract(&mut self, state: &State) {
        if let Some(count) = self.of(state) {
            *count = count.saturating_sub(1);
        }
        self.leases = self.leases.saturating_sub(state.leases());
    }

    /// Sessions in all.
    pub const fn sessions(&self) -> u32 {
        self.opening + self.idle + self.leased + self.retiring
    }

    const fn of(&mut self, state: &State) -> Option<&mut u32> {
        match state {
            State::Opening => Some(&mut self.opening),
            State::Idle => Some(&mut self.idle),
            State::Leased { .. } => Some(&mut self.leased),
            State::Retiring { .. } => Some(&mut self.retiring),
            State::Closed(_) => None,
        }
    }
}
