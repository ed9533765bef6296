//! The pool: leases, permits and keys, as callers, runs and the engine use them.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::exchange::Diagnostic;
use warmline_core::policy::{BreakerPolicy, EngineLimits};
use warmline_core::pool::breaker::{Blame, BreakerState};
use warmline_core::pool::limits::SessionLimit;
use warmline_core::pool::{Event, LeaseRefusal, QueuePosition, StabilityCriterion};
use warmline_core::pool_key::{ConfigRevision, CredentialId, KeyOwner, KeyScope, PoolKey};
use warmline_core::time::Tick;

use super::breakers::Opener;
use super::context::PoolContext;
use super::entry::{EntryTable, LeaseDecision, LeaseFailure};
use super::permits::PermitOutcome;
use super::{
    AcquireKind, BreakerPermit, BreakerTransitions, Connector, EndCondition, EndReason,
    EntryPolicy, Lease, LeaseDeadlines, LeaseMode, PoolEntry, PoolEventKind, SessionPermit,
    Sharing, SpareKey, Spares, messages,
};
use crate::clock::{self, Instant};

/// How many dead sessions or abandoned openings in a row a caller gets before it gets an error.
const MAX_DEAD_LEASES: u32 = 3;

/// An idle time after which a spare is checked before its single call.
const SPARE_CHECK_AFTER: Duration = Duration::from_secs(60);

/// The policy of a single call; its stability criterion follows from the transport.
const SINGLE_CALL_POLICY: EntryPolicy = EntryPolicy {
    sharing: Sharing::OnePerCaller,
    max_sessions: 1,
    max_age: None,
    max_idle: None,
    check_after: SPARE_CHECK_AFTER,
    keep_alive: None,
    max_waiters: 1,
    stability: StabilityCriterion::FirstReply,
    end_condition: EndCondition::AtLimits,
};

pub struct Pool<C: Connector> {
    pub(super) context: Arc<PoolContext<C>>,
    pub(super) table: Arc<EntryTable<C>>,
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            context: Arc::clone(&self.context),
            table: Arc::clone(&self.table),
        }
    }
}

impl<C: Connector> Pool<C> {
    pub fn new(connector: Arc<C>, limits: EngineLimits) -> Self {
        let context = PoolContext::new(connector, limits);
        let spares = Spares::new(Arc::clone(&context), limits.max_spares);
        let table = Arc::new(EntryTable::new(spares));
        Self { context, table }
    }

    /// The present moment; the moments in a session snapshot are measured by it.
    pub fn tick(&self) -> Tick {
        self.context.tick()
    }

    /// The entry of a key, created if there is none. Takes no lock.
    pub fn entry(
        &self,
        key: &PoolKey,
        policy: impl FnOnce() -> EntryPolicy,
        setup: impl FnOnce() -> C::Setup,
    ) -> Arc<PoolEntry<C>> {
        let entries = self.table.entries.pin();
        if let Some(entry) = entries.get(key) {
            return Arc::clone(entry);
        }
        self.insert_entry(Arc::new(key.clone()), policy(), Arc::new(setup()))
    }

    pub fn has_sessions(&self, key: &PoolKey) -> bool {
        let entries = self.table.entries.pin();
        let entry = entries.get(key);
        entry.is_some_and(|entry| entry.counts().0.sessions() > 0)
    }

    pub fn entries(&self) -> Vec<Arc<PoolEntry<C>>> {
        self.table.entries.pin().values().cloned().collect()
    }

    pub fn key_count(&self) -> usize {
        self.table.entries.len()
    }

    /// The spares and the sessions of first contacts.
    pub fn spares(&self) -> &Arc<Spares<C>> {
        &self.table.spares
    }

