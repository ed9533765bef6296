//! The gateway between clients and a server that keeps a ledger.

#![cfg(test)]

mod straight;
mod world;
