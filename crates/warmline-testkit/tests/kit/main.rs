//! The kit tested by itself, with bare sockets: what a client under test gets is what is said here.

mod client;
mod legacy;
mod modern;
mod pipes;
