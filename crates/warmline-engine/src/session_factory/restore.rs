//! Sessions of records: resumed with nothing on the wire, or ended because nobody came back for them.
//!
//! To end one, the record goes first, then the session. A client that comes back finds a record with a
//! whole session, or none, and never a session that is deleted under a call. A process that dies in
//! between leaves a session to the limits of its server. That is the smaller harm: nobody uses it,
//! while a session deleted under a run takes the run's state with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::{Generation, OpenedSession};
use warmline_core::pool_key::PoolKey;
use warmline_core::record::Record;

use super::pool_events::store_failure_of;
use super::{CLOSE_TIMEOUT, ClientState, PooledSession, SessionFactory, SessionSetup};
use crate::metrics::{StoreOperation, StoreResult};
use crate::server_state::{NO_CREDENTIAL, ServerState};
use warmline_platform::clock;
use warmline_pool::{ConnectedSession, OpenRequest};
use warmline_store::Records;
use warmline_upstream::{ClientProfile, ResumableSession, ServerFacts, Session};

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
            session.stateful.store(true, Ordering::Relaxed);
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

    /// Ends a session that nobody came back for, unless somebody does meanwhile. While the server
    /// cannot be reached, the record stays for another try.
    pub(crate) async fn end_abandoned(
        &self,
        server: &Arc<ServerState>,
        records: &Records,
        record: Record,
        is_held: impl Fn(&PoolKey) -> bool + Send + Sync,
    ) {
        if is_held(&record.key) {
            return;
        }
        // Whatever may fail or take time before the request comes before the record goes.
        let session = match self.session_to_end(server, &record).await {
            Ok(session) => session,
            Err(diagnostic) if keeps_record_for_retry(server, records, &record, &diagnostic) => {
                return;
            },
            Err(_) => None,
        };
        let end = async {
            // A client that read the record before has the session by now, or is about to.
            if is_held(&record.key) {
                return true;
            }
            match session {
                Some(session) => match end_session(server, &session).await {
                    Ok(()) => false,
                    Err(diagnostic) => {
                        keeps_record_for_retry(server, records, &record, &diagnostic)
                    },
                },
                None => false,
            }
        };
        records.end_abandoned(&record, end).await;
    }

    /// The session of a record, with the credential that opened it. Nothing goes over the wire. None
    /// if there is nothing to end.
    async fn session_to_end(
        &self,
        server: &Arc<ServerState>,
        record: &Record,
    ) -> Result<Option<Session>, Diagnostic> {
        let Some(kept) = resumable_session(record) else {
            return Ok(None);
        };
        let location = server.locate(&self.context.vault).await?;
        // The server moved: the new one must not learn the session id.
        if location.revision != record.key.target.revision {
            return Ok(None);
        }
        let id = record.key.credential;
        let credential = server.credential_by_id(id, &self.context.vault);
        match &credential {
            Some(credential) => credential.ensure_ready().await?,
            None if id == NO_CREDENTIAL => {},
            None => {
                let what = format!(
                    "no credential here opened this session of `{}`",
                    server.name
                );
                return Err(Diagnostic::new(Reason::CredentialUnavailable, what));
            },
        }
        let target =
            server.upstream_target(&location, credential.as_ref(), Some(Era::Legacy), None);
        let upstream = &self.context.upstream;
        let session = upstream.resume(&target, &ClientProfile::default(), &kept)?;
        Ok(Some(session))
    }
}

/// The session that a record tells of; none if it is a loss marker.
fn resumable_session(record: &Record) -> Option<ResumableSession> {
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

async fn end_session(server: &ServerState, session: &Session) -> Result<(), Diagnostic> {
    let ended = clock::timeout(CLOSE_TIMEOUT, session.try_close()).await;
    ended.unwrap_or_else(|_| {
        let what = format!("`{}` did not end a session in time", server.name);
        Err(Diagnostic::new(Reason::Timeout, what))
    })?;
    tracing::info!(server = %server.name, "ended a session that nobody came back for");
    Ok(())
}

/// Whether the record of a session that could not be ended stays for another try.
fn keeps_record_for_retry(
    entry: &ServerState,
    records: &Records,
    record: &Record,
    diagnostic: &Diagnostic,
) -> bool {
    let server = &entry.name;
    // The identity may come back with its credential, here or in a later process.
    let lacks_credential =
        diagnostic.reason == Reason::CredentialUnavailable && entry.has_identity_credentials();
    let again = lacks_credential || records.has_attempts_left(record);
    if again {
        tracing::debug!(%server, trouble = %diagnostic, "a session that nobody came back for is not ended yet");
    } else {
        tracing::warn!(%server, trouble = %diagnostic, "a session that nobody came back for is left to its server");
    }
    again
}
