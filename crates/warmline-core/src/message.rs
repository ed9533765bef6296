//! JSON-RPC messages: reading them without a tree, and changing them in place.
//!
//! Payloads stay raw JSON in shared buffers. A message is split into ranges, edited by splicing,
//! and passed on; no tree is built on the path of a call.
//!
//! | question | module |
//! |---|---|
//! | What kind of message is this, and where are its parts? Is it a batch of them? | [`envelope`] |
//! | What do the parameters of a request hold? | [`params`] |
//! | How is a member set or removed, a message written? | [`splice`] |
//! | What is in this event stream? | [`sse`] |
//! | What is on this line of a child's output? | [`lines`] |

pub mod envelope;
pub(crate) mod json;
pub mod lines;
pub mod params;
pub mod parse_error;
pub mod splice;
pub mod sse;
