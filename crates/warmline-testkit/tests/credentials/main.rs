//! Who asks, as whom we speak, and where a server is: stories against the ledger server.
//!
//! What counts is what the server saw: which credential, in which session, how often.
#![cfg(test)]

mod identity;
mod provider;
mod resolving;
mod scene;
mod secrets;
mod trouble;
