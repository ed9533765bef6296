//! Openings: each is a task, so that a caller that leaves costs the others nothing.
//!
//! In this order: a permit, a recorded session of an earlier process, a spare, and only then a fresh
//! session, if the breakers allow it. However the task ends, its entry learns it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::limits::SessionLimit;
use warmline_core::pool::spares::SpareKey;
use warmline_core::pool::{EndReason, Event, Generation, OpenedSession, SessionOrigin};

use super::super::breakers::breaker_open;
use super::super::cleanup::{CleanupToken, CleanupWatch, HeldUntilCleanup};
use super::super::context::TaskGuard;
use super::super::permits::{PermitOutcome, SessionPermit};
use super::super::spares::{Spare, Spares};
use super::super::{ConnectedSession, Connector, HealInfo, OpenRequest, PoolEventKind, messages};
use super::effects::PendingAction;
use super::{OpeningStage, PoolEntry, SessionSlot};
use crate::clock::{self, Instant};

/// How long a replacement waits for the permit of the session that it replaces, before it queues
/// with all others: a little longer than a close takes.
const REPLACED_CLOSE_TIMEOUT: Duration = Duration::from_secs(7);

/// A lost session, until its replacement is opened. The session of a run keeps its permit for the
/// first try: a run must not lose its place because its server restarted. If the try fails, the
/// permit goes to the longest waiter: a server that stays away must not hold it.
pub(super) struct ReplacedSession<C: Connector> {
    pub(super) generation: Generation,
    pub(super) session: Arc<C::Session>,
    pub(super) permit: Option<oneshot::Receiver<SessionPermit>>,
}

/// Receives the permit of a lost session when that is closed.
pub(super) type PermitSender = oneshot::Sender<SessionPermit>;

/// An opening in progress, with what it holds. It completes, fails, or is stopped. If its task panics,
/// it fails; if its runtime ends, its callers ask again. Whatever happens, a session that joins no
/// entry is closed, and its permit released after it.
struct Opening<C: Connector> {
    entry: Arc<PoolEntry<C>>,
    generation: Generation,
    replaces: Option<Generation>,
    is_pending: bool,
    started_at: Instant,
    spares: Arc<Spares<C>>,
    spare_key: SpareKey,
    session: Option<Arc<C::Session>>,
    origin: SessionOrigin,
    idle_time: Duration,
    /// How long the opening took, if a first contact opened the session.
    first_contact_took: Option<Duration>,
    permit: Option<SessionPermit>,
    cleanup: Option<CleanupWatch>,
    _task: TaskGuard<C>,
}

enum OpeningFailure {
    /// The entry knows already.
    Stopped,
    Failed(Diagnostic),
}

impl<C: Connector> PoolEntry<C> {
    pub(super) fn start_opening(
        self: &Arc<Self>,
        generation: Generation,
        replaced: Option<ReplacedSession<C>>,
        stopped: oneshot::Receiver<()>,
    ) {
        let Some(table) = self.table() else {
            let diagnostic = messages::pool_closed(self.server());
            return self.fail_opening(generation, Duration::ZERO, diagnostic);
        };
        let (spares, spare_key) = (Arc::clone(&table.spares), self.spare_key());
        if let Some((pause, last)) = self.context.breakers.remaining_pause(&self.opener())
            && !spares.has_spare(&spare_key)
        {
            let diagnostic = breaker_open(self.server(), pause, last.as_deref());
            return self.fail_opening(generation, Duration::ZERO, diagnostic);
        }
        let opening = Opening {
            entry: Arc::clone(self),
            generation,
            replaces: replaced.as_ref().map(|replaced| replaced.generation),
            is_pending: true,
            started_at: clock::now(),
            spares: Arc::clone(&spares),
            spare_key: spare_key.clone(),
            session: None,
            origin: SessionOrigin::Fresh,
            idle_time: Duration::ZERO,
            first_contact_took: None,
            permit: None,
            cleanup: None,
            _task: self.context.start_task(),
        };
        clock::spawn_if_running("open", opening.run(replaced, stopped));
        // Afterwards, so that the opening does not wait behind a spare.
        let wanted = self.connector().wanted_spares(&self.setup);
        spares.record_use(&spare_key, &self.setup, wanted);
    }

