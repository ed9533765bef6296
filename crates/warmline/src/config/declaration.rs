//! A server as a file declares it, before anything in it is expanded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use super::access::Access;
use super::anew::PLACEHOLDER;
use super::credential::{DeclaredCredential, From};
use super::expand::Expand;
use super::outline::{public_url, quoted, setting};
use super::secrets::public_command;
use crate::settings::ServerSettings;
use crate::settings::place::Place;

/// Text of a file that may be or become a secret. It cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Written {
    pub(crate) text: String,
    /// Line and column of it, where they are known.
    pub(crate) at: Option<(usize, usize)>,
}

impl Written {
    /// A text whose place is not known.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            at: None,
        }
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// A server as a file declares it.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its name in Warmline: 1 to 24 of `[a-z0-9-]`.
    pub name: String,
    /// Its name as the file writes it.
    pub written: String,
    /// Where it is declared.
    pub place: Place,
    pub(crate) span: Range<usize>,
    pub(crate) reach: DeclaredReach,
    pub(crate) credential: Option<DeclaredCredential>,
    pub(crate) settings: ServerSettings,
    /// Rules about its callers.
    pub access: Access,
    pub(crate) url_env: Option<String>,
    pub(crate) auth_env: Option<String>,
    pub(crate) described: Described,
    pub(crate) expand: Expand,
    /// How it was switched off, where its file has a way of its own to say so.
    pub(crate) off: Option<Refusal>,
    /// Why it cannot be used although the file can.
    pub(crate) refusal: Option<Refusal>,
    /// The folder that relative paths start from: the one of the file.
    pub(crate) base: PathBuf,
}

/// What a resolver and a store factory know a server by, besides its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) id: Option<String>,
    pub(crate) slug: Option<String>,
    pub(crate) folder: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// Why one server of a file cannot be used: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

/// How a declared server is reached.
#[derive(Clone, Debug)]
pub(crate) enum DeclaredReach {
    Url {
        /// None if a variable or a resolver tells it.
        url: Option<Written>,
        headers: Vec<(String, Written)>,
        ca_file: Option<PathBuf>,
    },
    Command {
        argv: Vec<Written>,
        env: BTreeMap<String, Written>,
        env_pass: Vec<String>,
        cwd: Option<PathBuf>,
    },
}

/// What a declaration would do, for people: commands, URLs and names of variables; no values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The command line, or the URL without what could be secret in it.
    pub reaches: String,
    /// The command that prints its credential, if one does.
    pub runs: Vec<String>,
    /// Variables that are set for the program, by name; with their values where these decide what
    /// is executed, as `PATH` does.
    pub sets: Vec<String>,
    /// Variables of ours that are read or passed on, by name.
    pub reads: Vec<String>,
    /// Headers that are sent, by name.
    pub headers: Vec<String>,
    /// Files that are read.
    pub files: Vec<PathBuf>,
}

impl Declaration {
    /// What it would do, with no value expanded and no secret shown.
    pub fn outline(&self) -> Outline {
        let mut outline = Outline {
            reads: self.url_env.iter().chain(&self.auth_env).cloned().collect(),
            ..Outline::default()
        };
        match &self.reach {
            DeclaredReach::Url {
                url,
                headers,
                ca_file,
            } => {
                outline.reaches = self.public_url(url.as_ref());
                outline.headers = headers.iter().map(|(name, _)| name.clone()).collect();
                outline.files.extend(ca_file.clone());
            },
            DeclaredReach::Command {
                argv,
                env,
                env_pass,
                cwd,
            } => {
                outline.reaches = public_command(argv.iter().map(|word| word.text.as_str()));
                outline.sets = env
                    .iter()
                    .map(|(name, value)| setting(name, value))
                    .collect();
                outline.reads.extend(env_pass.iter().cloned());
                outline.files.extend(cwd.clone());
            },
        }
        self.outline_credential(&mut outline);
        for text in self.texts() {
            outline
                .reads
                .extend(super::expand::names(&text.text, self.expand));
        }
        outline.reads.sort();
        outline.reads.dedup();
        outline
    }

    /// Whether its file switches it off.
    pub fn is_off(&self) -> bool {
        self.off.is_some() || !self.settings.policy.enabled
    }

    /// Whether something of it is still to be filled in: what `init` and `add` write in the place of
    /// a secret.
    pub fn has_placeholders(&self) -> bool {
        let mut texts = self.texts().into_iter();
        texts.any(|text| text.text.contains(PLACEHOLDER))
    }

    /// Variables of ours that are passed on to its program, by name.
    pub fn passed_on(&self) -> &[String] {
        match &self.reach {
            DeclaredReach::Command { env_pass, .. } => env_pass,
            DeclaredReach::Url { .. } => &[],
        }
    }

    fn public_url(&self, url: Option<&Written>) -> String {
        match (url, &self.url_env, &self.described.slug) {
            (Some(url), _, _) => public_url(&url.text),
            (None, Some(variable), _) => format!("the URL in {variable}"),
            (None, None, Some(slug)) => format!("what is found for {}", quoted(slug)),
            (None, None, None) => "no URL".to_owned(),
        }
    }

    fn outline_credential(&self, outline: &mut Outline) {
        let Some(credential) = &self.credential else {
            return;
        };
        match &credential.from {
            From::Env(name) => outline.reads.push(name.clone()),
            From::File(path) => outline.files.push(path.clone()),
            From::Command(words) => outline
                .runs
                .push(public_command(words.iter().map(String::as_str))),
            From::Header(_) => {},
        }
        outline.headers.extend(credential.header.clone());
    }

    /// Whether it names a variable that replaces its URL.
    pub fn url_env(&self) -> Option<&str> {
        self.url_env.as_deref()
    }

    /// Whether it names a variable that holds its token.
    pub fn auth_env(&self) -> Option<&str> {
        self.auth_env.as_deref()
    }
}
