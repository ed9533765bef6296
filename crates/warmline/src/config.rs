//! Configuration files: `warmline.toml` and `mcpServers`, read once, each server with its origin.
//!
//! Asked by: whoever turns a name into a [`Server`].
//! Reading a file starts, expands and contacts nothing. A declaration becomes a server only
//! through [`Trusted`], which [`ConfigFile::trusted`] alone gives out.

use std::path::{Path, PathBuf};

use warmline_core::code::Code;

use crate::server::Server;
pub use crate::settings::{
    ConfigError, Excerpt, Lookup, Place, nearest, parse_duration, process_variable,
};
use crate::settings::{EngineSettings, GatewaySettings, Group as _};
use crate::trust::TrustStore;

mod access;
mod anew;
mod capabilities;
#[cfg(test)]
mod cases;
mod credential;
mod declaration;
mod declared;
mod expand;
mod file;
mod find;
mod handed;
mod jsonc;
mod keys;
mod kinds;
mod located;
mod looks;
mod mcp_servers;
mod members;
mod not_json;
mod outline;
mod reaching;
#[cfg(test)]
mod schema;
mod secrets;
#[cfg(test)]
mod tests;
mod unset;
mod warmline_toml;

pub use crate::upstream::parse_url;
pub use access::{Access, AccessRule, Caller};
pub use anew::{Anew, PLACEHOLDER};
pub use declaration::{Declaration, Outline, Written};
pub use declared::Resolver;
#[cfg(test)]
pub(crate) use file::read_text;
pub use file::{ConfigFile, NearMiss, Trusted};
pub(crate) use file::{Read, read_bounded};
pub use find::{Folders, Origin};
pub use handed::Handed;
pub use mcp_servers::plain_name;
pub use outline::public_url;
pub use reaching::{Configured, bearer, header, is_in_the_clear, is_loopback};
pub use secrets::{PlainSecret, public_command};

/// Every configuration file that counts, nearest first.
#[derive(Clone, Debug)]
pub struct Config {
    files: Vec<ConfigFile>,
    left_out: Vec<LeftOut>,
}

/// A file of the working folder that nobody trusted, and that cannot be read or understood.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeftOut {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub error: ConfigError,
}

impl Config {
    /// Reads the given file alone, or else every file that is found.
    ///
    /// # Errors
    /// `config-unreadable`, `config-unknown-key` or `config-bad-value`, with the place.
    pub fn read(given: Option<&Path>, folders: &Folders) -> Result<Self, ConfigError> {
        let read = |(path, origin): (PathBuf, Origin)| ConfigFile::read(&path, origin);
        Ok(Self {
            files: places(given, folders)
                .into_iter()
                .map(read)
                .collect::<Result<_, _>>()?,
            left_out: Vec::new(),
        })
    }

    /// The same for whoever uses what is trusted: a file of the working folder that is not, and
    /// that is wrong, counts for nothing anyway. It stops nobody, and is [left out](Self::left_out).
    ///
    /// # Errors
    /// As [`Self::read`], for every other file.
    pub fn read_to_use(
        given: Option<&Path>,
        folders: &Folders,
        store: &TrustStore,
    ) -> Result<Self, ConfigError> {
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        for (path, origin) in places(given, folders) {
            match ConfigFile::read(&path, origin) {
                Ok(file) => files.push(file),
                Err(error) if origin == Origin::Folder && !file::was_trusted(&path, store) => {
                    left_out.push(LeftOut { path, error });
                },
                Err(error) => return Err(error),
            }
        }
        Ok(Self { files, left_out })
    }

    /// Files that were left out because they are wrong, and not trusted.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The files, nearest first.
    pub fn files(&self) -> &[ConfigFile] {
        &self.files
    }

    /// Every server that is declared, nearest file first.
    pub fn declarations(&self) -> impl Iterator<Item = (&ConfigFile, &Declaration)> {
        self.files
            .iter()
            .flat_map(|file| file.declarations().iter().map(move |d| (file, d)))
    }