    fn fail_opening(
        self: &Arc<Self>,
        generation: Generation,
        took: Duration,
        diagnostic: Diagnostic,
    ) {
        self.report(PoolEventKind::OpenFailed {
            diagnostic: &diagnostic,
            took,
        });
        self.end_opening(generation, Event::OpenFailed(generation), Some(diagnostic));
    }

    /// An opening led to no session of this entry. Nothing follows if the entry stopped it before.
    fn end_opening(
        self: &Arc<Self>,
        generation: Generation,
        event: Event,
        diagnostic: Option<Diagnostic>,
    ) {
        self.with_inner(|inner, actions| {
            if inner.remove_opening(generation) {
                actions.diagnostic = diagnostic.map(Arc::new);
                inner.apply_event(self, event, actions);
            }
        });
    }

    /// The task of an opening is gone. Its callers ask again, and open a session where they are.
    pub(super) fn report_opener_lost(self: &Arc<Self>, generation: Generation) {
        self.end_opening(generation, Event::OpenerLost(generation), None);
    }

    /// Waits for a permit in the queue, and evicts sessions that block it.
    async fn wait_for_permit(&self) -> Result<Option<SessionPermit>, OpeningFailure> {
        let permits = &self.context.permits;
        match permits.claim(&self.key, self.server_max()) {
            PermitOutcome::NotNeeded => Ok(None),
            PermitOutcome::Granted(permit) => Ok(Some(permit)),
            PermitOutcome::Queued(mut waiter) => {
                let evict = |full: &SessionLimit| {
                    if let Some(table) = self.table() {
                        table.evict_for(&self.key, full);
                    }
                };
                let permit = waiter.wait(evict).await;
                Ok(Some(permit.ok_or(OpeningFailure::Stopped)?))
            },
        }
    }
}

impl<C: Connector> Opening<C> {
    async fn run(
        mut self,
        replaced: Option<ReplacedSession<C>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let opened = tokio::select! {
            biased;
            // Dropped by the entry: no caller waits any more, or there is no time left.
            _ = &mut stopped => Err(OpeningFailure::Stopped),
            opened = self.obtain_session(replaced) => opened,
        };
        match opened {
            Ok(connected) => self.complete(connected),
            Err(failure) => {
                self.release();
                match failure {
                    // The entry stopped it by removing its handle, unless that was dropped some
                    // other way.
                    OpeningFailure::Stopped => self.abort(),
                    OpeningFailure::Failed(diagnostic) => self.fail(diagnostic),
                }
            },
        }
    }

    async fn obtain_session(
        &mut self,
        replaced: Option<ReplacedSession<C>>,
    ) -> Result<ConnectedSession<C::Session>, OpeningFailure> {
        let (replaces, inherited) = match replaced {
            Some(replaced) => (Some(replaced.session), replaced.permit),
            None => (None, None),
        };
        match inherited {
            Some(inherited) => self.inherit_permit(inherited).await?,
            None => self.acquire_permit().await?,
        }
        if !self.mark_connecting() {
            return Err(OpeningFailure::Stopped);
        }
        let entry = Arc::clone(&self.entry);
        let (token, watch) = CleanupToken::new();
        self.cleanup = Some(watch);
        let request = OpenRequest {
            setup: Arc::clone(&entry.setup),
            key: entry.pooled_key().cloned(),
            generation: self.generation,
            replaces,
            cleanup_token: token,
        };
        if entry.is_pooled
            && let Some(restored) = entry.connector().restore(&request).await
        {
            if self.session.is_some() {
                self.release();
                self.permit = entry.wait_for_permit().await?;
            }
            self.origin = SessionOrigin::Restored;
            return Ok(restored);
        }
        self.connect(&request).await
    }

    /// False if the opening was stopped before.
    fn mark_connecting(&self) -> bool {
        self.entry.with_inner(|inner, _| {
            let mut openings = inner.activity_mut().openings.iter_mut();
            let opening = openings.find(|one| one.generation == self.generation);
            opening
                .map(|opening| opening.stage = OpeningStage::Connecting)
                .is_some()
        })
    }

