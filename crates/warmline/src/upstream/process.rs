//! A child process: started in a group of its own, waited for, and ended with its whole tree.
//!
//! Asked by: [`stdio`](super::stdio) for servers, [`path`](super::path) for the login shell.
//!
//! Where there is a [`warden`](super::warden), the child runs under it and the warden does the
//! killing, also when we are gone. Where there is none, the child leads a process group and we
//! kill the group. Dropping a [`Process`] ends the tree in both cases.

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

use super::environment::Environment;
use super::server::Tether;
use super::warden;
use super::warden::post::{self, Order, Told};
use crate::clock;

/// What to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    /// The program as a path; nothing is searched any more.
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [String],
    /// All the child gets; nothing of ours is added.
    pub(crate) environment: &'a Environment,
    pub(crate) cwd: Option<&'a Path>,
    /// What is kept until nothing is left of the child, also if its start is given up.
    pub(crate) tether: Option<&'a Tether>,
}

/// Our ends of a child's standard streams.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) stdin: Sender,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A child and all that it started.
#[derive(Debug)]
pub(crate) struct Process {
    /// The warden, or the server itself.
    child: Child,
    guard: Guard,
    server: Pid,
    exit: Option<Exit>,
    left_behind: LeftBehind,
}

/// How many processes outlived a child and were killed: known once it has ended. Where no warden
/// counts them, they are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind(Arc<AtomicU32>);

impl LeftBehind {
    pub(crate) fn number(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, number: u32) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// Who ends the tree.
#[derive(Debug)]
enum Guard {
    /// The warden at the other end of this socket; it also does so when the socket ends.
    Warden(UnixStream),
    /// We, by a signal to the group.
    Group,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// The system, or a warden that was killed, did not tell.
    Untold,
}

impl Process {
    /// Starts a child. An error names what the system said; nothing is left running then.
    pub(crate) async fn start(start: Start<'_>) -> io::Result<(Self, Streams)> {
        let (input, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let stdin = Sender::from_owned_fd(stdin)?;
        let (mut process, stdout, stderr) = match launch_warden(start)? {
            Some((child, control)) => {
                let starting = Starting {
                    launched: Some((child, control)),
                    tether: start.tether.cloned(),
                };
                Self::start_guarded(starting, input).await?
            },
            None => Self::start_in_group(start, input)?,
        };
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            process.kill();
            return Err(ErrorKind::BrokenPipe.into());
        };
        Ok((
            process,
            Streams {
                stdin,
                stdout,
                stderr,
            },
        ))
    }

    async fn start_guarded(
        mut starting: Starting,
        input: OwnedFd,
    ) -> io::Result<(Self, Option<ChildStdout>, Option<ChildStderr>)> {
        let server = starting.server(input).await?;
        let (mut child, control) = starting.launched.take().ok_or(ErrorKind::BrokenPipe)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let guard = Guard::Warden(control);
        Ok((
            Self {
                child,
                guard,
                server,
                exit: None,
                left_behind: LeftBehind::default(),
            },
            stdout,
            stderr,
        ))
    }

    fn start_in_group(
        start: Start<'_>,
        input: OwnedFd,
    ) -> io::Result<(Self, Option<ChildStdout>, Option<ChildStderr>)> {
        let mut command = Command::new(start.program);
        command.args(start.args).process_group(0);
        let mut child = launch(command, start, input.into())?;
        let server = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let server = server.ok_or(ErrorKind::NotFound)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Ok((
            Self {
                child,
                guard: Guard::Group,
                server,
                exit: None,
                left_behind: LeftBehind::default(),
            },
            stdout,
            stderr,
        ))
    }

