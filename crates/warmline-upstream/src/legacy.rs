//! Sessions of the legacy era over Streamable HTTP.

pub(crate) mod get_stream;
pub(crate) mod session;
mod stream_resume;
