//! Terms: what callers are let in by and held to. All of it is replaced together, so that nobody
//! is let in by one configuration and held to another.
//!
//! Asked by: the door and the faces, at every request; streams that stay open, when something
//! changed. Told by: [`Gateway`](crate::Gateway), when its configuration was read again.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use http::request::Parts;
use tokio::sync::watch;
use warmline::{Warmline, clock};

use crate::door::Resource;
use crate::hosts::Hosts;
use crate::rules::Rules;
use crate::which::RunFrom;
use crate::who::{Auth, Doorman, Effort, Peer, Subject, TurnedAway};
use crate::{Options, Shared, door};

/// So often it is looked whether tokens were taken away from somebody whose stream is open.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The clock of the machine may be set: nobody sleeps longer than this towards a time of it.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// What callers are let in by and held to.
#[derive(Clone)]
pub(crate) struct Terms {
    doorman: Arc<Doorman>,
    /// Who has to let in as well, while one configuration follows another.
    doorman_before: Option<Arc<Doorman>>,
    pub(crate) rules: Rules,
    /// Servers that were taken away, and whose rules count for as long as live runs have them.
    removed: Vec<String>,
    pub(crate) resource: Option<Resource>,
    pub(crate) run_from: Vec<RunFrom>,
    pub(crate) hosts: Hosts,
    /// The largest request that is taken, in bytes.
    pub(crate) max_request: usize,
}

impl Terms {
    /// Those of these options, at this address. What is remembered of callers who are let in as
    /// before stays.
    fn of(options: &Options, address: SocketAddr, warm: &Warmline, before: Option<&Self>) -> Self {
        let doorman = before.map(|before| &*before.doorman);
        let doorman = Doorman::new(options.auth.clone(), warm.clone(), doorman);
        let told = options.resource.as_ref().map(|told| told.url.as_str());
        let hosts = Hosts::of(address, &options.hosts, &options.origins).and_of(told);
        Self {
            doorman: Arc::new(doorman),
            doorman_before: None,
            rules: options.rules.clone(),
            removed: Vec::new(),
            resource: options.resource.clone(),
            run_from: options.run_from.clone(),
            hosts,
            max_request: options.max_request,
        }
    }

    /// The same for somebody who must be let in by others as well, and held to theirs.
    fn and(&self, before: &Self) -> Self {
        Self {
            doorman_before: Some(Arc::clone(&before.doorman)),
            rules: self.rules.and(&before.rules),
            ..self.clone()
        }
    }

    /// The same with the rules from before of servers that are gone, and that live runs still have.
    fn holding_to(mut self, before: &Self, warm: &Warmline) -> Self {
        let declared = warm.servers();
        let is_left = |name: &str| {
            !declared.iter().any(|declared| declared == name) && warm.still_serves_removed(name)
        };
        self.removed = self.rules.take_over(&before.rules, is_left);
        self
    }

    /// The same without the rules of servers that nobody has any more; none where all stay.
    fn let_go(&self, warm: &Warmline) -> Option<Self> {
        let is_left = |name: &&String| warm.still_serves_removed(name);
        let (left, gone): (Vec<_>, Vec<_>) = self.removed.iter().partition(is_left);
        if gone.is_empty() {
            return None;
        }
        Some(Self {
            rules: self.rules.without(&gone),
            removed: left.into_iter().cloned().collect(),
            ..self.clone()
        })
    }

    /// Who it is that sends this, as [`Doorman::identify`] says.
    pub(crate) async fn identify(
        &self,
        head: &Parts,
        peer: Peer,
        effort: Effort,
    ) -> Result<Subject, TurnedAway> {
        if let Some(before) = &self.doorman_before {
            before.identify(head, peer, effort).await?;
        }
        self.doorman.identify(head, peer, effort).await
    }

    /// Whether tokens or keys were made or taken away since this was last asked.
    fn has_changed(&self) -> bool {
        self.doorman.has_changed()
    }

    /// Whether a token could let anybody in.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.doorman.takes_tokens()
    }

    /// Whether somebody who was let in would be still.
    fn still_lets_in(&self, subject: &Subject) -> bool {
        // Between two configurations streams of both go on: which of them ends is said afterwards.
        let before = self.doorman_before.iter();
        let mut all = before.chain([&self.doorman]);
        all.any(|doorman| doorman.still_lets_in(subject))
    }
}

