//! Circuit breakers: whether an opening may be tried, per server and per identity at a server.
//!
//! Only breakers with something to remember are kept. A session that was lost before it was of use
//! counts against the identity that had it: its own calls may have ended it. It counts against the
//! server too if the one before belonged to another identity.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::BreakerPolicy;
use warmline_core::pool::breaker::{
    Blame, Breaker, BreakerDecision, BreakerState, BreakerTransition, blame,
};
use warmline_core::pool_key::{ConfigRevision, CredentialId, KeyOwner, PoolKey};
use warmline_core::time::Tick;

use super::messages::rounded_seconds;
use crate::clock::{self, Instant};
use crate::lock::Mutex;

pub(super) struct Breakers {
    started: Instant,
    by_key: papaya::HashMap<Opener, Arc<Mutex<TrackedBreaker>>>,
    /// The owner of each server's last short-lived session, and when it was lost.
    last_short_lived: papaya::HashMap<Opener, (KeyOwner, Tick)>,
}

/// How long a short-lived session says something about the next one.
const SHORT_LIVED_MEMORY: Duration = Duration::from_secs(10 * 60);

/// How much of a cause is kept, in characters.
const MAX_CAUSE_CHARS: usize = 300;

/// A breaker, and the last failure that it counted.
#[derive(Default)]
struct TrackedBreaker {
    breaker: Breaker,
    last_failure: Option<Arc<Diagnostic>>,
}

/// Who opens a session, and where; without an identity, all who open sessions there. Each has its
/// breaker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Opener {
    pub(super) server: Arc<str>,
    pub(super) revision: ConfigRevision,
    pub(super) identity: Option<(KeyOwner, CredentialId)>,
}

impl Opener {
    pub(super) fn for_key(key: &PoolKey) -> Self {
        Self {
            server: Arc::clone(&key.target.server),
            revision: key.target.revision,
            identity: Some((key.owner, key.credential)),
        }
    }

    fn whole_server(&self) -> Self {
        Self {
            identity: None,
            ..self.clone()
        }
    }

    fn scope(&self) -> Blame {
        match self.identity {
            Some(_) => Blame::Identity,
            None => Blame::Server,
        }
    }

    fn breaker_keys(&self) -> [Self; 2] {
        [self.whole_server(), self.clone()]
    }
}

/// The breakers that changed, and how.
pub type BreakerTransitions = SmallVec<[(Blame, BreakerTransition); 2]>;

/// The permission to try one opening. Its holder reports the result; dropping it reports that the
/// opening was given up.
pub struct BreakerPermit {
    breakers: Arc<Breakers>,
    opener: Opener,
    policy: BreakerPolicy,
    /// The breakers for which this opening is the probe.
    probes: SmallVec<[Blame; 2]>,
}

impl Breakers {
    pub(super) fn new(started: Instant) -> Arc<Self> {
        Arc::new(Self {
            started,
            by_key: papaya::HashMap::new(),
            last_short_lived: papaya::HashMap::new(),
        })
    }

    /// How long openings pause, and after which failure, if they do.
    pub(super) fn remaining_pause(
        &self,
        opener: &Opener,
    ) -> Option<(Duration, Option<Arc<Diagnostic>>)> {
        let now = self.now();
        let pauses = opener.breaker_keys().into_iter().filter_map(|key| {
            let held = self.get(&key)?;
            let held = held.lock();
            let pause = held.breaker.remaining_pause(now)?;
            Some((pause, held.last_failure.clone()))
        });
        pauses.max_by_key(|(pause, _)| *pause)
    }

