//! What can be typed about a server and the run: options of every command that calls one.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::written::duration;

/// How a server is reached, where the configuration does not say it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Reaching the server")]
pub(crate) struct Connect {
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A header for every HTTP request; other users can read it in the process list
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// A header whose value stands in an environment variable
    #[arg(long, value_name = "NAME=VARIABLE")]
    pub(crate) header_env: Vec<String>,
    /// Speak one era instead of finding out
    #[arg(long, value_name = "ERA", default_value = "auto")]
    pub(crate) era: EraChoice,
    /// A PEM file of certificate authorities, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A variable for the program
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// A variable of ours that the program gets too
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
    /// The working folder of the program
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// How long each step may take: 500ms, 30s, 2min. Without it 10s to connect, 60s to start a
    /// program, 30s for the handshake; a call may be silent for 300s and take 1h in all
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
}

/// Which era to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraChoice {
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// The run a command belongs to.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Runs")]
pub(crate) struct Together {
    /// The run this belongs to: commands that name the same one share a session, and what the
    /// server remembers in it. The variable `WARMLINE_RUN` names one too
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// End the run after this: its session is closed
    #[arg(long)]
    pub(crate) end_run: bool,
    /// The folder that runs are kept in between commands
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Values given as a whole.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Values")]
pub(crate) struct Values {
    /// All values as one JSON object: text, `@file`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// Show values of arguments in the account of --verbose
    #[arg(long)]
    pub(crate) show_values: bool,
}

/// What a server that asks may get.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Questions of the server")]
pub(crate) struct Answers {
    /// A folder the server may be told of when it asks for roots
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Vec<PathBuf>,
    /// Decline every question, also on a terminal
    #[arg(long)]
    pub(crate) no_ask: bool,
}
