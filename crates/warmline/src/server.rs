//! A server as people declare it: how it is reached, its credential and its policy.
