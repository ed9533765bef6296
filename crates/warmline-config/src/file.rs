//! One configuration file: read as a whole, trusted or not.

use std::path::{Path, PathBuf};

use warmline_core::error::code::Code;
use warmline_engine::server::{Server, ServerParts as _};
use warmline_engine::settings::config_error::{ConfigError, FileLocation, SourceFile};
use warmline_engine::settings::{
    EffectiveSetting, ProcessVariables, ServerSettings, SettingOrigin, SettingsGroup as _,
};

use crate::declaration::Declaration;
use crate::document::read_bounded;
use crate::find::FileOrigin;
use crate::reader::{NearMiss, ParsedFile, Reader};
use crate::resolve::ConfiguredTarget;
use crate::trust::{TrustStore, sha256_hex};
use crate::{mcp_servers, warmline_toml};

/// One configuration file, with nothing in it expanded.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) origin: FileOrigin,
    digest: String,
    pub(crate) parsed: ParsedFile,
}

impl ConfigFile {
    fn new(path: &Path, origin: FileOrigin, text: &str, parsed: ParsedFile) -> Self {
        Self {
            path: path.to_owned(),
            origin,
            digest: sha256_hex(text.as_bytes()),
            parsed,
        }
    }

    /// Reads a file. One whose name ends in `.json`, or that begins with a brace or a comment of
    /// JSON, holds `mcpServers` or capabilities; any other is TOML.
    ///
    /// # Errors
    /// `config-unreadable`, `config-unknown-key` or `config-bad-value`, with the place.
    pub fn read(path: &Path, origin: FileOrigin) -> Result<Self, ConfigError> {
        let text = read_config_file(path)?;
        let parsed = parse_text(path, &text)?;
        Ok(Self::new(path, origin, &text, parsed))
    }

    /// Reads a file of another program as far as possible, with the errors of single servers. A file
    /// about something else declares no server.
    ///
    /// # Errors
    /// It cannot be read at all.
    pub fn read_foreign(path: &Path) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let text = read_config_file(path)?;
        let reader = Reader::new(SourceFile {
            file: path,
            text: &text,
        });
        let parsed = match mcp_servers::declares_nothing(&reader) {
            true => ParsedFile::default(),
            false => mcp_servers::read(&reader)?,
        };
        let file = Self::new(path, FileOrigin::Explicit, &text, parsed);
        Ok((file, reader.into_errors()))
    }

    /// The errors of a file in its order, 50 at most; and the servers that have no error themselves.
    /// They must not be used.
    pub fn find_errors_and_declarations(path: &Path) -> (Vec<ConfigError>, Option<Self>) {
        let text = match read_config_file(path) {
            Ok(text) => text,
            Err(error) => return (vec![error], None),
        };
        let (parsed, mut errors) = parse_collecting_errors(path, &text);
        errors.sort_by_key(|error| error.location.as_ref().and_then(|place| place.position));
        let file = Self::new(path, FileOrigin::Explicit, &text, parsed);
        (errors, Some(file))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it was found.
    pub fn origin(&self) -> FileOrigin {
        self.origin
    }

    /// The SHA-256 of the bytes that were read, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The servers it declares, in the order of the file.
    pub fn declarations(&self) -> &[Declaration] {
        &self.parsed.declarations
    }

    /// The settings of engine and gateway that it sets.
    pub fn explicit_settings(&self) -> Vec<EffectiveSetting> {
        let mut settings = self.parsed.engine.effective_settings();
        settings.extend(self.parsed.gateway.effective_settings());
        settings.retain(|setting| matches!(setting.origin, SettingOrigin::File { .. }));
        settings
    }

    /// Keys of `mcpServers` that are nearly some that we read. They may be another program's, so
    /// they are no error.
    pub fn near_misses(&self) -> &[NearMiss] {
        &self.parsed.near_misses
    }

    /// Whether its commands may run and its URLs may be contacted.
    pub fn is_trusted(&self, store: &TrustStore) -> bool {
        self.origin != FileOrigin::WorkingFolder || store.is_trusted(&self.path, &self.digest)
    }

    /// The file as one whose servers may be used.
    ///
    /// # Errors
    /// `config-untrusted` for a file of the working folder that nobody accepted.
    pub fn require_trusted(&self, store: &TrustStore) -> Result<TrustedFile<'_>, ConfigError> {
        if self.is_trusted(store) {
            return Ok(TrustedFile(self));
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let what = match store.was_trusted_before(&self.path) {
            true => format!("`{name}` of this folder changed since it was trusted"),
            false => format!("`{name}` of this folder is not trusted yet"),
        };
        Err(ConfigError::new(Code::ConfigUntrusted, what)
            .with_location(FileLocation::whole_file(&self.path))
            .with_cause(
                "a configuration file can start programs, and this one lies in the working folder",
            )
            .with_hint("look at what it does and accept it: `warmline trust`"))
    }
}

