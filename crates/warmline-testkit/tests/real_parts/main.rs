//! Real servers, real clients, the official conformance suite, and the examples.
//! Versions are pinned in `tests/parts`; without them these tests fail.
#![cfg(test)]

mod behind;
#[path = "../stage/census.rs"]
#[expect(dead_code, reason = "no test here looks for processes by their mark")]
mod census;
mod clients;
mod conformance;
#[path = "../stage/counter_rmcp.rs"]
mod counter_rmcp;
mod examples;
#[path = "../stage/external_program.rs"]
mod external_program;
#[path = "../stage/http_server_process.rs"]
mod http_server_process;
mod prelude;
#[path = "../gateway/differential/raw_http.rs"]
mod raw_http;
#[path = "../stage/real_parts.rs"]
mod real_parts;
mod servers;
