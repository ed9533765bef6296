//! The first contact with a server: which era is used, and what is known of the other.
//!
//! Many servers speak both eras and keep state only in the legacy one; their versions do not say so.
//! Inside a run, where state matters, both are tried once, and the result is remembered.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::SessionMode;
use warmline_core::pool_key::Transport;

use crate::Upstream;
use crate::detect;
use crate::server_facts::ServerFacts;
use crate::server_facts::known_eras::KnownEras;
use crate::session::Session;
use crate::target::{ClientProfile, ServerTarget};
use warmline_platform::clock;

/// The result of a first contact.
#[derive(Debug)]
pub struct FirstContact {
    /// A session in the chosen era, not used yet.
    pub session: Session,
    pub facts: Arc<ServerFacts>,
    /// The facts of the other era, if the server speaks it.
    pub other_facts: Option<Arc<ServerFacts>>,
    /// The session in the other era, if one was opened. Dropped, it ends in the background; a process
    /// takes a moment for that.
    pub other_session: Option<Session>,
}

/// Which eras are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraSelection {
    FirstAnswering,
    /// Both, unless it is known which one keeps state.
    Both,
    /// Both, but never two processes at a time: the first ends before the second starts.
    BothInTurn,
}

pub(crate) async fn make_first_contact(
    upstream: &Upstream,
    server: &ServerTarget,
    declared: &ClientProfile,
    legs: EraSelection,
) -> Result<FirstContact, Diagnostic> {
    let is_said = server.required_era().is_some() || server.sessions == SessionMode::Never;
    if is_said || legs == EraSelection::FirstAnswering {
        let session = upstream.open(server, declared).await?;
        return Ok(first_contact_of(upstream, server, declared, session));
    }
    let known = upstream.known_eras(server, declared).unwrap_or_default();
    let remembered = match stateful_era(&known) {
        Some(era) => Some(upstream.open(&server.with_era(era), declared).await),
        None => None,
    };
    let session = match remembered {
        Some(Err(diagnostic)) if !detect::contradicts_known_era(&diagnostic) => {
            return Err(diagnostic);
        },
        Some(Ok(session)) => session,
        // The opening forgot what it contradicted.
        Some(Err(_)) | None => upstream.open(server, declared).await?,
    };
    let met = first_contact_of(upstream, server, declared, session);
    let known = upstream.known_eras(server, declared).unwrap_or_default();
    let is_open = met.other_facts.is_none() && known.missing != Some(Era::Legacy);
    if met.facts.era == Era::Modern && is_open {
        let is_in_turn =
            legs == EraSelection::BothInTurn && met.facts.transport == Transport::Stdio;
        // On the heap: opening is rare, and its future is large.
        return Box::pin(try_legacy(upstream, server, declared, met, is_in_turn)).await;
    }
    Ok(met)
}

/// The era that keeps state, if known: over stdio the legacy one has a process for each run, over
/// HTTP it may have sessions.
fn stateful_era(known: &KnownEras) -> Option<Era> {
    match known.keeps_sessions() {
        Some(true) => Some(Era::Legacy),
        Some(false) if known.modern.is_some() => Some(Era::Modern),
        Some(false) | None => None,
    }
}

/// Opens the legacy era as well, and uses it if it keeps state. With room for one process only the
/// modern one ends first, and starts again if the legacy one is not used.
async fn try_legacy(
    upstream: &Upstream,
    server: &ServerTarget,
    profile: &ClientProfile,
    mut modern: FirstContact,
    is_in_turn: bool,
) -> Result<FirstContact, Diagnostic> {
    if is_in_turn {
        modern.session.close().await;
    }
    let legacy_target = server.with_era(Era::Legacy);
    // The modern era has shown how long this server takes; the call must not wait much longer.
    let limit = MIN_LEGACY_TIMEOUT + modern.facts.open_duration * 4;
    let opened = clock::timeout(limit, upstream.open(&legacy_target, profile)).await;
    let keeps = matches!(&opened, Ok(Ok(legacy)) if legacy.facts().keeps_session);
    tracing::debug!(server = server.name, keeps, "the legacy era was tried");
    let is_missing = match opened {
        Ok(Ok(legacy)) if keeps || is_in_turn => {
            return Ok(FirstContact {
                facts: Arc::clone(legacy.shared_facts()),
                other_facts: Some(modern.facts),
                session: legacy,
                other_session: Some(modern.session).filter(|_| !is_in_turn),
            });
        },
        Ok(Ok(legacy)) => {
            modern.other_facts = Some(Arc::clone(legacy.shared_facts()));
            modern.other_session = Some(legacy);
            false
        },
        Ok(Err(diagnostic)) => detect::contradicts_known_era(&diagnostic),
        // A server behind a URL may be slow once. A program that answered before is not.
        Err(clock::Elapsed) => modern.facts.transport == Transport::Stdio,
    };
    if is_missing {
        let known = upstream.known_eras_entry(server, profile);
        known.record_missing(Era::Legacy);
    }
    if !is_in_turn {
        return Ok(modern);
    }
    let modern_target = server.with_era(Era::Modern);
    let session = upstream.open(&modern_target, profile).await?;
    Ok(first_contact_of(upstream, server, profile, session))
}

const MIN_LEGACY_TIMEOUT: Duration = Duration::from_secs(10);

fn first_contact_of(
    upstream: &Upstream,
    server: &ServerTarget,
    declared: &ClientProfile,
    session: Session,
) -> FirstContact {
    let facts = Arc::clone(session.shared_facts());
    let known = upstream.known_eras(server, declared).unwrap_or_default();
    FirstContact {
        session,
        other_facts: match facts.era {
            Era::Legacy => known.modern,
            Era::Modern => known.legacy,
        },
        facts,
        other_session: None,
    }
}
