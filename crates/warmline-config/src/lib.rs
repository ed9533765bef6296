//! Configuration files: `warmline.toml` and `mcpServers`, each server with its origin.
//!
//! Reading a file starts, expands and contacts nothing. A declaration becomes a server only through
//! a [`TrustedFile`], which only [`ConfigFile::require_trusted`] gives.
//!
//! `document.rs` and `json.rs` parse both languages into one tree, `reader.rs` reads typed values and keeps every
//! error, `warmline_toml.rs` and `mcp_servers.rs` fill in a [`Declaration`], and `resolve.rs` makes a
//! server of it.

use std::path::{Path, PathBuf};

use warmline_core::error::code::Code;
use warmline_engine::server::Server;
pub use warmline_engine::settings::{
    ConfigError, Excerpt, FileLocation, VariableLookup, closest_match, parse_duration,
    process_variable,
};
use warmline_engine::settings::{EngineSettings, SettingsGroup as _};
pub use warmline_upstream::parse_url;

mod access;
#[cfg(test)]
mod cases;
mod declaration;
mod document;
mod expand;
mod file;
mod find;
pub mod gateway_settings;
mod handoff;
mod ignored_variables;
mod json;
mod keys;
mod mcp_servers;
mod plaintext_secrets;
mod reader;
mod redaction;
#[cfg(test)]
mod reference_page;
mod resolve;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod settings_tests;
#[cfg(test)]
mod tests;
mod to_toml;
pub mod trust;
mod warmline_toml;

pub use access::{AccessRule, AccessSubject, DeclaredAccess};
pub use declaration::{Declaration, DeclarationSummary, SensitiveText, normalize_name};
pub use expand::is_variable_name;
#[cfg(test)]
pub(crate) use file::parse_text;
pub use file::{ConfigFile, TrustedDeclaration, TrustedFile};
pub use find::{ConfigFolders, FileOrigin};
pub use gateway_settings::GatewaySettings;
pub use handoff::ServerHandoff;
pub use ignored_variables::{IgnoredVariable, ignored_variables};
pub use plaintext_secrets::PlaintextSecret;
pub use reader::NearMiss;
pub use redaction::{PLACEHOLDER, redact_command, redact_url};
pub use resolve::{
    ConfiguredTarget, OptionalResolver, bearer_value, is_cleartext, is_loopback, parse_header,
};
pub use to_toml::ServerToml;
use trust::TrustStore;

/// Every configuration file that counts, nearest first.
#[derive(Clone, Debug)]
pub struct Config {
    files: Vec<ConfigFile>,
    skipped: Vec<SkippedFile>,
}

