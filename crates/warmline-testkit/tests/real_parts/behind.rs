//! Real servers behind the gateway: what they list is the same with and without it, byte for byte,
//! in every era they speak; and a browser keeps its page between two calls.
//! Versions are pinned in `tests/parts`; without them these tests fail.
mod browser;
mod client;
mod server_lists;
mod stdio_process;
