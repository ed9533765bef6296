//! The stored record of a session: saved, renewed and cleared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Semaphore;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::{EndReason, Generation};
use warmline_core::pool_key::{KeyOwner, PoolKey, Transport};
use warmline_core::record::{Record, StoredClientProfile};

use super::pool_events::store_failure_of;
use super::{CLOSE_TIMEOUT, PooledSession, SessionFactory, SessionSetup};
use crate::metrics::{StoreOperation, StoreResult};
use warmline_platform::clock;
use warmline_platform::lock::Mutex;
use warmline_pool::{ConnectedSession, OpenRequest, PoolEntry};
use warmline_store::{Records, ReplacedRecord, WriteOutcome};
use warmline_upstream::{ClientProfile, ServerFacts};

#[derive(Debug)]
pub(crate) struct RecordState {
    pub(super) records: Arc<Records>,
    /// The record of the current session as it was written last.
    pub(super) current: Mutex<Option<Box<Record>>>,
    /// Whether the store has that record: the next process resumes the session by it, whatever the
    /// state of the store when this process ends.
    is_stored: AtomicBool,
    renewal_due: AtomicBool,
    /// Another process left state in the sessions, or lost it: runs may come back for it by name.
    has_foreign_state: AtomicBool,
    /// The record goes on to report a loss that somebody learned of: other clients that shared the
    /// session may come back in a later process.
    keeps_reporting_loss: AtomicBool,
    /// Held by the one that writes.
    write_permit: Semaphore,
    /// The highest generation whose record was cleared: no late renewal may bring it back.
    cleared_generation: AtomicU32,
}

pub(crate) const fn is_server_record_key(key: &PoolKey) -> bool {
    matches!(key.owner, KeyOwner::AnyIdentity) && key.run().is_some()
}

pub(crate) fn record_of_facts(
    key: PoolKey,
    generation: u32,
    profile: &ClientProfile,
    facts: &ServerFacts,
) -> Record {
    let now = clock::wall_seconds();
    Record {
        key,
        generation,
        session_id: None,
        version: facts.version,
        client_profile: StoredClientProfile {
            client_name: profile.client_name.clone(),
            client_version: profile.client_version.clone(),
            capabilities: profile.capabilities.clone(),
        },
        capabilities: facts.capabilities.clone(),
        server_info: facts.server_info.clone(),
        instructions: facts.instructions.clone(),
        log_level: None,
        subscriptions: Vec::new(),
        stateful: false,
        unreported_loss: false,
        opened_at: now,
        last_used_at: now,
        expires_at: None,
    }
}

impl RecordState {
    pub(super) fn new(records: Arc<Records>) -> Box<Self> {
        Box::new(Self {
            records,
            current: Mutex::new(None),
            is_stored: AtomicBool::new(false),
            renewal_due: AtomicBool::new(false),
            has_foreign_state: AtomicBool::new(false),
            keeps_reporting_loss: AtomicBool::new(false),
            write_permit: Semaphore::new(1),
            cleared_generation: AtomicU32::new(0),
        })
    }

    pub(super) fn set_current(&self, record: Box<Record>, is_stored: bool) {
        let mut current = self.current.lock();
        *current = Some(record);
        self.is_stored.store(is_stored, Ordering::SeqCst);
    }

    /// Notes a record that another process wrote.
    pub(super) fn note_loaded(&self, record: &Record) {
        self.has_foreign_state
            .fetch_or(record.has_state_to_lose(), Ordering::Relaxed);
    }
}

