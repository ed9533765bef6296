//! Names that model providers accept, made from the names of tools.
