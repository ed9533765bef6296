//! A server that is declared nowhere: it is there for as long as somebody has a handle of it.
//!
//! Asked by: `once`.  Nothing of it stays: its sessions are closed with its last handle, also those
//! of a run that goes on, and nobody else ever shares them; its numbers are shown no longer than
//! that.

use std::sync::Arc;

use warmline_core::key::{DeclaredId, Digest};
use warmline_core::pool::Why;

use super::{Caller, Engine};
use crate::clock::Home;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::run::RunShared;
use crate::seal::random_bytes;
use crate::server::Server;

/// What the handles of such a server hold together.
#[derive(Debug)]
pub(crate) struct Undeclared {
    engine: Arc<Engine>,
    entry: Arc<Entry>,
    sign: DeclaredId,
    /// The run that it is called in.
    run: Option<Arc<RunShared>>,
}

impl Undeclared {
    /// Takes a server in.
    ///
    /// # Errors
    /// `config-bad-value`, or `not-allowed`: the rules for servers hold for it as well.
    pub(crate) fn enter(caller: &Caller, server: Server) -> Result<Arc<Self>> {
        let engine = &caller.engine;
        let server = engine.checked(server)?;
        engine.check_allowed(server.name()).map_err(Error::unsent)?;
        let metrics = engine.shared.metrics.passing(server.name());
        let entry = engine.new_entry(server, metrics);
        entry.stands_alone();
        Ok(Arc::new(Self {
            engine: Arc::clone(engine),
            entry,
            sign: DeclaredId(Digest::new(random_bytes())),
            run: caller.run.clone(),
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
        let of_run = self.run.as_ref().map(|run| {
            let cells = run.routes.cells_of(&self.entry);
            run.leaves(&self.entry);
            cells
        });
        let (pool, sign) = (engine.pool.clone(), self.sign);
        let end = move || {
            pool.end_shared_by(sign, Why::Evicted);
            for cell in of_run.into_iter().flatten() {
                pool.end(&cell, Why::Evicted);
            }
        };
        if Home::here().is_some() {
            end();
        } else {
            // Whoever drops a handle where nothing runs leaves no session at a server either.
            engine.keeper.spawn_at_home("once-drop", async { end() });
        }
    }
}
