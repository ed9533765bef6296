//! The gateway between clients and a server that keeps a ledger.

#![cfg(test)]

mod access_revocation;
mod access_rules;
mod admin;
mod aggregate;
mod aggregate_fixture;
mod aggregate_lists;
mod aggregate_resources;
mod aggregate_streams;
mod auth;
mod auth_caller_credentials;
mod auth_hidden_servers;
mod auth_jwks;
mod auth_jwt;
mod call_backpressure;
mod cancellation;
#[path = "../stage/census.rs"]
mod census;
#[path = "../engine/child_server.rs"]
#[expect(dead_code, reason = "the stories use more of it")]
mod child_server;
mod client_capabilities;
mod clients_without_session;
mod differential;
mod fixture;
mod get_stream;
mod get_stream_reload;
mod http_sse;
mod idle_client_sessions;
mod legacy;
mod legacy_streams;
mod list_change_dedup;
mod listen_only_clients;
mod listener_limits;
mod listener_rejection;
#[path = "../engine/log_capture.rs"]
mod log_capture;
mod missing_id;
mod modern;
mod notification_bursts;
mod notification_routing;
mod ops;
mod ops_dead_sessions;
mod ops_disconnects;
mod ops_reply_budget;
mod prelude;
#[path = "../stage/process_ledgers.rs"]
mod process_ledgers;
mod prometheus_text;
mod raw_client;
mod raw_http;
mod rejection_logs;
mod rejections;
mod revoked_streams;
mod run_quota;
mod secrets;
mod session_tickets;
mod shared_subscriptions;
mod shutdown;
mod slow_readers;
#[path = "../stage/stdio_program.rs"]
mod stdio_program;
mod stdio_servers;
mod streamed_replies;
mod trace_context;
mod unsolicited_requests;
mod verbatim;
