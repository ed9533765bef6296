//! The keeper: the one background task that sweeps, checks, keeps alive and refills.
