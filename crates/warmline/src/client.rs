//! `Warmline` and its builder: the handle that holds the sessions.
