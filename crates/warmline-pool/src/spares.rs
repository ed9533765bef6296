//! Spares: sessions opened ahead, until a key or a single call takes them.
//!
//! The core decides how many there are ([`SpareSet`]); here each spare has its session, and all of
//! them have common quotas. A spare belongs to no key and counts in no limit of sessions. The session
//! of a first contact lies here too, but it belongs to the caller that made the contact, and keeps
//! its permit until that caller comes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warmline_core::pool::limits::SessionLimit;
use warmline_core::pool::spares::{SpareId, SpareKey, SpareSet};
use warmline_core::pool::{EndReason, SessionOrigin};
use warmline_core::pool_key::{PoolKey, RunId, TargetKey, Transport};
use warmline_core::time::Tick;

use super::context::PoolContext;
use super::permits::SessionPermit;
use super::{Connector, PoolEventKind};
use crate::clock;
use crate::lock::Mutex;

#[path = "spares/refill.rs"]
mod refill;

const FIRST_CONTACT_CLAIM_TIMEOUT: Duration = Duration::from_millis(100);

const MAX_UNCLAIMED_FIRST_CONTACTS: usize = 64;

/// All spares of a pool, and the sessions of first contacts.
pub struct Spares<C: Connector> {
    context: Arc<PoolContext<C>>,
    by_key: Mutex<SparesTable<C>>,
    spare_quota: Arc<Semaphore>,
    first_contact_quota: Arc<Semaphore>,
}

struct SparesTable<C: Connector> {
    sets: HashMap<SpareKey, KeySpares<C>>,
    next_serial: u64,
}

struct KeySpares<C: Connector> {
    /// Tells it from a set of the same key that was removed before.
    serial: u64,
    set: SpareSet,
    sessions: Vec<(SpareId, Spare<C>)>,
    /// How spares are opened: as for the last caller.
    setup: Arc<C::Setup>,
}

pub(super) struct Spare<C: Connector> {
    pub(super) session: Arc<C::Session>,
    setup: Arc<C::Setup>,
    /// For the session of a first contact.
    pub(super) first_contact: Option<FirstContactInfo>,
    _quota_permit: Option<OwnedSemaphorePermit>,
}

/// What is known of a session that a first contact opened.
#[derive(Default)]
pub struct FirstContactInfo {
    pub took: Duration,
    /// The run that it was opened for, and ends with.
    pub run: Option<RunId>,
    /// Its permit; none if its server holds nothing per session.
    pub permit: Option<SessionPermit>,
}

#[derive(Clone, Debug)]
pub struct SpareCounts {
    pub server: Arc<str>,
    pub transport: Transport,
    pub idle: u32,
    pub opening: u32,
}

impl<C: Connector> Spares<C> {
    pub(super) fn new(context: Arc<PoolContext<C>>, max_spares: u32) -> Arc<Self> {
        let max_spares = usize::try_from(max_spares).unwrap_or(usize::MAX);
        Arc::new(Self {
            context,
            by_key: Mutex::new(SparesTable {
                sets: HashMap::new(),
                next_serial: 0,
            }),
            spare_quota: Arc::new(Semaphore::new(max_spares.min(Semaphore::MAX_PERMITS))),
            first_contact_quota: Arc::new(Semaphore::new(MAX_UNCLAIMED_FIRST_CONTACTS)),
        })
    }

    /// A caller opens a session with this key, and wants this many spares.
    pub(super) fn record_use(self: &Arc<Self>, key: &SpareKey, setup: &Arc<C::Setup>, wanted: u32) {
        let now = self.context.tick();
        {
            let mut table = self.by_key.lock();
            if wanted == 0 && !table.sets.contains_key(key) {
                return;
            }
            let spares = table.get_or_insert(key, setup, now);
            spares.set.record_use(wanted, now);
            spares.setup = Arc::clone(setup);
        }
        self.refill(key);
    }