    /// Leases a session of a key from this position in the queue. The front is for a caller whose
    /// last lease was dead: it goes before later callers, and no queue is full for it. May be dropped
    /// at any time: the caller then loses its place in the queue, and nothing else.
    pub async fn lease(
        &self,
        entry: &Arc<PoolEntry<C>>,
        mode: LeaseMode,
        position: QueuePosition,
        until: impl Into<LeaseDeadlines>,
    ) -> Result<Lease<C>, Diagnostic> {
        if let Some(diagnostic) = self.context.rejection(entry.server()) {
            return self.refuse_lease(entry, diagnostic, Duration::ZERO);
        }
        // The path of nearly every call: the session is there, and no caller waits.
        match entry.request_lease(mode, position) {
            LeaseDecision::Granted(lease) if lease.is_usable() => {
                Ok(self.grant_lease(entry, lease, AcquireKind::Hit, Duration::ZERO))
            },
            other @ (LeaseDecision::Granted(_)
            | LeaseDecision::Queued(_)
            | LeaseDecision::Refused(_)) => {
                self.lease_queued(entry, (mode, position), until.into(), other)
                    .await
            },
        }
    }

    /// Leases a spare or a new session for a single call; it is closed afterwards.
    pub async fn lease_for_single_call(
        &self,
        spare_key: &SpareKey,
        setup: &Arc<C::Setup>,
        owner: KeyOwner,
        until: impl Into<LeaseDeadlines>,
    ) -> Result<Lease<C>, Diagnostic> {
        let scope = KeyScope::Shared(spare_key.client_profile);
        let target = spare_key.target.clone();
        let policy = EntryPolicy {
            stability: StabilityCriterion::for_transport(target.transport),
            ..SINGLE_CALL_POLICY
        };
        let key = Arc::new(PoolKey::new(target, owner, spare_key.credential, scope));
        let setup = (policy, Arc::clone(setup));
        let entry = PoolEntry::new(&self.context, &self.table, key, false, setup);
        self.table
            .ending
            .pin()
            .insert(entry.number, Arc::clone(&entry));
        // However this ends: no other caller gets the session, and it is closed after its call.
        let _end = SingleCallGuard(Arc::clone(&entry));
        self.lease(&entry, LeaseMode::Exclusive, QueuePosition::Back, until)
            .await
    }

    /// The permission to try an opening outside the pool. Its holder reports how it ended.
    pub fn acquire_breaker_permit(
        &self,
        server: &Arc<str>,
        revision: ConfigRevision,
        owner: KeyOwner,
        credential: CredentialId,
        policy: BreakerPolicy,
    ) -> Result<(BreakerPermit, BreakerTransitions), Diagnostic> {
        let opener = Opener {
            server: Arc::clone(server),
            revision,
            identity: Some((owner, credential)),
        };
        self.context.breakers.try_acquire(opener, policy)
    }

    /// The permit for a first contact, waited for in the queue; none if it needs none.
    pub async fn permit_for_first_contact(
        &self,
        key: &Arc<PoolKey>,
        server_max: Option<u32>,
        by: Instant,
    ) -> Result<Option<SessionPermit>, Diagnostic> {
        let since = clock::now();
        let mut waiter = match self.context.permits.claim(key, server_max) {
            PermitOutcome::NotNeeded => return Ok(None),
            PermitOutcome::Granted(permit) => return Ok(Some(permit)),
            PermitOutcome::Queued(waiter) => waiter,
        };
        let evict = |full: &SessionLimit| self.table.evict_for(key, full);
        let permit = clock::timeout_at(by, waiter.wait(evict)).await;
        let waited = clock::now().saturating_duration_since(since);
        let server = &key.target.server;
        let permit = permit.map_err(|_| {
            let permits = &self.context.permits;
            let full = permits.blocking_limit_and_max(key, server_max);
            messages::no_permit(server, waited, full.as_ref())
        })?;
        permit
            .map(Some)
            .ok_or_else(|| messages::pool_closed(server))
    }

    /// A second permit for a first contact, if one is free.
    pub fn try_permit_for_first_contact(
        &self,
        key: &Arc<PoolKey>,
        server_max: Option<u32>,
    ) -> Option<SessionPermit> {
        match self.context.permits.claim(key, server_max) {
            PermitOutcome::Granted(permit) => Some(permit),
            PermitOutcome::NotNeeded | PermitOutcome::Queued(_) => None,
        }
    }

    /// Applies another maximum of sessions to a server, also to the waiters for a permit.
    pub fn set_server_max_sessions(&self, server: &str, max: Option<u32>) {
        self.context.permits.set_server_max(server, max);
    }

