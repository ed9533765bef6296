//! Finding a program: by path, through PATH, or through the PATH of the login shell.
//!
//! Asked by: [`stdio`](super::stdio), before a child is started.
//!
//! Why the login shell: a program started by a desktop has a bare PATH, while `npx` and `uvx`
//!   stand in folders that only the user's profile names.
//! What the probe may do: it runs the user's own shell once per process, without input, for at most
//!   3 s. Profiles print noise, so the answer stands between two fences drawn at random. Only
//!   PATH is taken over.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OnceCell;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::environment::{self, Environment};
use super::process::{Process, Start};
use super::server::StdioReach;
use super::stderr;
use crate::clock;

/// How a program was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// In the folder at this place of PATH, counted from 0.
    Path {
        /// The place.
        index: usize,
    },
    /// Through the PATH of the login shell, which the child was given.
    LoginShell,
    /// The configuration gave its path.
    Given,
}

impl std::fmt::Display for FoundBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { index } => write!(f, "folder {} of PATH", index + 1),
            Self::LoginShell => f.write_str("the login shell's PATH"),
            Self::Given => f.write_str("the path given"),
        }
    }
}

/// A program that exists.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) found_by: FoundBy,
}

/// Finds the program of a server. If the login shell had to be asked, its PATH is put into the
/// environment: a program found there needs its neighbours too.
pub(crate) async fn find(
    server: &str,
    reach: &StdioReach,
    environment: &mut Environment,
) -> Result<Program, Trouble> {
    let cwd = working_folder(server, reach)?;
    if reach.program.contains('/') {
        return given(server, &reach.program, &cwd);
    }
    let search = environment
        .get(OsStr::new(PATH))
        .cloned()
        .unwrap_or_default();
    if let Some(program) = look_up(&reach.program, &search, &cwd) {
        return Ok(program);
    }
    if reach.env.contains_key(PATH) {
        return Err(missing(server, &reach.program, &search, None));
    }
    let Some(login) = login_path().await else {
        return Err(missing(server, &reach.program, &search, None));
    };
    match look_up(&reach.program, login, &cwd) {
        Some(program) => {
            environment.insert(PATH.into(), joined(login, &search));
            Ok(Program {
                found_by: FoundBy::LoginShell,
                ..program
            })
        },
        None => Err(missing(server, &reach.program, &search, Some(login))),
    }
}

fn working_folder(server: &str, reach: &StdioReach) -> Result<PathBuf, Trouble> {
    let cwd = match &reach.cwd {
        Some(cwd) => std::path::absolute(cwd),
        None => std::env::current_dir(),
    };
    match cwd {
        Ok(cwd) if cwd.is_dir() => Ok(cwd),
        Ok(cwd) => {
            let what = format!(
                "`{server}` cannot start in {}: there is no such folder",
                cwd.display()
            );
            Err(Trouble::new(Reason::Spawn, what).hint("create the folder, or change `cwd`"))
        },
        Err(error) => {
            let what = format!("the working folder of `{server}` cannot be found");
            Err(Trouble::new(Reason::Spawn, what).because(error.to_string()))
        },
    }
}

