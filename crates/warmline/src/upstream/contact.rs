//! The first contact with a server: which leg is taken, and what is known of the other.
//!
//! Asked by: [`Upstream::first_contact`].

use std::sync::Arc;

use warmline_core::era::Era;
use warmline_core::exchange::Trouble;

use super::Upstream;
use super::facts::Facts;
use super::server::Server;
use super::session::{Declared, Session};

/// What a first contact came to.
#[derive(Debug)]
pub struct Contact {
    /// A session on the leg that was taken, never used so far.
    pub session: Session,
    /// What is known of that leg.
    pub facts: Arc<Facts>,
    /// What is known of the other one, where the server has it.
    pub other: Option<Arc<Facts>>,
}

/// Meets a server.
pub(crate) async fn meet(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
    _inside_run: bool,
) -> Result<Contact, Trouble> {
    let session = upstream.open(server, declared).await?;
    let facts = Arc::clone(session.shared_facts());
    let verdict = upstream.verdict(server, declared).unwrap_or_default();
    let other = match facts.era {
        Era::Legacy => verdict.modern,
        Era::Modern => verdict.legacy,
    };
    Ok(Contact {
        session,
        facts,
        other,
    })
}
