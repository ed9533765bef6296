//! The gateway between clients and a server that keeps a ledger.

#![cfg(test)]

mod modern;
mod straight;
mod world;
