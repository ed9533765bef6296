//! Real servers: each is opened, listed, called and closed, over every transport and in every era
//! that it offers. Versions are pinned in `tests/parts`; without them these tests fail.
#![cfg(test)]

mod counters;
mod meeting;
mod official;
mod parts;
mod running;
