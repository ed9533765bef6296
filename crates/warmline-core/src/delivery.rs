//! Delivery: what is known of a request that was sent, and whether it is sent again.
//!
//! Asked by: the engine, after every attempt ([`decide`]); callers, before they call again.
//! Told by: the drivers, at the place where bytes leave us.
//!
//! Exactly one of the four deliveries is true of every attempt, and it never changes afterwards.
//! When in doubt it is [`Delivery::Unknown`].
//!
//! Why one function decides: whoever sends again without asking it may run a payment twice.
//! What it never does: send again what may have run and is not known to be repeatable.
//! What bounds it: the number of attempts, the caller's deadline, the server's budget.

use std::time::Duration;

/// What is known of a request that was sent, or was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The server cannot have received a complete request.
    Unsent,
    /// The server said, in a form defined to mean "not processed", that it did not act.
    Refused,
    /// A complete, valid JSON-RPC response for this attempt arrived.
    Answered,
    /// Everything else: it may have been executed, or be running still.
    Unknown,
}

impl Delivery {
    /// The word used in logs, metrics, JSON and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Refused => "refused",
            Self::Answered => "answered",
            Self::Unknown => "unknown",
        }
    }

    /// The sentence for people and models; none for an answer, which speaks for itself.
    pub const fn sentence(self) -> Option<&'static str> {
        match self {
            Self::Unsent | Self::Refused => Some("not executed, safe to call again"),
            Self::Unknown => Some("may have been executed, check before calling again"),
            Self::Answered => None,
        }
    }

    /// Whether the request can be sent again without any risk of running twice.
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Unsent | Self::Refused)
    }
}

impl std::fmt::Display for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether a request may run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// A read, or a control that changes nothing the second time; or somebody who knows said so.
    Safe,
    /// May act; also everything we do not know.
    Unsafe,
}

/// What stood in the way of an answer, as far as sending again depends on it.
///
/// Read from a trouble by [`repeat::hurdle`](crate::repeat::hurdle).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hurdle {
    /// The session is gone, by the server's word: the call goes on a new one, at once.
    SessionGone,
    /// The same in a form that may also mean something else: it is believed once.
    SessionGoneOnce,
    /// The credential was not accepted: once more with a fresh one.
    Credential,
    /// This connection or process failed: another one, at once.
    Broken,
    /// Too busy, or not there: after a pause.
    Busy,
    /// Too many requests: after the pause the server names. Without one only what is repeatable.
    Throttled,
    /// Another try differs from this one, but a third would not differ from the second.
    Once,
    /// The same bytes would fail in the same way, or nobody waits for them any more.
    Final,
}

/// Whether something of a reply was handed to the caller: progress, a log line, a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Heard {
    /// Nothing yet.
    #[default]
    Nothing,
    /// Something, in this attempt or an earlier one.
    Something,
}

/// Whether a fresh credential can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// Its source can be asked again.
    Possible,
    /// There is none, or its source gives the same for ever.
    Pointless,
}

/// Whether the server's budget of resends has something left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purse {
    /// One more can be paid.
    Full,
    /// Nothing is left at this moment.
    Empty,
}

/// An attempt that ended, and all that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What is known of this attempt.
    pub delivery: Delivery,
    /// Whether the call may run twice.
    pub repeat: Repeat,
    /// What stood in the way; of no interest where there was an answer.
    pub hurdle: Hurdle,
    /// How long the server asked us to wait.
    pub retry_after: Option<Duration>,
    /// What the call used up before this attempt ended.
    pub so_far: SoFar,
    /// How often one call may be sent again because its session was gone.
    pub heals_allowed: u32,
    /// Whether the caller heard anything of the call.
    pub heard: Heard,
    /// Whether a fresh credential can be had.
    pub renewal: Renewal,
    /// How long it is until the caller's deadline.
    pub left: Duration,
    /// The longest pause that is waited out where a server asks for one.
    pub patience: Duration,
    /// How long the server usually takes for an answer; zero where that is not known.
    pub typical: Duration,
    /// Whether the server's budget has something left.
    pub purse: Purse,
    /// A throw of dice, evenly from all there are: pauses are spread by it.
    pub dice: u32,
}

/// What a call used up in its attempts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    resends: u32,
    heals: u32,
    renewals: u32,
    unknowns: u32,
}

impl SoFar {
    /// Notes how an attempt ended and that the call is sent again.
    pub const fn note(&mut self, ended: Delivery, first: First) {
        self.resends = self.resends.saturating_add(1);
        match first {
            First::Heal => self.heals = self.heals.saturating_add(1),
            First::RenewCredential => self.renewals = self.renewals.saturating_add(1),
            First::Nothing => {},
        }
        if matches!(ended, Delivery::Unknown) {
            self.unknowns = self.unknowns.saturating_add(1);
        }
    }

    /// How many attempts there were, the one under way included.
    pub const fn attempts(&self) -> u32 {
        self.resends.saturating_add(1)
    }

