//! Who asks, as whom we speak, and where a server is: stories against the ledger server.
//!
//! What counts is what the server saw: which credential, in which session, how often.
mod fixture;
mod identity;
mod provider;
mod provider_failures;
mod secrets;
mod server_resolver;
