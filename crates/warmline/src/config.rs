//! Configuration files: `warmline.toml` and `mcpServers`, read once, each server with its origin.
//!
//! Asked by: whoever turns a name into a [`Server`].
//! Reading a file starts, expands and contacts nothing. A declaration becomes a server only
//! through [`Trusted`], which [`ConfigFile::trusted`] alone gives out.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use warmline_core::code::Code;

use crate::server::Server;
use crate::settings::place::Source;
pub use crate::settings::{
    ConfigError, Excerpt, Lookup, Place, nearest, parse_duration, process_variable,
};
use crate::settings::{EngineSettings, GatewaySettings, Group as _, ServerSettings};
use crate::trust::{Digest, TrustStore};

mod access;
mod anew;
mod capabilities;
#[cfg(test)]
mod cases;
mod credential;
mod declaration;
mod declared;
mod expand;
mod find;
mod handed;
mod keys;
mod kinds;
mod mcp_servers;
mod outline;
mod reaching;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
mod unset;
mod warmline_toml;

pub use crate::upstream::parse_url;
pub use access::{Access, AccessRule, Caller};
pub use anew::{Anew, PLACEHOLDER};
pub use declaration::{Declaration, Outline, Written};
pub use declared::Resolver;
pub use find::{Folders, Origin};
pub use handed::Handed;
pub use mcp_servers::plain_name;
pub use outline::public_url;
pub use reaching::{Configured, bearer, header, is_in_the_clear, is_loopback};

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
                Err(error) if origin == Origin::Folder && !was_trusted(&path, store) => {
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
                "no configuration was found; give a URL, or a command behind `--`, or write a `warmline.toml`",
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

/// Whether somebody trusted these very bytes, although they cannot be understood now.
fn was_trusted(path: &Path, store: &TrustStore) -> bool {
    read_bounded(path, FILE_BYTES).is_ok_and(|text| store.holds(path, &Digest::of(text.as_bytes())))
}

/// One configuration file, read and understood, with nothing in it expanded.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    origin: Origin,
    digest: Digest,
    read: Read,
}

/// What was read of a file: the servers it declares, and what it decides for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) engine: EngineSettings,
    pub(crate) gateway: GatewaySettings,
    pub(crate) near_misses: Vec<NearMiss>,
}

/// A key of a file of another program that nobody here knows, and that is nearly one we read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearMiss {
    /// The server it was said of.
    pub server: String,
    /// The key as it stands there.
    pub key: String,
    /// The key that it is nearly.
    pub meant: &'static str,
}

impl ConfigFile {
    /// Reads a file. Names that end in `.json` hold `mcpServers` or declarations of capabilities,
    /// and so do others that begin with a brace; the rest is TOML.
    ///
    /// # Errors
    /// `config-unreadable`, `config-unknown-key` or `config-bad-value`, with the place.
    pub fn read(path: &Path, origin: Origin) -> Result<Self, ConfigError> {
        let text = read_bounded(path, FILE_BYTES).map_err(|why| {
            ConfigError::new(
                Code::ConfigUnreadable,
                format!("the configuration file `{}` cannot be read", path.display()),
            )
            .because(why)
            .hint("check the path and who may read it")
        })?;
        let read = read_text(path, &text)?;
        Ok(Self {
            path: path.to_owned(),
            origin,
            digest: Digest::of(text.as_bytes()),
            read,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it came to be read.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The digest of the very bytes that were read.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The servers it declares, in the order of the file.
    pub fn declarations(&self) -> &[Declaration] {
        &self.read.declarations
    }

    /// Keys of `mcpServers` that are nearly some that count. They may be another program's own, so
    /// they are no error.
    pub fn near_misses(&self) -> &[NearMiss] {
        &self.read.near_misses
    }

    /// Whether its commands may run and its URLs may be contacted.
    pub fn is_trusted(&self, store: &TrustStore) -> bool {
        match self.origin {
            Origin::Given | Origin::User | Origin::System => true,
            Origin::Folder => store.holds(&self.path, &self.digest),
        }
    }

    /// The file as one whose servers may be used.
    ///
    /// # Errors
    /// `config-untrusted` for a file that was found in the working folder and never looked at.
    pub fn trusted(&self, store: &TrustStore) -> Result<Trusted<'_>, ConfigError> {
        if self.is_trusted(store) {
            return Ok(Trusted(self));
        }
        let name = self
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let what = match store.knows(&self.path) {
            true => format!("`{name}` of this folder changed since it was trusted"),
            false => format!("`{name}` of this folder is not trusted yet"),
        };
        Err(ConfigError::new(Code::ConfigUntrusted, what)
            .at(Place::whole(&self.path))
            .because(
                "a configuration file can start programs, and this one lies in the working folder",
            )
            .hint("look at what it does and accept it: `warmline trust`"))
    }
}

/// A file whose servers may be used.
#[derive(Clone, Copy, Debug)]
pub struct Trusted<'f>(&'f ConfigFile);

impl Trusted<'_> {
    /// What the file decides about one of its servers; the server itself is not looked at.
    ///
    /// # Errors
    /// `server-unknown` for a declaration of another file.
    pub fn settings(&self, declaration: &Declaration) -> Result<ServerSettings, ConfigError> {
        self.own(declaration).map(|own| own.settings.clone())
    }

