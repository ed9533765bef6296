//! Breakers: whether an opening may be tried, for each server and for each who asks there.
//!
//! Asked by: openings.  Told by: how they ended, and what the sessions were worth. Only breakers that
//! have something to remember are kept.
//!
//! A session that was opened in vain speaks against whoever had it: its own calls may have ended it.
//! It speaks against the server too where the one before was somebody else's.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::{CredentialId, Key, Owner, Revision};
use warmline_core::policy::BreakerPolicy;
use warmline_core::pool::breaker::{Blame, Breaker, Change, Pass, Stance, blame};
use warmline_core::tick::Tick;

use super::wording;
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// All breakers of an engine.
pub(super) struct Breakers {
    started: Instant,
    all: papaya::HashMap<Scope, Arc<Mutex<Held>>>,
    /// Whose session was the last that was opened in vain, and when, for each server.
    in_vain: papaya::HashMap<(Arc<str>, Revision), (Owner, Tick)>,
}

/// A session that was opened in vain this long ago says nothing of the next.
const SAYS_NOTHING_AFTER: Duration = Duration::from_secs(10 * 60);

/// A breaker, and what last spoke against whom it is for.
#[derive(Default)]
struct Held {
    breaker: Breaker,
    last: Option<Cause>,
}

/// Why an opening failed, to be told to whoever comes while openings pause.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// A word that may be told to everybody.
    pub(super) reason: Reason,
    /// The same as whoever opened was told it.
    pub(super) words: Arc<str>,
}

impl Cause {
    fn of(trouble: &Trouble) -> Self {
        let words = match &trouble.why {
            Some(why) => format!("{}: {why}", trouble.what),
            None => trouble.what.clone(),
        };
        Self {
            reason: trouble.reason,
            words: words.chars().take(LONGEST_CAUSE).collect::<String>().into(),
        }
    }
}

/// How much of a cause is kept, in characters.
const LONGEST_CAUSE: usize = 300;

/// What a breaker speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Server(Arc<str>, Revision),
    Identity(Arc<str>, Revision, Owner, CredentialId),
}

/// Who opens a session, and where.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    pub(crate) server: Arc<str>,
    pub(crate) revision: Revision,
    pub(crate) owner: Owner,
    pub(crate) credential: CredentialId,
}

impl Opener {
    pub(super) fn of(key: &Key) -> Self {
        Self {
            server: Arc::clone(&key.place().server),
            revision: key.place().revision,
            owner: key.owner(),
            credential: key.credential(),
        }
    }

    fn scopes(&self) -> [(Blame, Scope); 2] {
        let (server, revision) = (&self.server, self.revision);
        let identity = Scope::Identity(Arc::clone(server), revision, self.owner, self.credential);
        let server = Scope::Server(Arc::clone(server), revision);
        [(Blame::Server, server), (Blame::Identity, identity)]
    }
}

/// How breakers changed: whose, and to what.
pub(crate) type Changes = SmallVec<[(Blame, Change); 2]>;

/// The permission to try one opening. Whoever has it tells how the opening ended; dropping it
/// says that nothing was found out.
pub(crate) struct Passing {
    breakers: Arc<Breakers>,
    opener: Opener,
    policy: BreakerPolicy,
    /// Where this opening is the one that is tried for all.
    probes: SmallVec<[Blame; 2]>,
}

impl Breakers {
    pub(super) fn new(started: Instant) -> Arc<Self> {
        Arc::new(Self {
            started,
            all: papaya::HashMap::new(),
            in_vain: papaya::HashMap::new(),
        })
    }

    /// How long nothing may be tried and why, if so.
    pub(super) fn pause(&self, opener: &Opener) -> Option<(Duration, Option<Cause>)> {
        let now = self.now();
        let pauses = opener.scopes().into_iter().filter_map(|(_, scope)| {
            let held = self.known(&scope)?;
            let held = held.lock();
            let pause = held.breaker.pause(now)?;
            Some((pause, held.last.clone()))
        });
        pauses.max_by_key(|(pause, _)| *pause)
    }

    /// The permission to open, or how long there is none.
    pub(super) fn pass(
        self: &Arc<Self>,
        opener: Opener,
        policy: BreakerPolicy,
    ) -> Result<(Passing, Changes), Trouble> {
        let now = self.now();
        let mut passing = Passing {
            breakers: Arc::clone(self),
            opener,
            policy,
            probes: SmallVec::new(),
        };
        let mut changes = Changes::new();
        for (whose, scope) in passing.opener.scopes() {
            let Some(breaker) = self.known(&scope) else {
                continue;
            };
            let (pass, change) = breaker.lock().breaker.ask(now, &policy);
            changes.extend(change.map(|change| (whose, change)));
            match pass {
                Pass::Free => {},
                Pass::Probe => passing.probes.push(whose),
                Pass::Not(pause) => {
                    let last = breaker.lock().last.clone();
                    let server = &passing.opener.server;
                    return Err(wording::breaker_open(server, pause, last.as_ref()));
                },
            }
        }
        Ok((passing, changes))
    }

    /// It was worth it to open a session of theirs.
    pub(super) fn proven(&self, opener: &Opener) -> Changes {
        self.each_known(opener, |_, breaker| breaker.proven())
    }