/// A file whose servers may be used.
#[derive(Clone, Copy, Debug)]
pub struct TrustedFile<'f>(&'f ConfigFile);

impl<'f> TrustedFile<'f> {
    /// One of its servers.
    ///
    /// # Errors
    /// `server-unknown` for a declaration of another file.
    pub fn server(self, declaration: &Declaration) -> Result<TrustedDeclaration<'f>, ConfigError> {
        let mut all = self.0.declarations().iter();
        let own = all.find(|own| own.name == declaration.name);
        own.map(TrustedDeclaration).ok_or_else(|| {
            let file = self.0.path.display();
            let what = format!("`{}` is not declared in `{file}`", declaration.name);
            ConfigError::new(Code::ServerUnknown, what)
        })
    }
}

/// A server of a trusted file. Variables are those of this process.
#[derive(Clone, Copy, Debug)]
pub struct TrustedDeclaration<'f>(&'f Declaration);

impl TrustedDeclaration<'_> {
    /// Its settings.
    pub fn settings(self) -> ServerSettings {
        self.0.settings.clone()
    }

    /// The names of unset variables without which it cannot be reached, or has no credential.
    pub fn missing_variables(self) -> Vec<String> {
        self.0.missing_variables(&ProcessVariables)
    }

    /// The server for a single command, with variables expanded and its credential read.
    ///
    /// # Errors
    /// `config-bad-value`: a variable is not set, or a URL is none.
    pub fn to_target(self) -> Result<ConfiguredTarget, ConfigError> {
        self.0.to_target(&ProcessVariables)
    }

    /// The source of its token in words: a variable, a file; never the token. None if it has no
    /// token, or if the token is among its headers.
    pub fn token_source(self) -> Option<String> {
        self.0.token_source(&ProcessVariables)
    }

    /// The server for an engine, with the settings of the environment.
    ///
    /// # Errors
    /// As [`Self::to_target`], and for a variable that cannot be used.
    pub fn to_server_with_environment(self) -> Result<Server, ConfigError> {
        let mut server = self.0.to_server(&ProcessVariables, &None)?;
        server.settings_mut().apply_process_environment()?;
        Ok(server)
    }
}

/// Whether these bytes are trusted, although they cannot be parsed.
pub(crate) fn is_content_trusted(path: &Path, store: &TrustStore) -> bool {
    read_bounded(path, MAX_FILE_BYTES)
        .is_ok_and(|text| store.is_trusted(path, &sha256_hex(text.as_bytes())))
}

/// Parses the text of a file.
pub(crate) fn parse_text(file: &Path, text: &str) -> Result<ParsedFile, ConfigError> {
    let (parsed, errors) = parse_collecting_errors(file, text);
    errors.into_iter().next().map_or(Ok(parsed), Err)
}

/// The same with every error; what has one is left out.
fn parse_collecting_errors(file: &Path, text: &str) -> (ParsedFile, Vec<ConfigError>) {
    let extension = file.extension();
    let is_json = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
        || text.trim_start().starts_with(['{', '/']);
    let reader = Reader::new(SourceFile { file, text });
    let parsed = match is_json {
        true => mcp_servers::read(&reader),
        false => warmline_toml::read(&reader),
    };
    let parsed = reader.keep(parsed).unwrap_or_default();
    (parsed, reader.into_errors())
}

fn read_config_file(path: &Path) -> Result<String, ConfigError> {
    read_bounded(path, MAX_FILE_BYTES).map_err(|why| {
        let what = format!("the configuration file `{}` cannot be read", path.display());
        ConfigError::new(Code::ConfigUnreadable, what)
            .with_cause(why)
            .with_hint("check the path and who may read it")
    })
}

/// The longest configuration file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
