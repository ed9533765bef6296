//! Stories of the engine and its records: sessions that outlive a process, or the server's memory,
//! or the store itself.
//!
//! A restart is an engine that was closed and another one on the same store: nothing else is left
//! of the first one.
use crate::prelude::*;

mod abandoned_sessions;
mod client_state;
mod parallel_sessions;
mod recording_store;
mod run_resume;
mod secrets;
mod shared_store;
mod state_loss;
mod store_failures;

use self::recording_store::RecordingStore;

/// Beside those of sessions, one record says what the server is.
const OF_THE_SERVER: usize = 1;

/// A server with sessions.
fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// Another life of a program that calls a server and keeps its records in a store.
fn life(server: &LedgerServer, store: &RecordingStore) -> Warmline {
    life_of(Server::http(LEDGER, server.url()), store)
}

/// The same with a server that is declared with more words.
fn life_of(server: Server, store: &RecordingStore) -> Warmline {
    let builder = Warmline::builder().server(server);
    let builder = builder.vault(recording_store::vault());
    builder.store(store.clone()).build().unwrap()
}

/// The run that every life takes up again, and the server as that calls it.
fn chat(life: &Warmline) -> (Run, ServerHandle) {
    let run = life.named_run("chat").unwrap();
    let ledger = run.server(LEDGER).unwrap();
    (run, ledger)
}

/// One more call of the counter, in a run of that name which goes on afterwards.
async fn count_in(warm: &Warmline, run: &str) -> i64 {
    let run = warm.named_run(run).unwrap();
    let counted = count(&run.server(LEDGER).unwrap()).await;
    run.detach();
    counted
}