    /// The server of that name, of the nearest file that declares it. A file of the user wins over
    /// one of the folder that is not trusted; another file of the folder does not: whoever lies
    /// nearer is meant.
    ///
    /// # Errors
    /// `server-unknown` with the nearest name; what is wrong with a file that was left out, where
    /// there is one.
    pub fn find(
        &self,
        name: &str,
        store: &TrustStore,
    ) -> Result<(&ConfigFile, &Declaration), ConfigError> {
        let named = || {
            self.declarations()
                .filter(|(_, d)| d.name == name || d.written == name)
        };
        let nearest = named().next().ok_or_else(|| self.unknown(name))?;
        if nearest.0.is_trusted(store) {
            return Ok(nearest);
        }
        let own = named().find(|(file, _)| file.origin != Origin::Folder);
        Ok(own.unwrap_or(nearest))
    }

    /// What the files decide for all servers together; of two that decide the same, the nearer
    /// one counts. A file that is not trusted decides nothing.
    pub fn engine(&self, store: &TrustStore) -> EngineSettings {
        let mut settings = EngineSettings::default();
        for file in self
            .files
            .iter()
            .rev()
            .filter(|file| file.is_trusted(store))
        {
            settings.take_file(&file.read.engine);
        }
        settings
    }

    /// What the files decide about a gateway, by the same rules.
    pub fn gateway(&self, store: &TrustStore) -> GatewaySettings {
        let mut settings = GatewaySettings::default();
        let trusted = self.files.iter().filter(|file| file.is_trusted(store));
        for file in trusted.rev() {
            settings.take_file(&file.read.gateway);
        }
        settings
    }

    /// The servers of all trusted files, ready for an engine: the nearest of each name. Those
    /// that are declared without a URL are looked up by the resolver.
    ///
    /// # Errors
    /// `config-bad-value`: a variable is not set, a URL is none, a server cannot be used.
    pub fn servers(
        &self,
        store: &TrustStore,
        lookup: Lookup<'_>,
        resolver: &Resolver,
    ) -> Result<Vec<Server>, ConfigError> {
        let mut servers: Vec<Server> = Vec::new();
        for file in self.files.iter().filter(|file| file.is_trusted(store)) {
            for declaration in file.declarations() {
                if servers.iter().all(|known| known.name() != declaration.name) {
                    servers.push(declaration.declared(lookup, resolver)?);
                }
            }
        }
        Ok(servers)
    }

    fn unknown(&self, name: &str) -> ConfigError {
        // Whoever is meant may be declared there.
        if let Some(LeftOut { error, .. }) = self.left_out.first() {
            return error.clone();
        }
        let what = format!("no server is called `{}`", name.escape_debug());
        let error = ConfigError::new(Code::ServerUnknown, what);
        let mut names: Vec<&str> = self
            .declarations()
            .map(|(_, d)| d.written.as_str())
            .collect();
        if let Some(near) = nearest(name, names.iter().copied()) {
            return error.hint(format!("did you mean `{near}`?"));
        }
        names.sort_unstable();
        names.dedup();
        match names.len() {
            0 if !self.files.is_empty() => error.hint(format!(
                "{} declares no server",
                self.files.iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>().join(", ")
            )),
            0 => error.hint(
                "no configuration was found; give a URL, or a command behind `--`, or add one: `warmline add NAME URL`",
            ),
            count @ 1..=12 => error.hint(format!(
                "{} configured: {}",
                if count == 1 { "one server is" } else { "these are" },
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            )),
            count => error.hint(format!("{count} servers are configured; `warmline doctor` lists them")),
        }
    }
}

/// The files that count.
fn places(given: Option<&Path>, folders: &Folders) -> Vec<(PathBuf, Origin)> {
    match given {
        Some(path) => vec![(path.to_owned(), Origin::Given)],
        None => folders.files(),
    }
}

/// Why a text cannot be the name of a server; none if it can.
fn name_problem(name: &str) -> Option<&'static str> {
    let plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
    if name.is_empty() {
        Some("it is empty")
    } else if !name.chars().all(plain) {
        Some("names are made of `a` to `z`, `0` to `9` and `-`")
    } else if name.len() > 24 {
        Some("names have at most 24 characters")
    } else {
        None
    }
}
