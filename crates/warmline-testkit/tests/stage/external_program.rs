//! A program that a test runs to its end, within a limit, with all that it starts.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

/// How a program ended.
pub(crate) struct Ended {
    /// What it said; none if it did not end in time.
    pub(crate) output: Option<Output>,
    /// Whether something of it was still there, and had to be killed.
    pub(crate) left_something: bool,
}

/// Runs a program in a process group of its own, and ends the group whatever happened.
pub(crate) async fn run(command: &mut Command, within: Duration) -> Ended {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let ended = tokio::time::timeout(within, child.wait_with_output()).await;
    // Nothing is left of most groups by now: killing says whether that is so.
    let left_something = group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok());
    Ended {
        output: ended.ok().map(Result::unwrap),
        left_something,
    }
}

/// An example, which `cargo test` builds beside the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().and_then(Path::parent).unwrap();
    let example = folder.join("examples").join(name);
    let build = format!("cargo build -p warmline-testkit --example {name}");
    assert!(example.exists(), "{name} is not built; run `{build}`");
    example
}
