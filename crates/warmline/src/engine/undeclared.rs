//! A server that is declared nowhere: it is there for as long as somebody has a handle of it.
//!
//! Asked by: `once`.  Nothing of it stays: its shared sessions are closed with its last handle,
//! and nobody else ever shares them; its numbers are shown no longer than that.

use std::sync::Arc;

use warmline_core::key::{DeclaredId, Digest};
use warmline_core::pool::Why;

use super::Engine;
use crate::clock::Home;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::seal::random_bytes;
use crate::server::Server;

/// What the handles of such a server hold together.
#[derive(Debug)]
pub(crate) struct Undeclared {
    engine: Arc<Engine>,
    entry: Arc<Entry>,
    sign: DeclaredId,
}

impl Undeclared {
    /// Takes a server in.
    ///
    /// # Errors
    /// `config-bad-value`, or `not-allowed`: the rules for servers hold for it as well.
    pub(crate) fn enter(engine: &Arc<Engine>, server: Server) -> Result<Arc<Self>> {
        let server = engine.checked(server)?;
        engine.check_allowed(server.name()).map_err(Error::unsent)?;
        let metrics = engine.shared.metrics.passing(server.name());
        let entry = engine.new_entry(server, metrics);
        entry.stands_alone();
        Ok(Arc::new(Self {
            engine: Arc::clone(engine),
            entry,
            sign: DeclaredId(Digest::new(random_bytes())),
        }))
    }

    /// What is known of the server.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// By what its shared sessions are told apart from those of others.
    pub(crate) fn sign(&self) -> DeclaredId {
        self.sign
    }
}

impl Drop for Undeclared {
    fn drop(&mut self) {
        let (engine, name) = (&self.engine, &self.entry.name);
        self.entry.withdraw();
        engine.shared.metrics.passed(name);
        if !engine.entries.load().contains_key(name) {
            engine.shared.records.lock().remove(name);
        }
        let (pool, sign) = (engine.pool.clone(), self.sign);
        if Home::here().is_some() {
            pool.end_shared_by(sign, Why::Evicted);
        } else {
            // Whoever drops a handle where nothing runs leaves no session at a server either.
            let end = async move { pool.end_shared_by(sign, Why::Evicted) };
            engine.keeper.spawn_at_home("once-drop", end);
        }
    }
}