    /// Applies a changed number of wanted spares to the setups that match.
    pub fn update_wanted(self: &Arc<Self>, matches: impl Fn(&C::Setup) -> bool) {
        for (key, setup) in self.setups() {
            if matches(&setup) {
                let wanted = self.context.connector.wanted_spares(&setup);
                if let Some(spares) = self.by_key.lock().sets.get_mut(&key) {
                    spares.set.set_wanted(wanted);
                }
                self.refill(&key);
            }
        }
    }

    /// Takes a spare, and says how long it was idle.
    pub(super) fn take_spare(self: &Arc<Self>, key: &SpareKey) -> Option<(Spare<C>, Duration)> {
        self.take_usable(key, |spares, now| {
            let (id, idle_time) = spares.set.take_spare(now)?;
            Some((spares.remove(id)?, idle_time))
        })
    }

    pub(super) fn take_first_contact(
        self: &Arc<Self>,
        key: &SpareKey,
    ) -> Option<(Spare<C>, Duration)> {
        self.take_usable(key, |spares, now| {
            spares.take_first_contact(|spare| spare.permit().is_some(), now)
        })
    }

    fn take_usable(
        self: &Arc<Self>,
        key: &SpareKey,
        take: impl Fn(&mut KeySpares<C>, Tick) -> Option<(Spare<C>, Duration)>,
    ) -> Option<(Spare<C>, Duration)> {
        loop {
            let now = self.context.tick();
            let taken = take(self.by_key.lock().sets.get_mut(key)?, now)?;
            if self.context.connector.is_usable(&taken.0.session) {
                self.refill(key);
                return Some(taken);
            }
            self.close_spare(&key.target, taken.0, EndReason::Gone);
        }
    }

    pub(super) fn has_spare(&self, key: &SpareKey) -> bool {
        let table = self.by_key.lock();
        let spares = table.sets.get(key);
        spares.is_some_and(|spares| spares.set.idle_count() > 0)
    }

    /// Keeps a session that was opened for a call and used by none, if a spare is wanted.
    pub(super) fn add_unused(
        &self,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
        session: &Arc<C::Session>,
    ) -> bool {
        let Ok(quota_permit) = Arc::clone(&self.spare_quota).try_acquire_owned() else {
            return false;
        };
        let spare = Spare {
            session: Arc::clone(session),
            setup: Arc::clone(setup),
            first_contact: None,
            _quota_permit: Some(quota_permit),
        };
        let mut table = self.by_key.lock();
        let Some(spares) = table.sets.get_mut(key).filter(|_| self.context.is_open()) else {
            return false;
        };
        let id = spares.set.add_unused(self.context.tick());
        spares.sessions.extend(id.map(|id| (id, spare)));
        id.is_some()
    }

    /// Keeps the session of a first contact for the caller that made it. Closes it if there is one
    /// already.
    pub fn add_first_contact(
        self: &Arc<Self>,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
        session: Arc<C::Session>,
        mut info: FirstContactInfo,
    ) {
        if !self.context.connector.needs_permit(&session) {
            info.permit = None;
        }
        self.report_opened(key, setup, info.took);
        let quota_permit = Arc::clone(&self.first_contact_quota).try_acquire_owned();
        let has_quota = quota_permit.is_ok();
        let spare = Spare {
            session: Arc::clone(&session),
            setup: Arc::clone(setup),
            first_contact: Some(info),
            _quota_permit: quota_permit.ok(),
        };
        let now = self.context.tick();
        let rejected = {
            let mut table = self.by_key.lock();
            if has_quota && self.context.is_open() {
                let spares = table.get_or_insert(key, setup, now);
                let id = spares.set.add_first_contact(now);
                spares.insert(id, spare)
            } else {
                Some(spare)
            }
        };
        if let Some(spare) = rejected {
            return self.close_spare(&key.target, spare, EndReason::Evicted);
        }
        // Either a waiter for a permit sees this session, or this sees the waiter.
        fence(Ordering::SeqCst);
        let table = self.by_key.lock();
        let spares = table.sets.get(key);
        if spares.is_some_and(|spares| spares.is_permit_wanted(&session)) {
            drop(table);
            self.offer_permit(session);
        }
    }