    /// A session of theirs that was opened then was opened in vain.
    pub(super) fn in_vain(&self, opener: &Opener, opened: Tick, policy: &BreakerPolicy) -> Changes {
        let cause = Cause::of(&wording::in_vain(&opener.server));
        let failed = |breaker: &mut Breaker, now, dice| breaker.in_vain(opened, now, policy, dice);
        let mut changes = self.blamed(opener, (Blame::Identity, &cause), failed);
        let server = (Arc::clone(&opener.server), opener.revision);
        let last = (opener.owner, self.now());
        let all = self.in_vain.pin();
        let before = all.get(&server).map(|(owner, _)| *owner);
        all.insert(server, last);
        if before.is_some_and(|owner| owner != opener.owner) {
            changes.extend(self.blamed(opener, (Blame::Server, &cause), failed));
        }
        changes
    }

    /// Every breaker that does not pass: whose it is, whom it stops, and what it does.
    pub(super) fn blocking(&self) -> Vec<(Arc<str>, Blame, Stance)> {
        let all = self.all.pin();
        let known = all.iter().map(|(scope, breaker)| {
            let (server, whom) = match scope {
                Scope::Server(server, _) => (server, Blame::Server),
                Scope::Identity(server, ..) => (server, Blame::Identity),
            };
            (Arc::clone(server), whom, breaker.lock().breaker.stance())
        });
        known
            .filter(|(_, _, stance)| *stance != Stance::Passing)
            .collect()
    }

    /// How long openings to each server pause for everybody.
    pub(super) fn pauses(&self) -> Vec<(Arc<str>, Duration)> {
        let now = self.now();
        let all = self.all.pin();
        let known = all.iter().filter_map(|(scope, breaker)| match scope {
            Scope::Server(server, _) => {
                let pause = breaker.lock().breaker.pause(now)?;
                Some((Arc::clone(server), pause))
            },
            Scope::Identity(..) => None,
        });
        known.collect()
    }

    /// Forgets what need not be remembered.
    pub(super) fn sweep(&self) {
        let now = self.now();
        let all = self.all.pin();
        all.retain(|_, breaker| !breaker.lock().breaker.is_forgettable(now));
        let in_vain = self.in_vain.pin();
        in_vain.retain(|_, (_, last)| now.since(*last) < SAYS_NOTHING_AFTER);
    }

    fn blamed(
        &self,
        opener: &Opener,
        (whom, cause): (Blame, &Cause),
        failed: impl Fn(&mut Breaker, Tick, u32) -> Option<Change>,
    ) -> Changes {
        let now = self.now();
        let mut changes = Changes::new();
        for (whose, scope) in opener.scopes() {
            if whose == whom {
                let all = self.all.pin();
                let mut held = all.get_or_insert_with(scope, Arc::default).lock();
                held.last = Some(cause.clone());
                let change = failed(&mut held.breaker, now, fastrand::u32(..));
                changes.extend(change.map(|change| (whose, change)));
            }
        }
        changes
    }

    fn each_known(
        &self,
        opener: &Opener,
        change: impl Fn(Blame, &mut Breaker) -> Option<Change>,
    ) -> Changes {
        let mut changes = Changes::new();
        for (whose, scope) in opener.scopes() {
            if let Some(breaker) = self.known(&scope) {
                let changed = change(whose, &mut breaker.lock().breaker);
                changes.extend(changed.map(|change| (whose, change)));
            }
        }
        changes
    }

    fn known(&self, scope: &Scope) -> Option<Arc<Mutex<Held>>> {
        self.all.pin().get(scope).cloned()
    }

    fn now(&self) -> Tick {
        Tick::at(clock::now().saturating_duration_since(self.started))
    }
}

impl Passing {
    /// The opening succeeded.
    pub(crate) fn succeeded(mut self) -> Changes {
        self.probes.clear();
        let (now, policy) = (self.breakers.now(), &self.policy);
        self.breakers
            .each_known(&self.opener, |_, breaker| breaker.opened(now, policy))
    }

    /// The opening failed.
    pub(crate) fn failed(mut self, trouble: &Trouble) -> Changes {
        let whom = blame(trouble.code, trouble.reason);
        let cause = Cause::of(trouble);
        let policy = &self.policy;
        let failed = |breaker: &mut Breaker, now, dice| breaker.failed(now, policy, dice);
        let mut changes = self.breakers.blamed(&self.opener, (whom, &cause), failed);
        self.probes.retain(|whose| *whose != whom);
        // Whoever had nothing to show was turned away by nobody: the next one finds out for all.
        let was_met = trouble.reason != Reason::CredentialUnavailable;
        if whom == Blame::Identity && was_met && self.probes.contains(&Blame::Server) {
            // The server was there, and turned this one away.
            self.probes.clear();
            let (now, policy) = (self.breakers.now(), &self.policy);
            let server = |whose: Blame, breaker: &mut Breaker| match whose {
                Blame::Server => breaker.opened(now, policy),
                Blame::Identity | Blame::Nobody => None,
            };
            changes.extend(self.breakers.each_known(&self.opener, server));
        }
        changes
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if self.probes.is_empty() {
            return;
        }
        let now = self.breakers.now();
        self.breakers.each_known(&self.opener, |whose, breaker| {
            let ours = self.probes.contains(&whose);
            ours.then(|| breaker.gave_up(now)).flatten()
        });
    }
}
