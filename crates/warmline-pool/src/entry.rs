//! The entry of one key: the core's state under its lock, with the sessions, the queued callers and
//! the openings that it refers to.
//!
//! Under the lock the core decides and its effects are gathered; they are carried out afterwards
//! (`entry/effects.rs`). No foreign code runs under the lock: no connector, no waker, no other lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::spares::SpareKey;
use warmline_core::pool::{
    EndReason, EntryPolicy, EntryState, Event, Generation, LeaseMode, LeaseRefusal, QueuePosition,
    SessionCounts, StateLoss, WaiterId,
};
use warmline_core::pool_key::PoolKey;
use warmline_core::time::Tick;

use super::breakers::Opener;
use super::context::PoolContext;
use super::permits::SessionPermit;
use super::{AcquireKind, Connector};
use crate::clock::RuntimeHandle;
use crate::lock::Mutex;

#[path = "entry/effects.rs"]
mod effects;
#[path = "entry/lease.rs"]
mod lease;
#[path = "entry/opening.rs"]
mod opening;
#[path = "entry/table.rs"]
mod table;
#[path = "entry/waiter.rs"]
mod waiter;

use effects::{PendingAction, PendingActions};
use opening::{PermitSender, ReplacedSession};

pub use lease::Lease;
pub(super) use table::EntryTable;
use table::ServerEntries;
pub use waiter::LeaseDeadlines;
pub(super) use waiter::LeaseWaiter;

/// One key of the pool, with its sessions.
pub struct PoolEntry<C: Connector> {
    pub(super) context: Arc<PoolContext<C>>,
    pub key: Arc<PoolKey>,
    /// False for the entry of a single call: it is in no table of keys, and its one session serves one
    /// call.
    pub(super) is_pooled: bool,
    pub setup: Arc<C::Setup>,
    pub number: u64,
    server_entries: Arc<ServerEntries<C>>,
    inner: Mutex<PoolEntryInner<C>>,
}

pub(super) struct PoolEntryInner<C: Connector> {
    pub(super) core: EntryState,
    slots: SmallVec<[SessionSlot<C>; 1]>,
    /// None while nothing happens: most entries are idle most of the time, and there may be many.
    activity: Option<Box<EntryActivity<C>>>,
    closing: u32,
    /// Wraps around: no two waiters of one queue are four billion apart.
    next_waiter: u32,
    seen_server_loss: u64,
}

struct EntryActivity<C: Connector> {
    waiters: BTreeMap<WaiterId, LeaseSender<C>>,
    openings: Vec<OpeningHandle>,
    to_replace: Option<ReplacedSession<C>>,
    /// Where the permit of a lost session goes once it is closed. Only its replacement waits for it.
    permit_sender: Option<(Generation, PermitSender)>,
    end_watchers: Vec<oneshot::Sender<()>>,
}

type LeaseResult<C> = Result<Lease<C>, LeaseFailure>;
type LeaseSender<C> = oneshot::Sender<LeaseResult<C>>;

pub(super) enum LeaseFailure {
    Diagnostic(Arc<Diagnostic>),
    /// The opening was abandoned. The caller asks again, and then opens a session itself.
    Requeue,
}

struct SessionSlot<C: Connector> {
    generation: Generation,
    session: Arc<C::Session>,
    permit: Option<SessionPermit>,
}

struct OpeningHandle {
    generation: Generation,
    stage: OpeningStage,
    runtime: Option<RuntimeHandle>,
    /// Dropping it stops the opening.
    _stop: oneshot::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpeningStage {
    WaitingForPermit,
    Connecting,
}

pub struct SessionSnapshot<C: Connector> {
    pub generation: Generation,
    pub session: Arc<C::Session>,
    pub opened_at: Tick,
    pub last_used: Tick,
    pub expires_at: Option<Tick>,
    pub leases: u32,
    pub is_usable: bool,
}

pub(super) enum LeaseDecision<C: Connector> {
    Granted(Lease<C>),
    Queued(LeaseWaiter<C>),
    Refused(LeaseRefusal),
}

impl<C: Connector> PoolEntry<C> {
    pub(super) fn new(
        context: &Arc<PoolContext<C>>,
        table: &Arc<EntryTable<C>>,
        key: Arc<PoolKey>,
        is_pooled: bool,
        (policy, setup): (EntryPolicy, Arc<C::Setup>),
    ) -> Arc<Self> {
        let number = context.next_entry_number.fetch_add(1, Ordering::Relaxed);
        let server_entries = table.server_entries(&key);
        Arc::new(Self {
            context: Arc::clone(context),
            key,
            is_pooled,
            setup,
            number,
            inner: Mutex::new(PoolEntryInner {
                core: EntryState::new(policy, number, context.tick()),
                slots: SmallVec::new(),
                activity: None,
                closing: 0,
                next_waiter: 0,
                seen_server_loss: server_entries.last_loss.load(Ordering::Relaxed),
            }),
            server_entries,
        })
    }

