//! A server that is a child of the code under test: started by it, watched from outside.
//!
//! Every process of a program carries a mark in its environment, so that a test finds what is left
//! of it; each writes a ledger of its own, so that a second start does not hide the first.

use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;
use warmline::upstream::{Reach, Server};

use super::census::{marked, until};

/// Names the folder of a program to all its processes.
const MARK: &str = "WARMLINE_STAGE";

/// What scripts can say.
const WORDS: &str = r#"
hear() { IFS= read -r line || exit 0; id=${line#*\"id\":}; id=${id%%[,\}]*}; }
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
"#;

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

    /// A shell script. It knows how to `hear` a message (its id is then `$id`) and to `reply`.
    pub(crate) fn script(script: &str) -> Self {
        let whole = format!("{WORDS}{script}");
        Self::of(["-c", whole.as_str(), "script"].into_iter())
    }

    fn of<'a>(args: impl Iterator<Item = &'a str>) -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            args: args.map(str::to_owned).collect(),
        }
    }

    /// How it is started.
    pub(crate) fn server(&self) -> Server {
        let mut server = Server::stdio("child", "sh", self.args.clone());
        if let Reach::Stdio(reach) = &mut server.reach {
            reach.env.insert(MARK.to_owned(), self.place());
        }
        server
    }

    /// Its folder.
    pub(crate) fn place(&self) -> String {
        self.folder.path().to_str().unwrap().to_owned()
    }

    /// The lines of the ledgers of all its processes, first process first.
    pub(crate) fn lives(&self) -> Vec<Vec<Value>> {
        let files = std::fs::read_dir(self.folder.path()).unwrap().flatten();
        let mut ledgers: Vec<(SystemTime, String)> = files
            .filter(|file| file.file_name().to_string_lossy().ends_with(".ledger"))
            .map(|file| {
                let born = file.metadata().unwrap().created().unwrap();
                (born, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        ledgers.sort();
        let read = |text: String| {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect()
        };
        ledgers.into_iter().map(|(_, text)| read(text)).collect()
    }

    /// Waits until nothing of it runs.
    pub(crate) async fn gone(&self) {
        let mark = format!("{MARK}={}", self.place());
        until("no process of the program is left", || {
            marked(&mark).is_empty()
        })
        .await;
    }
}