    /// A server lost sessions: those not known to be alive since are checked before their next use.
    pub fn record_server_loss(&self, server: &str, revision: ConfigRevision) {
        let now = self.context.tick();
        self.table.record_server_loss(server, revision, now);
    }

    /// Every breaker that blocks: its server, its scope, its state, and how long openings pause.
    pub fn blocking_breakers(&self) -> Vec<(Arc<str>, Blame, BreakerState, Option<Duration>)> {
        self.context.breakers.blocking()
    }

    fn insert_entry(
        &self,
        key: Arc<PoolKey>,
        policy: EntryPolicy,
        setup: Arc<C::Setup>,
    ) -> Arc<PoolEntry<C>> {
        let setup = (policy, setup);
        let new = PoolEntry::new(&self.context, &self.table, Arc::clone(&key), true, setup);
        let entries = self.table.entries.pin();
        Arc::clone(entries.get_or_insert(key, new))
    }

    /// Waits for a lease, and asks again as long as the session is dead.
    async fn lease_queued(
        &self,
        entry: &Arc<PoolEntry<C>>,
        (mode, position): (LeaseMode, QueuePosition),
        until: LeaseDeadlines,
        first: LeaseDecision<C>,
    ) -> Result<Lease<C>, Diagnostic> {
        let since = clock::now();
        let waited = || clock::now().saturating_duration_since(since);
        let (mut entry, mut decision) = (Arc::clone(entry), first);
        let mut last_failure = messages::dead_on_arrival(entry.server());
        for _ in 0..MAX_DEAD_LEASES {
            let (result, kind) = match decision {
                LeaseDecision::Granted(lease) => (Ok(lease), AcquireKind::Hit),
                LeaseDecision::Queued(mut waiter) => (waiter.wait(since, until).await, waiter.kind),
                // The empty entry was evicted while a caller still held it.
                LeaseDecision::Refused(LeaseRefusal::EntryEnded(EndReason::Evicted))
                    if entry.is_pooled =>
                {
                    let (key, setup) = (Arc::clone(&entry.key), Arc::clone(&entry.setup));
                    entry = self.insert_entry(key, entry.policy(), setup);
                    decision = entry.request_lease(mode, position);
                    continue;
                },
                LeaseDecision::Refused(refusal) => {
                    let diagnostic = entry.refusal_diagnostic(refusal, None);
                    (Err(LeaseFailure::Diagnostic(diagnostic)), AcquireKind::Hit)
                },
            };
            match result {
                Ok(lease) if lease.is_usable() => {
                    return Ok(self.grant_lease(&entry, lease, kind, waited()));
                },
                // It goes back as gone, and this caller goes first.
                Ok(lease) => {
                    drop(lease);
                    decision = entry.request_lease(mode, QueuePosition::Front);
                },
                // All queued callers ask again, in their order.
                Err(LeaseFailure::Requeue) => {
                    last_failure = messages::opening_aborted(entry.server());
                    decision = entry.request_lease(mode, position);
                },
                Err(LeaseFailure::Diagnostic(diagnostic)) => {
                    let diagnostic = Arc::unwrap_or_clone(diagnostic);
                    return self.refuse_lease(&entry, diagnostic, waited());
                },
            }
        }
        self.refuse_lease(&entry, last_failure, waited())
    }

    fn grant_lease(
        &self,
        entry: &PoolEntry<C>,
        lease: Lease<C>,
        kind: AcquireKind,
        waited: Duration,
    ) -> Lease<C> {
        let kind = match entry.is_pooled {
            true => kind,
            false => AcquireKind::SingleCall,
        };
        entry.report(PoolEventKind::Leased { kind, waited });
        lease.granted(kind)
    }

    fn refuse_lease(
        &self,
        entry: &PoolEntry<C>,
        diagnostic: Diagnostic,
        waited: Duration,
    ) -> Result<Lease<C>, Diagnostic> {
        entry.report(PoolEventKind::LeaseRefused {
            diagnostic: &diagnostic,
            waited,
        });
        Err(diagnostic)
    }
}

struct SingleCallGuard<C: Connector>(Arc<PoolEntry<C>>);

impl<C: Connector> Drop for SingleCallGuard<C> {
    fn drop(&mut self) {
        self.0.dispatch(Event::EntryEnded(EndReason::RunEnded));
    }
}
