//! The way of a call: route, lease, send, decide, heal.
