//! A server without a declaration (`once`). Its sessions and metrics end with its last handle, also
//! in a run that goes on, and nobody shares them.

use std::sync::Arc;

use warmline_core::pool::EndReason;
use warmline_core::pool_key::{ClientProfileId, Digest};

use super::Engine;
use crate::error::{Error, Result};
use crate::run_state::RunState;
use crate::server::Server;
use crate::server_state::ServerState;
use crate::session_factory::SessionSetup;
use warmline_platform::clock::RuntimeHandle;
use warmline_store::keyring::random_bytes;

#[derive(Debug)]
pub(crate) struct UndeclaredServer {
    engine: Arc<Engine>,
    pub(crate) server: Arc<ServerState>,
    /// Keeps its shared sessions apart.
    pub(crate) sharing_id: ClientProfileId,
    run: Option<Arc<RunState>>,
}

impl UndeclaredServer {
    /// Registers a server. The rules for servers hold for it as well.
    pub(crate) fn register(
        engine: &Arc<Engine>,
        run: Option<Arc<RunState>>,
        server: Server,
    ) -> Result<Arc<Self>> {
        let server = engine.check_server(server)?;
        engine.check_allowed(server.name()).map_err(Error::unsent)?;
        let metrics = engine.context.metrics.acquire_undeclared(server.name());
        let entry = engine.new_server_state(server, metrics);
        entry.mark_undeclared();
        Ok(Arc::new(Self {
            engine: Arc::clone(engine),
            server: entry,
            sharing_id: ClientProfileId(Digest::new(random_bytes())),
            run,
        }))
    }
}

impl Drop for UndeclaredServer {
    fn drop(&mut self) {
        let (engine, name) = (&self.engine, &self.server.name);
        self.server.withdraw();
        engine.context.metrics.release_undeclared(name);
        if !engine.servers.load().contains_key(name) {
            engine.context.records.lock().remove(name);
        }
        let of_run = self.run.as_ref().map(|run| {
            let cells = run.session_table.entries_of(&self.server);
            run.remove_server(&self.server);
            cells
        });
        let (pool, server) = (engine.pool.clone(), Arc::clone(&self.server));
        let end = move || {
            let is_of_it = |setup: &SessionSetup| Arc::ptr_eq(&setup.server, &server);
            pool.end_shared_with_setup(is_of_it, EndReason::Evicted);
            for entry in of_run.into_iter().flatten() {
                pool.end_entry(&entry, EndReason::Evicted);
            }
        };
        if RuntimeHandle::current().is_some() {
            return end();
        }
        let end = async { end() };
        engine.maintenance.spawn_on_any_runtime("once-drop", end);
    }
}
