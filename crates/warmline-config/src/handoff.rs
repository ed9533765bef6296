//! A server as one process of a user hands it to another, with all that is needed to reach it.
//!
//! A command that uses a gateway of the same user writes it. It holds secrets: it travels over a
//! socket of that user alone, and is never stored.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use warmline_core::error::code::Code;
use warmline_core::policy::{SessionScope, ToolPolicy};
use warmline_core::pool_key::Digest;
use warmline_engine::settings::{ConfigError, ServerSettings, SettingsGroup as _};
use warmline_store::keyring::{Keyring, Purpose};
use warmline_upstream::environment;
use warmline_upstream::parse_url;
use warmline_upstream::target::{HttpConfig, ServerTarget, StdioConfig, TransportConfig};

use crate::resolve::ConfiguredTarget;

/// A server as one process of a user hands it to another.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerHandoff {
    /// Its name there.
    pub name: String,
    #[serde(rename = "reach")]
    transport: HandoffTransport,
    /// Settings that are not the default, as variables.
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    tools: BTreeMap<String, HandoffTool>,
    /// Arguments that name the identity.
    #[serde(default, rename = "asking_as")]
    identity_arguments: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
enum HandoffTransport {
    Url(HandoffUrl),
    Program(HandoffProgram),
}

#[derive(Clone, Serialize, Deserialize)]
struct HandoffUrl {
    url: String,
    headers: Vec<HandoffHeader>,
    ca_file: Option<PathBuf>,
    #[serde(default, rename = "filled")]
    substituted: BTreeMap<String, String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct HandoffProgram {
    program: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    env_pass: Vec<String>,
    cwd: Option<PathBuf>,
    /// Where the command was typed.
    #[serde(rename = "typed_in")]
    working_folder: PathBuf,
    #[serde(rename = "surroundings")]
    base_env: BTreeMap<String, String>,
    #[serde(default, rename = "filled")]
    substituted: BTreeMap<String, String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct HandoffHeader {
    name: String,
    value: String,
    secret: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct HandoffTool {
    repeatable: Option<bool>,
    session_per: Option<String>,
    idle: Option<Duration>,
    total: Option<Duration>,
}

/// The URL, headers and variables may hold secrets.
impl fmt::Debug for ServerHandoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandoff")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ServerHandoff {
    /// A server as this process would reach it from a working folder.
    pub fn new(
        configured: &ConfiguredTarget,
        working_folder: &Path,
        identity_arguments: &[String],
    ) -> Self {
        let ConfiguredTarget { target, settings } = configured;
        let tools = settings.policy.tools.iter().map(|(name, tool)| {
            let tool = HandoffTool {
                repeatable: tool.repeatable,
                session_per: tool.session_per.map(|scope| scope.as_str().to_owned()),
                idle: tool.idle,
                total: tool.total,
            };
            (name.clone(), tool)
        });
        Self {
            name: target.name.clone(),
            transport: HandoffTransport::new(&target.transport, working_folder),
            settings: settings.to_variables(),
            tools: tools.collect(),
            identity_arguments: identity_arguments.to_vec(),
        }
    }

    /// The server that was handed over. A program starts in the folder and with the variables of the
    /// process that handed it over.
    ///
    /// # Errors
    /// `config-bad-value`: what was handed over is no server.
    pub fn to_target(&self) -> Result<ConfiguredTarget, ConfigError> {
        let mut settings = ServerSettings::default();
        settings.apply_environment(&|name: &str| self.settings.get(name).cloned())?;
        settings.normalize()?;
        for (name, tool) in &self.tools {
            let tool = ToolPolicy {
                repeatable: tool.repeatable,
                session_per: tool.session_per.as_deref().and_then(SessionScope::parse),
                idle: tool.idle,
                total: tool.total,
            };
            settings.policy.tools.insert(name.clone(), tool);
        }
        Ok(ConfiguredTarget {
            target: ServerTarget::new(self.name.clone(), self.transport.to_transport()?),
            settings,
        })
    }

    /// The identity of the server: its declaration, without where it was typed, and without secrets
    /// that may be renewed.
    pub fn server_digest(&self, keyring: &Keyring) -> Digest {
        let mut plain = self.clone();
        match &mut plain.transport {
            HandoffTransport::Url(remote) => {
                let secret = remote.headers.iter_mut().filter(|header| header.secret);
                secret.for_each(|header| header.value.clear());
            },
            HandoffTransport::Program(local) => {
                local.working_folder.clear();
                local.base_env.clear();
            },
        }
        plain.full_digest(keyring)
    }

    /// The digest of everything but the settings: a program that starts in another folder, or finds
    /// other variables there, is another one.
    pub fn full_digest(&self, keyring: &Keyring) -> Digest {
        let mut plain = self.clone();
        plain.settings.clear();
        plain.tools.clear();
        // The values stand where they were filled in as well.
        match &mut plain.transport {
            HandoffTransport::Url(remote) => remote.substituted.clear(),
            HandoffTransport::Program(local) => local.substituted.clear(),
        }
        // Maps of texts can always be written, in one order.
        let text = serde_json::to_vec(&plain).unwrap_or_default();
        keyring.digest(Purpose::Revision, &[b"handed", &text])
    }

    /// The digest of the settings.
    pub fn settings_digest(&self, keyring: &Keyring) -> Digest {
        let text = serde_json::to_vec(&(&self.settings, &self.tools)).unwrap_or_default();
        keyring.digest(Purpose::Revision, &[b"decided", &text])
    }

    /// Whether it is a program.
    pub fn is_program(&self) -> bool {
        matches!(self.transport, HandoffTransport::Program(_))
    }
}

impl HandoffTransport {
    fn new(transport: &TransportConfig, working_folder: &Path) -> Self {
        match transport {
            TransportConfig::Http(http) => {
                let headers = http.headers.iter().map(|(name, value)| HandoffHeader {
                    name: name.to_string(),
                    // Headers were texts when they were typed.
                    value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
                    secret: value.is_sensitive(),
                });
                Self::Url(HandoffUrl {
                    url: http.url.to_string(),
                    headers: headers.collect(),
                    ca_file: http.ca_file.as_ref().map(|file| working_folder.join(file)),
                    substituted: http.substituted.clone(),
                })
            },
            TransportConfig::Stdio(stdio) => Self::Program(HandoffProgram {
                program: stdio.program.clone(),
                args: stdio.args.clone(),
                env: stdio.env.clone(),
                env_pass: stdio.env_pass.clone(),
                cwd: stdio.cwd.as_ref().map(|folder| working_folder.join(folder)),
                working_folder: working_folder.to_owned(),
                base_env: environment::forwardable_variables(stdio),
                substituted: stdio.substituted.clone(),
            }),
        }
    }

    fn to_transport(&self) -> Result<TransportConfig, ConfigError> {
        Ok(match self.clone() {
            Self::Url(remote) => TransportConfig::Http(HttpConfig {
                url: parse_url(&remote.url)
                    .map_err(|why| bad_handoff("its URL").with_cause(why))?,
                headers: { remote.headers.iter() }
                    .map(|header| header.to_header().ok_or_else(|| bad_handoff("a header")))
                    .collect::<Result<_, _>>()?,
                ca_file: remote.ca_file,
                substituted: remote.substituted,
            }),
            Self::Program(local) => TransportConfig::Stdio(StdioConfig {
                program: local.program,
                args: local.args,
                env: local.env,
                env_pass: local.env_pass,
                cwd: Some(local.cwd.unwrap_or(local.working_folder)),
                base_env: Some(local.base_env),
                substituted: local.substituted,
            }),
        })
    }
}

impl HandoffHeader {
    fn to_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let name = HeaderName::try_from(self.name.as_str()).ok()?;
        let mut value = HeaderValue::from_str(&self.value).ok()?;
        value.set_sensitive(self.secret);
        Some((name, value))
    }
}

fn bad_handoff(what: &str) -> ConfigError {
    let what = format!("a server that was handed over cannot be used: {what}");
    ConfigError::new(Code::ConfigBadValue, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_header, parse_text};

    fn configured(text: &str) -> ConfiguredTarget {
        let read = parse_text(Path::new("warmline.toml"), text).unwrap();
        let [declaration] = &read.declarations[..] else {
            panic!("one server is declared");
        };
        declaration.to_target(&|_: &str| None).unwrap()
    }

    fn there_and_back(handed: &ServerHandoff) -> ConfiguredTarget {
        let text = serde_json::to_string(handed).unwrap();
        let handed: ServerHandoff = serde_json::from_str(&text).unwrap();
        handed.to_target().unwrap()
    }

    #[test]
    fn what_is_decided_about_a_server_goes_with_it() {
        let one = configured(
            "[servers.files]\ncommand = ['files', '-v']\nserial = true\nspares = 2\n\
             max_age = '90s'\nera = 'legacy'\nsession_per = 'run'\ncall_timeout = '1500ms'\n\
             allow = ['read_*', 'list']\non_state_loss = 'fail'\nmax_reply = '3MiB'\n\
             [servers.files.tools.read_file]\nrepeatable = true\ncall_timeout = '7s'",
        );
        let other = there_and_back(&ServerHandoff::new(&one, Path::new("/here"), &[]));
        assert!(one.settings.has_same_values(&other.settings), "{other:?}");
        let TransportConfig::Stdio(stdio) = other.target.transport else {
            panic!("a program was handed over");
        };
        assert_eq!((stdio.program.as_str(), stdio.args.len()), ("files", 1));
        assert_eq!(stdio.cwd.as_deref(), Some(Path::new("/here")));
        assert!(stdio.base_env.unwrap().contains_key("PATH"));
    }

    /// The folder and the variables of a command are where it is started, not what it is; a
    /// secret may be renewed; who is asking is told apart.
    #[test]
    fn the_same_server_is_meant_from_wherever_it_is_named() {
        let vault = Keyring::ephemeral().unwrap();
        let program = configured("[servers.files]\ncommand = ['files']");
        let (here, there) = (Path::new("/here"), Path::new("/there"));
        let one = ServerHandoff::new(&program, here, &[]);
        let other = ServerHandoff::new(&program, there, &[]);
        assert_eq!(one.server_digest(&vault), other.server_digest(&vault));
        assert_ne!(one.full_digest(&vault), other.full_digest(&vault));
        let with = |token: &str, asking_as: &[String]| {
            let mut url = configured("[servers.web]\nurl = 'http://x.example/mcp'");
            let TransportConfig::Http(http) = &mut url.target.transport else {
                panic!("a URL was declared");
            };
            let (name, mut value) = parse_header("Authorization", token).unwrap();
            value.set_sensitive(true);
            http.headers.push((name, value));
            ServerHandoff::new(&url, here, asking_as)
        };
        let typed = ["header Authorization: Bearer b".to_owned()];
        assert_eq!(
            with("Bearer a", &[]).server_digest(&vault),
            with("Bearer b", &[]).server_digest(&vault)
        );
        assert_ne!(
            with("Bearer a", &[]).full_digest(&vault),
            with("Bearer b", &[]).full_digest(&vault)
        );
        assert_ne!(
            with("Bearer b", &[]).server_digest(&vault),
            with("Bearer b", &typed).server_digest(&vault)
        );
        let shown = format!("{:?}", with("Bearer canary", &typed));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
