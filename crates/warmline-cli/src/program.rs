//! Whether the program of a server can be found, without starting anything.
//!
//! Asked by: `doctor`, and by whoever is about to serve.  Told by: PATH, and files. The login shell
//! is not asked: that would start something.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use warmline::upstream::{Reach, Server, StdioReach};

/// What came of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// It is there, and where.
    Found(String),
    /// It is not there, and where it was looked for.
    Missing(String),
    /// Nobody can say.
    Unknown(&'static str),
}

impl Sought {
    /// Looks for the program as the server would be started. Variables that were filled into its
    /// path are not told.
    pub(crate) fn of(stdio: &StdioReach) -> Self {
        match Self::plainly(stdio) {
            Self::Found(says) => Self::Found(stdio.without_filled(says)),
            Self::Missing(says) => Self::Missing(stdio.without_filled(says)),
            Self::Unknown(why) => Self::Unknown(why),
        }
    }

    fn plainly(stdio: &StdioReach) -> Self {
        let (program, folder) = (&stdio.program, stdio.cwd.clone().unwrap_or_default());
        if program.contains('/') {
            return match is_program(&folder.join(program)) {
                true => Self::Found(format!("{program} can be executed")),
                false => Self::Missing(format!("there is no program {program}")),
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
            Some((number, place)) => Self::Found(format!(
                "{program} → {}/{program} (folder {number} of {count} in PATH)",
                place.display()
            )),
            None => Self::Missing(format!(
                "`{program}` is in none of the {count} folders of PATH"
            )),
        }
    }
}

/// Whether a word is a program as a shell would find it here.
pub(crate) fn is_on_path(word: &str) -> bool {
    let server = Server::stdio("it", word, [""; 0]);
    match &server.reach {
        Reach::Stdio(stdio) => matches!(Sought::of(stdio), Sought::Found(_)),
        Reach::Http(_) => false,
    }
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
