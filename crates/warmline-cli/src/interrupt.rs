//! Ctrl-C and its kin: a call that is given up is cancelled, its session closed, its fate told.

use std::future::Future;

/// Somebody pressed Ctrl-C, closed the terminal, or told this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted;

/// Runs a future until it ends or somebody interrupts it, which drops it.
pub(crate) async fn until_interrupted<F: Future>(future: F) -> Result<F::Output, Interrupted> {
    tokio::select! {
        output = future => Ok(output),
        () = interruption() => Err(Interrupted),
    }
}

/// Ends when this process is told to end: `SIGINT`, `SIGTERM` or `SIGHUP`.
#[cfg(unix)]
async fn interruption() {
    use tokio::signal::unix::SignalKind;
    tokio::select! {
        () = heard(SignalKind::interrupt()) => {},
        () = heard(SignalKind::terminate()) => {},
        () = heard(SignalKind::hangup()) => {},
    }
}

#[cfg(unix)]
async fn heard(kind: tokio::signal::unix::SignalKind) {
    // Whoever started us with a signal ignored (`nohup`, `&` in a script) wants it ignored.
    if is_ignored(kind.as_raw_value()) {
        return std::future::pending().await;
    }
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        // Without a way to hear of it the system's own answer to the signal stays.
        Err(_) => std::future::pending().await,
    }
}

/// Whether a signal is ignored, as far as the system tells.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or_default() & 1 == 1)
}

#[cfg(not(unix))]
async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// What a service is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// End.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// A signal by which we are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(unix),
    expect(dead_code, reason = "other systems have Ctrl-C alone")
)]
pub(crate) enum Signal {
    /// `SIGINT`: on a terminal everybody in front of it gets it.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGHUP`.
    Hangup,
}

/// Hears what a service is told, from when it was made: nothing that is told later is missed.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn hear() -> Self {
        use tokio::signal::unix::SignalKind;
        Self {
            interrupt: hear(SignalKind::interrupt()),
            terminate: hear(SignalKind::terminate()),
            hangup: hear(SignalKind::hangup()),
        }
    }

    /// The next thing that is told.
    pub(crate) async fn next(&mut self) -> Told {
        match self.heard().await {
            Signal::Interrupt | Signal::Terminate => Told::Stop,
            Signal::Hangup => Told::Reload,
        }
    }

    /// The next signal.
    pub(crate) async fn heard(&mut self) -> Signal {
        tokio::select! {
            () = next(&mut self.interrupt) => Signal::Interrupt,
            () = next(&mut self.terminate) => Signal::Terminate,
            () = next(&mut self.hangup) => Signal::Hangup,
        }
    }

    /// Ends when it is told to stop.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != Told::Stop {}
    }
}

/// A signal; none where whoever started us wants it ignored.
#[cfg(unix)]
fn hear(kind: tokio::signal::unix::SignalKind) -> Option<tokio::signal::unix::Signal> {
    if is_ignored(kind.as_raw_value()) {
        return None;
    }
    tokio::signal::unix::signal(kind).ok()
}

#[cfg(unix)]
async fn next(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Hears what a service is told.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn hear() -> Self {
        Self
    }

    /// The next thing that is told: here only to stop.
    pub(crate) async fn next(&mut self) -> Told {
        interruption().await;
        Told::Stop
    }

    /// The next signal: here only Ctrl-C.
    pub(crate) async fn heard(&mut self) -> Signal {
        interruption().await;
        Signal::Interrupt
    }

    /// Ends when it is told to stop.
    pub(crate) async fn stop(&mut self) {
        interruption().await;
    }
}
