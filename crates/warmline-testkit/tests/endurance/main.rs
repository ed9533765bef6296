//! What measures a whole process: memory, descriptors, the log. These tests run one at a time.
#![cfg(test)]

use std::future::Future;
use std::sync::{Mutex, PoisonError};

mod call_log;
#[path = "../stage/census.rs"]
mod census;
#[path = "../engine/fixture.rs"]
#[expect(dead_code, reason = "the tests of the engine use more of it")]
mod fixture;
mod hostile_clients;
#[path = "../stage/http_sse_server.rs"]
mod http_sse_server;
#[path = "../stage/ledger_process.rs"]
mod ledger_process;
mod leftovers;
#[path = "../engine/log_capture.rs"]
mod log_capture;
mod many_runs;
mod memory;
#[path = "../stage/stdio_program.rs"]
mod stdio_program;
mod sweep;

/// Plays a test while no other of this process runs. The lock comes first: the runtime of a test that
/// waits would count as a leftover of the one that runs.
pub(crate) fn play_alone(story: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(story);
}
