//! The first contact with a server: which leg is taken, and what is known of the other.
//!
//! Asked by: [`Upstream::first_contact`].
//!
//! Many servers speak both eras and keep state on their legacy leg alone, and what they say of
//! their versions does not tell. So inside a run, where state matters, both legs are tried once;
//! what was found out is remembered.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::Transport;
use warmline_core::policy::Sessions;

use super::Upstream;
use super::detect;
use super::facts::Facts;
use super::server::Server;
use super::session::{Declared, Session};
use super::verdicts::Verdict;
use crate::clock;

/// What a first contact came to.
#[derive(Debug)]
pub struct Contact {
    /// A session on the leg that was taken, never used so far.
    pub session: Session,
    /// What is known of that leg.
    pub facts: Arc<Facts>,
    /// What is known of the other one, where the server has it.
    pub other: Option<Arc<Facts>>,
    /// The session on the other leg, if one was opened beside this. Dropped, it ends in the
    /// background; a process takes a moment for that.
    pub beside: Option<Session>,
}

/// Which legs of a server are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legs {
    /// The first that answers.
    First,
    /// Both, where it is not known yet which of them keeps state.
    Both,
    /// Both as well, but never two processes at a time: the first ends before the second starts.
    InTurn,
}

/// Meets a server.
pub(crate) async fn meet(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
    legs: Legs,
) -> Result<Contact, Trouble> {
    let is_said = server.said_era().is_some() || server.sessions == Sessions::Never;
    if is_said || legs == Legs::First {
        let session = upstream.open(server, declared).await?;
        return Ok(contact(upstream, server, declared, session));
    }
    let known = upstream.verdict(server, declared).unwrap_or_default();
    let remembered = match leg_with_state(&known) {
        Some(era) => Some(upstream.open(&server.in_era(era), declared).await),
        None => None,
    };
    let session = match remembered {
        Some(Err(trouble)) if !detect::speaks_of_the_era(&trouble) => return Err(trouble),
        Some(Ok(session)) => session,
        // What was remembered is not true any more, and was forgotten by that.
        Some(Err(_)) | None => upstream.open(server, declared).await?,
    };
    let met = contact(upstream, server, declared, session);
    let known = upstream.verdict(server, declared).unwrap_or_default();
    let is_open = met.other.is_none() && known.lacks != Some(Era::Legacy);
    if met.facts.era == Era::Modern && is_open {
        if legs == Legs::InTurn && met.facts.transport == Transport::Stdio {
            // Opening is rare, and its future is large.
            return Box::pin(legacy_after(upstream, server, declared, met)).await;
        }
        return Ok(try_legacy(upstream, server, declared, met).await);
    }
    Ok(met)
}

/// The leg that keeps state, as far as it is known: over stdio the legacy one has a process for
/// each run, over HTTP it may have sessions.
fn leg_with_state(known: &Verdict) -> Option<Era> {
    match known.keeps_sessions() {
        Some(true) => Some(Era::Legacy),
        Some(false) if known.modern.is_some() => Some(Era::Modern),
        Some(false) | None => None,
    }
}

/// Opens the legacy leg as well, takes it if it keeps state, and ends the other one.
async fn try_legacy(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
    modern: Contact,
) -> Contact {
    let leg = server.in_era(Era::Legacy);
    // The other leg has shown how long this server takes; it must not hold the call for long.
    let patience = PATIENCE + modern.facts.opened_in * 4;
    let opened = clock::timeout(patience, upstream.open(&leg, declared)).await;
    let (era, keeps) = match &opened {
        Ok(Ok(legacy)) => (legacy.facts().era, legacy.facts().keeps_session),
        Ok(Err(_)) | Err(clock::Elapsed) => (Era::Legacy, false),
    };
    tracing::debug!(server = server.name, %era, keeps, "the other leg was tried");
    match opened {
        Ok(Ok(legacy)) if keeps => Contact {
            facts: Arc::clone(legacy.shared_facts()),
            other: Some(modern.facts),
            session: legacy,
            beside: Some(modern.session),
        },
        Ok(Ok(legacy)) => Contact {
            other: Some(Arc::clone(legacy.shared_facts())),
            beside: Some(legacy),
            ..modern
        },
        Ok(Err(trouble)) if !detect::speaks_of_the_era(&trouble) => modern,
        // Behind a URL anything may be slow once. A program that answered before is not.
        Err(clock::Elapsed) if modern.facts.transport != Transport::Stdio => modern,
        Ok(Err(_)) | Err(clock::Elapsed) => {
            upstream
                .verdicts
                .learn_missing(server, declared, Era::Legacy);
            modern
        },
    }
}

/// The same where there is room for one process only: the modern one ends first, and is started
/// again where there is no other.
async fn legacy_after(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
    modern: Contact,
) -> Result<Contact, Trouble> {
    modern.session.close().await;
    let patience = PATIENCE + modern.facts.opened_in * 4;
    let leg = server.in_era(Era::Legacy);
    let opened = clock::timeout(patience, upstream.open(&leg, declared)).await;
    let trouble = match opened {
        Ok(Ok(session)) => {
            return Ok(Contact {
                facts: Arc::clone(session.shared_facts()),
                other: Some(modern.facts),
                session,
                beside: None,
            });
        },
        Ok(Err(trouble)) => Some(trouble),
        Err(clock::Elapsed) => None,
    };
    if trouble.is_none_or(|trouble| detect::speaks_of_the_era(&trouble)) {
        let verdicts = &upstream.verdicts;
        verdicts.learn_missing(server, declared, Era::Legacy);
    }
    let session = upstream.open(&server.in_era(Era::Modern), declared).await?;
    Ok(contact(upstream, server, declared, session))
}

/// How long the legacy leg may take at least.
const PATIENCE: Duration = Duration::from_secs(10);

fn contact(upstream: &Upstream, server: &Server, declared: &Declared, session: Session) -> Contact {
    let facts = Arc::clone(session.shared_facts());
    let known = upstream.verdict(server, declared).unwrap_or_default();
    let other = match facts.era {
        Era::Legacy => known.modern,
        Era::Modern => known.legacy,
    };
    Contact {
        session,
        facts,
        other,
        beside: None,
    }
}
