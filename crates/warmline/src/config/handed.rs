//! A server as one process of a user hands it to another: all that is needed to reach it, put
//! together where the user typed.
//!
//! Asked by: a command that goes through a gateway of the same user.  Told by: the configuration,
//! the command line and the environment of that command, through [`Configured`]. Secrets stand in
//! it: it travels by a socket of the user alone, and is never written anywhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use warmline_core::code::Code;
use warmline_core::key::Digest;
use warmline_core::policy::{SessionPer, ToolPolicy};

use super::reaching::Configured;
use crate::seal::{Purpose, Vault};
use crate::settings::{ConfigError, ServerSettings};
use crate::upstream::environment;
use crate::upstream::parse_url;
use crate::upstream::server::{HttpReach, Reach, Server, StdioReach};

/// A server as one process of a user hands it to another.
#[derive(Clone, Serialize, Deserialize)]
pub struct Handed {
    /// What it is called there.
    pub name: String,
    reach: HandedReach,
    /// What is decided about it, as the environment would say it; what is usual is left out.
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    tools: BTreeMap<String, HandedTool>,
    /// What was typed about who is asking.
    #[serde(default)]
    asking_as: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
enum HandedReach {
    Url {
        url: String,
        headers: Vec<HandedHeader>,
        ca_file: Option<PathBuf>,
        #[serde(default)]
        filled: BTreeMap<String, String>,
    },
    Program {
        program: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        env_pass: Vec<String>,
        /// The folder that was said.
        cwd: Option<PathBuf>,
        /// Where the command was typed.
        typed_in: PathBuf,
        surroundings: BTreeMap<String, String>,
        #[serde(default)]
        filled: BTreeMap<String, String>,
    },
}

#[derive(Clone, Serialize, Deserialize)]
struct HandedHeader {
    name: String,
    value: String,
    secret: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct HandedTool {
    repeatable: Option<bool>,
    session_per: Option<String>,
    idle: Option<Duration>,
    total: Option<Duration>,
}

/// Where it leads may hold a key, and its headers and variables do.
impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Handed {
    /// A server as it would be reached from here, in this working folder.
    pub fn of(configured: &Configured, working: &Path, asking_as: &[String]) -> Self {
        let Configured { server, settings } = configured;
        Self {
            name: server.name.clone(),
            reach: HandedReach::of(&server.reach, working),
            settings: settings.to_hand_on(),
            tools: tools(settings),
            asking_as: asking_as.to_vec(),
        }
    }

    /// The server that was handed over. A program is started in the folder and with the variables
    /// of whoever handed it over.
    ///
    /// # Errors
    /// `config-bad-value`: what was handed over is no server.
    pub fn configured(&self) -> Result<Configured, ConfigError> {
        let mut settings = ServerSettings::default();
        settings.take_handed(&self.settings)?;
        for (name, tool) in &self.tools {
            let tool = ToolPolicy {
                repeatable: tool.repeatable,
                session_per: tool.session_per.as_deref().and_then(SessionPer::parse),
                idle: tool.idle,
                total: tool.total,
            };
            settings.policy.tools.insert(name.clone(), tool);
        }
        Ok(Configured {
            server: Server::new(self.name.clone(), self.reach.reach()?),
            settings,
        })
    }

    /// What makes it this server: what was said of it, without where and by whom it was said, and
    /// without secrets that may be renewed.
    pub fn meant(&self, vault: &Vault) -> Digest {
        let mut plain = self.reached();
        match &mut plain.reach {
            HandedReach::Url { headers, .. } => {
                let secret = headers.iter_mut().filter(|header| header.secret);
                secret.for_each(|header| header.value.clear());
            },
            HandedReach::Program {
                typed_in,
                surroundings,
                ..
            } => {
                *typed_in = PathBuf::new();
                surroundings.clear();
            },
        }
        plain.digest(vault)
    }

    /// The same with all of it: a program that is started in another folder, or finds other
    /// variables there, is another.
    pub fn whole(&self, vault: &Vault) -> Digest {
        self.reached().digest(vault)
    }

    /// What is decided about it.
    pub fn decided(&self, vault: &Vault) -> Digest {
        // Maps of texts can always be written, in one order.
        let text = serde_json::to_vec(&(&self.settings, &self.tools)).unwrap_or_default();
        vault.digest(Purpose::Revision, &[b"decided", &text])
    }

    /// The server without what is decided about it.
    fn reached(&self) -> Self {
        let mut reach = self.reach.clone();
        let (HandedReach::Url { filled, .. } | HandedReach::Program { filled, .. }) = &mut reach;
        // It stands where it was filled in.
        filled.clear();
        Self {
            reach,
            settings: BTreeMap::new(),
            tools: BTreeMap::new(),
            ..self.clone()
        }
    }

    fn digest(&self, vault: &Vault) -> Digest {
        // Maps of texts can always be written, in one order.
        let text = serde_json::to_vec(self).unwrap_or_default();
        vault.digest(Purpose::Revision, &[b"handed", &text])
    }

    /// Whether it is a program.
    pub fn is_a_program(&self) -> bool {
        matches!(self.reach, HandedReach::Program { .. })
    }
}

impl HandedReach {
    fn of(reach: &Reach, working: &Path) -> Self {
        match reach {
            Reach::Http(http) => Self::Url {
                url: http.url.to_string(),
                headers: http.headers.iter().map(HandedHeader::of).collect(),
                ca_file: http.ca_file.as_ref().map(|file| working.join(file)),
                filled: http.filled.clone(),
            },
            Reach::Stdio(stdio) => Self::Program {
                program: stdio.program.clone(),
                args: stdio.args.clone(),
                env: stdio.env.clone(),
                env_pass: stdio.env_pass.clone(),
                cwd: stdio.cwd.as_ref().map(|folder| working.join(folder)),
                typed_in: working.to_owned(),
                surroundings: environment::to_hand_on(stdio),
                filled: stdio.filled.clone(),
            },
        }
    }