    /// The permission to open, or the error that says how long openings pause.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
        opener: Opener,
        policy: BreakerPolicy,
    ) -> Result<(BreakerPermit, BreakerTransitions), Diagnostic> {
        let now = self.now();
        let mut passing = BreakerPermit {
            breakers: Arc::clone(self),
            opener,
            policy,
            probes: SmallVec::new(),
        };
        let mut changes = BreakerTransitions::new();
        for key in passing.opener.breaker_keys() {
            let Some(breaker) = self.get(&key) else {
                continue;
            };
            let mut held = breaker.lock();
            let (decision, change) = held.breaker.try_acquire(now, &policy);
            changes.extend(change.map(|change| (key.scope(), change)));
            match decision {
                BreakerDecision::Allow => {},
                BreakerDecision::Probe => passing.probes.push(key.scope()),
                BreakerDecision::Deny(pause) => {
                    let last = held.last_failure.clone();
                    return Err(breaker_open(&passing.opener.server, pause, last.as_deref()));
                },
            }
        }
        Ok((passing, changes))
    }

    pub(super) fn record_stable(&self, opener: &Opener) -> BreakerTransitions {
        self.update_known(opener, |_, breaker| breaker.on_session_stable())
    }

    /// A session of the opener, opened at that moment, was lost before it was of use.
    pub(super) fn record_short_lived(
        &self,
        opener: &Opener,
        opened: Tick,
        policy: &BreakerPolicy,
    ) -> BreakerTransitions {
        let server = &opener.server;
        let what = format!("a session of `{server}` ended before it had answered anything");
        let cause = Arc::new(Diagnostic::new(Reason::SessionGone, what));
        let failed = |breaker: &mut Breaker, now, dice| {
            breaker.on_session_short_lived(opened, now, policy, dice)
        };
        let mut changes = self.record_failure(opener, Blame::Identity, &cause, failed);
        let Some((owner, _)) = opener.identity else {
            return changes;
        };
        let all = self.last_short_lived.pin();
        let before = all.insert(opener.whole_server(), (owner, self.now()));
        if before.is_some_and(|(before, _)| *before != owner) {
            changes.extend(self.record_failure(opener, Blame::Server, &cause, failed));
        }
        changes
    }

    /// Every breaker that blocks: its server, its scope, its state, and how long openings pause.
    pub(super) fn blocking(&self) -> Vec<(Arc<str>, Blame, BreakerState, Option<Duration>)> {
        let now = self.now();
        let all = self.by_key.pin();
        let known = all.iter().map(|(key, held)| {
            let breaker = held.lock().breaker;
            let pause = breaker.remaining_pause(now);
            (Arc::clone(&key.server), key.scope(), breaker.state(), pause)
        });
        known
            .filter(|(_, _, state, _)| *state != BreakerState::Closed)
            .collect()
    }

    pub(super) fn sweep(&self) {
        let now = self.now();
        let all = self.by_key.pin();
        all.retain(|_, breaker| !breaker.lock().breaker.is_evictable(now));
        let in_vain = self.last_short_lived.pin();
        in_vain.retain(|_, (_, last)| now.duration_since(*last) < SHORT_LIVED_MEMORY);
    }

    fn record_failure(
        &self,
        opener: &Opener,
        blamed: Blame,
        cause: &Arc<Diagnostic>,
        failed: impl Fn(&mut Breaker, Tick, u32) -> Option<BreakerTransition>,
    ) -> BreakerTransitions {
        let key = match blamed {
            Blame::Server => opener.whole_server(),
            Blame::Identity => opener.clone(),
            Blame::Nobody => return BreakerTransitions::new(),
        };
        let all = self.by_key.pin();
        let mut held = all.get_or_insert_with(key, Arc::default).lock();
        held.last_failure = Some(Arc::clone(cause));
        let change = failed(&mut held.breaker, self.now(), fastrand::u32(..));
        change.map(|change| (blamed, change)).into_iter().collect()
    }

    fn update_known(
        &self,
        opener: &Opener,
        change: impl Fn(Blame, &mut Breaker) -> Option<BreakerTransition>,
    ) -> BreakerTransitions {
        let changes = opener.breaker_keys().into_iter().filter_map(|key| {
            let held = self.get(&key)?;
            let changed = change(key.scope(), &mut held.lock().breaker)?;
            Some((key.scope(), changed))
        });
        changes.collect()
    }

    fn get(&self, key: &Opener) -> Option<Arc<Mutex<TrackedBreaker>>> {
        self.by_key.pin().get(key).cloned()
    }

    fn now(&self) -> Tick {
        Tick::from_start(clock::now().saturating_duration_since(self.started))
    }
}

impl BreakerPermit {
    pub fn succeeded(mut self) -> BreakerTransitions {
        self.probes.clear();
        let (now, policy) = (self.breakers.now(), &self.policy);
        self.breakers
            .update_known(&self.opener, |_, breaker| breaker.on_opened(now, policy))
    }

    pub fn failed(mut self, diagnostic: &Diagnostic) -> BreakerTransitions {
        let blamed = blame(diagnostic.code, diagnostic.reason);
        let (breakers, policy) = (&self.breakers, &self.policy);
        let failed = |breaker: &mut Breaker, now, dice| breaker.on_open_failed(now, policy, dice);
        let cause = Arc::new(diagnostic.clone());
        let mut changes = breakers.record_failure(&self.opener, blamed, &cause, failed);
        self.probes.retain(|probe| *probe != blamed);
        // An opener without a credential found out nothing about the server: the next one probes.
        let was_met = diagnostic.reason != Reason::CredentialUnavailable;
        if blamed == Blame::Identity && was_met && self.probes.contains(&Blame::Server) {
            // The server was there, and refused this identity.
            self.probes.clear();
            let now = breakers.now();
            let of_server = |scope, breaker: &mut Breaker| match scope {
                Blame::Server => breaker.on_opened(now, policy),
                Blame::Identity | Blame::Nobody => None,
            };
            changes.extend(breakers.update_known(&self.opener, of_server));
        }
        changes
    }
}

/// The error for a caller while openings pause. Its message holds only the reason of the last
/// failure, which every caller may read; the text of that failure is the cause.
pub(super) fn breaker_open(server: &str, pause: Duration, last: Option<&Diagnostic>) -> Diagnostic {
    let reason = last.map(|last| format!(" ({})", last.reason.as_str()));
    let message = format!(
        "`{server}` is not tried for another {} s: its last openings failed, or did not last{}",
        rounded_seconds(pause),
        reason.unwrap_or_default()
    );
    let mut diagnostic = Diagnostic::new(Reason::BreakerOpen, message);
    diagnostic.cause = last.map(|last| {
        let cause = last.cause.as_ref();
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let text = format!("{}{cause}", last.message);
        let text: String = text.chars().take(MAX_CAUSE_CHARS).collect();
        format!("the last time: {text}")
    });
    diagnostic.retry_after = Some(pause);
    diagnostic
}

impl Drop for BreakerPermit {
    fn drop(&mut self) {
        if self.probes.is_empty() {
            return;
        }
        let now = self.breakers.now();
        self.breakers.update_known(&self.opener, |blamed, breaker| {
            let ours = self.probes.contains(&blamed);
            ours.then(|| breaker.on_probe_abandoned(now)).flatten()
        });
    }
}