    /// The names of variables that one of the file's declarations cannot do without, and that are
    /// not set: without them it cannot be reached, or has no credential to show.
    ///
    /// # Errors
    /// `server-unknown` for a declaration of another file.
    pub fn unset(
        &self,
        declaration: &Declaration,
        lookup: Lookup<'_>,
    ) -> Result<Vec<String>, ConfigError> {
        Ok(self.own(declaration)?.unset(lookup))
    }

    /// The server of one of the file's declarations, with variables expanded and its credential
    /// read.
    ///
    /// # Errors
    /// `config-bad-value`: a variable is not set, a URL is none; `server-unknown` for a
    /// declaration of another file.
    pub fn server(
        &self,
        declaration: &Declaration,
        lookup: Lookup<'_>,
    ) -> Result<Configured, ConfigError> {
        self.own(declaration)?.server(lookup)
    }

    /// The server of one of the file's declarations, ready for an engine. One that is declared
    /// without a URL is looked up by the resolver.
    ///
    /// # Errors
    /// As [`Self::server`].
    pub fn declared(
        &self,
        declaration: &Declaration,
        lookup: Lookup<'_>,
        resolver: &Resolver,
    ) -> Result<Server, ConfigError> {
        self.own(declaration)?.declared(lookup, resolver)
    }

    /// The same, with what the environment decides about all servers.
    ///
    /// # Errors
    /// As [`Self::server`], and for a variable that cannot be used.
    pub fn served(
        &self,
        declaration: &Declaration,
        lookup: Lookup<'_>,
        resolver: &Resolver,
    ) -> Result<Server, ConfigError> {
        let mut server = self.declared(declaration, lookup, resolver)?;
        server.settings.take_environment(lookup)?;
        Ok(server)
    }

    fn own(&self, declaration: &Declaration) -> Result<&Declaration, ConfigError> {
        let mut all = self.0.declarations().iter();
        all.find(|own| own.name == declaration.name).ok_or_else(|| {
            let file = self.0.path.display();
            let what = format!("`{}` is not declared in `{file}`", declaration.name);
            ConfigError::new(Code::ServerUnknown, what)
        })
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

/// What a text declares and decides, if it is the text of that file.
pub(crate) fn read_text(file: &Path, text: &str) -> Result<Read, ConfigError> {
    let source = Source { file, text };
    let is_json = file
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("json"))
        || text.trim_start().starts_with('{');
    if is_json {
        mcp_servers::read(source)
    } else {
        warmline_toml::read(source)
    }
}

/// Reads a text file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| plain_error(&error))?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| plain_error(&error))?;
    if bytes.len() as u64 > limit {
        return Err(format!("it is larger than {} KiB", limit >> 10));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// A system's complaint in small letters and without its number.
fn plain_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// The longest configuration file that is read.
const FILE_BYTES: u64 = 1 << 20;
