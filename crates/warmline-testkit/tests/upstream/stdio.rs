//! Pipes: sessions with a child, from its start to the end of its last process. The ledger that
//! the child writes tells what it did; what we say of a call must agree with it.

mod child_exit;
mod child_session;
mod child_start;
mod concurrent_calls;
mod delivery;
mod full_pipe;
mod health_checks;
mod notifications;
mod server_requests;
mod stdout_noise;
