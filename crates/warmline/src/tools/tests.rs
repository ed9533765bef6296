//! Tool lists.
