//! What nearly every story of this suite uses.

pub(crate) use crate::aggregate_fixture::{Merged, ask, each, list};
pub(crate) use crate::census::until;
pub(crate) use crate::fixture::{
    LEDGER, NEWEST, PATH, World, audit_into, audit_lines, count, denied, known, local, pass,
    streams_held, watched,
};
pub(crate) use crate::log_capture::Logbook;
pub(crate) use crate::modern::raw_client as modern;
pub(crate) use crate::notification_routing::Log;
pub(crate) use crate::ops::scraped;
pub(crate) use crate::raw_http::{self, Legacy, Response, bearer, call, initialize, request};
pub(crate) use crate::stdio_program::Program;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::collections::BTreeSet;
pub(crate) use std::fs;
pub(crate) use std::net::SocketAddr;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::sync::Arc;
pub(crate) use std::time::{Duration, Instant};
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
pub(crate) use tokio::net::{TcpListener, TcpStream, UnixStream};
pub(crate) use tokio::task::JoinHandle;
pub(crate) use warmline::{Secret, Server, Warmline};
pub(crate) use warmline_core::era::Era;
pub(crate) use warmline_core::policy::SessionScope;
pub(crate) use warmline_engine::admin::EngineAdmin as _;
pub(crate) use warmline_gateway::{
    AccessRule, AccessRules, AccessSubject, AuditOptions, Auth, AuthMethod, BearerToken,
    DeclaredAccess, Gateway, GatewayOptions, ListenerLimits, StartError, StdioClient, TokenSource,
};
pub(crate) use warmline_testkit::{
    CannedReply, ConnectionEnd, CutPoint, ExecutionPhase, Fault, FaultRule, FaultTiming,
    LedgerEntry, LedgerServer, Personality, ReplyFormat, SseFormat,
};
