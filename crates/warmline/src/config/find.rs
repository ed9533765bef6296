//! Where configuration files are looked for, and which of them count as the reader's own.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

use crate::settings::process_path;

/// How a configuration file came to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Named on the command line.
    Given,
    /// In the user's configuration folder.
    User,
    /// In the system's configuration folder.
    System,
    /// Lying in the working folder: somebody else may have put it there.
    Folder,
}

impl Origin {
    /// The word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::User => "user",
            Self::System => "system",
            Self::Folder => "folder",
        }
    }
}

/// Folders that configuration is looked for in.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The working folder.
    pub working: PathBuf,
    /// Warmline's folder among the user's configuration; none if the user has no home.
    pub user: Option<PathBuf>,
    /// Warmline's folder among the system's configuration.
    pub system: PathBuf,
    /// Warmline's folder for what it remembers; none if the user has no home.
    pub state: Option<PathBuf>,
}

impl Folders {
    /// The folders of this process and its user (XDG). What is remembered goes where a service
    /// manager says by `STATE_DIRECTORY`, if it does.
    ///
    /// # Errors
    /// The working folder is gone or may not be read.
    pub fn of_this_process() -> std::io::Result<Self> {
        let base = etcetera::base_strategy::Xdg::new().ok();
        let of_user = base.as_ref().and_then(etcetera::BaseStrategy::state_dir);
        Ok(Self {
            working: std::env::current_dir()?,
            user: base.as_ref().map(|base| base.config_dir().join("warmline")),
            system: PathBuf::from("/etc/warmline"),
            state: of_service().or_else(|| of_user.map(|folder| folder.join("warmline"))),
        })
    }

    /// The configuration files that exist, nearest first.
    pub fn files(&self) -> Vec<(PathBuf, Origin)> {
        let mut files = self.places();
        files.retain(|(path, _)| path.is_file());
        files
    }

    /// Where configuration files are looked for, nearest first, whether they exist or not.
    pub fn places(&self) -> Vec<(PathBuf, Origin)> {
        let folder = |folder: &Path, names: &[&str], origin| {
            names
                .iter()
                .map(|name| (folder.join(name), origin))
                .collect::<Vec<_>>()
        };
        let mut files = folder(&self.working, WORKING_NAMES, Origin::Folder);
        if let Some(user) = &self.user {
            files.extend(folder(user, USER_NAMES, Origin::User));
        }
        files.extend(folder(&self.system, USER_NAMES, Origin::System));
        // Whoever works in the configuration folder works among files of his own.
        let own: Vec<PathBuf> = files
            .iter()
            .filter(|f| f.1 != Origin::Folder)
            .map(|f| f.0.clone())
            .collect();
        files.retain(|(path, origin)| *origin != Origin::Folder || !own.contains(path));
        files
    }
}

/// The folder that a service manager made for this service alone; of several, the first.
fn of_service() -> Option<PathBuf> {
    process_path("STATE_DIRECTORY").filter(|path| path.is_absolute())
}

/// Files that count when they lie in the working folder.
const WORKING_NAMES: &[&str] = &["warmline.toml", ".mcp.json"];
/// Files that count in a configuration folder.
const USER_NAMES: &[&str] = &["warmline.toml", "mcp.json"];
