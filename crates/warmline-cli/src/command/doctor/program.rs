//! Whether the program of a server can be found, without starting anything.

use std::path::{Path, PathBuf};

use warmline::upstream::{Reach, Server, StdioReach};

use super::{Finding, State};

/// What can be said of a server without starting or contacting it.
pub(super) fn look_without_starting(server: &Server) -> Vec<Finding> {
    match &server.reach {
        Reach::Stdio(stdio) => vec![program(stdio)],
        Reach::Http(http) => {
            let host = http.url.host_str().unwrap_or_default();
            vec![Finding::ok(
                "connect",
                format!("{host} was not contacted (--offline)"),
            )]
        },
    }
}

fn program(stdio: &StdioReach) -> Finding {
    let program = &stdio.program;
    if program.contains('/') {
        let folder = stdio.cwd.clone().unwrap_or_default();
        return match is_program(&folder.join(program)) {
            true => Finding::ok("program", format!("{program} can be executed")),
            false => missing(format!("there is no program {program}")),
        };
    }
    let Some(path) = std::env::var_os("PATH") else {
        return Finding::look("program", "PATH is not set");
    };
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    match folders
        .iter()
        .position(|folder| is_program(&folder.join(program)))
    {
        Some(place) => {
            let folder = folders
                .get(place)
                .map(|f| f.display().to_string())
                .unwrap_or_default();
            let count = folders.len();
            Finding::ok(
                "program",
                format!(
                    "{program} → {folder}/{program} (folder {} of {count} in PATH)",
                    place + 1
                ),
            )
        },
        None => missing(format!(
            "`{program}` is in none of the {} folders of PATH",
            folders.len()
        )),
    }
}

fn missing(says: String) -> Finding {
    Finding::new("program", State::Broken, says).hint(
        "install it, or give its full path as `command`; the login shell's PATH was not asked",
    )
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}
