//! Error codes, and the reasons beside them.

pub mod code;