    /// The server's process id; it is also the id of its group.
    pub(crate) fn pid(&self) -> u32 {
        self.server.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether a warden ends the tree also when we are killed.
    pub(crate) fn has_warden(&self) -> bool {
        matches!(self.guard, Guard::Warden(_))
    }

    /// How many outlived it, for whoever asks once it has ended.
    pub(crate) fn left_behind(&self) -> LeftBehind {
        self.left_behind.clone()
    }

    /// Waits until the child has ended and its tree is gone. May be dropped and asked again.
    pub(crate) async fn exited(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let status = self.child.wait().await;
        let exit = match &self.guard {
            Guard::Warden(control) => match hear_of_sweep(control) {
                Some((status, left_behind)) => {
                    self.left_behind.set(left_behind);
                    Exit::of(status)
                },
                None => {
                    self.signal_group(Signal::KILL).ok();
                    Exit::Untold
                },
            },
            Guard::Group => {
                // The leader is gone, those it started may not be.
                let found = self.signal_group(Signal::KILL);
                self.left_behind.set(u32::from(found.is_ok()));
                status.map_or(Exit::Untold, Exit::of)
            },
        };
        self.exit = Some(exit);
        exit
    }

    /// Asks the child and its group to end.
    pub(crate) fn terminate(&mut self) {
        self.order(Order::Terminate, Signal::TERM);
    }

    /// Kills the child and all below it.
    pub(crate) fn kill(&mut self) {
        self.order(Order::Kill, Signal::KILL);
    }

    fn order(&self, order: Order, signal: Signal) {
        if self.exit.is_some() {
            return;
        }
        match &self.guard {
            Guard::Warden(control) => {
                if post::order(control, order).is_err() {
                    self.signal_group(signal).ok();
                }
            },
            Guard::Group => {
                self.signal_group(signal).ok();
            },
        }
    }

    /// The group may have ended by itself, which is an error; there is nothing to do about it.
    fn signal_group(&self, signal: Signal) -> rustix::io::Result<()> {
        kill_process_group(self.server, signal)
    }
}

impl Drop for Process {
    /// A warden learns of our end by its socket, which closes with us.
    fn drop(&mut self) {
        if self.exit.is_none() && matches!(self.guard, Guard::Group) {
            self.signal_group(Signal::KILL).ok();
        }
    }
}

/// A warden that was launched and has not said yet that its server runs. Given up, it ends what it
/// started, because its socket closes; what is kept for it is kept until then.
struct Starting {
    launched: Option<(Child, UnixStream)>,
    tether: Option<Tether>,
}

impl Starting {
    async fn server(&mut self, input: OwnedFd) -> io::Result<Pid> {
        let (_, control) = self.launched.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        post::greet(control.as_fd(), input.as_fd())?;
        drop(input);
        hear_of_start(control).await
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let (Some((mut child, control)), Some(tether)) = (self.launched.take(), self.tether.take())
        else {
            return;
        };
        drop(control);
        clock::spawn_if_running("end of a start", async move {
            clock::timeout(WARDEN_START, child.wait()).await.ok();
            drop(tether);
        });
    }
}

impl Exit {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Untold,
        }
    }
}

/// How a child ended, as a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnded {
    /// By itself, and well.
    Finished,
    /// By itself, with an error.
    Failed,
    /// By a signal.
    Killed,
    /// Nobody could tell.
    Untold,
}

impl Exit {
    pub(crate) const fn kind(&self) -> ChildEnded {
        match self {
            Self::Code(0) => ChildEnded::Finished,
            Self::Code(_) => ChildEnded::Failed,
            Self::Signal(_) => ChildEnded::Killed,
            Self::Untold => ChildEnded::Untold,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Untold => f.write_str("unknown exit status"),
        }
    }
}

/// Starts the warden of a child, with the other end of its control socket; none if there is no
/// binary for it.
fn launch_warden(start: Start<'_>) -> io::Result<Option<(Child, UnixStream)>> {
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
    match launch(command, start, OwnedFd::from(theirs).into()) {
        Ok(child) => Ok(Some((child, control))),
        // This is about our own binary: the server may well start without it.
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

/// Starts a command with the child's environment and folder, and our pipes.
fn launch(mut command: Command, start: Start<'_>, stdin: Stdio) -> io::Result<Child> {
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

/// Waits for the warden's first word.
async fn hear_of_start(control: &mut UnixStream) -> io::Result<Pid> {
    let mut frame = [0; Told::BYTES];
    let heard = clock::timeout(WARDEN_START, control.read_exact(&mut frame)).await;
    heard.map_err(|_| ErrorKind::TimedOut)??;
    match Told::parse(frame) {
        Some(Told::Started(pid)) => Pid::from_raw(pid).ok_or(ErrorKind::InvalidData.into()),
        Some(Told::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
        Some(Told::Swept(_) | Told::LeftBehind(_)) | None => Err(ErrorKind::InvalidData.into()),
    }
}

/// The warden's last words, once it has ended: none if it was killed before it could sweep.
fn hear_of_sweep(control: &UnixStream) -> Option<(ExitStatus, u32)> {
    let status = match post::last_word(control)? {
        Told::Swept(status) => ExitStatus::from_raw(status),
        Told::Started(_) | Told::Failed(_) | Told::LeftBehind(_) => return None,
    };
    let left_behind = match post::last_word(control) {
        Some(Told::LeftBehind(number)) => number.unsigned_abs(),
        _ => 0,
    };
    Some((status, left_behind))
}

/// For the warden to start; the time of the server itself does not count.
const WARDEN_START: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

#[cfg(test)]
mod ending_tests {
    use super::{ChildEnded, Exit};

    /// M11: a child that finished, failed or was killed is told apart.
    #[test]
    fn the_ends_of_children_are_told_apart() {
        let table = [
            (Exit::Code(0), ChildEnded::Finished),
            (Exit::Code(70), ChildEnded::Failed),
            (Exit::Signal(9), ChildEnded::Killed),
            (Exit::Untold, ChildEnded::Untold),
        ];
        for (exit, kind) in table {
            assert_eq!(exit.kind(), kind);
        }
    }
}
