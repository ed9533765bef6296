//! Records: what is stored of a session, with a version of its own.
