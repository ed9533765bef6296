//! Sessions with one server: delivery, detection of its era, and servers on pipes.
#![cfg(test)]

#[path = "../stage/census.rs"]
mod census;
mod delivery;
mod detection;
mod http_sse;
#[path = "../stage/http_sse_server.rs"]
mod http_sse_server;
mod prelude;
#[path = "../stage/process_ledgers.rs"]
mod process_ledgers;
#[path = "../stage/runtime_tasks.rs"]
mod runtime_tasks;
#[path = "../stage/shell_script.rs"]
mod shell_script;
mod stdio;
#[path = "../stage/stdio_program.rs"]
mod stdio_program;