impl SessionFactory {
    /// Saves the record of a new session before a caller gets it. The first writer wins: its session
    /// is used then, and ours is closed.
    pub(super) async fn save_record(
        &self,
        order: &OpenRequest<Self>,
        session: Arc<PooledSession>,
    ) -> ConnectedSession<PooledSession> {
        let setup = &order.setup;
        let mut opened = ConnectedSession::new(Arc::clone(&session));
        opened.details.expires_in = session.facts().expires_in;
        opened.details.renew_in = setup
            .server
            .renewal_after(opened.details.expires_in, self.context.tick());
        let (Some(state), Some(key)) = (&setup.record_state, &order.key) else {
            return opened;
        };
        // A write that clears the session before first says what was lost with it.
        let permit = state.write_permit.acquire().await.ok();
        let before = state.current.lock().clone();
        state.keeps_reporting_loss.store(false, Ordering::Relaxed);
        let record = Box::new(self.begin_record(order, key, before.as_deref(), &mut opened));
        let began = clock::now();
        let written = state.records.save(&record, before.as_deref()).await;
        Self::record_store_result(setup, StoreOperation::Save, store_result(&written), began);
        drop(permit);
        match written {
            WriteOutcome::Written(replaced) => {
                state.set_current(record, true);
                if replaced == ReplacedRecord::State && key.run().is_some() {
                    opened.details.unreported_loss = true;
                    if !setup.unreported_loss.swap(true, Ordering::Relaxed) {
                        setup.schedule_record_renewal();
                    }
                }
                opened
            },
            WriteOutcome::Failed(diagnostic) => {
                self.report_store_failure(setup, StoreOperation::Save, &diagnostic);
                state.set_current(record, false);
                opened
            },
            WriteOutcome::Conflict(winner) => {
                // Failed openings count as generations too: only a session that was held tells
                // which record is older. One older than ours is no winner: the store was set back.
                let is_older = before.is_some_and(|held| winner.generation < held.generation);
                let resumed = (!is_older).then(|| self.resume_from_record(setup, &winner));
                let Some(theirs) = resumed.flatten() else {
                    state.is_stored.store(false, Ordering::SeqCst);
                    return opened;
                };
                state.set_current(winner, true);
                self.close_loser(setup, &session).await;
                theirs
            },
        }
    }

