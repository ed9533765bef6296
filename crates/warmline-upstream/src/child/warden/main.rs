//! The warden's side: starts the server, waits, and leaves nothing behind. It has no threads and no
//! runtime, only a loop around `poll` and `wait`.

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

use super::protocol::{self, WardenCommand, WardenReport};

/// Runs the program that the arguments name under guard, and returns the exit code for it.
pub(super) fn run_warden(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    // Away from the terminal: Ctrl-C is for the owner, who then sends a command. It fails only if we lead
    // a group already, which is as good.
    setsid().ok();
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else {
        return EXIT_NOT_STARTED;
    };
    let (Some(program), Ok(input)) = (arguments.next(), protocol::receive_stdin(control.as_fd()))
    else {
        return EXIT_NOT_STARTED;
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
        Ok(server) => GuardedServer::new(control, Pid::from_child(&server)).supervise(),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            protocol::send_report(&control, WardenReport::Failed(errno));
            EXIT_NOT_STARTED
        },
    }
}

struct GuardedServer {
    control: OwnedFd,
    server: Pid,
    /// Readable once the server has ended; without it we look from time to time.
    exit_fd: Option<OwnedFd>,
    status: Option<i32>,
}

impl GuardedServer {
    fn new(control: OwnedFd, server: Pid) -> Self {
        Self {
            control,
            server,
            exit_fd: pidfd_open(server, PidfdFlags::empty()).ok(),
            status: None,
        }
    }

    fn supervise(mut self) -> i32 {
        // A warden that keeps the server's pipes open would be worse than none.
        if detach_streams().is_ok() {
            protocol::send_report(
                &self.control,
                WardenReport::Started(self.server.as_raw_nonzero().get()),
            );
            self.wait_for_exit();
        }
        let left_behind = self.kill_descendants();
        let status = self.status.unwrap_or_default();
        protocol::send_report(&self.control, WardenReport::Exited(status));
        protocol::send_report(&self.control, WardenReport::OrphansKilled(left_behind));
        // As shells do: the code, or 128 plus the signal.
        match status & 0x7f {
            0 => (status >> 8) & 0xff,
            signal => 128 + signal,
        }
    }

    fn wait_for_exit(&mut self) {
        while self.status.is_none() {
            self.poll_events(true, REAP_EVERY_MS);
            self.reap();
            match protocol::next_command(&self.control) {
                Ok(None) => {},
                Ok(Some(WardenCommand::Terminate)) => self.terminate(),
                Ok(Some(WardenCommand::Kill)) => return,
                Err(_) => {
                    self.terminate();
                    return self.wait_grace_period();
                },
            }
        }
    }

    fn wait_grace_period(&mut self) {
        for _ in 0..GRACE_MS / GRACE_STEP_MS {
            if self.status.is_some() {
                return;
            }
            self.poll_events(false, GRACE_STEP_MS);
            self.reap();
        }
    }

    /// Kills and reaps until nothing is left; returns how many had outlived a server that ended. Orphans
    /// become our children, so each round reaches one generation further down.
    fn kill_descendants(&mut self) -> i32 {
        let has_ended = self.status.is_some();
        if !has_ended {
            kill_process_group(self.server, Signal::KILL).ok();
        }
        let mut killed = BTreeSet::new();
        for _ in 0..MAX_KILL_ROUNDS {
            // Reaped first: what ended by itself was not killed by us.
            if !self.reap() {
                break;
            }
            for child in child_pids() {
                kill_process(child, Signal::KILL).ok();
                killed.insert(child.as_raw_nonzero());
            }
            sleep_ms(KILL_STEP_MS);
        }
        let number = if has_ended { killed.len() } else { 0 };
        i32::try_from(number).unwrap_or(i32::MAX)
    }

    fn terminate(&self) {
        // Once it is reaped, its id may belong to another process.
        if self.status.is_none() {
            kill_process_group(self.server, Signal::TERM).ok();
        }
    }

    fn poll_events(&self, with_control: bool, milliseconds: i64) {
        let control = with_control.then_some(&self.control);
        let mut sources: Vec<PollFd<'_>> = [control, self.exit_fd.as_ref()]
            .into_iter()
            .flatten()
            .map(|source| PollFd::new(source, PollFlags::IN))
            .collect();
        let limit = if self.exit_fd.is_some() {
            milliseconds
        } else {
            GRACE_STEP_MS
        };
        // An interrupted or failed wait is a short one.
        poll(&mut sources, Some(&timespec(limit))).ok();
    }

    /// Reaps all that ended, the server and orphans alike. Returns whether any descendant is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.server => {
                    self.status = Some(status.as_raw());
                },
                Ok(Some(_)) | Err(Errno::INTR) => {},
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Closes the server's streams and leaves its folder, so that they end with the server.
fn detach_streams() -> io::Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")
}

/// Our current children: the kernel's list, or a search if it keeps none.
fn child_pids() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{own}/children"));
    let numbers: Vec<i32> = match listed {
        Ok(list) => list
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect(),
        Err(_) => find_children(own.get()),
    };
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

fn find_children(parent: i32) -> Vec<i32> {
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

/// The parent of a process. Its name may hold anything, so the fields are counted behind it.
fn parent_of(number: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{number}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn sleep_ms(milliseconds: i64) {
    poll(&mut [], Some(&timespec(milliseconds))).ok();
}

fn timespec(milliseconds: i64) -> Timespec {
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: (milliseconds % 1000) * 1_000_000,
    }
}

const EXIT_NOT_STARTED: i32 = 126;
/// How often orphans are reaped: no zombie gets older than a second.
const REAP_EVERY_MS: i64 = 900;
/// From TERM to KILL when the owner is gone: the tree must be gone within 3 s.
const GRACE_MS: i64 = 1500;
const GRACE_STEP_MS: i64 = 50;
const KILL_STEP_MS: i64 = 2;
/// About 20 s. What cannot be killed by then (a process that waits for a dead disk) is left.
const MAX_KILL_ROUNDS: usize = 10_000;
