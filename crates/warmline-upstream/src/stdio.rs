//! Sessions with a child process, over its standard streams.

mod child_task;
pub(crate) mod pipe;
pub(crate) mod session;
mod write_queue;
