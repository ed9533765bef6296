//! A child process: started in its own group, waited for, and ended with its whole tree.
//!
//! With a [`warden`] process the child runs under it, and the warden kills the tree, also when we are
//! gone. Without one the child leads a process group, and we kill the group. Dropping a [`Process`] ends
//! the tree in both cases.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::child::warden;
use crate::child::warden::protocol;
use crate::child::warden::protocol::{WardenCommand, WardenReport};
use crate::environment::Environment;
use crate::target::LifetimeToken;
use warmline_platform::clock;

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct SpawnSpec<'a> {
    pub program: &'a Path,
    pub args: &'a [String],
    pub environment: &'a Environment,
    pub cwd: Option<&'a Path>,
    /// Held until nothing is left of the child, even if its start is abandoned.
    pub lifetime_token: Option<&'a LifetimeToken>,
}

/// Our ends of a child's standard streams.
#[derive(Debug)]
pub struct ChildStreams {
    pub stdin: Sender,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// A child and all that it started.
#[derive(Debug)]
pub struct Process {
    /// The warden, or the server itself.
    child: Child,
    guard: ProcessGuard,
    server: Pid,
    exit: Option<ChildExit>,
    /// How many processes outlived the child and were killed; known once it has ended. Without a
    /// warden they count as one.
    pub(crate) orphans: Arc<AtomicU32>,
}

#[derive(Debug)]
enum ProcessGuard {
    /// The warden at the other end of this socket, also when the socket closes.
    Warden(UnixStream),
    /// Our signal to the group.
    ProcessGroup,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    Code(i32),
    Signal(i32),
    /// The system did not say, or the warden was killed.
    Unknown,
}

impl Process {
    /// Starts a child. Nothing is left running after an error.
    pub async fn spawn(start: SpawnSpec<'_>) -> io::Result<(Self, ChildStreams)> {
        let (input, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let stdin = Sender::from_owned_fd(stdin)?;
        let mut process = match spawn_warden(start)? {
            Some(launched) => {
                let starting = GuardedStart {
                    launched: Some(launched),
                    lifetime_token: start.lifetime_token.cloned(),
                };
                starting.wait_for_start(input).await?
            },
            None => Self::spawn_in_group(start, input)?,
        };
        let (stdout, stderr) = (process.child.stdout.take(), process.child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            process.kill();
            return Err(ErrorKind::BrokenPipe.into());
        };
        let streams = ChildStreams {
            stdin,
            stdout,
            stderr,
        };
        Ok((process, streams))
    }

    fn spawn_in_group(start: SpawnSpec<'_>, input: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(start.program);
        command.args(start.args).process_group(0);
        let child = spawn_command(command, start, input.into())?;
        let server = child.id().and_then(|id| i32::try_from(id).ok());
        let server = server.and_then(Pid::from_raw).ok_or(ErrorKind::NotFound)?;
        Ok(Self::new(child, ProcessGuard::ProcessGroup, server))
    }

    fn new(child: Child, guard: ProcessGuard, server: Pid) -> Self {
        Self {
            child,
            guard,
            server,
            exit: None,
            orphans: Arc::default(),
        }
    }

    /// The server's process id; it is also the id of its group.
    pub(crate) fn pid(&self) -> u32 {
        self.server.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether a warden ends the tree also when we are killed.
    pub(crate) fn has_warden(&self) -> bool {
        matches!(self.guard, ProcessGuard::Warden(_))
    }

    /// Waits until the child has ended and its tree is gone.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn wait_for_exit(&mut self) -> ChildExit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let status = self.child.wait().await;
        let exit = match &self.guard {
            ProcessGuard::Warden(control) => match read_exit_report(control) {
                Some((status, left_behind)) => {
                    self.orphans.store(left_behind, Ordering::Relaxed);
                    ChildExit::from_status(status)
                },
                None => {
                    self.signal_group(Signal::KILL).ok();
                    ChildExit::Unknown
                },
            },
            ProcessGuard::ProcessGroup => {
                // The leader is gone, those it started may not be.
                let found = self.signal_group(Signal::KILL);
                self.orphans
                    .store(u32::from(found.is_ok()), Ordering::Relaxed);
                status.map_or(ChildExit::Unknown, ChildExit::from_status)
            },
        };
        self.exit = Some(exit);
        exit
    }

    pub(crate) fn terminate(&mut self) {
        self.signal_tree(WardenCommand::Terminate, Signal::TERM);
    }

    pub(crate) fn kill(&mut self) {
        self.signal_tree(WardenCommand::Kill, Signal::KILL);
    }

    fn signal_tree(&self, order: WardenCommand, signal: Signal) {
        if self.exit.is_some() {
            return;
        }
        match &self.guard {
            ProcessGuard::Warden(control) => {
                if protocol::send_command(control, order).is_err() {
                    self.signal_group(signal).ok();
                }
            },
            ProcessGuard::ProcessGroup => {
                self.signal_group(signal).ok();
            },
        }
    }

    /// An error means that the group has ended by itself.
    fn signal_group(&self, signal: Signal) -> rustix::io::Result<()> {
        kill_process_group(self.server, signal)
    }
}

impl Drop for Process {
    /// A warden sees that its socket closes.
    fn drop(&mut self) {
        if self.exit.is_none() && matches!(self.guard, ProcessGuard::ProcessGroup) {
            self.signal_group(Signal::KILL).ok();
        }
    }
}

/// A warden that has not reported the start of its server yet. Dropped, its socket closes, so it ends
/// what it started; the token is held until then.
struct GuardedStart {
    launched: Option<(Child, UnixStream)>,
    lifetime_token: Option<LifetimeToken>,
}

impl GuardedStart {
    async fn wait_for_start(mut self, input: OwnedFd) -> io::Result<Process> {
        let (_, control) = self.launched.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        protocol::send_stdin(control.as_fd(), input.as_fd())?;
        drop(input);
        let server = read_start_report(control).await?;
        let (child, control) = self.launched.take().ok_or(ErrorKind::BrokenPipe)?;
        Ok(Process::new(child, ProcessGuard::Warden(control), server))
    }
}

impl Drop for GuardedStart {
    fn drop(&mut self) {
        let (Some((mut child, control)), Some(tether)) =
            (self.launched.take(), self.lifetime_token.take())
        else {
            return;
        };
        drop(control);
        clock::spawn_if_running("end of a start", async move {
            let waiting = clock::timeout(WARDEN_START_TIMEOUT, child.wait());
            waiting.await.ok();
            drop(tether);
        });
    }
}

impl ChildExit {
    fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl std::fmt::Display for ChildExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("unknown exit status"),
        }
    }
}