    pub fn reconfigure(self: &Arc<Self>, policy: EntryPolicy) {
        self.dispatch(Event::Reconfigured(policy));
    }

    pub fn sessions(&self) -> Vec<SessionSnapshot<C>> {
        let inner = self.inner.lock();
        let snapshot = |slot: &SessionSlot<C>| {
            let mut sessions = inner.core.sessions().iter();
            let core = sessions.find(|one| one.generation == slot.generation)?;
            Some(SessionSnapshot {
                generation: slot.generation,
                session: Arc::clone(&slot.session),
                opened_at: core.opened_at,
                last_used: core.last_used,
                expires_at: core.expires_at(),
                leases: core.state.active_senders(),
                is_usable: core.state.is_usable(),
            })
        };
        inner.slots.iter().filter_map(snapshot).collect()
    }

    pub fn is_live(&self) -> bool {
        self.inner.lock().core.is_live()
    }

    pub fn end_reason(&self) -> Option<EndReason> {
        self.inner.lock().core.end_reason()
    }

    /// The last loss of state, reported or not.
    pub fn last_loss(&self) -> Option<StateLoss> {
        self.inner.lock().core.last_loss()
    }

    /// Its sessions by state, the sessions being closed, and the events that made no sense.
    pub fn counts(&self) -> (SessionCounts, u32, u32) {
        let inner = self.inner.lock();
        let counts = inner.core.recount();
        (counts, inner.closing, inner.core.invalid_events())
    }

    /// Its key in events; none for a single call.
    fn pooled_key(&self) -> Option<&PoolKey> {
        self.is_pooled.then_some(&*self.key)
    }

    pub(super) fn server(&self) -> &str {
        &self.key.target.server
    }

    pub(super) fn connector(&self) -> &Arc<C> {
        &self.context.connector
    }

    /// The table of its pool. None once the last handle of the pool is dropped.
    fn table(&self) -> Option<Arc<EntryTable<C>>> {
        self.server_entries.table.upgrade()
    }

    pub(super) fn policy(&self) -> EntryPolicy {
        *self.inner.lock().core.policy()
    }

    fn server_max(&self) -> Option<u32> {
        self.connector().max_sessions(&self.setup)
    }

    fn opener(&self) -> Opener {
        Opener::for_key(&self.key)
    }

    fn spare_key(&self) -> SpareKey {
        let profile = self.connector().client_profile_id(&self.setup);
        SpareKey::for_key(&self.key, profile)
    }

    fn eviction_candidate(&self) -> Option<(Generation, Tick)> {
        let inner = self.inner.lock();
        let (generation, used) = inner.core.eviction_candidate()?;
        let mut slots = inner.slots.iter();
        let slot = slots.find(|slot| slot.generation == generation)?;
        slot.permit.as_ref().map(|_| (generation, used))
    }

    /// Applies an event, and does what follows.
    pub(super) fn dispatch(self: &Arc<Self>, event: Event) {
        self.with_inner(|inner, actions| inner.apply_event(self, event, actions));
    }

    pub(super) fn request_lease(
        self: &Arc<Self>,
        mode: LeaseMode,
        position: QueuePosition,
    ) -> LeaseDecision<C> {
        self.with_inner(|inner, actions| {
            inner.check_server_loss(self, actions);
            let waiter = inner.allocate_waiter_id();
            let openings = inner.openings().len();
            let event = Event::LeaseRequested {
                waiter,
                mode,
                position,
            };
            inner.apply_event(self, event, actions);
            match actions.take_caller_action() {
                Some(PendingAction::Grant(_, lease)) => LeaseDecision::Granted(lease),
                Some(PendingAction::Refuse(_, refusal)) => LeaseDecision::Refused(refusal),
                Some(_) | None => {
                    let (sender, receiver) = oneshot::channel();
                    inner.activity_mut().waiters.insert(waiter, sender);
                    // Later callers wait for the same opening.
                    let opens = inner.openings().len() > openings;
                    LeaseDecision::Queued(LeaseWaiter {
                        entry: Arc::clone(self),
                        waiter,
                        receiver,
                        kind: if opens {
                            AcquireKind::Miss
                        } else {
                            AcquireKind::Waited
                        },
                    })
                },
            }
        })
    }

