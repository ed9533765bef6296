//! The MCP specification, in both eras: methods, headers, statuses, handshakes.
//!
//! | question | module |
//! |---|---|
//! | Which headers does a modern request carry? | [`headers`] |
//! | Which versions have a method, and may it be repeated? | [`methods`] |
//! | What is in `_meta`? | [`meta`] |
//! | How is a session initialized, and what did the server answer? | [`handshake`] |
//! | Is a modern result complete, or does it need input? | [`input_required`] |
//! | Does the server say that a session is gone? | [`session_gone`] |
//! | What does this HTTP status say about a request? | [`http_status`] |
//! | How long does a server ask us to wait? | [`retry_after`] |
//! | Which trace does a message belong to? | [`trace`] |
//! | Does a server say that it has no such tool? | [`unknown_tool`] |

pub mod handshake;
pub mod headers;
pub mod http_status;
pub mod input_required;
pub mod meta;
pub mod methods;
pub mod retry_after;
pub mod session_gone;
pub mod trace;
pub mod unknown_tool;

pub mod param_headers;
