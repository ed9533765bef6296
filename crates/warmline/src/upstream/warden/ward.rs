//! The warden's side: start the server, wait, leave nothing behind.
//!
//! It has no threads and no runtime: it is a loop around `poll` and `wait`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, setsid, wait,
};

use super::post::{self, Order, Told};

/// Runs the program that the arguments name under guard, and returns the exit code for it.
pub(super) fn stand(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    // Away from the terminal: Ctrl-C is for the owner, who then tells us. It fails only where we
    // lead a group already, which is as good.
    setsid().ok();
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else {
        return BAD_START;
    };
    let (Some(program), Ok(input)) = (arguments.next(), post::receive(control.as_fd())) else {
        return BAD_START;
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::from(input))
        .process_group(0);
    let started = set_child_subreaper(Some(getpid())).map_err(io::Error::from);
    let started = started.and_then(|()| command.spawn());
    drop(command);
    match started {
        Ok(server) => Ward::new(control, Pid::from_child(&server)).guard(),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            post::tell(&control, Told::Failed(errno));
            BAD_START
        },
    }
}

/// A server under guard.
struct Ward {
    control: OwnedFd,
    server: Pid,
    /// Readable once the server has ended; without it we look from time to time.
    ended: Option<OwnedFd>,
    /// How the server ended.
    status: Option<i32>,
}

/// Whether any descendant is left.
#[derive(PartialEq, Eq)]
enum Left {
    Some,
    None,
}

impl Ward {
    fn new(control: OwnedFd, server: Pid) -> Self {
        Self {
            control,
            server,
            ended: pidfd_open(server, PidfdFlags::empty()).ok(),
            status: None,
        }
    }

    fn guard(mut self) -> i32 {
        // A start that cannot be silenced would keep the server's pipes open: better none.
        if silence().is_ok() {
            post::tell(
                &self.control,
                Told::Started(self.server.as_raw_nonzero().get()),
            );
            self.watch();
        }
        let left_behind = self.sweep();
        let status = self.status.unwrap_or_default();
        post::tell(&self.control, Told::Swept(status));
        post::tell(&self.control, Told::LeftBehind(left_behind));
        // As shells put it: the code, or 128 and the signal.
        match status & 0x7f {
            0 => (status >> 8) & 0xff,
            signal => 128 + signal,
        }
    }

    /// Waits until the server ended, or has to.
    fn watch(&mut self) {
        while self.status.is_none() {
            self.wait_for_news(true, REAP_EVERY_MS);
            self.reap();
            match post::next_order(&self.control) {
                Ok(None) => {},
                Ok(Some(Order::Terminate)) => self.terminate(),
                Ok(Some(Order::Kill)) => return,
                Err(_) => {
                    self.terminate();
                    return self.grace();
                },
            }
        }
    }

    /// Gives the server a moment to end by itself.
    fn grace(&mut self) {
        for _ in 0..GRACE_MS / GRACE_STEP_MS {
            if self.status.is_some() {
                return;
            }
            self.wait_for_news(false, GRACE_STEP_MS);
            self.reap();
        }
    }

    /// Kills and reaps until nothing is left, and says how many lived on behind a server that had
    /// ended. Whatever loses its parent becomes ours, so each round reaches one generation further
    /// down.
    fn sweep(&mut self) -> i32 {
        let has_ended = self.status.is_some();
        if !has_ended {
            kill_process_group(self.server, Signal::KILL).ok();
        }
        let mut killed = BTreeSet::new();
        for _ in 0..SWEEP_ROUNDS {
            // Reaped first: who has ended by itself was not killed by us.
            if self.reap() == Left::None {
                break;
            }
            for child in children() {
                kill_process(child, Signal::KILL).ok();
                killed.insert(child.as_raw_nonzero());
            }
            pause(SWEEP_STEP_MS);
        }
        let number = if has_ended { killed.len() } else { 0 };
        i32::try_from(number).unwrap_or(i32::MAX)
    }

    fn terminate(&self) {
        // Once it is reaped, its number may belong to somebody else.
        if self.status.is_none() {
            kill_process_group(self.server, Signal::TERM).ok();
        }
    }

    fn wait_for_news(&self, with_control: bool, milliseconds: i64) {
        let control = with_control.then_some(&self.control);
        let mut sources: Vec<PollFd<'_>> = [control, self.ended.as_ref()]
            .into_iter()
            .flatten()
            .map(|source| PollFd::new(source, PollFlags::IN))
            .collect();
        let limit = if self.ended.is_some() {
            milliseconds
        } else {
            GRACE_STEP_MS
        };
        // An interrupted or failed wait is a short one.
        poll(&mut sources, Some(&timespec(limit))).ok();
    }

    /// Reaps all that ended, the server and orphans alike.
    fn reap(&mut self) -> Left {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.server => {
                    self.status = Some(status.as_raw());
                },
                Ok(Some(_)) | Err(Errno::INTR) => {},
                Ok(None) => return Left::Some,
                Err(_) => return Left::None,
            }
        }
    }
}

/// Lets go of the server's streams and folder, so that they end with the server.
fn silence() -> io::Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")
}

/// Our children at this moment: the list the kernel keeps, or a search where it keeps none.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{own}/children"));
    let numbers: Vec<i32> = match listed {
        Ok(list) => list
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect(),
        Err(_) => search(own.get()),
    };
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

/// All processes whose parent has this number.
fn search(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|number| parent_of(*number) == Some(parent))
        .collect()
}

/// The parent of a process. Its name may hold anything, so the fields are counted from behind it.
fn parent_of(number: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{number}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn pause(milliseconds: i64) {
    poll(&mut [], Some(&timespec(milliseconds))).ok();
}

fn timespec(milliseconds: i64) -> Timespec {
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: (milliseconds % 1000) * 1_000_000,
    }
}

/// The exit code when nothing was started.
const BAD_START: i32 = 126;
/// Orphans that ended are reaped at least this often: no zombie gets older than a second.
const REAP_EVERY_MS: i64 = 900;
/// From TERM to KILL when the owner is gone: the tree has to be gone within 3 s.
const GRACE_MS: i64 = 1500;
const GRACE_STEP_MS: i64 = 50;
const SWEEP_STEP_MS: i64 = 2;
/// About 20 s: what cannot be killed by then (a process that waits for a dead disk) is left.
const SWEEP_ROUNDS: usize = 10_000;
