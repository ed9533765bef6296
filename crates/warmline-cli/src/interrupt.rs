//! Ctrl-C: a call that is given up is cancelled, its session closed, and its fate told.

use std::future::Future;

/// Somebody pressed Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted;

/// Runs a future until it ends or somebody presses Ctrl-C, which drops it.
pub(crate) async fn until_interrupted<F: Future>(future: F) -> Result<F::Output, Interrupted> {
    tokio::select! {
        output = future => Ok(output),
        pressed = tokio::signal::ctrl_c() => match pressed {
            Ok(()) => Err(Interrupted),
            // Without a way to hear of Ctrl-C the system's own answer to it stays.
            Err(_) => std::future::pending().await,
        },
    }
}
