//! What nearly every test of the commands uses.

pub(crate) use crate::isolated_binary::{BINARY, CommandOutput, Warmline, against_demo};
pub(crate) use crate::serve::{Serving, local_token, until};
pub(crate) use crate::{shows, tells};
pub(crate) use rustix::process::{Pid, Signal, kill_process};
pub(crate) use serde_json::{Value, json};
pub(crate) use std::fs::File;
pub(crate) use std::io::{BufRead as _, BufReader, Read as _, Write as _};
pub(crate) use std::net::{SocketAddr, TcpStream};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::{Child, Command, Stdio};
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;
pub(crate) use warmline_testkit::{
    CannedReply, ConnectionEnd, CutPoint, ExecutionPhase, Fault, FaultRule, LedgerServer,
    Personality,
};
