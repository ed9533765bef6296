//! The pool entry that serves each server of a run: found without building a key and without a lock.
//!
//! A run calls a few servers, and there may be very many runs: the table is a short sorted list, copied
//! when it changes. Servers are told apart by their states, not by their names: another server of the
//! same name may replace one while the run goes on.
//!
//! Several runs may share a pool entry, and each of them learns of a loss there: so a row knows which
//! losses its run has learned of. A row that is removed leaves a loss that its run does not know of to
//! the pending losses of the run, whatever became of its entry: there is no other place where it could
//! get forgotten.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use warmline_core::era::Era;
use warmline_core::policy::SessionScope;
use warmline_core::pool::{EndReason, StateLoss};
use warmline_core::pool_key::CredentialId;

use super::{RunOrigin, RunState};
use crate::server_state::ServerState;
use crate::session_factory::SessionEntry;

type Rows = SmallVec<[SessionTableRow; 1]>;

#[derive(Clone)]
pub(super) struct SessionTableRow {
    server: Arc<ServerState>,
    selector: RouteSelector,
    /// The last loss of the entry that the run has learned of, or that does not concern it.
    known_loss: u16,
    /// It turned out wrong: no call uses it until it is found again or replaced.
    is_stale: bool,
    pub(super) pool_entry: Arc<SessionEntry>,
}

impl SessionTableRow {
    fn is_for_server(&self, server: &ServerState) -> bool {
        std::ptr::eq(&raw const *self.server, server)
    }

    fn is_for_entry(&self, entry: &SessionEntry) -> bool {
        std::ptr::eq(&raw const *self.pool_entry, entry)
    }

    fn knows_loss(&self, loss: StateLoss) -> bool {
        loss.is_known_to(self.known_loss)
    }
}

/// How the pool entry of a server is chosen. A run may have one entry for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteSelector {
    /// By the server alone.
    Server,
    /// By the era of the client that calls.
    Era(Era),
    /// By the credential in the caller's request, and the era.
    RequestCredential(CredentialTag, Option<Era>),
    /// By a tool that has sessions of its own, with their scope.
    Tool(SessionScope),
}

/// The beginning of a keyed digest: enough to tell request credentials apart within one run, and there
/// may be very many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CredentialTag([u8; 5]);

impl CredentialTag {
    pub(crate) const fn from_credential(id: CredentialId) -> Self {
        let [a, b, c, d, e, ..] = *id.0.as_bytes();
        Self([a, b, c, d, e])
    }
}

#[derive(Default)]
pub(crate) struct SessionTable(ArcSwapOption<Rows>);

impl SessionTable {
    pub(crate) fn find(
        &self,
        server: &ServerState,
        by: RouteSelector,
    ) -> Option<Arc<SessionEntry>> {
        let rows = self.0.load();
        let rows = rows.as_ref()?;
        let row = rows.get(find_row(rows, server, by).ok()?)?;
        (!row.is_stale).then(|| Arc::clone(&row.pool_entry))
    }

    /// The declared server of that name where the run has sessions of its own.
    pub(crate) fn run_server(&self, name: &str) -> Option<Arc<ServerState>> {
        let rows = self.0.load();
        find_run_server(rows.as_ref()?, name).cloned()
    }

    /// Lets an entry serve the server. A new row knows of losses up to `initial_loss`. False, and
    /// nothing changes, where the run keeps to another server of that name.
    fn insert(
        &self,
        server: &Arc<ServerState>,
        by: RouteSelector,
        entry: &Arc<SessionEntry>,
        initial_loss: impl FnOnce() -> u16,
    ) -> bool {
        let is_free = |rows: &Rows| {
            let other =
                find_run_server(rows, &server.name).filter(|kept| !Arc::ptr_eq(kept, server));
            server.is_undeclared() || other.is_none()
        };
        // Each call of a tool that has sessions of its own resolves its route.
        if self
            .find(server, by)
            .is_some_and(|known| Arc::ptr_eq(&known, entry))
        {
            return true;
        }
        let initial_loss = initial_loss();
        let before = self.update(|rows| {
            if !is_free(rows) {
                return;
            }
            let row = SessionTableRow {
                server: Arc::clone(server),
                selector: by,
                known_loss: known_loss(rows, entry).unwrap_or(initial_loss),
                is_stale: false,
                pool_entry: Arc::clone(entry),
            };
            match find_row(rows, server, by) {
                Ok(at) => rows[at] = row,
                Err(at) => rows.insert(at, row),
            }
        });
        before.as_deref().is_none_or(is_free)
    }