/// An untrusted file of the working folder that cannot be read or parsed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SkippedFile {
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
    pub fn read(given: Option<&Path>, folders: &ConfigFolders) -> Result<Self, ConfigError> {
        Self::read_skipping(given, folders, |_, _| false)
    }

    /// The same, but an untrusted file of the working folder that cannot be parsed is
    /// [skipped](Self::skipped_files): none of it would be used anyway.
    ///
    /// # Errors
    /// As [`Self::read`], for every other file.
    pub fn read_skipping_untrusted(
        given: Option<&Path>,
        folders: &ConfigFolders,
        store: &TrustStore,
    ) -> Result<Self, ConfigError> {
        Self::read_skipping(given, folders, |path, origin| {
            origin == FileOrigin::WorkingFolder && !file::is_content_trusted(path, store)
        })
    }

    fn read_skipping(
        given: Option<&Path>,
        folders: &ConfigFolders,
        may_skip: impl Fn(&Path, FileOrigin) -> bool,
    ) -> Result<Self, ConfigError> {
        let (mut files, mut skipped) = (Vec::new(), Vec::new());
        let paths = match given {
            Some(path) => vec![(path.to_owned(), FileOrigin::Explicit)],
            None => folders.existing_files(),
        };
        for (path, origin) in paths {
            match ConfigFile::read(&path, origin) {
                Ok(file) => files.push(file),
                Err(error) if may_skip(&path, origin) => skipped.push(SkippedFile { path, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(Self { files, skipped })
    }

    /// Files that were skipped because they are wrong and not trusted.
    pub fn skipped_files(&self) -> &[SkippedFile] {
        &self.skipped
    }

    /// The files, nearest first.
    pub fn files(&self) -> &[ConfigFile] {
        &self.files
    }

    /// Every declared server, nearest file first.
    pub fn declarations(&self) -> impl Iterator<Item = (&ConfigFile, &Declaration)> {
        let files = self.files.iter();
        files.flat_map(|file| file.declarations().iter().map(move |server| (file, server)))
    }

    /// The server of that name in the nearest file that declares it. A file of the user wins over an
    /// untrusted one of the working folder; another file of that folder does not.
    ///
    /// # Errors
    /// `server-unknown` with the nearest name, or the error of a file that was skipped.
    pub fn find_server(
        &self,
        name: &str,
        store: &TrustStore,
    ) -> Result<(&ConfigFile, &Declaration), ConfigError> {
        let is_named = |server: &Declaration| server.name == name || server.original_name == name;
        let mut named = self.declarations().filter(|(_, server)| is_named(server));
        let nearest = named.next().ok_or_else(|| self.unknown_server(name))?;
        if nearest.0.is_trusted(store) {
            return Ok(nearest);
        }
        let own = named.find(|(file, _)| file.origin != FileOrigin::WorkingFolder);
        Ok(own.unwrap_or(nearest))
    }

    /// The settings that all servers share, nearest trusted file first.
    pub fn engine_settings(&self, store: &TrustStore) -> EngineSettings {
        let mut settings = EngineSettings::default();
        for file in self.trusted_files(store).rev() {
            settings.apply_file(&file.parsed.engine);
        }
        settings
    }

    /// The settings of a gateway, nearest trusted file first.
    pub fn gateway_settings(&self, store: &TrustStore) -> GatewaySettings {
        let mut settings = GatewaySettings::default();
        for file in self.trusted_files(store).rev() {
            settings.apply_file(&file.parsed.gateway);
        }
        settings
    }

    /// The servers of all trusted files for an engine: the nearest of each name. The resolver looks
    /// up those that are declared without a URL.
    ///
    /// # Errors
    /// `config-bad-value`: a variable is not set, a URL is none, a server cannot be used.
    pub fn servers(
        &self,
        store: &TrustStore,
        lookup: VariableLookup<'_>,
        resolver: &OptionalResolver,
    ) -> Result<Vec<Server>, ConfigError> {
        let mut servers: Vec<Server> = Vec::new();
        for declaration in self.trusted_files(store).flat_map(ConfigFile::declarations) {
            if servers.iter().all(|known| known.name() != declaration.name) {
                servers.push(declaration.to_server(lookup, resolver)?);
            }
        }
        Ok(servers)
    }

    fn trusted_files(&self, store: &TrustStore) -> impl DoubleEndedIterator<Item = &ConfigFile> {
        self.files.iter().filter(move |file| file.is_trusted(store))
    }

    fn unknown_server(&self, name: &str) -> ConfigError {
        // The file may declare the server.
        if let Some(SkippedFile { error, .. }) = self.skipped.first() {
            return error.clone();
        }
        let what = format!("no server is called `{}`", name.escape_debug());
        let declarations = self.declarations();
        let names = declarations.map(|(_, server)| server.original_name.as_str());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        let listed = || format!("`{}`", names.join("`, `"));
        let hint = match (closest_match(name, names.iter().copied()), names.len()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, 0) if !self.files.is_empty() => {
                let files = self.files.iter();
                let paths = files.map(|file| file.path.display().to_string());
                let paths = paths.collect::<Vec<_>>().join(", ");
                format!("{paths} declares no server")
            },
            (None, 0) => {
                "no configuration was found; give a URL, or a command behind `--`, or add \
                          one: `warmline add NAME URL`"
                    .to_owned()
            },
            (None, 1) => format!("one server is configured: {}", listed()),
            (None, 2..=12) => format!("these are configured: {}", listed()),
            (None, count) => {
                format!("{count} servers are configured; `warmline doctor` lists them")
            },
        };
        ConfigError::new(Code::ServerUnknown, what).with_hint(hint)
    }
}
