//! Runs: begin, join, current, end.
