//! Delivery over HTTP: what a caller is told of each attempt, held against what the server did.
//!
//! Every test compares the ending with the ledger of the server: what was told to be unsent or
//! refused was never executed, an answer belongs to exactly one execution, and what is unknown
//! was executed at most once. What is given back can be sent again.
#![cfg(test)]

mod bad_input;
mod cancelling;
mod connecting;
mod credentials;
mod cuts;
mod dialects;
mod dialing;
mod headers;
mod ids;
mod listening;
mod nagle;
mod notices;
mod patience;
mod probing;
mod questions;
mod resuming;
mod secure;
mod setting;
mod standing;
mod statuses;
mod streams;
mod stub;
mod taking_up;
mod uploads;