    /// Takes the session of a first contact with its permit, or else waits for a permit.
    async fn acquire_permit(&mut self) -> Result<(), OpeningFailure> {
        let entry = Arc::clone(&self.entry);
        if let Some(taken) = self.spares.take_first_contact(&self.spare_key) {
            self.set_spare(taken);
            let (key, permit) = (&entry.key, self.permit.as_mut());
            if permit.is_some_and(|permit| permit.transfer_to(key, entry.server_max())) {
                return Ok(());
            }
            // The identity is at its limit; the longest waiter gets the permit.
            self.release();
        }
        self.permit = entry.wait_for_permit().await?;
        Ok(())
    }

    /// Takes a free permit, or else that of the lost session as soon as it is closed.
    async fn inherit_permit(
        &mut self,
        mut inherited: oneshot::Receiver<SessionPermit>,
    ) -> Result<(), OpeningFailure> {
        let entry = &self.entry;
        self.permit = match inherited.try_recv() {
            Ok(permit) => Some(permit),
            Err(_) => match entry.context.permits.claim(&entry.key, entry.server_max()) {
                PermitOutcome::NotNeeded => None,
                PermitOutcome::Granted(permit) => Some(permit),
                PermitOutcome::Queued(waiter) => {
                    // No other session is evicted: the permit comes by itself.
                    drop(waiter);
                    let by = clock::after(REPLACED_CLOSE_TIMEOUT);
                    match clock::timeout_at(by, inherited).await {
                        Ok(Ok(permit)) => Some(permit),
                        Ok(Err(_)) | Err(_) => entry.wait_for_permit().await?,
                    }
                },
            },
        };
        Ok(())
    }

    /// Takes a spare or opens a session, and prepares it for its key.
    async fn connect(
        &mut self,
        request: &OpenRequest<C>,
    ) -> Result<ConnectedSession<C::Session>, OpeningFailure> {
        let entry = Arc::clone(&self.entry);
        if self.session.is_none()
            && let Some(taken) = self.spares.take_spare(&self.spare_key)
        {
            self.set_spare(taken);
        }
        let session = match &self.session {
            Some(spare) => Arc::clone(spare),
            None => {
                let fresh = entry.context.open_session(request, &entry.key).await;
                let fresh = fresh.map_err(OpeningFailure::Failed)?;
                self.origin = SessionOrigin::Fresh;
                self.session = Some(Arc::clone(&fresh));
                fresh
            },
        };
        if !entry.is_pooled {
            self.session = None;
            return Ok(ConnectedSession::new(session));
        }
        let ours = Arc::clone(&session);
        let connected = entry.connector().prepare_for_key(request, session).await;
        self.session = None;
        if !Arc::ptr_eq(&connected.session, &ours) {
            // Another process recorded a session first. Its idle time counts from now.
            self.idle_time = Duration::ZERO;
        }
        Ok(connected)
    }

    fn set_spare(&mut self, (spare, idle_time): (Spare<C>, Duration)) {
        self.session = Some(spare.session);
        self.origin = SessionOrigin::Spare;
        self.idle_time = idle_time;
        if let Some(info) = spare.first_contact {
            self.first_contact_took = Some(info.took);
            self.permit = self.permit.take().or(info.permit);
        }
    }

    /// The session joins its entry, if it is still wanted and within the limits.
    fn complete(mut self, connected: ConnectedSession<C::Session>) {
        let entry = Arc::clone(&self.entry);
        let (setup, context) = (&entry.setup, &entry.context);
        let took = self.time_taken();
        // The session of a first contact was reported when it was opened.
        if self.first_contact_took.is_none() {
            self.report_opened(took);
        }
        let needs_permit = entry.connector().needs_permit(&connected.session);
        let permit = self.permit.take_if(|_| needs_permit);
        // A call that was given up while its session was opened leaves a spare.
        let is_given_up = !entry.is_pooled && !entry.is_live();
        if is_given_up
            && self.origin == SessionOrigin::Fresh
            && self
                .spares
                .add_unused(&self.spare_key, setup, &connected.session)
        {
            self.is_pending = false;
            entry.end_opening(self.generation, Event::OpenCancelled(self.generation), None);
            let kind = PoolEventKind::SpareOpened { took };
            return context.report_spare(setup, &self.spare_key.target, kind);
        }
        let server_max = entry.server_max();
        let is_over_limit = |permit: &SessionPermit| permit.is_over_limit(server_max);
        if permit.as_ref().is_some_and(is_over_limit) {
            // Limits were lowered while it was opened.
            let full = context
                .permits
                .blocking_limit_and_max(&entry.key, server_max);
            let diagnostic = messages::no_permit(entry.server(), took, full.as_ref());
            let slot = self.slot(connected.session, permit);
            entry.with_inner(|inner, actions| {
                inner.closing += 1;
                let close = |entry: &Arc<PoolEntry<C>>| {
                    entry.start_close(slot, EndReason::Evicted, None);
                };
                actions.all.push(PendingAction::run(close));
            });
            return self.fail(diagnostic);
        }
        self.join_entry(connected, permit, took);
    }

