//! The rules of the core: the pool's machine, and what is on the wire.
#![cfg(test)]

mod pool;
mod protocol;
