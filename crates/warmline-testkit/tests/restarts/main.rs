//! Stories of the engine and its records: sessions that outlive a process, or the server's memory,
//! or the store itself.
//!
//! A restart is an engine that was closed and another one on the same store: nothing else is left
//! of the first one.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;

mod kept;
mod left;
mod lost;
mod orders;
mod resumed;
mod secrets;
mod several;
mod shared;
mod troubled;

use serde_json::{Value, json};
use warmline::{Server, ServerHandle, Warmline};
use warmline_testkit::{LedgerServer, Personality};

use self::kept::Kept;

/// The name of the server in every story.
const LEDGER: &str = "ledger";

/// Beside those of sessions, one record says what the server is.
const OF_THE_SERVER: usize = 1;

/// A server with sessions.
fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// Another life of a program that calls a server and keeps its records in a store.
fn life(server: &LedgerServer, store: &Kept) -> Warmline {
    Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .vault(kept::vault())
        .store(store.clone())
        .build()
        .unwrap()
}

/// One more call of the counter, in a run of that name which goes on afterwards.
async fn count(warm: &Warmline, run: &str) -> i64 {
    let run = warm.named(run).unwrap();
    let counted = counted(&run.server(LEDGER).unwrap()).await;
    run.detach();
    counted
}

/// One more call of the counter, which counts in its session.
async fn counted(handle: &ServerHandle) -> i64 {
    let result = handle.call("counter", json!({})).await.unwrap();
    result.structured::<Value>().unwrap()["count"]
        .as_i64()
        .unwrap()
}
