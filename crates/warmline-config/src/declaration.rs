//! A server as a file declares it, with nothing expanded. Every reader fills in this one model, and
//! everything else starts from it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use warmline_core::error::code::Code;
use warmline_engine::credentials::{CredentialHeader, CredentialSource, Secret};
use warmline_engine::settings::config_error::{
    ConfigError, ExcerptPolicy, FileLocation, SourceFile,
};
use warmline_engine::settings::{ServerSettings, VariableLookup, closest_match};
use warmline_store::ServerDescriptor;

use crate::access::DeclaredAccess;
use crate::expand::{self, Expansion};
use crate::redaction::{PLACEHOLDER, display_variable, redact_command, redact_url, shell_quoted};

/// Text of a file that may be a secret. It cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct SensitiveText {
    pub(crate) text: String,
    /// Line and column, where they are known.
    pub(crate) position: Option<(usize, usize)>,
}

impl std::fmt::Debug for SensitiveText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// A server as a file declares it: a program with its `command`, or a server behind a URL.
#[derive(Clone, Debug, Default)]
pub struct Declaration {
    /// Its name in Warmline: 1 to 24 of `[a-z0-9-]`.
    pub name: String,
    /// Its name as the file writes it.
    pub original_name: String,
    /// Where it is declared.
    pub location: FileLocation,
    pub(crate) span: Range<usize>,
    pub(crate) command: Option<Vec<SensitiveText>>,
    pub(crate) env: BTreeMap<String, SensitiveText>,
    /// The names of our variables that are passed on to its program.
    pub env_pass: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    /// None for a program, or if a variable or a resolver knows it.
    pub(crate) url: Option<SensitiveText>,
    pub(crate) headers: BTreeMap<String, SensitiveText>,
    pub(crate) ca_file: Option<PathBuf>,
    /// The variable that replaces its URL.
    pub url_env: Option<String>,
    /// The variable that holds its token.
    pub auth_env: Option<String>,
    pub(crate) credential: Option<DeclaredCredential>,
    pub(crate) settings: ServerSettings,
    /// Rules about its callers.
    pub access: DeclaredAccess,
    /// What a resolver and a store factory know it by.
    pub(crate) descriptor: ServerDescriptor,
    pub(crate) expansion: Expansion,
    /// Why it is switched off, where the file has its own way to say so.
    pub(crate) disabled_reason: Option<ConfigError>,
    /// Why it cannot be used although its file can.
    pub(crate) unusable_reason: Option<ConfigError>,
    /// The folder that relative paths start from: the one of the file.
    pub(crate) base_folder: PathBuf,
}

/// What a declaration would do, for people: commands, URLs and names of variables; no values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclarationSummary {
    /// The command line, or the URL without what could be secret in it.
    pub target: String,
    /// The command that prints its credential, if one does.
    pub credential_commands: Vec<String>,
    /// Variables that are set for the program: names, with the values of those that decide what is
    /// executed, as `PATH` does.
    pub variables_set: Vec<String>,
    /// Names of our variables that are read or passed on.
    pub variables_read: Vec<String>,
    /// Names of headers that are sent.
    pub headers: Vec<String>,
    /// Files that are read.
    pub files: Vec<PathBuf>,
}

impl Declaration {
    /// A server of which only the name and the place are known.
    pub(crate) fn new(
        source: SourceFile<'_>,
        name: String,
        original_name: &str,
        (span, show): (Range<usize>, ExcerptPolicy),
    ) -> Self {
        Self {
            name,
            original_name: original_name.to_owned(),
            location: source.location(span.clone(), show),
            span,
            base_folder: source.file.parent().unwrap_or(Path::new("")).to_owned(),
            ..Self::default()
        }
    }

    /// Whether it is either a program or a server behind a URL, as its `kind` says.
    pub(crate) fn check_transport(&self, kind: Option<ServerKind>) -> Result<(), ConfigError> {
        // A variable or a resolver may know the URL.
        let has_url =
            self.url.is_some() || self.url_env.is_some() || self.descriptor.slug.is_some();
        let has_http_keys =
            !self.headers.is_empty() || self.ca_file.is_some() || self.credential.is_some();
        let has_program_keys =
            !self.env.is_empty() || !self.env_pass.is_empty() || self.cwd.is_some();
        let what = match (self.command.is_some(), has_url, kind) {
            (true, ..) if self.url.is_some() => {
                "has a `command` and a `url`; a server has one of them"
            },
            (false, false, Some(ServerKind::Remote)) => "is a remote server, and has no `url`",
            (false, false, Some(ServerKind::Local)) => "is a local server, and has no `command`",
            (false, false, None) => "has neither a `command` nor a `url`",
            (true, ..) if has_http_keys => {
                "is a program: `headers`, `credential` and `ca_file` are for a `url`"
            },
            (false, true, _) if has_program_keys => {
                "is a URL: `env`, `env_pass` and `cwd` are for a `command`"
            },
            (true, _, Some(ServerKind::Remote)) => {
                "is a remote server and has a `command`, but no `url`"
            },
            (false, true, Some(ServerKind::Local)) => {
                "is a local server and has a `url`, but no `command`"
            },
            (true, _, Some(ServerKind::Local) | None)
            | (false, true, Some(ServerKind::Remote) | None) => return Ok(()),
        };
        Err(self.bad_value(format!("`{}` {what}", self.original_name)))
    }

