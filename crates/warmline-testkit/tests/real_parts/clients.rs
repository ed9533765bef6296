//! Real clients through the gateway: each lists and calls, keeps its state on a server that keeps
//! one, and stays apart from others. What a client is told must be what it is told without us.
//! Versions are pinned in `tests/parts`; without them these tests fail.
mod agent;
mod aggregate;
mod client_process;
mod fixture;
mod http_sse;
mod inspector;
mod rust_sdk;
mod scripted_clients;
