//! What can be typed to learn about Warmline, and to try it.

use clap::Args;

use super::reaching::EraChoice;
use super::written::port;

/// `warmline explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The word in `error[…]`, a `reason` of the log, or the number of a JSON-RPC error; nothing
    /// lists all codes
    #[arg(allow_negative_numbers = true)]
    pub(crate) code: Option<String>,
}

/// `warmline demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {}

/// `warmline demo-server`.
#[derive(Debug, Args)]
pub(crate) struct DemoServer {
    /// Speak Streamable HTTP on a port of 127.0.0.1; without a number on any free one
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", value_parser = port)]
    pub(crate) http: Option<u16>,
    /// Speak over stdin and stdout (default)
    #[arg(long, conflicts_with = "http")]
    pub(crate) stdio: bool,
    /// Which era to speak; `auto` speaks both
    #[arg(long, value_name = "ERA", default_value = "auto")]
    pub(crate) era: EraChoice,
    /// What it shall do wrong, and other options listed below
    #[arg(last = true, value_name = "MORE", allow_hyphen_values = true)]
    pub(crate) more: Vec<String>,
}

/// `warmline completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}
