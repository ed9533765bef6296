//! `Error`: code, what, where, why, delivery, hint.
