//! What is on the wire: golden files, the official schemas, and the kept inputs of the fuzz targets.

mod corpus;
mod golden;