    /// What it would do, with no value expanded and no secret shown.
    pub fn summary(&self) -> DeclarationSummary {
        let mut variables = self.env_pass.clone();
        variables.extend(self.url_env.iter().chain(&self.auth_env).cloned());
        for text in self.expandable_texts() {
            variables.extend(expand::variable_names(&text.text, self.expansion));
        }
        let env = self.env.iter();
        let mut summary = DeclarationSummary {
            target: self.redacted_target(),
            variables_set: env
                .map(|(name, value)| display_variable(name, &value.text))
                .collect(),
            headers: self.headers.keys().cloned().collect(),
            files: self.ca_file.iter().chain(&self.cwd).cloned().collect(),
            ..DeclarationSummary::default()
        };
        if let Some(credential) = &self.credential {
            match &credential.secret {
                DeclaredSecret::Env(name) => variables.push(name.clone()),
                DeclaredSecret::File(path) => summary.files.push(path.clone()),
                DeclaredSecret::Command(words) => {
                    let words = words.iter().map(String::as_str);
                    summary.credential_commands.push(redact_command(words));
                },
                DeclaredSecret::Header(_) => {},
            }
            summary.headers.extend(credential.header.clone());
        }
        variables.sort();
        variables.dedup();
        summary.variables_read = variables;
        summary
    }

    fn redacted_target(&self) -> String {
        if let Some(argv) = &self.command {
            return redact_command(argv.iter().map(|word| word.text.as_str()));
        }
        match (&self.url, &self.url_env, &self.descriptor.slug) {
            (Some(url), _, _) => redact_url(&url.text),
            (None, Some(variable), _) => format!("the URL in {variable}"),
            (None, None, Some(slug)) => format!("what is found for {}", shell_quoted(slug)),
            (None, None, None) => "no URL".to_owned(),
        }
    }

    /// Whether its file switches it off.
    pub fn is_disabled(&self) -> bool {
        self.disabled_reason.is_some() || !self.settings.policy.enabled
    }

    /// Whether it still has a [`PLACEHOLDER`], which `init` and `add` write instead of a secret.
    pub fn has_placeholders(&self) -> bool {
        let mut texts = self.expandable_texts();
        texts.any(|text| text.text.contains(PLACEHOLDER))
    }

    /// The texts in which variables are expanded.
    pub(crate) fn expandable_texts(&self) -> impl Iterator<Item = &SensitiveText> {
        let command = self.command.iter().flatten().chain(self.env.values());
        command.chain(&self.url).chain(self.headers.values())
    }

    /// The names of unset variables without which it cannot be reached, or has no credential.
    pub(crate) fn missing_variables(&self, lookup: VariableLookup<'_>) -> Vec<String> {
        let is_unset = |name: &String| matches!(lookup.var(name), Ok(None));
        let mut names: Vec<String> = Vec::new();
        for text in self.expandable_texts() {
            names.extend(expand::required_variables(&text.text, self.expansion));
        }
        if self.command.is_none() && self.url.is_none() && self.descriptor.slug.is_none() {
            names.extend(self.url_env.clone());
        }
        let credential = self.credential.as_ref();
        let secret = credential.map(|credential| &credential.secret);
        if let Some(DeclaredSecret::Env(name)) = secret
            && self.auth_env.iter().all(is_unset)
        {
            names.push(name.clone());
        }
        names.retain(is_unset);
        names.sort();
        names.dedup();
        names
    }

    /// An error about this server.
    pub(crate) fn bad_value(&self, what: impl Into<String>) -> ConfigError {
        ConfigError::new(Code::ConfigBadValue, what).with_location(self.location.clone())
    }
}

/// Why a text cannot be the name of a server; none if it can.
pub(crate) fn name_problem(name: &str) -> Option<&'static str> {
    let is_allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
    if name.is_empty() {
        Some("it is empty")
    } else if !name.chars().all(is_allowed) {
        Some("names are made of `a` to `z`, `0` to `9` and `-`")
    } else if name.len() > MAX_NAME_LEN {
        Some("names have at most 24 characters")
    } else {
        None
    }
}

/// The name that a server of another program gets here; none if it has no letter or digit.
pub fn normalize_name(written: &str) -> Option<String> {
    let mut name = String::new();
    for letter in written.chars() {
        match letter.to_ascii_lowercase() {
            plain @ ('a'..='z' | '0'..='9') => name.push(plain),
            _ if name.ends_with('-') || name.is_empty() => {},
            _ => name.push('-'),
        }
    }
    name.truncate(MAX_NAME_LEN);
    let name = name.trim_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

const MAX_NAME_LEN: usize = 24;

/// The source of the secret of a server, and the header that carries it.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredCredential {
    pub(crate) secret: DeclaredSecret,
    /// `Authorization` if none is named.
    pub(crate) header: Option<String>,
    /// The text around the secret, which `{}` stands for.
    pub(crate) format: Option<String>,
    pub(crate) location: FileLocation,
}

