//! What can be typed about the background gateway.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::written::duration;

/// `warmline up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// End by itself after so long without a run or a request [default: 30min]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// A configuration file, instead of those of the user and the system
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that it lives in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Be the gateway, instead of starting it
    #[arg(long, hide = true)]
    pub(crate) stay: bool,
}

/// `warmline down`.
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// Wait for nothing: calls under way are cut
    #[arg(long)]
    pub(crate) now: bool,
    /// The folder that it lives in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The admin socket of another gateway of this user, such as that of `serve --admin`
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(crate) socket: Option<PathBuf>,
}

/// `warmline ps`.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// The folder that the gateway lives in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The admin socket of another gateway of this user, such as that of `serve --admin`
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(crate) socket: Option<PathBuf>,
}

/// `warmline end`.
#[derive(Debug, Args)]
pub(crate) struct End {
    /// The name of the run, or its fingerprint as `ps` shows it
    pub(crate) run: String,
    /// The folder that the gateway lives in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The admin socket of another gateway of this user, such as that of `serve --admin`
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(crate) socket: Option<PathBuf>,
}