    /// The entry of the server was the wrong one.
    pub(crate) fn mark_stale(&self, server: &ServerState, by: RouteSelector) {
        self.update(|rows| {
            if let Ok(at) = find_row(rows, server, by) {
                rows[at].is_stale = true;
            }
        });
    }

    fn for_each(&self, visit: impl FnMut(&SessionTableRow)) {
        let rows = self.0.load();
        rows.iter().flat_map(|rows| rows.iter()).for_each(visit);
    }

    /// Removes rows. Losses that their run has not learned of were saved before.
    fn remove_where(&self, is_meant: impl Fn(&SessionTableRow) -> bool) {
        let rows = self.0.load();
        if rows.iter().any(|rows| rows.iter().any(&is_meant)) {
            self.update(|rows| rows.retain(|row| !is_meant(row)));
        }
    }

    pub(crate) fn entries_of(&self, server: &ServerState) -> Vec<Arc<SessionEntry>> {
        self.entries_where(|row| row.is_for_server(server))
    }

    pub(super) fn entries_where(
        &self,
        is_meant: impl Fn(&SessionTableRow) -> bool,
    ) -> Vec<Arc<SessionEntry>> {
        let mut entries = Vec::new();
        self.for_each(|row| {
            if is_meant(row) {
                entries.push(Arc::clone(&row.pool_entry));
            }
        });
        entries
    }

    /// The last loss of an entry that the run has learned of; none without a row.
    pub(crate) fn known_loss(&self, entry: &SessionEntry) -> Option<u16> {
        known_loss(self.0.load().as_ref()?, entry)
    }

    /// The run learns of a loss. Whether it is the first time; none without a row.
    pub(crate) fn mark_loss_known(&self, entry: &SessionEntry, loss: StateLoss) -> Option<bool> {
        self.known_loss(entry)?;
        let before = self.update(|rows| {
            let is_new =
                |row: &&mut SessionTableRow| row.is_for_entry(entry) && !row.knows_loss(loss);
            for row in rows.iter_mut().filter(is_new) {
                row.known_loss = loss.number;
            }
        });
        Some(!loss.is_known_to(known_loss(before.as_ref()?, entry)?))
    }

    pub(crate) fn clear(&self) {
        self.0.store(None);
    }

    /// Changes the rows, and returns the rows before.
    fn update(&self, change: impl Fn(&mut Rows)) -> Option<Arc<Rows>> {
        self.0.rcu(|rows| {
            let mut rows = rows.as_deref().cloned().unwrap_or_default();
            change(&mut rows);
            Some(Arc::new(rows))
        })
    }
}

/// The index of a row, or where it would be.
fn find_row(rows: &Rows, server: &ServerState, by: RouteSelector) -> Result<usize, usize> {
    let wanted: (*const ServerState, RouteSelector) = (server, by);
    rows.binary_search_by(|row| (Arc::as_ptr(&row.server), row.selector).cmp(&wanted))
}

/// The last known loss of an entry, the same in all its rows.
fn known_loss(rows: &Rows, entry: &SessionEntry) -> Option<u16> {
    let row = rows.iter().find(|row| row.is_for_entry(entry));
    row.map(|row| row.known_loss)
}

fn find_run_server<'a>(rows: &'a Rows, name: &str) -> Option<&'a Arc<ServerState>> {
    let is_kept = |row: &&SessionTableRow| {
        let is_own = row.pool_entry.key.run().is_some();
        *row.server.name == *name && is_own && !row.is_stale && !row.server.is_undeclared()
    };
    rows.iter().find(is_kept).map(|row| &row.server)
}

fn contains_name(lost: &[Arc<str>], server: &str) -> bool {
    lost.iter().any(|name| **name == *server)
}

impl RunState {
    fn add_pending_loss(&self, server: &Arc<str>) {
        self.pending_losses.rcu(|lost| {
            let mut lost = lost.as_deref().cloned().unwrap_or_default();
            if !contains_name(&lost, server) {
                lost.push(Arc::clone(server));
            }
            Some(Arc::new(lost))
        });
    }

