//! Ctrl-C and other signals.

use std::future::Future;

use tokio::signal::unix::{self, SignalKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// `SIGINT`: a terminal sends it to the whole process group.
    Interrupt,
    Terminate,
    /// A service reads its configuration again.
    Hangup,
}

/// Runs a future until it ends. None if the user pressed Ctrl-C or closed the terminal, or the process
/// was told to end: then the future is dropped.
pub(crate) async fn until_interrupted<F: Future>(future: F) -> Option<F::Output> {
    let interrupted = async { Signals::register().next_signal().await };
    tokio::select! {
        output = future => Some(output),
        _ = interrupted => None,
    }
}

/// Receives signals, none of them missed after `register`.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<unix::Signal>,
    terminate: Option<unix::Signal>,
    hangup: Option<unix::Signal>,
}

impl Signals {
    pub(crate) fn register() -> Self {
        Self {
            interrupt: register_signal(SignalKind::interrupt()),
            terminate: register_signal(SignalKind::terminate()),
            hangup: register_signal(SignalKind::hangup()),
        }
    }

    pub(crate) async fn next_signal(&mut self) -> Signal {
        tokio::select! {
            () = receive_signal(&mut self.interrupt) => Signal::Interrupt,
            () = receive_signal(&mut self.terminate) => Signal::Terminate,
            () = receive_signal(&mut self.hangup) => Signal::Hangup,
        }
    }

    pub(crate) async fn wait_for_stop(&mut self) {
        while self.next_signal().await == Signal::Hangup {}
    }
}

/// The signal, unless it was ignored at the start (`nohup`, `&` in a script).
fn register_signal(kind: SignalKind) -> Option<unix::Signal> {
    if is_ignored(kind.as_raw_value()) {
        return None;
    }
    // Without a handler the default action stays.
    unix::signal(kind).ok()
}

fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or_default() & 1 == 1)
}

async fn receive_signal(signal: &mut Option<unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
