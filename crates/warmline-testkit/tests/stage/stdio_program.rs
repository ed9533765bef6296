//! A server that is a child of the code under test: started by it, watched from outside.
//!
//! Every process of a program carries a mark in its environment, so that a test finds what is left
//! of it; each writes a ledger of its own, so that a second start does not hide the first.

use tempfile::TempDir;
use warmline_upstream::{ServerTarget, TransportConfig};

use super::census::{marked, until};

/// Names the folder of a program to all its processes.
const MARK: &str = "WARMLINE_STAGE";

/// A program and the folder that it writes to.
#[derive(Debug)]
pub(crate) struct Program {
    folder: TempDir,
    args: Vec<String>,
}

impl Program {
    /// The ledger server with these arguments.
    pub(crate) fn ledger(args: &[&str]) -> Self {
        let start = r#"exec "$0" --stdio --ledger "$WARMLINE_STAGE/$$.ledger" "$@""#;
        let head = ["-c", start, env!("CARGO_BIN_EXE_warmline-ledger")];
        Self::of(head.into_iter().chain(args.iter().copied()))
    }

    /// The shell with these arguments.
    pub(crate) fn of<'a>(args: impl Iterator<Item = &'a str>) -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            args: args.map(str::to_owned).collect(),
        }
    }

    /// How it is started.
    pub(crate) fn server(&self) -> ServerTarget {
        let mut server = ServerTarget::stdio("child", "sh", self.args.clone());
        if let TransportConfig::Stdio(reach) = &mut server.transport {
            reach.env.insert(MARK.to_owned(), self.place());
        }
        server
    }

    /// Its folder.
    pub(crate) fn place(&self) -> String {
        self.folder.path().to_str().unwrap().to_owned()
    }

    /// Waits until nothing of it runs.
    pub(crate) async fn gone(&self) {
        until("no process of the program is left", || self.alive() == 0).await;
    }

    /// How many processes of it run.
    pub(crate) fn alive(&self) -> usize {
        marked(&format!("{MARK}={}", self.place())).len()
    }
}
