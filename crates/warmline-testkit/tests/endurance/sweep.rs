//! The cancel sweep: every public future of `upstream` is dropped at each of its await points.
//! After each drop everything is as it was before: tasks, sockets, processes; and the next calls
//! get their own answers.

mod calls;
mod close;
mod embedded;
mod fixture;
mod openings;
mod server_requests;
