//! The warden: a small process between us and a child, which ends the child's whole tree.
//!
//! Asked by: `process.rs`, once per child.  Told by: a control socket, whose end
//! means that we are gone, however we went.
//!
//! Why it exists: `npx` and shells start the real server as a grandchild, and nobody is left to
//!   signal it when we are killed. The warden is *subreaper* of everything below it, so that no
//!   descendant can get away, not even one that moved to a session of its own.
//! What it is: our own binary, run again with `__warden` as its first argument. A program that
//!   embeds this library calls [`run_if_asked`] first thing in `main`, or names a binary that does
//!   ([`use_binary`]). Without either, children run in a process group that is killed when we
//!   close them, and outlive us when we are killed.
//! What passes through it: nothing. The child has our pipes; the warden only waits.
//! How it ends: when the server ends, or when told to, or when the control socket ends. Then it
//!   kills and reaps all descendants, says how the server ended, and exits with that status.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
pub(crate) mod post;
#[cfg(target_os = "linux")]
mod ward;

/// The first argument of a binary that is to be the warden.
pub(crate) const ARGUMENT: &str = "__warden";

/// Becomes the warden if this process was started as one; then it never returns.
///
/// To be called first thing in `main`, before threads are started or arguments are read:
///
/// ```no_run
/// warmline::warden::run_if_asked();
/// ```
pub fn run_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        ANSWERS.store(true, Ordering::Relaxed);
        return;
    }
    #[cfg(target_os = "linux")]
    let code = ward::stand(arguments);
    #[cfg(not(target_os = "linux"))]
    let code = 2;
    #[expect(clippy::exit, reason = "the warden is a program of its own")]
    std::process::exit(code);
}

/// Names a binary that answers to [`run_if_asked`], for programs that cannot call it themselves.
/// The first name counts.
pub fn use_binary(path: PathBuf) {
    if NAMED.set(path).is_err() {
        tracing::warn!("a warden binary was named already");
    }
}

/// The binary to run as the warden, if there is one.
pub(crate) fn binary() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    // Not the path we were started from: that file may have been replaced by an update since.
    let own = ANSWERS
        .load(Ordering::Relaxed)
        .then(|| PathBuf::from("/proc/self/exe"));
    NAMED.get().cloned().or(own)
}

/// This program called [`run_if_asked`], so it can be started again as a warden.
static ANSWERS: AtomicBool = AtomicBool::new(false);
static NAMED: OnceLock<PathBuf> = OnceLock::new();
