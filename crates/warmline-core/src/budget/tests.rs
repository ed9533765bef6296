//! The budget holds over any ten seconds.
