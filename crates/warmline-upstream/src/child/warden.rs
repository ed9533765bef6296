//! The warden: a small process between us and a child, which ends the child's whole tree.
//!
//! `npx` and shells start the real server as a grandchild, and nobody is left to signal it when we are
//! killed. The warden is the *subreaper* of everything below it, so that no descendant can escape, not
//! even one in its own session. It only waits: the child has our pipes.
//!
//! It is our own binary, run again with `__warden` as its first argument. A program that embeds this
//! library calls [`run_if_asked`] first in `main`, or names a binary that does ([`use_binary`]). Without
//! either, children run in a process group, which is killed when we close them, and outlive us when we
//! are killed.
//!
//! It ends when the server ends, on a command, or when its control socket closes, which means that we
//! are gone. Then it kills and reaps all descendants, reports how the server ended, and exits with that
//! status.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
mod main;
#[cfg(target_os = "linux")]
pub(crate) mod protocol;

/// The first argument of a binary that is to be the warden.
pub(crate) const ARGUMENT: &str = "__warden";

/// Becomes the warden if this process was started as one; then it never returns.
///
/// Call it first in `main`, before threads are started or arguments are read:
///
/// ```no_run
/// warmline::warden::run_if_asked();
/// ```
pub fn run_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        RUN_IF_ASKED_CALLED.store(true, Ordering::Relaxed);
        return;
    }
    #[cfg(target_os = "linux")]
    let code = main::run_warden(arguments);
    #[cfg(not(target_os = "linux"))]
    let code = 2;
    #[expect(clippy::exit, reason = "the warden is a program of its own")]
    std::process::exit(code);
}

/// Names a binary that answers to [`run_if_asked`], for programs that cannot call it themselves.
/// The first name counts.
pub fn use_binary(path: PathBuf) {
    if NAMED_BINARY.set(path).is_err() {
        tracing::warn!("a warden binary was named already");
    }
}

pub(crate) fn binary() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    // Not our path: an update may have replaced that file.
    let own = RUN_IF_ASKED_CALLED
        .load(Ordering::Relaxed)
        .then(|| PathBuf::from("/proc/self/exe"));
    NAMED_BINARY.get().cloned().or(own)
}

/// This program called [`run_if_asked`], so it can be started again as a warden.
static RUN_IF_ASKED_CALLED: AtomicBool = AtomicBool::new(false);
static NAMED_BINARY: OnceLock<PathBuf> = OnceLock::new();
