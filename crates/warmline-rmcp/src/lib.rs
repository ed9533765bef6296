//! A transport for clients of the official Rust SDK.
