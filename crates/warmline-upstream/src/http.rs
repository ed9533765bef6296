//! HTTP towards servers: connections, requests and responses.

pub(crate) mod call_reader;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod endpoint;
pub(crate) mod endpoints;
pub(crate) mod post;
pub(crate) mod response;
pub(crate) mod tls;
