//! What whoever looks after an engine may ask of it: which runs live, whatever they belong to, and
//! that a session ends.
//!
//! Asked by: status pages and the gateway's admin socket.  What is ended here is lost as when its
//! server ends it, and the next call is told; but it says nothing of the server.

use std::sync::Arc;

use http::HeaderName;

use super::{IdentityHandle, Warmline};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::events::Fingerprint;
use crate::run::{Role, Run, RunShared};

impl Run {
    /// A short form of its digest, as it stands in events and snapshots.
    pub fn fingerprint(&self) -> String {
        Fingerprint::from(self.shared.id).to_string()
    }
}

impl IdentityHandle {
    /// Its live runs. A handle of one closes nothing when it is dropped.
    pub fn runs(&self) -> Vec<Run> {
        let mine = |run: &RunShared| run.who.id == self.who.id;
        joined(&self.engine, mine)
    }
}

impl Warmline {
    /// Whether a server of that name is declared, or was a moment ago, so that live runs still
    /// have it.
    pub fn knows_server(&self, name: &str) -> bool {
        self.engine.entries.load().contains_key(name) || self.engine.keeper.still_keeps(name)
    }

    /// Whether a server of that name may be called: it is declared, or live runs still have it, and
    /// it is not switched off.
    ///
    /// # Errors
    /// `server-unknown` or `not-allowed`.
    pub fn check_server(&self, name: &str) -> Result<()> {
        let is_declared = self.engine.entries.load().contains_key(name);
        let checked = match self.engine.keeper.last_removed(name) {
            Some(last) if !is_declared => last.check_enabled(),
            Some(_) | None => self.engine.entry(name).map(drop),
        };
        checked.map_err(Error::unsent)
    }

    /// Whether live runs still have a server of that name that was taken away.
    pub fn still_serves_removed(&self, name: &str) -> bool {
        self.engine.keeper.still_keeps(name)
    }

    /// Whether some server is spoken to with what a caller hands in by this header.
    pub fn takes_credentials_from(&self, header: &HeaderName) -> bool {
        let entries = self.engine.entries.load();
        let mut sources = entries
            .values()
            .filter_map(|entry| entry.server.credential.as_ref());
        sources.any(|source| source.is_header(header))
    }

    /// The live run of that fingerprint, whosever it is; none where it is over.
    pub fn run_by_fingerprint(&self, fingerprint: &str) -> Option<Run> {
        let is_meant = |run: &RunShared| Fingerprint::from(run.id).to_string() == fingerprint;
        joined(&self.engine, is_meant).pop()
    }

    /// The live runs of that name, whosever they are: each identity can have one.
    pub fn runs_by_name(&self, name: &str) -> Vec<Run> {
        joined(&self.engine, |run| *run.name == *name)
    }

    /// Closes every open session of a server, or only the one with this number of its key and
    /// this generation, and says how many there were. Calls under way on them end first. The next
    /// call opens a new one, and hears that what the server remembered is lost.
    pub fn close_sessions(&self, server: &str, of: Option<(u64, u32)>) -> usize {
        let pool = self.engine.pool();
        let mut closed = 0;
        for cell in pool.cells() {
            if *cell.key().place().server != *server {
                continue;
            }
            for seen in cell.sessions() {
                let named = (cell.number(), seen.generation.number());
                if of.is_none_or(|of| of == named) {
                    pool.end_session(&cell, seen.generation);
                    closed += 1;
                }
            }
        }
        closed
    }
}

/// Live runs, joined.
fn joined(engine: &Arc<Engine>, is_meant: impl Fn(&RunShared) -> bool) -> Vec<Run> {
    let live = engine.live_runs().into_iter();
    live.filter(|run| run.is_live() && is_meant(run))
        .map(|run| Run::new(Arc::clone(engine), run, Role::Joined))
        .collect()
}