fn given(server: &str, program: &str, cwd: &Path) -> Result<Program, Trouble> {
    let path = cwd.join(program);
    let what = match path.metadata() {
        Ok(metadata) if metadata.is_file() && is_executable(&path) => {
            return Ok(Program {
                path,
                found_by: FoundBy::Given,
            });
        },
        Ok(metadata) if metadata.is_file() => {
            let what = format!(
                "the program of `{server}` may not be executed: {}",
                path.display()
            );
            let hint = format!("make it executable: chmod +x {}", path.display());
            return Err(Trouble::new(Reason::Spawn, what).hint(hint));
        },
        Ok(_) => format!("the program of `{server}` is a folder: {}", path.display()),
        Err(error) => format!(
            "the program of `{server}` was not found: {} ({error})",
            path.display()
        ),
    };
    Err(Trouble::new(Reason::ProgramMissing, what).hint("check `command`; paths count from `cwd`"))
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Searches the folders of a PATH in their order.
fn look_up(program: &str, search: &OsStr, cwd: &Path) -> Option<Program> {
    if program.is_empty() {
        return None;
    }
    std::env::split_paths(search)
        .enumerate()
        .find_map(|(index, folder)| {
            let folder = cwd.join(folder);
            let path = which::which_in(program, Some(&folder), cwd).ok()?;
            Some(Program {
                path,
                found_by: FoundBy::Path { index },
            })
        })
}

fn missing(server: &str, program: &str, search: &OsStr, login: Option<&OsStr>) -> Trouble {
    let what = format!("the program of `{server}` was not found: `{program}`");
    let mut why = format!("searched PATH {}", search.display());
    if let Some(login) = login {
        why = format!("{why}, then the login shell's PATH {}", login.display());
    }
    let hint = match program {
        "npx" | "npm" | "node" => "install Node.js, or give the program's full path as `command`",
        "uvx" | "uv" => "install uv, or give the program's full path as `command`",
        _ => "install it, or give its full path as `command`",
    };
    Trouble::new(Reason::ProgramMissing, what)
        .because(why)
        .hint(hint)
}

/// The login shell's PATH first, then what else was in ours.
fn joined(login: &OsStr, ours: &OsStr) -> OsString {
    let mut folders: Vec<PathBuf> = std::env::split_paths(login).collect();
    for folder in std::env::split_paths(ours) {
        if !folder.as_os_str().is_empty() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    std::env::join_paths(folders).unwrap_or_else(|_| login.to_owned())
}

/// The PATH of the user's login shell, looked up once per process.
async fn login_path() -> Option<&'static OsStr> {
    static KNOWN: OnceCell<Option<OsString>> = OnceCell::const_new();
    let asking = async {
        let shell = environment::shell().unwrap_or_else(|| "/bin/sh".into());
        ask_shell(Path::new(&shell), &environment::of_every_child()).await
    };
    KNOWN.get_or_init(|| asking).await.as_deref()
}

/// Runs a login shell and reads its PATH from between two fences.
async fn ask_shell(shell: &Path, environment: &Environment) -> Option<OsString> {
    let fence = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let script = format!(r#"printf '%s%s%s' {fence} "$PATH" {fence}"#);
    let args = ["-l", "-i", "-c", &script].map(str::to_owned);
    let start = Start {
        program: shell,
        args: &args,
        environment,
        cwd: None,
        tether: None,
    };
    let (mut process, streams) = Process::start(start).await.ok()?;
    drop(streams.stdin);
    // Interactive shells complain that there is no terminal. Nobody reads it, somebody has to.
    let complaints = stderr::drain(streams.stderr, Arc::default());
    let reading = read_fenced(streams.stdout.take(PROBE_BYTES), &fence);
    let both = async {
        tokio::select! {
            path = reading => path,
            () = complaints.then(|()| std::future::pending()) => None,
        }
    };
    let path = clock::timeout(PROBE_TIME, both).await;
    process.kill();
    // Reaped within a moment; if not, dropping it does the rest in the background.
    clock::timeout(PROBE_END, process.exited()).await.ok();
    path.ok().flatten()
}

/// Reads until both fences are there. A profile may leave programs behind that keep the stream
/// open, so its end is not waited for.
async fn read_fenced(mut from: impl AsyncRead + Unpin, fence: &str) -> Option<OsString> {
    let mut said = Vec::new();
    loop {
        let read = from.read_buf(&mut said).await.ok()?;
        if let Some(path) = between(&said, fence.as_bytes()) {
            return (!path.is_empty()).then(|| OsString::from_vec(path.to_vec()));
        }
        if read == 0 {
            return None;
        }
    }
}

/// What stands between two fences.
fn between<'a>(text: &'a [u8], fence: &[u8]) -> Option<&'a [u8]> {
    let find = |text: &[u8]| text.windows(fence.len()).position(|window| window == fence);
    let rest = text.get(find(text)? + fence.len()..)?;
    rest.get(..find(rest)?)
}

const PATH: &str = "PATH";
const PROBE_TIME: Duration = Duration::from_secs(3);
const PROBE_END: Duration = Duration::from_secs(1);
const PROBE_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests;
