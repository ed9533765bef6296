//! What nearly every story of this suite uses.

pub(crate) use crate::census::until;
pub(crate) use crate::fixture::{
    LEDGER, World, agrees, count, counted, done, failed_as, nothing_left, number, pass, payment,
    secs,
};
pub(crate) use crate::stdio_program::Program;
pub(crate) use bytes::Bytes;
pub(crate) use futures_util::future::join_all;
pub(crate) use http::HeaderValue;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::path::Path;
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};
pub(crate) use warmline::{Error, Run, Secret, Server, ServerHandle, ToolResult, Warmline};
pub(crate) use warmline_core::delivery::Delivery;
pub(crate) use warmline_core::era::Era;
pub(crate) use warmline_core::error::code::{Code, Reason};
pub(crate) use warmline_core::exchange::Diagnostic;
pub(crate) use warmline_core::policy::{
    CallConcurrency, SessionScope, StateLossPolicy, ToolPolicy,
};
pub(crate) use warmline_engine::admin::EngineAdmin as _;
pub(crate) use warmline_engine::events::{Event, EventItem, EventSubscription};
pub(crate) use warmline_engine::relay::RelayHandle as _;
pub(crate) use warmline_store::MemoryStore;
pub(crate) use warmline_store::keyring::Keyring;
pub(crate) use warmline_testkit::{
    CannedReply, ConnectionEnd, CutPoint, ExecutionPhase, Fault, FaultProxy, FaultRule,
    FaultTiming, LedgerServer, Personality, ReplyFormat, SseFormat,
};
pub(crate) use warmline_upstream::ListKind;
