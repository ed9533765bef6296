//! What is on the wire: golden files, the official schemas, and the kept inputs of the fuzz targets.
#![cfg(test)]

mod corpus;
mod golden;
