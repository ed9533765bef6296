//! What nearly every story of this suite uses.

pub(crate) use crate::delivery::fixture::{Outcome, Setting, within};
pub(crate) use bytes::Bytes;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;
pub(crate) use tokio::net::{TcpListener, TcpStream};
pub(crate) use warmline_core::delivery::Delivery;
pub(crate) use warmline_core::era::{Era, Version};
pub(crate) use warmline_core::error::code::{Code, Reason};
pub(crate) use warmline_core::exchange::{AttemptResult, Diagnostic, Reply, Request};
pub(crate) use warmline_core::message::params::Params;
pub(crate) use warmline_testkit::{
    CannedReply, ConnectionEnd, CutPoint, ExecutionPhase, Fault, FaultRule, FaultTiming,
    Personality, ReplyFormat, SseFormat,
};
pub(crate) use warmline_upstream::{ClientProfile, ServerTarget, TransportConfig, Upstream};
