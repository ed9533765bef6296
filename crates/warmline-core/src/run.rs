//! The life of a run: live, ending, ended.
