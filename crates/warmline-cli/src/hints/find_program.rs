//! Finds the program of a server without starting anything, so without the PATH of the login shell.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use warmline_upstream::{ServerTarget, StdioConfig, TransportConfig};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramLookup {
    Found(String),
    Missing(String),
    Unknown(&'static str),
}

impl ProgramLookup {
    /// Searches as the server would be started. Variables in its path are redacted.
    pub(crate) fn find(stdio: &StdioConfig) -> Self {
        let (program, folder) = (&stdio.program, stdio.cwd.clone().unwrap_or_default());
        let found = |says: String| Self::Found(stdio.redact_substituted(says));
        let missing = |says: String| Self::Missing(stdio.redact_substituted(says));
        if program.contains('/') {
            return match is_program(&folder.join(program)) {
                true => found(format!("{program} can be executed")),
                false => missing(format!("there is no program {program}")),
            };
        }
        let own = stdio.env.get("PATH").map(OsString::from);
        let Some(path) = own.or_else(|| std::env::var_os("PATH")) else {
            return Self::Unknown("PATH is not set");
        };
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let count = folders.len();
        let mut numbered = (1..).zip(&folders);
        match numbered.find(|(_, place)| is_program(&folder.join(place).join(program))) {
            Some((number, place)) => found(format!(
                "{program} → {}/{program} (folder {number} of {count} in PATH)",
                place.display()
            )),
            None => missing(format!(
                "`{program}` is in none of the {count} folders of PATH"
            )),
        }
    }
}

pub(crate) fn is_on_path(word: &str) -> bool {
    let server = ServerTarget::stdio("it", word, [""; 0]);
    match &server.transport {
        TransportConfig::Stdio(stdio) => {
            matches!(ProgramLookup::find(stdio), ProgramLookup::Found(_))
        },
        TransportConfig::Http(_) => false,
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
