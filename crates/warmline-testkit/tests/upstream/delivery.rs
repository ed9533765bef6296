//! Delivery over HTTP: what a caller is told of each attempt, held against what the server did.
//!
//! Every test compares the ending with the ledger of the server: what was told to be unsent or
//! refused was never executed, an answer belongs to exactly one execution, and what is unknown
//! was executed at most once. What is given back can be sent again.
mod bad_input;
mod cancellation;
mod connect_failures;
mod credentials;
mod custom_dial;
mod cut_sweep;
mod deadlines;
mod dialects;
pub(crate) mod fixture;
mod get_stream;
mod headers;
mod health_checks;
mod ids;
mod nagle;
mod notifications;
mod recording_listener;
mod scripted_server;
mod server_requests;
mod session_resume;
mod statuses;
mod stream_resume;
mod streams;
mod tls;
mod uploads;
