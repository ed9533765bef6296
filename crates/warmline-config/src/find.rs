//! Where configuration files are looked for, and whose they are.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use warmline_core::word_enum::word_enum;
use warmline_engine::settings::first_process_path;

word_enum! {
    /// How a configuration file was found.
    pub enum FileOrigin {
        /// Named on the command line.
        Explicit = "given",
        /// In the user's configuration folder.
        User = "user",
        /// In the system's configuration folder.
        System = "system",
        /// In the working folder: somebody else may have put it there.
        WorkingFolder = "folder",
    }
}

/// Folders in which configuration is looked for.
#[derive(Clone, Debug)]
pub struct ConfigFolders {
    /// The working folder.
    pub working: PathBuf,
    /// Warmline's folder in the user's configuration; none if the user has no home.
    pub user: Option<PathBuf>,
    /// Warmline's folder in the system's configuration.
    pub system: PathBuf,
    /// Warmline's state folder; none if the user has no home.
    pub state: Option<PathBuf>,
}

impl ConfigFolders {
    /// The folders of this process and its user (XDG). A service manager may name the state folder
    /// in `STATE_DIRECTORY`; of several, the first counts.
    ///
    /// # Errors
    /// The working folder is gone or may not be read.
    pub fn from_process() -> std::io::Result<Self> {
        let base = etcetera::base_strategy::Xdg::new().ok();
        let state = base.as_ref().and_then(etcetera::BaseStrategy::state_dir);
        let of_service = first_process_path("STATE_DIRECTORY").filter(|path| path.is_absolute());
        Ok(Self {
            working: std::env::current_dir()?,
            user: base.as_ref().map(|base| base.config_dir().join("warmline")),
            system: PathBuf::from("/etc/warmline"),
            state: of_service.or_else(|| state.map(|folder| folder.join("warmline"))),
        })
    }

    /// The configuration files that exist, nearest first.
    pub fn existing_files(&self) -> Vec<(PathBuf, FileOrigin)> {
        let mut files = self.candidate_files();
        files.retain(|(path, _)| path.is_file());
        files
    }

    /// The places of configuration files, nearest first, whether there is a file or not.
    pub fn candidate_files(&self) -> Vec<(PathBuf, FileOrigin)> {
        let join =
            |folder: &Path, names: [&str; 2], origin| names.map(|name| (folder.join(name), origin));
        let mut own = Vec::new();
        if let Some(user) = &self.user {
            own.extend(join(user, CONFIG_FOLDER_FILES, FileOrigin::User));
        }
        own.extend(join(&self.system, CONFIG_FOLDER_FILES, FileOrigin::System));
        // A working folder that is a configuration folder holds trusted files.
        let origin = FileOrigin::WorkingFolder;
        let mut files = join(&self.working, WORKING_FOLDER_FILES, origin).to_vec();
        files.retain(|(path, _)| own.iter().all(|(other, _)| other != path));
        files.extend(own);
        files
    }
}

/// Files that count in a working folder.
const WORKING_FOLDER_FILES: [&str; 2] = ["warmline.toml", ".mcp.json"];
/// Files that count in a configuration folder.
const CONFIG_FOLDER_FILES: [&str; 2] = ["warmline.toml", "mcp.json"];
