//! Repeatability: whether a request may run twice.