    /// The record of a new session, after `before`. Notes what was lost with that.
    fn begin_record(
        &self,
        order: &OpenRequest<Self>,
        key: &PoolKey,
        before: Option<&Record>,
        opened: &mut ConnectedSession<PooledSession>,
    ) -> Record {
        let setup = &order.setup;
        setup.reset_for_new_session(Some(key));
        opened.details.unreported_loss = setup.has_unreported_loss();
        // A process cannot be resumed: its state died with it.
        if let Some(before) = before
            && before.generation >= order.generation.number()
        {
            opened.details.unreported_loss |= before.has_state_to_lose();
            opened.details.generation = Generation::new(before.generation.saturating_add(1));
        }
        let session = &opened.session;
        let generation = opened
            .details
            .generation
            .unwrap_or(order.generation)
            .number();
        session.generation.store(generation, Ordering::Relaxed);
        setup.unreported_loss.fetch_or(
            opened.details.unreported_loss || setup.had_session_before.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        let facts = session.facts();
        let client_state = setup.client_state();
        let profile = &setup.client_profile.profile;
        let record = record_of_facts(key.clone(), generation, profile, facts);
        Record {
            session_id: session.kept().map(|kept| kept.session_id),
            log_level: client_state.log_level.clone(),
            subscriptions: client_state.into_recorded(),
            stateful: setup.is_stateful(),
            unreported_loss: setup.has_unreported_loss(),
            expires_at: facts.expires_in.map(|promised| {
                // A spare used up a part of it.
                let left = promised.saturating_sub(session.age(self.context.tick()));
                record.opened_at.saturating_add(left.as_secs())
            }),
            ..record
        }
    }

    /// Closes our session after another one won, unless both are the same at the server.
    async fn close_loser(&self, setup: &SessionSetup, session: &PooledSession) {
        if !self.shares_session_id(setup, session) {
            clock::timeout(CLOSE_TIMEOUT, session.close()).await.ok();
        }
        self.release_session_id(setup, session);
    }

    pub(crate) async fn renew_record(&self, entry: &Arc<PoolEntry<Self>>) {
        if let Some(state) = &entry.setup.record_state
            && !entry.sessions().is_empty()
        {
            renew_record(&entry.setup, state).await;
        }
    }

    /// Writes what the record must say before this process ends.
    pub(super) async fn flush_record(&self, setup: &Arc<SessionSetup>) {
        if let Some(state) = &setup.record_state
            && let Some(diagnostic) = renew_record(setup, state).await
        {
            self.report_store_failure(setup, StoreOperation::Save, &diagnostic);
        }
    }

    /// Whether a key has a session that is left to its record.
    pub(crate) fn is_kept_in_record(&self, entry: &Arc<PoolEntry<Self>>, why: EndReason) -> bool {
        let has_session = !entry.sessions().is_empty();
        has_session && self.is_left_to_record(&entry.setup, Some(&entry.key), why)
    }

    /// Whether a session stays open at the server for the next process.
    pub(super) fn is_left_to_record(
        &self,
        setup: &SessionSetup,
        key: Option<&PoolKey>,
        why: EndReason,
    ) -> bool {
        let is_of_run = key.is_some_and(|key| key.run().is_some());
        let outlives = setup.record_state.as_ref().is_some_and(|state| {
            state.records.outlives_process() && state.is_stored.load(Ordering::SeqCst)
        });
        why == EndReason::Drained
            && is_of_run
            && outlives
            && setup.server_profile.transport == Transport::Http
    }

    /// Clears the record of a session that is over. If its loss still has to be reported, a loss
    /// marker takes its place and outlives this process.
    pub(super) async fn clear_record(
        &self,
        setup: &Arc<SessionSetup>,
        key: Option<&PoolKey>,
        session: &PooledSession,
        why: EndReason,
    ) {
        let (Some(state), Some(key)) = (&setup.record_state, key) else {
            return;
        };
        // The next process reports what died with a child of this one.
        if why == EndReason::Drained && state.records.outlives_process() && key.run().is_some() {
            self.flush_record(setup).await;
            return;
        }
        let generation = session.generation.load(Ordering::Relaxed);
        state
            .cleared_generation
            .fetch_max(generation, Ordering::SeqCst);
        // A write under way would bring the record back.
        let permit = state.write_permit.acquire().await.ok();
        // Another process may have left state there. Our own limits are a loss for runs only.
        let is_loss = key.run().is_some() || is_ended_by_server(why);
        let is_known = session.stateful.load(Ordering::Relaxed) || setup.has_unreported_loss();
        // A loss that the record keeps reporting was reported here.
        let owes = |record: &Record| {
            record.unreported_loss && !state.keeps_reporting_loss.load(Ordering::Relaxed)
        };
        let is_lost = |record: &Record| is_loss && (is_known || record.stateful || owes(record));
        let now = clock::wall_seconds();
        let outlives = state.records.outlives_process() && key_continues(why);
        let marker =
            |record: &Record| (outlives && is_lost(record)).then(|| record.to_loss_marker(now));
        let began = clock::now();
        let cleared = state
            .records
            .clear_or_replace(key, generation, session.session_id(), marker)
            .await;
        let result = match &cleared {
            Some(_) => StoreResult::Done,
            None => StoreResult::Missing,
        };
        Self::record_store_result(setup, StoreOperation::Clear, result, began);
        if cleared.as_ref().is_some_and(is_lost) {
            setup.unreported_loss.store(true, Ordering::Relaxed);
        }
        if let Some(marker) = cleared.as_ref().and_then(marker) {
            state.set_current(Box::new(marker), true);
        }
        drop(permit);
    }

    /// Clears the loss marker of a key whose run ended: nobody is left to learn of the loss.
    pub(crate) async fn clear_loss_record(&self, entry: &PoolEntry<Self>) {
        let Some(state) = &entry.setup.record_state else {
            return;
        };
        let _permit = state.write_permit.acquire().await.ok();
        let is_marker = |record: &Record| record.session_id.is_none() && record.unreported_loss;
        let current = state.current.lock().clone();
        if let Some(marker) = current.filter(|record| is_marker(record)) {
            let cleared = state.records.clear(&marker.key, marker.generation, None);
            cleared.await;
        }
    }
}

impl SessionSetup {
    /// Takes over what the record of a resumed session says.
    pub(super) fn apply_record(&self, record: &Record) {
        if let Some(state) = &self.record_state {
            state.note_loaded(record);
        }
        self.stateful.store(record.stateful, Ordering::Relaxed);
        self.unreported_loss
            .store(record.unreported_loss, Ordering::Relaxed);
        self.had_session_before.store(false, Ordering::Relaxed);
    }

