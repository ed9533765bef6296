//! What can be typed to call a server, or to look at it.

use std::ffi::OsString;

use clap::Args;

use super::reaching::{Answers, Connect, Together, Values};

/// `warmline call`.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// TARGET TOOL KEY=VALUE…, or TOOL KEY=VALUE… with a command behind `--`
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

/// `warmline request`.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// TARGET METHOD KEY=VALUE…, or METHOD KEY=VALUE… with a command behind `--`
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