/// Starts the warden of a child, with our end of its control socket; none without a binary for it.
fn spawn_warden(start: SpawnSpec<'_>) -> io::Result<Option<(Child, UnixStream)>> {
    let Some(binary) = warden::binary() else {
        static TOLD: std::sync::Once = std::sync::Once::new();
        TOLD.call_once(|| {
            tracing::warn!(
                "child processes have no warden: if this program is killed, they may live on; call `warmline::warden::run_if_asked()` first in `main`"
            );
        });
        return Ok(None);
    };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let control = UnixStream::from_std(ours)?;
    let mut command = Command::new(&binary);
    command
        .arg0("warmline")
        .arg(warden::ARGUMENT)
        .arg(start.program)
        .args(start.args);
    match spawn_command(command, start, OwnedFd::from(theirs).into()) {
        Ok(child) => Ok(Some((child, control))),
        // Our own binary is missing: the server may start without it.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied
            ) =>
        {
            tracing::warn!(binary = %binary.display(), %error, "warden missing");
            Ok(None)
        },
        Err(error) => Err(error),
    }
}

fn spawn_command(mut command: Command, start: SpawnSpec<'_>, stdin: Stdio) -> io::Result<Child> {
    command.env_clear().envs(start.environment);
    command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = start.cwd {
        command.current_dir(cwd);
    }
    command.spawn()
}

async fn read_start_report(control: &mut UnixStream) -> io::Result<Pid> {
    let mut frame = [0; WardenReport::FRAME_BYTES];
    let heard = clock::timeout(WARDEN_START_TIMEOUT, control.read_exact(&mut frame)).await;
    heard.map_err(|_| ErrorKind::TimedOut)??;
    match WardenReport::decode(frame) {
        Some(WardenReport::Started(pid)) => Pid::from_raw(pid).ok_or(ErrorKind::InvalidData.into()),
        Some(WardenReport::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
        Some(WardenReport::Exited(_) | WardenReport::OrphansKilled(_)) | None => {
            Err(ErrorKind::InvalidData.into())
        },
    }
}

/// The last report of a warden that has ended; none if it was killed before its sweep.
fn read_exit_report(control: &UnixStream) -> Option<(ExitStatus, u32)> {
    let status = match protocol::read_report(control)? {
        WardenReport::Exited(status) => ExitStatus::from_raw(status),
        WardenReport::Started(_) | WardenReport::Failed(_) | WardenReport::OrphansKilled(_) => {
            return None;
        },
    };
    let left_behind = match protocol::read_report(control) {
        Some(WardenReport::OrphansKilled(number)) => number.unsigned_abs(),
        _ => 0,
    };
    Some((status, left_behind))
}

/// For the start of the warden, not of the server.
const WARDEN_START_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
