//! What many files of this suite use.

pub(crate) use crate::http_server_process::Running;
pub(crate) use crate::real_parts::{Program, node, official, part, python, text};
pub(crate) use bytes::Bytes;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::path::Path;
pub(crate) use std::time::Duration;
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::process::Command;
pub(crate) use warmline::{Run, Server, Warmline};
pub(crate) use warmline_core::era::Era;
pub(crate) use warmline_gateway::{Gateway, GatewayOptions};
pub(crate) use warmline_upstream::ServerTarget;