    /// Closes the session of a first contact that others wait for, unless its caller comes for it
    /// soon.
    fn offer_permit(self: &Arc<Self>, session: Arc<C::Session>) {
        let (spares, task) = (Arc::clone(self), self.context.start_task());
        clock::spawn_if_running("offer", async move {
            let by = clock::after(FIRST_CONTACT_CLAIM_TIMEOUT);
            let drain = clock::timeout_at(by, task.0.wait_for_drain());
            if drain.await.is_err() {
                let is_it = |_: &SpareKey, spare: &Spare<C>| spare.is_permit_wanted(&session);
                spares.close_first_contacts(1, EndReason::Evicted, is_it);
            }
        });
    }

    /// Closes the session of a first contact whose permit helps the claimant.
    pub(super) fn evict_first_contact(&self, claimant: &PoolKey, full: &SessionLimit) {
        fence(Ordering::SeqCst);
        self.close_first_contacts(1, EndReason::Evicted, |_, spare| {
            let permit = spare.permit();
            permit.is_some_and(|permit| permit.unblocks(claimant, full))
        });
    }

    /// Closes the sessions of first contacts of a run that ended.
    pub fn end_first_contacts_of_run(&self, run: RunId) {
        let is_of_run = |_: &SpareKey, spare: &Spare<C>| spare.is_for_run(run);
        self.close_first_contacts(usize::MAX, EndReason::RunEnded, is_of_run);
    }

    /// Closes the session of a first contact for a run that has another session.
    pub fn end_first_contact_of_key(&self, key: &SpareKey, run: RunId) {
        let is_meant = |of: &SpareKey, spare: &Spare<C>| of == key && spare.is_for_run(run);
        self.close_first_contacts(usize::MAX, EndReason::Evicted, is_meant);
    }

    fn close_first_contacts(
        &self,
        most: usize,
        reason: EndReason,
        matches: impl Fn(&SpareKey, &Spare<C>) -> bool,
    ) {
        // Usually there are none, and no lock is taken.
        if self.first_contact_quota.available_permits() == MAX_UNCLAIMED_FIRST_CONTACTS {
            return;
        }
        let now = self.context.tick();
        let mut taken = Vec::new();
        for (key, spares) in &mut self.by_key.lock().sets {
            while taken.len() < most
                && let Some((spare, _)) = spares.take_first_contact(|one| matches(key, one), now)
            {
                taken.push((key.target.clone(), spare));
            }
        }
        for (target, spare) in taken {
            self.close_spare(&target, spare, reason);
        }
    }

    /// Closes old spares, opens missing ones, and removes the keys that stay empty.
    pub(super) fn sweep(self: &Arc<Self>) {
        for (key, _) in self.setups() {
            self.refill(&key);
        }
        let now = self.context.tick();
        let is_empty = |_: &SpareKey, spares: &mut KeySpares<C>| spares.set.is_evictable(now);
        let removed: Vec<_> = self.by_key.lock().sets.extract_if(is_empty).collect();
        drop(removed);
    }

    /// Closes the spares of the keys and setups that match. Those that are still being opened for
    /// them are closed when they are open.
    pub fn clear(&self, reason: EndReason, matches: impl Fn(&SpareKey, &C::Setup) -> bool) {
        let is_meant = |key: &SpareKey, spares: &mut KeySpares<C>| matches(key, &spares.setup);
        let removed: Vec<_> = self.by_key.lock().sets.extract_if(is_meant).collect();
        for (key, spares) in removed {
            for (_, spare) in spares.sessions {
                self.close_spare(&key.target, spare, reason);
            }
        }
    }

    pub fn counts(&self) -> Vec<SpareCounts> {
        let table = self.by_key.lock();
        let count = |(key, spares): (&SpareKey, &KeySpares<C>)| SpareCounts {
            server: Arc::clone(&key.target.server),
            transport: key.target.transport,
            idle: spares.set.idle_count(),
            opening: spares.set.opening_count(),
        };
        table.sets.iter().map(count).collect()
    }

    fn setups(&self) -> Vec<(SpareKey, Arc<C::Setup>)> {
        let table = self.by_key.lock();
        let of =
            |(key, spares): (&SpareKey, &KeySpares<C>)| (key.clone(), Arc::clone(&spares.setup));
        table.sets.iter().map(of).collect()
    }

