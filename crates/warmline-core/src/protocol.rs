//! Bytes and their meaning, in both eras.
//!
//! Payloads stay raw JSON in shared buffers. A message is split into ranges, edited by splicing,
//! and passed on; no tree is built on the way of a call.
//!
//! | question | module |
//! |---|---|
//! | What kind of message is this, and where are its parts? | [`envelope`] |
//! | Which messages stand in this text? | [`batch`] |
//! | What do the parameters of a request hold? | [`params`] |
//! | How is a member set or removed, a message written? | [`splice`] |
//! | What is in this event stream? | [`sse`] |
//! | What is on this line of a child's output? | [`lines`] |
//! | Which headers does a modern request carry? | [`headers`] |
//! | Which versions know a method, and may it be repeated? | [`methods`] |
//! | What stands in `_meta`? | [`meta`] |
//! | How is a server greeted, and what did it answer? | [`handshake`] |
//! | Is a modern result complete, or a question? | [`rounds`] |
//! | Is this the server's word that a session is gone? | [`gone`] |
//! | What does this HTTP status say of a request? | [`status`] |
//! | How long does a server ask us to wait? | [`retry_after`] |
//! | Which trace does a message belong to? | [`trace`] |
//! | Does a server say that it has no such tool? | [`unknown_tool`] |

pub mod batch;
pub mod envelope;
pub mod gone;
pub mod handshake;
pub mod headers;
pub mod lines;
pub mod malformed;
pub mod meta;
pub mod methods;
pub mod params;
pub mod retry_after;
pub mod rounds;
pub mod splice;
pub mod sse;
pub mod status;
pub mod trace;
pub mod unknown_tool;

pub(crate) mod object;
mod scan;
mod tool_headers;