/// The terms that count now.
pub(crate) struct Current {
    terms: ArcSwap<Terms>,
    changed: watch::Sender<()>,
}

impl Current {
    pub(crate) fn new(options: &Options, address: SocketAddr, warm: &Warmline) -> Self {
        Self {
            terms: ArcSwap::from_pointee(Terms::of(options, address, warm, None)),
            changed: watch::Sender::new(()),
        }
    }

    /// Those that count at this moment.
    pub(crate) fn load(&self) -> Guard<Arc<Terms>> {
        self.terms.load()
    }

    /// The same, for longer than a moment.
    pub(crate) fn hold(&self) -> Arc<Terms> {
        self.terms.load_full()
    }

    /// Hears from now on that others count.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Others count from the next request on, and something is done `meanwhile` that belongs to
    /// them, such as to declare the servers they are about. Until it is done, both count: what
    /// comes or goes with it is never there for somebody whom either keeps out. Where it fails,
    /// nothing has changed.
    pub(crate) fn replace<T, E>(
        &self,
        options: &Options,
        address: SocketAddr,
        warm: &Warmline,
        meanwhile: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = self.hold();
        let terms = Terms::of(options, address, warm, Some(&before));
        self.terms.store(Arc::new(terms.and(&before)));
        let done = meanwhile();
        let counts = match &done {
            Ok(_) => Arc::new(terms.holding_to(&before, warm)),
            Err(_) => before,
        };
        counts.doorman.doubt_keys();
        self.terms.store(counts);
        self.changed.send_replace(());
        done
    }

    /// Callers are let in otherwise; the rest stays.
    pub(crate) fn let_in_by(&self, auth: Auth, warm: &Warmline) {
        let before = self.hold();
        self.terms.store(Arc::new(Terms {
            doorman: Arc::new(Doorman::new(auth, warm.clone(), Some(&before.doorman))),
            ..Terms::clone(&before)
        }));
        self.changed.send_replace(());
    }

    /// Lets go of rules of servers that were taken away, once no run has them any more.
    fn let_go(&self, warm: &Warmline) {
        if self.load().let_go(warm).is_some() {
            self.terms.rcu(|now| match now.let_go(warm) {
                Some(fewer) => Arc::new(fewer),
                None => Arc::clone(now),
            });
        }
    }
}

/// Looks whether tokens or keys were taken away, until told to stop. Requests look for themselves;
/// this is for those who make none, and so that none has to wait for keys that grew old. It waits
/// for nothing itself: whose token was taken away is not kept here by the keys of others.
pub(crate) async fn look_after(shared: Weak<Shared>, mut stopping: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = clock::sleep(LOOK_EVERY) => {},
            () = door::stopped(&mut stopping) => return,
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let current = &shared.terms;
        current.let_go(&shared.warm);
        if current.load().has_changed() {
            current.changed.send_replace(());
        }
    }
}

/// Whether somebody may use a server now: their rules let them, it is there, and it is not switched
/// off.
pub(crate) fn may_use(shared: &Shared, subject: &Subject, server: &str) -> bool {
    let is_theirs = shared.terms.load().rules.may_use(subject, server);
    is_theirs && shared.warm.check_server(server).is_ok()
}

/// Ends when somebody is not let in any more, or not to one of these servers: what they showed was
/// taken away, or is over, or other rules count, or the server is switched off or gone.
pub(crate) async fn turned_out(shared: Arc<Shared>, subject: Subject, servers: Vec<String>) {
    let mut changed = shared.terms.changed.subscribe();
    let mut declarations = shared.warm.declarations();
    loop {
        let mut all = servers.iter();
        let may_stay = all.all(|server| may_use(&shared, &subject, server));
        if !may_stay || !shared.terms.load().still_lets_in(&subject) {
            return;
        }
        let left = subject.left().map(|left| left.min(LONGEST_SLEEP));
        // Nobody tells when live runs lose one that was taken away.
        let mut all = servers.iter();
        let goes = all.any(|server| shared.warm.still_serves_removed(server));
        let next_look = left.into_iter().chain(goes.then_some(LOOK_EVERY)).min();
        let over = async {
            match next_look {
                Some(next_look) => clock::sleep(next_look).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = declarations.changed() => {},
            told = changed.changed() => {
                if told.is_err() {
                    return;
                }
            },
            () = over => {},
        }
    }
}

#[cfg(test)]
mod tests;
