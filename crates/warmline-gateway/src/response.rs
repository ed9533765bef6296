//! What is sent to clients: response bodies, streams of events, and errors.

pub(crate) mod body;
pub(crate) mod call_error;
pub(crate) mod error_response;
pub(crate) mod event_queue;
pub(crate) mod rejection;
pub(crate) mod replay_store;
pub(crate) mod stream;