    /// The holder of an exclusive lease sends a call.
    fn lease_held_session(self: &Arc<Self>, generation: Generation) -> Option<Lease<C>> {
        self.with_inner(|inner, actions| {
            let waiter = inner.allocate_waiter_id();
            let event = Event::HolderCallStarted(waiter, generation);
            inner.apply_event(self, event, actions);
            let PendingAction::Grant(_, lease) = actions.take_caller_action()? else {
                return None;
            };
            Some(lease)
        })
    }

    /// A caller reports a loss; false if another caller did before.
    fn mark_loss_reported(self: &Arc<Self>, loss: StateLoss) -> bool {
        let number = loss.number;
        self.with_inner(|inner, actions| {
            // This may be a later loss, which stays unreported: better twice than never.
            let is_unreported = inner.core.unreported_loss().is_some();
            inner.apply_event(self, Event::LossReported(number), actions);
            is_unreported
        })
    }

    /// Runs `act` under the lock, and the actions that follow after it.
    pub(super) fn with_inner<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut PoolEntryInner<C>, &mut PendingActions<C>) -> T,
    ) -> T {
        let mut actions = PendingActions {
            now: self.context.tick(),
            all: SmallVec::new(),
            diagnostic: None,
        };
        let (done, became_idle) = {
            let mut inner = self.inner.lock();
            let idle = inner.core.counts().idle;
            let done = act(&mut inner, &mut actions);
            inner.finish_if_over(&mut actions);
            inner.drop_idle_activity();
            (done, inner.core.counts().idle > idle)
        };
        if !actions.all.is_empty() {
            self.run_actions(actions);
        }
        if became_idle
            && self.context.permits.is_wanted(&self.key)
            && let Some((generation, _)) = self.eviction_candidate()
        {
            self.dispatch(Event::PermitNeeded(generation));
        }
        done
    }

    /// Resolves when nothing is left of an entry that ended; none if that is so already.
    pub(super) fn watch_end(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        self.with_inner(|inner, _| {
            if inner.is_finished() {
                return None;
            }
            let (watcher, watched) = oneshot::channel();
            inner.activity_mut().end_watchers.push(watcher);
            Some(watched)
        })
    }
}

impl<C: Connector> PoolEntryInner<C> {
    fn allocate_waiter_id(&mut self) -> WaiterId {
        let waiter = WaiterId(self.next_waiter.into());
        self.next_waiter = self.next_waiter.wrapping_add(1);
        waiter
    }

    /// Applies losses of the server since this entry last looked.
    fn check_server_loss(&mut self, entry: &Arc<PoolEntry<C>>, actions: &mut PendingActions<C>) {
        let last = entry.server_entries.last_loss.load(Ordering::Relaxed);
        if last > self.seen_server_loss {
            self.seen_server_loss = last;
            let since = Tick::from_start(Duration::from_nanos(last));
            self.apply_event(entry, Event::ServerLostSessions(since), actions);
        }
    }

    fn is_finished(&self) -> bool {
        self.core.is_finished() && self.closing == 0 && self.openings().is_empty()
    }

    fn openings(&self) -> &[OpeningHandle] {
        self.activity
            .as_ref()
            .map_or(&[], |activity| &activity.openings)
    }

    /// Removes an opening; false if it was stopped before.
    fn remove_opening(&mut self, generation: Generation) -> bool {
        let Some(activity) = &mut self.activity else {
            return false;
        };
        let before = activity.openings.len();
        activity.openings.retain(|one| one.generation != generation);
        before > activity.openings.len()
    }

    fn remove_waiter(&mut self, waiter: WaiterId) -> Option<LeaseSender<C>> {
        self.activity.as_mut()?.waiters.remove(&waiter)
    }

    fn slot_mut(&mut self, generation: Generation) -> Option<&mut SessionSlot<C>> {
        let mut slots = self.slots.iter_mut();
        slots.find(|slot| slot.generation == generation)
    }

    fn activity_mut(&mut self) -> &mut EntryActivity<C> {
        self.activity.get_or_insert_with(|| {
            Box::new(EntryActivity {
                waiters: BTreeMap::new(),
                openings: Vec::new(),
                to_replace: None,
                permit_sender: None,
                end_watchers: Vec::new(),
            })
        })
    }

    fn drop_idle_activity(&mut self) {
        // A permit sender alone has no receiver any more.
        self.activity.take_if(|activity| {
            activity.waiters.is_empty()
                && activity.openings.is_empty()
                && activity.to_replace.is_none()
                && activity.end_watchers.is_empty()
        });
    }
}