    /// What is known of the whole call when this is known of its last attempt: an earlier one may
    /// have been executed although the last one was not.
    pub const fn delivery(&self, last: Delivery) -> Delivery {
        match last {
            Delivery::Unsent | Delivery::Refused if self.unknowns > 0 => Delivery::Unknown,
            Delivery::Unsent | Delivery::Refused | Delivery::Answered | Delivery::Unknown => last,
        }
    }
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is an answer.
    Done,
    /// Send the call again.
    SendAgain {
        /// What has to be done before.
        first: First,
        /// How long to wait before.
        pause: Duration,
        /// Whether the server's budget pays for it.
        cost: Cost,
    },
    /// Tell the caller.
    Surface,
}

/// What has to be done before a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum First {
    /// Nothing.
    Nothing,
    /// Replace the session.
    Heal,
    /// Ask for a fresh credential.
    RenewCredential,
}

/// Whether a resend is paid from the server's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// One repair serves any number of calls, and what certainly never arrived costs a server
    /// nothing.
    Free,
    /// One.
    One,
}

/// Most resends of one call, unless more heals are allowed.
const MOST_RESENDS: u32 = 2;
/// The first pause is at most this long; each further one may be twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// No pause of our own is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Decides whether a call is sent again after an attempt that ended.
pub fn decide(attempt: &Attempt) -> Next {
    match (attempt.delivery, attempt.repeat, attempt.heard) {
        (Delivery::Answered, _, _) => Next::Done,
        // Certainly not executed: nothing of this attempt can have reached the caller either.
        (Delivery::Unsent | Delivery::Refused, _, _) => again(attempt),
        (Delivery::Unknown, Repeat::Safe, Heard::Nothing) => again(attempt),
        (Delivery::Unknown, Repeat::Safe, Heard::Something)
        | (Delivery::Unknown, Repeat::Unsafe, _) => Next::Surface,
    }
}

/// What is sent again if it may be: does another try promise more than this one?
fn again(attempt: &Attempt) -> Next {
    let Some((first, pause)) = promising(attempt) else {
        return Next::Surface;
    };
    let cost = cost(attempt, first);
    let fits = attempt.left > Duration::ZERO
        && pause <= attempt.patience.max(LONGEST_PAUSE)
        && pause.saturating_add(attempt.typical) <= attempt.left;
    let payable = cost == Cost::Free || attempt.purse == Purse::Full;
    if fits && payable && may_go_on(attempt, first) {
        Next::SendAgain { first, pause, cost }
    } else {
        Next::Surface
    }
}

/// What to do first and how long to wait, by what stood in the way.
fn promising(attempt: &Attempt) -> Option<(First, Duration)> {
    let so_far = &attempt.so_far;
    let pause = || {
        attempt
            .retry_after
            .unwrap_or_default()
            .max(back_off(attempt))
    };
    match attempt.hurdle {
        Hurdle::SessionGone if so_far.heals < attempt.heals_allowed => {
            Some((First::Heal, Duration::ZERO))
        },
        Hurdle::SessionGoneOnce if so_far.heals < attempt.heals_allowed.min(1) => {
            Some((First::Heal, Duration::ZERO))
        },
        Hurdle::Credential if attempt.renewal == Renewal::Possible && so_far.renewals == 0 => {
            Some((First::RenewCredential, Duration::ZERO))
        },
        Hurdle::Broken => Some((First::Nothing, Duration::ZERO)),
        Hurdle::Busy => Some((First::Nothing, pause())),
        // To say "too many" is a refusal by custom, not by the letter of the standard. A server
        // that names a pause means it.
        Hurdle::Throttled if attempt.retry_after.is_some() || attempt.repeat == Repeat::Safe => {
            Some((First::Nothing, pause()))
        },
        Hurdle::Once if so_far.resends == 0 => Some((First::Nothing, Duration::ZERO)),
        Hurdle::SessionGone
        | Hurdle::SessionGoneOnce
        | Hurdle::Credential
        | Hurdle::Throttled
        | Hurdle::Once
        | Hurdle::Final => None,
    }
}

/// Whether the call has attempts left. After one that may have been executed there is one more;
/// if that one was not even looked at because the session was gone, it may go to the new one.
const fn may_go_on(attempt: &Attempt, first: First) -> bool {
    let so_far = &attempt.so_far;
    let most = if attempt.heals_allowed > MOST_RESENDS {
        attempt.heals_allowed
    } else {
        MOST_RESENDS
    };
    let is_repair = matches!(first, First::Heal) && attempt.delivery.is_safe();
    so_far.resends < most && (so_far.unknowns == 0 || is_repair)
}

const fn cost(attempt: &Attempt, first: First) -> Cost {
    match (first, attempt.hurdle, attempt.delivery) {
        (First::Heal | First::RenewCredential, _, _) => Cost::Free,
        (First::Nothing, Hurdle::Broken, Delivery::Unsent) => Cost::Free,
        (First::Nothing, _, _) => Cost::One,
    }
}

/// Somewhere between nothing and a limit that doubles with each resend: callers that failed
/// together do not come back together.
fn back_off(attempt: &Attempt) -> Duration {
    let doubled = 1_u32
        .checked_shl(attempt.so_far.resends)
        .unwrap_or(u32::MAX);
    let longest = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
    let nanos = longest.as_nanos() * u128::from(attempt.dice) / u128::from(u32::MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
