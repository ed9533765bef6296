//! Finds a program: by path, through PATH, or through the PATH of the login shell.
//!
//! A program started by a desktop has a bare PATH, while `npx` and `uvx` are in folders that only the
//! user's profile names. So the user's shell is run once per process, without input, for at most 3 s.
//! Profiles print noise, so its PATH is read between two random fences.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OnceCell;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;

use crate::child::process::{Process, SpawnSpec};
use crate::child::stderr;
use crate::environment;
use crate::environment::Environment;
use crate::target::StdioConfig;
use warmline_platform::clock;

/// How a program was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    Path {
        index: usize,
    },
    /// Through the PATH of the login shell, which the child gets.
    LoginShell,
    /// The configuration gave its path.
    Explicit,
}

impl std::fmt::Display for ProgramSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { index } => write!(f, "folder {} of PATH", index + 1),
            Self::LoginShell => f.write_str("the login shell's PATH"),
            Self::Explicit => f.write_str("the path given"),
        }
    }
}

/// A program that exists.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub(crate) source: ProgramSource,
}

/// Finds the program of a server. A program that only the login shell finds gets the shell's PATH: it
/// needs its neighbours, too.
pub async fn find_program(
    server: &str,
    reach: &StdioConfig,
    environment: &mut Environment,
) -> Result<Program, Diagnostic> {
    let cwd = working_folder(server, reach)?;
    if reach.program.contains('/') {
        return explicit_program(server, &reach.program, &cwd);
    }
    let search = environment
        .get(OsStr::new(PATH))
        .cloned()
        .unwrap_or_default();
    if let Some(program) = search_path(&reach.program, &search, &cwd) {
        return Ok(program);
    }
    let login = match reach.env.contains_key(PATH) {
        true => None,
        false => login_path().await,
    };
    if let Some(login) = login
        && let Some(program) = search_path(&reach.program, login, &cwd)
    {
        environment.insert(PATH.into(), join_search_paths(login, &search));
        return Ok(Program {
            source: ProgramSource::LoginShell,
            ..program
        });
    }
    Err(program_missing(server, &reach.program, &search, login))
}

fn working_folder(server: &str, reach: &StdioConfig) -> Result<PathBuf, Diagnostic> {
    let cwd = match &reach.cwd {
        Some(cwd) => std::path::absolute(cwd),
        None => std::env::current_dir(),
    };
    match cwd {
        Ok(cwd) if cwd.is_dir() => Ok(cwd),
        Ok(cwd) => {
            let cwd = cwd.display();
            let what = format!("`{server}` cannot start in {cwd}: there is no such folder");
            let hint = "create the folder, or change `cwd`";
            Err(Diagnostic::new(Reason::Spawn, what).with_hint(hint))
        },
        Err(error) => {
            let what = format!("the working folder of `{server}` cannot be found");
            Err(Diagnostic::new(Reason::Spawn, what).with_cause(error.to_string()))
        },
    }
}

fn explicit_program(server: &str, program: &str, cwd: &Path) -> Result<Program, Diagnostic> {
    let path = cwd.join(program);
    let shown = path.display();
    let what = match path.metadata() {
        Ok(metadata) if metadata.is_file() => {
            if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok() {
                let source = ProgramSource::Explicit;
                return Ok(Program { path, source });
            }
            let what = format!("the program of `{server}` may not be executed: {shown}");
            let hint = format!("make it executable: chmod +x {shown}");
            return Err(Diagnostic::new(Reason::Spawn, what).with_hint(hint));
        },
        Ok(_) => format!("the program of `{server}` is a folder: {shown}"),
        Err(error) => format!("the program of `{server}` was not found: {shown} ({error})"),
    };
    let hint = "check `command`; paths count from `cwd`";
    Err(Diagnostic::new(Reason::ProgramMissing, what).with_hint(hint))
}

fn search_path(program: &str, search: &OsStr, cwd: &Path) -> Option<Program> {
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
                source: ProgramSource::Path { index },
            })
        })
}

fn program_missing(
    server: &str,
    program: &str,
    search: &OsStr,
    login: Option<&OsStr>,
) -> Diagnostic {
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
    Diagnostic::new(Reason::ProgramMissing, what)
        .with_cause(why)
        .with_hint(hint)
}

/// The login shell's PATH first, then what else was in ours.
fn join_search_paths(login: &OsStr, ours: &OsStr) -> OsString {
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
        let shell = environment::user_shell().unwrap_or_else(|| "/bin/sh".into());
        query_login_shell(Path::new(&shell), &environment::base_environment()).await
    };
    KNOWN.get_or_init(|| asking).await.as_deref()
}

/// Runs a login shell and reads its PATH from between two fences.
async fn query_login_shell(shell: &Path, environment: &Environment) -> Option<OsString> {
    let fence = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let script = format!(r#"printf '%s%s%s' {fence} "$PATH" {fence}"#);
    let args = ["-l", "-i", "-c", &script].map(str::to_owned);
    let start = SpawnSpec {
        program: shell,
        args: &args,
        environment,
        cwd: None,
        lifetime_token: None,
    };
    let (mut process, streams) = Process::spawn(start).await.ok()?;
    drop(streams.stdin);
    // Interactive shells complain that there is no terminal; somebody must read that.
    let complaints = stderr::drain_stderr(streams.stderr, Arc::default());
    let reading = read_fenced(streams.stdout.take(MAX_SHELL_OUTPUT), &fence);
    let both = async {
        tokio::select! {
            path = reading => path,
            () = complaints.then(|()| std::future::pending()) => None,
        }
    };
    let path = clock::timeout(SHELL_TIMEOUT, both).await;
    process.kill();
    // If it is not reaped in time, dropping it does the rest in the background.
    clock::timeout(SHELL_EXIT_TIMEOUT, process.wait_for_exit())
        .await
        .ok();
    path.ok().flatten()
}

/// Reads until both fences are there. A profile may leave programs behind that keep the stream open, so
/// this does not wait for its end.
async fn read_fenced(mut from: impl AsyncRead + Unpin, fence: &str) -> Option<OsString> {
    let mut said = Vec::new();
    loop {
        let read = from.read_buf(&mut said).await.ok()?;
        if let Some(path) = between_fences(&said, fence.as_bytes()) {
            return (!path.is_empty()).then(|| OsString::from_vec(path.to_vec()));
        }
        if read == 0 {
            return None;
        }
    }
}

fn between_fences<'a>(text: &'a [u8], fence: &[u8]) -> Option<&'a [u8]> {
    let find = |text: &[u8]| text.windows(fence.len()).position(|window| window == fence);
    let rest = text.get(find(text)? + fence.len()..)?;
    rest.get(..find(rest)?)
}

const PATH: &str = "PATH";
const SHELL_TIMEOUT: Duration = Duration::from_secs(3);
const SHELL_EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_SHELL_OUTPUT: u64 = 256 << 10;

#[cfg(test)]
mod tests;
