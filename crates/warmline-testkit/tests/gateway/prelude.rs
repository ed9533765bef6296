//! What nearly every story of this suite uses.

pub(crate) use crate::census::until;
pub(crate) use crate::fixture::{
    LEDGER, World, audit_into, audit_lines, denied, known, local, pass, streams_held, watched,
};
pub(crate) use crate::log_capture::Logbook;
pub(crate) use crate::raw_http::{Legacy, Response, bearer};
pub(crate) use crate::stdio_program::Program;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::net::SocketAddr;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::net::TcpStream;
pub(crate) use warmline::{Secret, Server, Warmline};
pub(crate) use warmline_core::era::Era;
pub(crate) use warmline_core::policy::SessionScope;
pub(crate) use warmline_gateway::{
    AccessRule, AccessRules, AccessSubject, AuditOptions, Auth, BearerToken, DeclaredAccess,
    Gateway, GatewayOptions, ListenerLimits, StdioClient,
};
pub(crate) use warmline_testkit::{
    CannedReply, ExecutionPhase, Fault, FaultRule, FaultTiming, LedgerServer, Personality,
    ReplyFormat, SseFormat,
};