    fn close_spare(&self, target: &TargetKey, spare: Spare<C>, reason: EndReason) {
        let permit = spare.first_contact.and_then(|info| info.permit);
        self.close_session(target, spare.session, spare.setup, permit, reason);
    }

    /// Closes a session that belongs to no key, in the background. Its permit is released after it.
    pub(super) fn close_session(
        &self,
        target: &TargetKey,
        session: Arc<C::Session>,
        setup: Arc<C::Setup>,
        mut permit: Option<SessionPermit>,
        reason: EndReason,
    ) {
        if reason == EndReason::Evicted
            && let Some(permit) = &mut permit
        {
            permit.announce_release();
        }
        let closed = ClosedSpare {
            context: Arc::clone(&self.context),
            target: target.clone(),
            setup: Arc::clone(&setup),
            permit,
            reason,
        };
        self.context
            .close_session(session, setup, None, reason, closed);
    }

    /// Counts a session that was opened and belongs to no key yet.
    fn report_opened(&self, key: &SpareKey, setup: &C::Setup, took: Duration) {
        let origin = SessionOrigin::Fresh;
        let kind = PoolEventKind::Opened { origin, took };
        self.context.report_spare(setup, &key.target, kind);
    }
}

impl<C: Connector> SparesTable<C> {
    fn get_or_insert(
        &mut self,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
        now: Tick,
    ) -> &mut KeySpares<C> {
        self.sets.entry(key.clone()).or_insert_with(|| {
            self.next_serial += 1;
            KeySpares {
                serial: self.next_serial,
                set: SpareSet::new(key.target.transport, now),
                sessions: Vec::new(),
                setup: Arc::clone(setup),
            }
        })
    }
}

impl<C: Connector> KeySpares<C> {
    /// Keeps a spare under its id; returns it if it has none.
    fn insert(&mut self, id: Option<SpareId>, spare: Spare<C>) -> Option<Spare<C>> {
        let Some(id) = id else {
            return Some(spare);
        };
        self.sessions.push((id, spare));
        None
    }

    fn remove(&mut self, id: SpareId) -> Option<Spare<C>> {
        let at = self.sessions.iter().position(|(of, _)| *of == id)?;
        Some(self.sessions.swap_remove(at).1)
    }

    /// Takes the session of a first contact that matches, and says how long it was idle.
    fn take_first_contact(
        &mut self,
        matches: impl Fn(&Spare<C>) -> bool,
        now: Tick,
    ) -> Option<(Spare<C>, Duration)> {
        let is_meant =
            |(_, spare): &&(SpareId, Spare<C>)| spare.first_contact.is_some() && matches(spare);
        let id = self.sessions.iter().find(is_meant)?.0;
        let idle_time = self.set.take_by_id(id, now)?;
        Some((self.remove(id)?, idle_time))
    }

    fn is_permit_wanted(&self, session: &Arc<C::Session>) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.any(|(_, spare)| spare.is_permit_wanted(session))
    }
}

impl<C: Connector> Spare<C> {
    fn permit(&self) -> Option<&SessionPermit> {
        self.first_contact.as_ref()?.permit.as_ref()
    }

    fn is_for_run(&self, run: RunId) -> bool {
        self.first_contact.as_ref().and_then(|info| info.run) == Some(run)
    }

    /// Whether it is this session, and others wait for its permit.
    fn is_permit_wanted(&self, session: &Arc<C::Session>) -> bool {
        Arc::ptr_eq(&self.session, session) && self.permit().is_some_and(SessionPermit::is_wanted)
    }
}

/// A session of no key that is being closed. However that ends, it is reported.
struct ClosedSpare<C: Connector> {
    context: Arc<PoolContext<C>>,
    target: TargetKey,
    setup: Arc<C::Setup>,
    permit: Option<SessionPermit>,
    reason: EndReason,
}

impl<C: Connector> Drop for ClosedSpare<C> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let kind = PoolEventKind::Closed {
            generation: None,
            reason: self.reason,
        };
        self.context.report_spare(&self.setup, &self.target, kind);
    }
}
