//! What can be typed about callers of the gateway: what they are told, and what lets them in.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::written::lasting;

/// `warmline url`.
#[derive(Debug, Args)]
pub(crate) struct Url {
    /// The server; nothing means all of them in one
    pub(crate) name: Option<String>,
    /// Who shall use it: prints what to paste there
    #[arg(long = "for", value_name = "CLIENT")]
    pub(crate) client: Option<Client>,
    /// A run for the path: whoever uses this URL shares one session with the server
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// Where the gateway can be reached, if not where it listens
    #[arg(long, value_name = "URL")]
    pub(crate) at: Option<String>,
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that the gateway keeps its tokens in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Who uses the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    Langchain,
    Claude,
    Cursor,
    Vscode,
    OpenaiAgents,
    PydanticAi,
    Python,
    Typescript,
    Curl,
}

/// `warmline token`.
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) what: TokenWhat,
    /// The folder that the gateway keeps its tokens in
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenWhat {
    /// Make a token; its text is shown once
    New {
        /// Its name, by which it is listed and revoked
        name: String,
        /// Whom it stands for, if not its name: two tokens of one identity share runs
        #[arg(long, value_name = "IDENTITY")]
        identity: Option<String>,
        /// How long it counts: `90d`, `12h`; without it until it is revoked
        #[arg(long, value_name = "TIME", value_parser = lasting)]
        expires: Option<Duration>,
    },
    /// List tokens, without their texts
    List,
    /// Take a token back: a running gateway refuses it from now on
    Revoke {
        /// Its name
        name: String,
    },
}
