//! Resumes sessions from their records, with nothing on the wire.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warmline_core::era::Era;
use warmline_core::pool::{Generation, OpenedSession};
use warmline_core::record::Record;

use super::pool_events::store_failure_of;
use super::{ClientState, PooledSession, SessionFactory, SessionSetup};
use crate::metrics::{StoreOperation, StoreResult};
use warmline_platform::clock;
use warmline_pool::{ConnectedSession, OpenRequest};
use warmline_upstream::{ClientProfile, ResumableSession, ServerFacts};

impl SessionFactory {
    /// The session that an earlier process left to its record. Nothing goes over the wire.
    pub(super) async fn restore_session(
        &self,
        order: &OpenRequest<Self>,
    ) -> Option<ConnectedSession<PooledSession>> {
        let setup = &order.setup;
        let (state, key) = (setup.record_state.as_ref()?, order.key.as_ref()?);
        // Read once per key: afterwards this process knows better.
        if state.current.lock().is_some() {
            return None;
        }
        let began = clock::now();
        let loaded = state.records.load(key).await;
        let result = match &loaded {
            Ok(Some(_)) => StoreResult::Done,
            Ok(None) => StoreResult::Missing,
            Err(diagnostic) => store_failure_of(diagnostic),
        };
        Self::record_store_result(setup, StoreOperation::Load, result, began);
        if !matches!(loaded, Ok(Some(_))) {
            self.detect_replaced_secrets(&setup.server, &state.records)
                .await;
        }
        let mut record = match loaded {
            Ok(record) => record?,
            Err(diagnostic) => {
                self.report_store_failure(setup, StoreOperation::Load, &diagnostic);
                return None;
            },
        };
        // By now no run is left that could come back to learn of it.
        let is_forgotten = setup.is_shared_by_runs()
            && record.age_at(clock::wall_seconds()) > self.context.limits.run_idle;
        record.unreported_loss &= !is_forgotten;
        state.note_loaded(&record);
        let opened = self.resume_from_record(setup, &record);
        let is_lost = opened.is_none() && record.has_state_to_lose();
        state.set_current(Box::new(record), true);
        // Also where this key opens no session after all.
        setup.unreported_loss.fetch_or(is_lost, Ordering::Relaxed);
        if opened.is_some() {
            // Tells other processes that the session is in use.
            setup.schedule_record_renewal();
        }
        opened
    }

    /// The session of a record, if it can be used without a request.
    pub(super) fn resume_from_record(
        &self,
        setup: &Arc<SessionSetup>,
        record: &Record,
    ) -> Option<ConnectedSession<PooledSession>> {
        let kept = resumable_session(record)?;
        let target = setup.upstream_target(Some(Era::Legacy), Arc::<SessionSetup>::clone(setup));
        let profile = ClientProfile {
            client_name: record.client_profile.client_name.clone(),
            client_version: record.client_profile.client_version.clone(),
            capabilities: record.client_profile.capabilities.clone(),
            version: Some(record.version),
        };
        let session = match self.context.upstream.resume(&target, &profile, &kept) {
            Ok(session) => session,
            Err(diagnostic) => {
                tracing::warn!(server = %setup.server.name, trouble = %diagnostic, "a record is not used");
                return None;
            },
        };
        let Some(session) = self.adopt_recorded_session(setup, &record.key, session) else {
            tracing::warn!(server = %setup.server.name, "a record is not used: another session has its session id");
            return None;
        };
        if record.log_level.is_some() || !record.subscriptions.is_empty() {
            let sent = ClientState::from_record(record);
            let state = setup.subscription_state();
            state.client_state.lock().merge(&sent);
            setup.set_last_sent(&session, sent);
        }
        if record.stateful {
            session.mark_stateful();
        }
        setup.apply_record(record);
        session
            .generation
            .store(record.generation, Ordering::Relaxed);
        let details = OpenedSession {
            generation: Generation::new(record.generation),
            // The wall clock may have jumped, and only the server ends a session: its promise is a
            // good moment to replace the session where nothing is lost.
            expires_in: None,
            renew_in: record.expires_in(clock::wall_seconds()),
            unreported_loss: record.unreported_loss,
            stateful: record.stateful,
            ..OpenedSession::FRESH
        };
        Some(ConnectedSession { session, details })
    }
}

/// The session that a record tells of; none if it is a loss marker.
pub(super) fn resumable_session(record: &Record) -> Option<ResumableSession> {
    let target = &record.key.target;
    Some(ResumableSession {
        session_id: record.session_id.clone()?,
        facts: Arc::new(ServerFacts {
            era: target.era,
            keeps_session: true,
            server_info: record.server_info.clone(),
            capabilities: record.capabilities.clone(),
            instructions: record.instructions.clone(),
            ..ServerFacts::assumed(record.version, target.transport)
        }),
    })
}
