//! How the pool opens, checks and ends sessions: the pool's door to `upstream`.