    /// Another session follows, and the state of the one before is lost. Clients that share sessions
    /// outside of runs know that limits end them.
    pub(super) fn reset_for_new_session(&self, key: Option<&PoolKey>) {
        let had_state = self.stateful.swap(false, Ordering::Relaxed);
        if had_state && key.is_some_and(|key| key.run().is_some()) {
            self.unreported_loss.store(true, Ordering::Relaxed);
        }
    }

    /// Somebody learned of the loss. Where several runs share the session, the record goes on to
    /// report it: nobody knows whether all of them learned of it.
    pub(crate) fn mark_loss_reported(self: &Arc<Self>) {
        let is_shared = self.is_shared_by_runs();
        let was_owed = self.has_unreported_loss();
        if let Some(state) = self.record_state.as_ref().filter(|_| is_shared) {
            state
                .keeps_reporting_loss
                .fetch_or(was_owed, Ordering::Relaxed);
        }
        if self.unreported_loss.swap(false, Ordering::Relaxed) && !is_shared {
            self.schedule_record_renewal();
        }
    }

    /// Whether another process left state in its sessions, or lost it.
    pub(crate) fn has_foreign_state(&self) -> bool {
        let state = self.record_state.as_ref();
        state.is_some_and(|state| state.has_foreign_state.load(Ordering::Relaxed))
    }

    /// Renews the record in the background, once for all changes until it is written.
    pub(super) fn schedule_record_renewal(self: &Arc<Self>) {
        let state = self.record_state.as_deref();
        if state.is_none_or(|state| state.renewal_due.swap(true, Ordering::SeqCst)) {
            return;
        }
        let setup = Arc::clone(self);
        clock::spawn_if_running("record", async move {
            if let Some(state) = &setup.record_state {
                renew_record(&setup, state).await;
            }
        });
    }
}

/// Writes what changed since the record was written. Returns the failure if the store failed.
async fn renew_record(setup: &Arc<SessionSetup>, state: &RecordState) -> Option<Diagnostic> {
    let _permit = state.write_permit.acquire().await.ok();
    // Later changes are not in what is written now.
    state.renewal_due.store(false, Ordering::SeqCst);
    let mut record = state.current.lock().clone()?;
    let generation = record.generation;
    if state.cleared_generation.load(Ordering::SeqCst) >= generation {
        return None;
    }
    let client_state = setup.client_state();
    record.log_level.clone_from(&client_state.log_level);
    record.subscriptions = client_state.into_recorded();
    record.stateful |= setup.is_stateful();
    record.unreported_loss =
        setup.has_unreported_loss() || state.keeps_reporting_loss.load(Ordering::Relaxed);
    let began = clock::now();
    let written = state.records.touch(&record).await;
    SessionFactory::record_store_result(setup, StoreOperation::Save, store_result(&written), began);
    let mut current = state.current.lock();
    // Unless another session was recorded meanwhile.
    let is_same = current
        .as_ref()
        .is_some_and(|current| current.generation == generation);
    match written {
        WriteOutcome::Written(_) if is_same => {
            *current = Some(record);
            state.is_stored.store(true, Ordering::SeqCst);
            None
        },
        // The store has the record of another session.
        WriteOutcome::Conflict(_) if is_same => {
            state.is_stored.store(false, Ordering::SeqCst);
            None
        },
        WriteOutcome::Written(_) | WriteOutcome::Conflict(_) => None,
        WriteOutcome::Failed(diagnostic) => Some(diagnostic),
    }
}

/// Whether the key opens another session after one that ended so.
const fn key_continues(why: EndReason) -> bool {
    !matches!(
        why,
        EndReason::RunEnded
            | EndReason::Reloaded
            | EndReason::Drained
            | EndReason::Retained
            | EndReason::OpenFailed
    )
}

/// Whether a session ended by no limit of ours.
const fn is_ended_by_server(why: EndReason) -> bool {
    matches!(
        why,
        EndReason::Gone
            | EndReason::CheckFailed
            | EndReason::CredentialRefused
            | EndReason::Expired
    )
}

fn store_result(written: &WriteOutcome) -> StoreResult {
    match written {
        WriteOutcome::Written(_) => StoreResult::Done,
        WriteOutcome::Conflict(_) => StoreResult::Lost,
        WriteOutcome::Failed(diagnostic) => store_failure_of(diagnostic),
    }
}