    pub(crate) fn has_pending_loss(&self, server: &str) -> bool {
        let lost = self.pending_losses.load();
        lost.as_ref()
            .is_some_and(|lost| contains_name(lost, server))
    }

    /// The run learns of a loss at a server of that name; false if it has before.
    pub(crate) fn take_pending_loss(&self, server: &str) -> bool {
        if !self.has_pending_loss(server) {
            return false;
        }
        let before = self.pending_losses.rcu(|lost| {
            let mut lost = lost.as_deref().cloned().unwrap_or_default();
            lost.retain(|name| **name != *server);
            (!lost.is_empty()).then(|| Arc::new(lost))
        });
        before.is_some_and(|before| contains_name(&before, server))
    }

    /// A call left state in an entry that ended meanwhile.
    pub(crate) fn note_state_left(&self, entry: &SessionEntry, ended: EndReason) {
        let setup = &entry.setup;
        if is_loss_for_runs(ended) && setup.has_state_to_lose() {
            self.add_pending_loss(&setup.server.name);
        }
    }

    /// Lets an entry serve the server; false if the run keeps to another server of that name.
    pub(crate) fn add_route(
        &self,
        server: &Arc<ServerState>,
        by: RouteSelector,
        entry: &Arc<SessionEntry>,
    ) -> bool {
        self.save_pending_losses(|row| {
            row.is_for_server(server) && row.selector == by && !row.is_for_entry(entry)
        });
        self.session_table
            .insert(server, by, entry, || self.initial_known_loss(entry))
    }

    /// The last loss of an entry that does not concern this run, which comes to it now. On a shared
    /// session a run without an earlier life had no state yet. Any other run rather learns of a loss once
    /// too often than never.
    fn initial_known_loss(&self, entry: &SessionEntry) -> u16 {
        if entry.key.run().is_some() {
            return StateLoss::NO_LOSS_KNOWN;
        }
        let last = entry.last_loss().map(|loss| loss.number);
        match self.origin {
            RunOrigin::New => last.unwrap_or(StateLoss::PRIOR_LOSS),
            RunOrigin::Named if !entry.setup.has_foreign_state() => {
                last.unwrap_or(StateLoss::NO_LOSS_KNOWN)
            },
            RunOrigin::Named | RunOrigin::Rejoined => StateLoss::NO_LOSS_KNOWN,
        }
    }

    pub(crate) fn remove_ended_routes(&self, name: &str) {
        self.remove_routes(|row| {
            *row.server.name == *name && row.pool_entry.end_reason().is_some()
        });
    }

    /// Removes the routes to a server, whose entries of this run have ended.
    pub(crate) fn remove_server(&self, server: &ServerState) {
        self.remove_routes(|row| row.is_for_server(server));
    }

    fn remove_routes(&self, is_meant: impl Fn(&SessionTableRow) -> bool) {
        self.save_pending_losses(&is_meant);
        self.session_table.remove_where(is_meant);
    }

    /// Comes before rows are removed, so that no call finds another route without learning of the loss.
    fn save_pending_losses(&self, is_leaving: impl Fn(&SessionTableRow) -> bool) {
        self.session_table.for_each(|row| {
            if is_leaving(row) && has_unknown_loss(row) {
                self.add_pending_loss(&row.server.name);
            }
        });
    }
}

/// Whether state was lost with the entry of a row, and the run has not learned of it.
fn has_unknown_loss(row: &SessionTableRow) -> bool {
    let setup = &row.pool_entry.setup;
    let loss = row.pool_entry.last_loss();
    let is_unknown = loss.is_some_and(|loss| !row.knows_loss(loss));
    // An unreported loss of a shared entry may concern other runs only.
    let is_own = row.pool_entry.key.run().is_some();
    let is_unreported = setup.has_unreported_loss() && (is_own || loss.is_none());
    let took_state = row.pool_entry.end_reason().is_some_and(is_loss_for_runs);
    is_unknown || is_unreported || (took_state && setup.has_state_to_lose())
}

/// Whether an entry that ends so takes state from runs that go on. Callers that share a session know
/// that limits end it.
const fn is_loss_for_runs(ended: EndReason) -> bool {
    matches!(ended, EndReason::Gone | EndReason::Reloaded)
}
