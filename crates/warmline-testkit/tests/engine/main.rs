//! The engine that people embed, against servers that keep a ledger.
//!
//! Each test begins with a [`fixture::World`] and ends with its `finish`: nothing is left running, the
//! server saw nothing that a client must not do, and the metrics agree with what happened.
#![cfg(test)]

mod alerts;
mod bounded_growth;
mod breaker;
mod breaker_dead_server;
mod broken_streams;
mod calls;
#[path = "../stage/census.rs"]
mod census;
mod child_processes;
mod child_server;
mod child_starts;
mod client_state;
mod close;
mod crash_storm;
mod credentials;
mod declarations;
mod dialects;
mod documentation;
mod drain;
mod drop_outside_runtime;
mod errors;
mod exclusive_session;
mod failed_openings;
mod first_contact;
mod fixture;
mod get_stream;
mod health;
#[path = "../stage/http_sse_server.rs"]
#[expect(dead_code, reason = "the cancel sweep counts its connections")]
mod http_sse_server;
mod in_memory_network;
mod isolation;
mod limits;
mod log_capture;
mod loss_attribution;
mod metrics;
mod metrics_and_logs;
mod named_credentials;
mod network_outage;
mod open_session;
mod pending_losses;
mod pool_keys;
mod prelude;
#[path = "../stage/process_ledgers.rs"]
mod process_ledgers;
mod recovery;
mod regressions;
mod restarts;
mod reuse;
mod runs;
mod runtimes;
mod secrets;
mod server_declarations;
mod server_reload;
mod server_replacement;
mod server_restart;
mod session_lifetime;
mod session_mode;
mod session_ownership;
mod session_replacement;
mod session_scopes;
mod shared_records;
mod shutdown;
mod spares;
mod state_loss;
#[path = "../stage/stdio_program.rs"]
mod stdio_program;
mod stdio_servers;
mod tool_list_changes;
mod tool_results;
mod tool_rules;
mod tools;
mod wait_queue;
