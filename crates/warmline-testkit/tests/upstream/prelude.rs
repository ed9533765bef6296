//! What nearly every story of this suite uses.

pub(crate) use crate::census::until;
pub(crate) use crate::delivery::fixture::{
    Outcome, Setting, payment, personality_of, tool, within, within_ms,
};
pub(crate) use crate::runtime_tasks::no_task_left;
pub(crate) use crate::stdio_program::Program;
pub(crate) use bytes::Bytes;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::collections::BTreeSet;
pub(crate) use std::net::SocketAddr;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};
pub(crate) use tokio::io::AsyncWriteExt as _;
pub(crate) use tokio::net::{TcpListener, TcpStream};
pub(crate) use warmline_core::delivery::Delivery;
pub(crate) use warmline_core::era::{Era, Version};
pub(crate) use warmline_core::error::code::{Code, Reason};
pub(crate) use warmline_core::exchange::{
    AttemptResult, Diagnostic, Notification, Reply, Request, ServerRequest, ServerRequestKind,
    ServerRequestReply,
};
pub(crate) use warmline_core::message::params::Params;
pub(crate) use warmline_testkit::{
    CannedReply, ConnectionEnd, CutPoint, ExecutionPhase, Fault, FaultProxy, FaultRule,
    FaultTiming, LedgerServer, Personality, ReplyCorruption, ReplyFormat, SseFormat,
};
pub(crate) use warmline_upstream::{
    ClientProfile, Listener, ReplyFuture, ServerTarget, Session, TransportConfig, Upstream,
};