    fn slot(&self, session: Arc<C::Session>, permit: Option<SessionPermit>) -> SessionSlot<C> {
        SessionSlot {
            generation: self.generation,
            session,
            permit,
        }
    }

    fn join_entry(
        mut self,
        connected: ConnectedSession<C::Session>,
        permit: Option<SessionPermit>,
        took: Duration,
    ) {
        self.is_pending = false;
        let (entry, generation) = (&self.entry, self.generation);
        let opened = OpenedSession {
            origin: self.origin,
            idle_time: self.idle_time,
            ..connected.details
        };
        let session = Arc::clone(&connected.session);
        let slot = self.slot(connected.session, permit);
        let loss = entry.with_inner(|inner, actions| {
            inner.remove_opening(generation);
            inner.slots.push(slot);
            // Before a caller gets the session, and reports the loss.
            let loss = inner.core.unreported_loss();
            let event = Event::Opened(generation, opened);
            inner.apply_event(entry, event, actions);
            loss
        });
        if entry.is_pooled {
            entry.connector().session_joined(&session, &entry.setup);
        }
        let number = opened.generation.unwrap_or(generation);
        // A restored session heals nothing: that happened before its record was written.
        let has_recorded_loss = opened.unreported_loss && opened.origin != SessionOrigin::Restored;
        let recorded = Generation::new(number.number() - 1).filter(|_| has_recorded_loss);
        let lost = self.replaces.or(loss.map(|loss| loss.generation));
        let (origin, took) = match self.first_contact_took {
            Some(took) => (SessionOrigin::Fresh, took),
            None => (opened.origin, took),
        };
        entry.report(PoolEventKind::Joined {
            generation: number,
            origin,
            took,
            heal: lost.or(recorded).map(|lost_generation| HealInfo {
                lost_generation,
                state_lost: loss.is_some() || opened.unreported_loss,
            }),
        });
    }

    fn time_taken(&self) -> Duration {
        clock::now().saturating_duration_since(self.started_at)
    }

    fn report_opened(&self, took: Duration) {
        let origin = self.origin;
        self.entry.report(PoolEventKind::Opened { origin, took });
    }

    fn fail(mut self, diagnostic: Diagnostic) {
        self.is_pending = false;
        let took = self.time_taken();
        self.entry.fail_opening(self.generation, took, diagnostic);
    }

    fn abort(&mut self) {
        self.is_pending = false;
        let diagnostic = messages::opening_aborted(self.entry.server());
        let event = Event::OpenFailed(self.generation);
        self.entry
            .end_opening(self.generation, event, Some(diagnostic));
    }

    /// Closes the session, if it has one, and releases the permit after it.
    fn release(&mut self) {
        let permit = self.permit.take();
        if let Some(session) = self.session.take() {
            if self.origin == SessionOrigin::Fresh {
                // Any other was reported when it became a spare.
                self.report_opened(self.time_taken());
            }
            let (target, setup) = (&self.spare_key.target, Arc::clone(&self.entry.setup));
            self.spares
                .close_session(target, session, setup, permit, EndReason::Evicted);
        } else if let (Some(permit), Some(watch)) = (permit, self.cleanup.take()) {
            // A process that was started in vain holds its permit until it is gone.
            let held = (permit, self.entry.context.start_task());
            drop(HeldUntilCleanup::new(held, watch));
        }
        (self.first_contact_took, self.idle_time) = (None, Duration::ZERO);
    }
}

impl<C: Connector> Drop for Opening<C> {
    fn drop(&mut self) {
        self.release();
        if self.is_pending && std::thread::panicking() {
            self.abort();
        } else if self.is_pending {
            self.entry.report_opener_lost(self.generation);
        }
    }
}
