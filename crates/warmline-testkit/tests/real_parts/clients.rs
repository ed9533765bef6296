//! Real clients through the gateway: each lists and calls, keeps its state on a server that keeps
//! one, and stays apart from others. What a client is told must be what it is told without us.
//! Versions are pinned in `tests/parts`; without them these tests fail.
mod agent;
mod aggregate;
mod client_process;
use crate::external_program;
mod fixture;
mod http_sse;
mod inspector;
use crate::real_parts;
mod rust_sdk;
mod scripted_clients;
