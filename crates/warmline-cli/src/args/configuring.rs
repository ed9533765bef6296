//! What can be typed about configuration files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// `warmline check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The file; nothing takes those in the usual places
    pub(crate) file: Option<PathBuf>,
    /// The same, as other commands have it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
}

/// `warmline init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Write `warmline.toml` into the working folder, not into that of the user
    #[arg(long)]
    pub(crate) here: bool,
    /// Take nothing over from desktop clients
    #[arg(long)]
    pub(crate) no_import: bool,
}

/// `warmline add`.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The name of the server
    pub(crate) name: String,
    /// Its URL
    pub(crate) url: Option<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// The variable that holds the token for a URL
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) token_env: Option<String>,
    /// A variable of ours that the program gets too
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
    /// Write into `warmline.toml` of the working folder, not into that of the user
    #[arg(long)]
    pub(crate) here: bool,
    /// The file to write into
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub(crate) config: Option<PathBuf>,
}

/// `warmline trust`.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// The file; nothing takes those of the working folder
    pub(crate) file: Option<PathBuf>,
    /// Accept without asking
    #[arg(long)]
    pub(crate) yes: bool,
}