/// The source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredSecret {
    Env(String),
    File(PathBuf),
    Command(Vec<String>),
    /// A header of the caller's request.
    Header(String),
}

impl DeclaredCredential {
    /// The source for the engine; relative paths start from `base`. Nothing is read.
    pub(crate) fn to_credential_source(
        &self,
        base: &Path,
    ) -> Result<CredentialSource, ConfigError> {
        let secret = match &self.secret {
            DeclaredSecret::Env(name) => Secret::env(name),
            DeclaredSecret::File(path) => Secret::file(base.join(path)),
            DeclaredSecret::Command(words) => Secret::command(words),
            DeclaredSecret::Header(name) => Secret::header(name)
                .map_err(|why| ConfigError::from_diagnostic(why, &self.location))?,
        };
        let header = self.credential_header()?;
        Ok(CredentialSource::in_header(secret, header))
    }

    /// The header that carries the secret.
    pub(crate) fn credential_header(&self) -> Result<CredentialHeader, ConfigError> {
        let header = self.header.as_deref().unwrap_or("Authorization");
        let format = match header.eq_ignore_ascii_case("authorization") {
            true => "Bearer {}",
            false => "{}",
        };
        CredentialHeader::new(header, self.format.as_deref().unwrap_or(format))
            .map_err(|why| ConfigError::from_diagnostic(why, &self.location))
    }
}

/// How a server of some kind is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// By a URL.
    Remote,
    /// By a command.
    Local,
}

impl ServerKind {
    /// The kind that a word means, or an error without a place.
    pub(crate) fn parse(word: &str, server: &str) -> Result<Self, ConfigError> {
        let plain = word.trim().to_ascii_lowercase().replace('_', "-");
        match plain.as_str() {
            "http" | "sse" | "streamable-http" | "streamablehttp" | "http-stream" | "remote"
            | "remote-mcp" => return Ok(Self::Remote),
            "stdio" | "local" | "local-mcp" => return Ok(Self::Local),
            _ => {},
        }
        let shown: String = word.chars().take(40).collect();
        let shown = shown.escape_debug();
        let what = format!("`{server}` is of the kind `{shown}`, which is not an MCP server's");
        let hint = format!("known kinds are `{}`", SUGGESTED_KINDS.join("`, `"));
        let hint = match closest_match(&plain, SUGGESTED_KINDS.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`? {hint}"),
            None => hint,
        };
        Err(ConfigError::new(Code::ConfigBadValue, what).with_hint(hint))
    }
}

/// The words that errors name. Which HTTP transport a server speaks is found out anyway.
const SUGGESTED_KINDS: [&str; 4] = ["http", "stdio", "sse", "streamable-http"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_text;

    #[test]
    fn names_of_other_programs_become_plain_ones() {
        #[rustfmt::skip]
        let table = [
            ("github", Some("github")), ("GitHub Copilot", Some("github-copilot")), ("@scope/server", Some("scope-server")),
            ("a__b", Some("a-b")), ("ünï", Some("n")), ("…", None), ("", None),
            ("a-name-that-is-much-longer-than-it-may-be", Some("a-name-that-is-much-long")),
        ];
        for (written, name) in table {
            assert_eq!(normalize_name(written).as_deref(), name, "{written}");
        }
    }

    #[test]
    fn variables_that_a_server_cannot_do_without_are_named() {
        let lookup = |name: &str| (name == "SET").then(|| "1".to_owned());
        #[rustfmt::skip]
        let table: [(&str, &str, &[&str]); 10] = [
            ("a.json", r#"{"mcpServers": {"a": {"command": "${P}", "args": ["${Q:-1}", "${SET}"]}}}"#, &["P"]),
            ("a.json", r#"{"mcpServers": {"a": {"command": "p", "env": {"K": "${Y}${X}${Y}"}}}}"#, &["X", "Y"]),
            ("a.json", r#"{"mcpServers": {"a": {"url": "${U}", "headers": {"K": "${env:H}"}}}}"#, &["H", "U"]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\ncredential = { env = 'T' }", &["T"]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\ncredential = { env = 'SET' }", &[]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nauth_env = 'SET'\ncredential = { env = 'T' }", &[]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nauth_env = 'T'", &[]),
            ("a.toml", "[servers.a]\nurl = 'https://x'\nurl_env = 'U'", &[]),
            ("a.toml", "[servers.a]\nurl_env = 'U'", &["U"]),
            ("a.toml", "[servers.a]\nurl_env = 'U'\nslug = 's'", &[]),
        ];
        for (file, text, unset) in table {
            let read = parse_text(Path::new(file), text).unwrap();
            let missing = read.declarations[0].missing_variables(&lookup);
            assert_eq!(missing, unset, "{text}");
        }
    }
}
