//! What is told of a loss, and that nothing else changes.
