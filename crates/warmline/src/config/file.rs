//! One configuration file: read as a whole, trusted or not.
//!
//! Asked by: [`Config`](super::Config), and by whoever looks at a single file.

use std::path::{Path, PathBuf};

use warmline_core::code::Code;

use super::{Configured, Declaration, Lookup, Origin, Resolver, mcp_servers, warmline_toml};
use crate::private;
use crate::server::Server;
use crate::settings::place::{ConfigError, Place, Source};
use crate::settings::{self, Effective, EngineSettings, GatewaySettings, ServerSettings};
use crate::trust::{Digest, TrustStore};

/// One configuration file, read and understood, with nothing in it expanded.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) origin: Origin,
    digest: Digest,
    pub(super) read: Read,
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
    /// and so do others that begin with a brace or a comment of JSON; the rest is TOML.
    ///
    /// # Errors
    /// `config-unreadable`, `config-unknown-key` or `config-bad-value`, with the place.
    pub fn read(path: &Path, origin: Origin) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        let read = read_text(path, &text)?;
        Ok(Self {
            path: path.to_owned(),
            origin,
            digest: Digest::of(text.as_bytes()),
            read,
        })
    }

    /// Reads a file of another program as far as it can be read: what is wrong with single servers
    /// is handed back beside the others. One that says nothing of servers declares none.
    ///
    /// # Errors
    /// It cannot be read at all.
    pub fn of_another_program(path: &Path) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let text = text_of(path)?;
        let mut faults = Vec::new();
        let read = match mcp_servers::says_nothing(&text) {
            true => Read::default(),
            false => mcp_servers::read(
                Source {
                    file: path,
                    text: &text,
                },
                &mut faults,
            )?,
        };
        let file = Self {
            path: path.to_owned(),
            origin: Origin::Given,
            digest: Digest::of(text.as_bytes()),
            read,
        };
        Ok((file, faults))
    }

    /// Everything that is wrong with a file, in its order, 50 things at most; nothing, where it can
    /// be read.
    pub fn faults(path: &Path) -> Vec<ConfigError> {
        let mut faults = match text_of(path) {
            Ok(text) => read_whole(path, &text).1,
            Err(error) => vec![error],
        };
        faults.sort_by_key(|fault| fault.place.as_ref().and_then(|place| place.at));
        faults
    }

    /// The same, with what can be read all the same: servers that nothing is wrong with by
    /// themselves. Nothing of it may be used.
    pub fn faults_and_rest(path: &Path) -> (Vec<ConfigError>, Option<Self>) {
        let Ok(text) = text_of(path) else {
            return (Self::faults(path), None);
        };
        let rest = Self {
            path: path.to_owned(),
            origin: Origin::Given,
            digest: Digest::of(text.as_bytes()),
            read: read_whole(path, &text).0,
        };
        (Self::faults(path), Some(rest))
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

    /// What it decides beside its servers: for all of them together, and about a gateway.
    pub fn decisions(&self) -> Vec<Effective> {
        let engine = self.read.engine.effective().into_iter();
        let all = engine.chain(self.read.gateway.effective());
        all.filter(|one| matches!(one.origin, settings::Origin::File { .. }))
            .collect()
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

    /// Where the token of one of the file's servers comes from, in words: a variable, a file; never
    /// the token. None where it has none, or where it stands among its headers.
    ///
    /// # Errors
    /// `server-unknown` for a declaration of another file.
    pub fn token_source(
        &self,
        declaration: &Declaration,
        lookup: Lookup<'_>,
    ) -> Result<Option<String>, ConfigError> {
        Ok(self.own(declaration)?.token_source(lookup))
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

/// Whether somebody trusted these very bytes, although they cannot be understood now.
pub(super) fn was_trusted(path: &Path, store: &TrustStore) -> bool {
    read_bounded(path, FILE_BYTES).is_ok_and(|text| store.holds(path, &Digest::of(text.as_bytes())))
}

/// What a text declares and decides, if it is the text of that file.
pub(crate) fn read_text(file: &Path, text: &str) -> Result<Read, ConfigError> {
    let (read, faults) = read_whole(file, text);
    match faults.into_iter().next() {
        Some(first) => Err(first),
        None => Ok(read),
    }
}

/// The same with everything that is wrong with it; what stands beside a fault may be missing then.
fn read_whole(file: &Path, text: &str) -> (Read, Vec<ConfigError>) {
    let mut faults = Vec::new();
    let source = Source { file, text };
    let is_json = file
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("json"))
        || text.trim_start().starts_with(['{', '/']);
    let read = match is_json {
        true => mcp_servers::read(source, &mut faults),
        false => warmline_toml::read(source, &mut faults),
    };
    match read {
        Ok(read) => (read, faults),
        Err(error) => {
            faults.push(error);
            (Read::default(), faults)
        },
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    read_bounded(path, FILE_BYTES).map_err(|why| {
        ConfigError::new(
            Code::ConfigUnreadable,
            format!("the configuration file `{}` cannot be read", path.display()),
        )
        .because(why)
        .hint("check the path and who may read it")
    })
}

/// Reads a text file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<String, String> {
    let bytes = private::read_named(path, limit).map_err(|error| plain_error(&error))?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// A system's complaint in small letters and without its number; ours as it is.
fn plain_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    if error.raw_os_error().is_none() {
        return text;
    }
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// How many faults of a file are told at most: whoever wrote a file with more of them meant another
/// kind of file.
pub(super) const MOST_FAULTS: usize = 50;

/// The longest configuration file that is read.
const FILE_BYTES: u64 = 1 << 20;
