//! What can be typed to call a server, or to look at it.

use std::ffi::OsString;

use clap::Args;

use super::reaching::{Answers, Connect, Together, Values};

/// `warmline call` and `warmline request`.
#[derive(Debug, Args)]
pub(crate) struct Sending {
    /// TARGET, a tool or a method, and KEY=VALUE…; no TARGET with a command behind `--`
    #[arg(value_name = "WORD", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) together: Together,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) answers: Answers,
}

/// `warmline tools`.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// TARGET, or nothing with a command behind `--`
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) together: Together,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// `warmline doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// TARGET, or nothing for every configured server
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// Start nothing and contact nobody
    #[arg(long)]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) connect: Connect,
}
