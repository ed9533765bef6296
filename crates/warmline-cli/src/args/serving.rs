//! What can be typed to stand in front of servers.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use warmline::settings::{AuthWord, OpsListen};

use super::written::{address, auth, ops};

/// `warmline serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) served: Served,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// How callers show who they are: `local`, `tokens`, `jwt`, `proxy` or `none` [default: local]
    #[arg(long, value_name = "HOW", value_parser = auth)]
    pub(crate) auth: Option<AuthWord>,
    /// Where machines find `/livez`, `/readyz`, `/metrics` and `/servers`, or `none` [default: on
    /// loopback, the port after that of --listen]
    #[arg(long, value_name = "ADDRESS", value_parser = ops)]
    pub(crate) ops: Option<OpsListen>,
    /// A Unix socket by which this user sees what runs in the gateway and steers it: `warmline ps
    /// --socket FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) admin: Option<PathBuf>,
}

/// What is served, and where what is kept of it lies.
#[derive(Clone, Debug, Args)]
pub(crate) struct Served {
    /// Names or URLs; nothing serves every configured server
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that sessions, keys and tokens are kept in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// A variable for the program behind `--`
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// A variable of ours that the program behind `--` gets too
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
}

/// `warmline stdio`.
#[derive(Debug, Args)]
pub(crate) struct Stdio {
    #[command(flatten)]
    pub(crate) served: Served,
    /// The run this client belongs to: what servers over HTTP remember in it stays, for whoever
    /// names it next. Without it the client has a run of its own
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
}

/// `warmline run`.
#[derive(Debug, Args)]
pub(crate) struct Around {
    /// Names or URLs of servers; nothing takes every configured one
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// The program, with its arguments
    #[arg(last = true, value_name = "PROGRAM", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// The name of the run; without it that of `WARMLINE_RUN`, which goes on afterwards, or a fresh one
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that sessions and keys are kept in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

impl Around {
    /// What is served to the program.
    pub(crate) fn served(&self) -> Served {
        Served {
            words: self.words.clone(),
            command: Vec::new(),
            config: self.config.clone(),
            state_dir: self.state_dir.clone(),
            // The program that is started has all variables; its servers have those of their files.
            env: Vec::new(),
            env_pass: Vec::new(),
        }
    }
}
