//! Ends sessions that nobody came back for.
//!
//! The record goes first, then the session. A client that comes back finds a record with a whole
//! session, or none, and never a session that is deleted under a call. A process that dies in between
//! leaves a session to the limits of its server. That is the smaller harm: nobody uses it, while a
//! session deleted under a run takes the run's state with it.

use std::sync::Arc;

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::PoolKey;
use warmline_core::record::Record;

use super::restore::resumable_session;
use super::{CLOSE_TIMEOUT, SessionFactory};
use crate::server_state::{NO_CREDENTIAL, ServerState};
use warmline_platform::clock;
use warmline_store::Records;
use warmline_upstream::{ClientProfile, Session};

impl SessionFactory {
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