    fn reach(&self) -> Result<Reach, ConfigError> {
        Ok(match self {
            Self::Url {
                url,
                headers,
                ca_file,
                filled,
            } => Reach::Http(HttpReach {
                url: parse_url(url).map_err(|why| bad("its URL").because(why))?,
                headers: headers
                    .iter()
                    .map(HandedHeader::header)
                    .collect::<Result<_, _>>()?,
                ca_file: ca_file.clone(),
                filled: filled.clone(),
            }),
            Self::Program {
                program,
                args,
                env,
                env_pass,
                cwd,
                typed_in,
                surroundings,
                filled,
            } => Reach::Stdio(StdioReach {
                program: program.clone(),
                args: args.clone(),
                env: env.clone(),
                env_pass: env_pass.clone(),
                cwd: Some(cwd.as_ref().unwrap_or(typed_in).clone()),
                surroundings: Some(surroundings.clone()),
                filled: filled.clone(),
            }),
        })
    }
}

impl HandedHeader {
    fn of((name, value): &(HeaderName, HeaderValue)) -> Self {
        Self {
            name: name.to_string(),
            // Headers were texts when they were typed.
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
            secret: value.is_sensitive(),
        }
    }

    fn header(&self) -> Result<(HeaderName, HeaderValue), ConfigError> {
        let name = HeaderName::try_from(self.name.as_str()).map_err(|_| bad("a header"))?;
        let mut value = HeaderValue::from_str(&self.value).map_err(|_| bad("a header"))?;
        value.set_sensitive(self.secret);
        Ok((name, value))
    }
}

fn tools(settings: &ServerSettings) -> BTreeMap<String, HandedTool> {
    let tools = settings.policy.tools.iter();
    tools
        .map(|(name, tool)| {
            let handed = HandedTool {
                repeatable: tool.repeatable,
                session_per: tool.session_per.map(|per| per.word().to_owned()),
                idle: tool.idle,
                total: tool.total,
            };
            (name.clone(), handed)
        })
        .collect()
}

fn bad(what: &str) -> ConfigError {
    let what = format!("a server that was handed over cannot be used: {what}");
    ConfigError::new(Code::ConfigBadValue, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{header, read_text};

    fn configured(text: &str) -> Configured {
        let read = read_text(Path::new("warmline.toml"), text).unwrap();
        let [declaration] = &read.declarations[..] else {
            panic!("one server is declared");
        };
        declaration.server(&|_: &str| None).unwrap()
    }

    fn there_and_back(handed: &Handed) -> Configured {
        let text = serde_json::to_string(handed).unwrap();
        let handed: Handed = serde_json::from_str(&text).unwrap();
        handed.configured().unwrap()
    }

    #[test]
    fn what_is_decided_about_a_server_goes_with_it() {
        let one = configured(
            "[servers.files]\ncommand = ['files', '-v']\nserial = true\nspares = 2\n\
             max_age = '90s'\nera = 'legacy'\nsession_per = 'run'\ncall_timeout = '1500ms'\n\
             allow = ['read_*', 'list']\non_state_loss = 'fail'\nmax_reply = '3MiB'\n\
             [servers.files.tools.read_file]\nrepeatable = true\ncall_timeout = '7s'",
        );
        let other = there_and_back(&Handed::of(&one, Path::new("/here"), &[]));
        assert!(one.settings.decides_as(&other.settings), "{other:?}");
        let Reach::Stdio(stdio) = other.server.reach else {
            panic!("a program was handed over");
        };
        assert_eq!((stdio.program.as_str(), stdio.args.len()), ("files", 1));
        assert_eq!(stdio.cwd.as_deref(), Some(Path::new("/here")));
        assert!(stdio.surroundings.unwrap().contains_key("PATH"));
    }

    /// The folder and the variables of a command are where it is started, not what it is; a
    /// secret may be renewed; who is asking is told apart.
    #[test]
    fn the_same_server_is_meant_from_wherever_it_is_named() {
        let vault = Vault::ephemeral().unwrap();
        let program = configured("[servers.files]\ncommand = ['files']");
        let (here, there) = (Path::new("/here"), Path::new("/there"));
        let one = Handed::of(&program, here, &[]);
        let other = Handed::of(&program, there, &[]);
        assert_eq!(one.meant(&vault), other.meant(&vault));
        assert_ne!(one.whole(&vault), other.whole(&vault));
        let with = |token: &str, asking_as: &[String]| {
            let mut url = configured("[servers.web]\nurl = 'http://x.example/mcp'");
            let Reach::Http(http) = &mut url.server.reach else {
                panic!("a URL was declared");
            };
            let (name, mut value) = header("Authorization", token).unwrap();
            value.set_sensitive(true);
            http.headers.push((name, value));
            Handed::of(&url, here, asking_as)
        };
        let typed = ["header Authorization: Bearer b".to_owned()];
        assert_eq!(
            with("Bearer a", &[]).meant(&vault),
            with("Bearer b", &[]).meant(&vault)
        );
        assert_ne!(
            with("Bearer a", &[]).whole(&vault),
            with("Bearer b", &[]).whole(&vault)
        );
        assert_ne!(
            with("Bearer b", &[]).meant(&vault),
            with("Bearer b", &typed).meant(&vault)
        );
        let shown = format!("{:?}", with("Bearer canary", &typed));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
