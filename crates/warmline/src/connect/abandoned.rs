//! Sessions that nobody came back for: ended at their server, and nobody else's.
//!
//! Asked by: the keeper, which found their records.
//!
//! The record goes first, and then the session. Whoever comes back finds the one or the other: a
//! record whose session is whole, or none, and never a session that is ended under a call. A
//! process that dies in between leaves a session to the limits of its server, which is the smaller
//! harm: nobody has it, while a session that is ended under a run takes the run's state with it.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Transport};
use warmline_core::record::Record;

use super::{CLOSE_WITHIN, Connect};
use crate::clock;
use crate::credentials::Credential;
use crate::entry::{Entry, NO_CREDENTIAL};
use crate::store::Records;
use crate::upstream::{Declared, Facts, Kept, Session};

impl Connect {
    /// Ends a session that nobody came back for, unless somebody does meanwhile. While its server
    /// cannot be told, the record stays for another try.
    pub(crate) async fn end_abandoned(
        &self,
        entry: &Arc<Entry>,
        records: &Records,
        record: Record,
        is_held: impl Fn(&Key) -> bool + Send,
    ) {
        if is_held(&record.key) {
            return;
        }
        // Whatever may fail or take time before anything is sent comes before the record goes.
        let session = match self.to_be_ended(entry, &record).await {
            Ok(session) => session,
            Err(trouble) if is_tried_again(entry, records, &record, &trouble) => return,
            Err(_) => None,
        };
        let Some(taken) = records.take_out(&record).await else {
            return;
        };
        // Whoever read the record before it went holds its session by now, or is about to.
        if is_held(&record.key) {
            records.put_back(taken).await;
            return;
        }
        if let Some(session) = session
            && let Err(trouble) = end(entry, &session).await
            && is_tried_again(entry, records, &record, &trouble)
        {
            records.put_back(taken).await;
        }
    }

    /// The session of a record, as whoever opened it, with nothing on the wire. None where there is
    /// nothing to end.
    async fn to_be_ended(
        &self,
        entry: &Arc<Entry>,
        record: &Record,
    ) -> Result<Option<Session>, Trouble> {
        let Some(id) = &record.session_id else {
            return Ok(None);
        };
        let found = entry.found(&self.shared.vault).await?;
        // The session is elsewhere than the server is now, and its id is nobody else's business.
        if found.revision != record.key.place().revision {
            return Ok(None);
        }
        let credential = self.opened_with(entry, record)?;
        if let Some(credential) = &credential {
            credential.ready().await?;
        }
        let target = entry.target(&found, credential.as_ref(), Some(Era::Legacy), None);
        let facts = Facts {
            era: Era::Legacy,
            version: record.version,
            transport: Transport::Http,
            keeps_session: true,
            server_info: None,
            capabilities: record.capabilities.clone(),
            instructions: None,
            evidence: Vec::new(),
            opened_in: Duration::ZERO,
            expires_in: None,
            said: None,
            heard: None,
        };
        let kept = Kept {
            session_id: id.clone(),
            facts: Arc::new(facts),
        };
        let upstream = &self.shared.upstream;
        let session = upstream.resume(&target, &Declared::default(), &kept)?;
        Ok(Some(session))
    }

    /// As whom a session was opened: nobody else speaks of it to its server.
    fn opened_with(
        &self,
        entry: &Arc<Entry>,
        record: &Record,
    ) -> Result<Option<Arc<Credential>>, Trouble> {
        let id = record.key.credential();
        if id == NO_CREDENTIAL {
            return Ok(None);
        }
        let known = entry.credential_with(id, &self.shared.vault);
        known.map(Some).ok_or_else(|| {
            let what = format!("nobody here speaks to `{}` as who opened it", entry.name);
            Trouble::new(Reason::CredentialUnavailable, what)
        })
    }
}

async fn end(entry: &Entry, session: &Session) -> Result<(), Trouble> {
    let ended = clock::timeout(CLOSE_WITHIN, session.end()).await;
    ended.unwrap_or_else(|_| {
        let what = format!("`{}` did not end a session in time", entry.name);
        Err(Trouble::new(Reason::Timeout, what))
    })?;
    tracing::info!(server = %entry.name, "ended a session that nobody came back for");
    Ok(())
}

/// Whether a session that could not be ended keeps its record for another try.
fn is_tried_again(entry: &Entry, records: &Records, record: &Record, trouble: &Trouble) -> bool {
    let server = &entry.name;
    // Whose credential it needs may come back, here or in a later process.
    let is_somebodys =
        trouble.reason == Reason::CredentialUnavailable && entry.speaks_per_identity();
    let again = is_somebodys || records.keeps_for_another_try(record);
    if again {
        tracing::debug!(%server, %trouble, "a session that nobody came back for is not ended yet");
    } else {
        tracing::warn!(%server, %trouble, "a session that nobody came back for is left to its server");
    }
    again
}
