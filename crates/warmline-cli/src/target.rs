//! The target: a URL, a name from a configuration file, or a command behind `--`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warmline::config::{
    Access, Config, ConfigFile, Declaration, Folders, Origin, parse_url, plain_name,
    public_command, public_url,
};
use warmline::core::code::Code;
use warmline::core::era::Era;
use warmline::core::exchange::Patience;
use warmline::settings::{EngineSettings, ProcessVariables, ServerSettings, process_text};
use warmline::trust::TrustStore;
use warmline::upstream::{Reach, Server};

use crate::args::{Connect, EraChoice};
use crate::problem::{Outcome, Problem, first_of_all};

mod around;
mod beside;
mod general;
mod missing;
mod split;

pub(crate) use general::URL as GENERAL_URL;
pub(crate) use missing::Incomplete;
pub(crate) use split::{Named, aim_of, shown, split, too_many};

/// A server that a command speaks to.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) server: Server,
    pub(crate) patience: Patience,
    /// What is decided about it, each value with its origin.
    pub(crate) settings: ServerSettings,
    /// What its declaration says about callers of a gateway.
    pub(crate) access: Access,
    /// What is decided for all servers together.
    pub(crate) engine: EngineSettings,
    pub(crate) source: TargetSource,
    /// Where the token that is sent comes from, in words.
    pub(crate) token_from: Option<String>,
    /// Things worth knowing about how it was put together.
    pub(crate) notes: Vec<Note>,
    general: General,
}

/// Something worth knowing about a target.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// Where a part of it comes from.
    Origin(String),
    /// Something the reader may not have meant so.
    Warning(String),
}

/// Whether variables that name no server speak for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum General {
    Speaks,
    Silent,
}

/// Where a target comes from.
#[derive(Clone, Debug)]
pub(crate) enum TargetSource {
    /// It was typed.
    Typed,
    /// The gateway around the program that started us serves it.
    Around,
    /// A configuration file declares it there.
    Configured {
        place: String,
        origin: Origin,
        /// How it is reached as the file writes it: nothing in it is expanded.
        reaches: String,
    },
}

impl TargetSource {
    /// A variable says where it is, and not the file.
    fn comes_from(&mut self, variable: &str, url: &str) {
        if let Self::Configured { reaches, .. } = self {
            *reaches = format!("{} (from {variable})", public_url(url));
        }
    }
}

/// What a command was told to speak to, before it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    Url(String),
    Name(String),
    Command(Vec<OsString>),
}

impl Target {
    /// Looks a target up and applies what was typed beside it.
    pub(crate) fn find(aim: &Aim, connect: &Connect) -> Outcome<Self> {
        Self::find_among(aim, connect, General::Speaks)
    }

    /// The same, where it may be one of several: then variables that name no server are silent.
    pub(crate) fn find_among(aim: &Aim, connect: &Connect, general: General) -> Outcome<Self> {
        let mut target = match aim {
            Aim::Url(url) => Self::of_url(url)?,
            Aim::Command(words) => Self::of_command(words)?,
            Aim::Name(name) => Self::of_name(name, connect)?,
        };
        if general == General::Silent {
            target.general = general;
        }
        target.decided(connect)
    }

    /// The same, with what the environment and the command line decide about it.
    fn decided(mut self, connect: &Connect) -> Outcome<Self> {
        self.settings.take_process_environment()?;
        self.engine.take_process_environment()?;
        self.apply(connect)?;
        self.settle()?;
        Ok(self)
    }

    /// Allows each step so much time, without saying that somebody decided so. A program may take as
    /// long to start as anywhere else: one that is slow is not broken.
    pub(crate) fn hurry(&mut self, limit: Duration) {
        let times = &mut self.server.times;
        (times.connect, times.handshake) = (limit, limit);
        self.patience = Patience {
            idle: limit,
            total: limit,
        };
    }

    /// How it is reached, for people: as it was typed or written, without what could be secret.
    pub(crate) fn place(&self) -> String {
        match (&self.source, &self.server.reach) {
            (TargetSource::Configured { reaches, .. }, _) => reaches.clone(),
            (_, Reach::Http(http)) => public_url(http.url.as_str()),
            (_, Reach::Stdio(stdio)) => {
                let args = stdio.args.iter().map(String::as_str);
                public_command(std::iter::once(stdio.program.as_str()).chain(args))
            },
        }
    }

    /// How to name it on another command line.
    pub(crate) fn again(&self) -> String {
        match (&self.source, &self.server.reach) {
            (TargetSource::Configured { .. } | TargetSource::Around, _) => self.server.name.clone(),
            (TargetSource::Typed, Reach::Http(_)) => self.place(),
            (TargetSource::Typed, Reach::Stdio(_)) => format!("-- {}", self.place()),
        }
    }

    /// Whether requests carry a header that says who asks.
    pub(crate) fn sends_credential(&self) -> bool {
        has_headers(&self.server)
    }

    /// The path of its URL, if variables of the environment were filled into it.
    pub(crate) fn secret_path(&self) -> Option<String> {
        match (&self.source, &self.server.reach) {
            (TargetSource::Configured { reaches, .. }, Reach::Http(http))
                if reaches.contains("${") && http.url.path().len() > 1 =>
            {
                Some(http.url.path().to_owned())
            },
            _ => None,
        }
    }

    fn of_url(url: &str) -> Outcome<Self> {
        let parsed = parse_url(url).map_err(|why| {
            Problem::usage(format!("`{}` is not the URL of a server", public_url(url))).because(why)
        })?;
        let host = parsed.host_str().unwrap_or_default();
        let name = match parsed.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Ok(Self::typed(Server::http(name, parsed)))
    }

    fn of_command(words: &[OsString]) -> Outcome<Self> {
        let texts: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
        let Some([program, args @ ..]) = texts.as_deref() else {
            return Err(Problem::usage("the command behind `--` is not text"));
        };
        let name = command_name(program, args);
        Ok(Self::typed(Server::stdio(
            name,
            *program,
            args.iter().copied(),
        )))
    }

    fn of_name(name: &str, connect: &Connect) -> Outcome<Self> {
        let folders = folders()?;
        let store = TrustStore::in_state_folder(folders.state.as_deref());
        let config = Config::read_to_use(connect.config.as_deref(), &folders, &store)
            .map_err(first_of_all)?;
        let (file, declaration) = config.find(name, &store).map_err(|error| {
            let mut problem = Problem::from(error);
            if let Some(hint) = looks_like(name) {
                problem = problem.hint(hint);
            }
            problem
        })?;
        let trusted = file.trusted(&store)?;
        let configured = trusted.server(declaration, &ProcessVariables)?;
        let token_from = trusted.token_source(declaration, &ProcessVariables)?;
        let among_headers = || format!("`headers` in {}", declaration.place);
        let mut target = Self {
            token_from: token_from.or_else(|| has_headers(&configured.server).then(among_headers)),
            server: configured.server,
            patience: Patience::default(),
            settings: configured.settings,
            access: declaration.access.clone(),
            engine: config.engine(&store),
            source: TargetSource::Configured {
                place: declaration.place.to_string(),
                origin: file.origin(),
                reaches: declaration.outline().reaches,
            },
            notes: Vec::new(),
            general: General::Silent,
        };
        if let Some(variable) = declaration.url_env()
            && let Some(url) = process_text(variable)?.filter(|url| !url.is_empty())
        {
            target.source.comes_from(variable, &url);
        }
        if config.declarations().count() == 1 {
            target.general = General::Speaks;
            target.take_general_url(declaration)?;
        }
        target
            .notes
            .extend(others(&config, file, declaration, &store));
        let left_out = config.left_out().iter().map(|left| left.path.display());
        target.notes.extend(left_out.map(|path| {
            Note::Warning(format!(
                "{path} is not trusted, has a mistake, and is not used"
            ))
        }));
        Ok(target)
    }

    fn typed(server: Server) -> Self {
        Self {
            server,
            patience: Patience::default(),
            settings: ServerSettings::default(),
            access: Access::default(),
            engine: EngineSettings::default(),
            source: TargetSource::Typed,
            token_from: None,
            notes: Vec::new(),
            general: General::Speaks,
        }
    }

    fn apply(&mut self, connect: &Connect) -> Outcome<()> {
        let name = self.server.name.clone();
        match &mut self.server.reach {
            Reach::Http(http) => {
                beside::apply_http(http, connect, &name, &mut self.token_from)?;
            },
            Reach::Stdio(stdio) => beside::apply_stdio(stdio, connect, &name)?,
        }
        let is_plain =
            matches!(&self.server.reach, Reach::Http(http) if http.url.scheme() == "http");
        if is_plain && connect.ca_file.is_some() {
            let unused = "`--ca-file` is of no use here: a URL with `http://` has no certificate";
            self.notes.push(Note::Warning(unused.to_owned()));
        }
        if self.general == General::Speaks {
            self.take_general_token()?;
        }
        match connect.era {
            EraChoice::Auto => {},
            EraChoice::Legacy => self.settings.era = Some(Era::Legacy),
            EraChoice::Modern => self.settings.era = Some(Era::Modern),
        }
        if connect.era != EraChoice::Auto {
            self.settings.built("era");
        }
        if let Some(limit) = connect.timeout {
            let times = &mut self.settings.times;
            (times.connect, times.handshake, times.start) = (limit, limit, limit);
            self.settings.policy.patience = Patience {
                idle: limit,
                total: limit,
            };
            TIMEOUTS.iter().for_each(|key| self.settings.built(key));
        }
        Ok(())
    }

    /// Gives the server what was decided, wherever that was said.
    fn settle(&mut self) -> Outcome<()> {
        self.settings.settle()?;
        self.engine.settle()?;
        self.settings.decide_for(&mut self.server);
        self.patience = self.settings.policy.patience;
        Ok(())
    }
}

fn has_headers(server: &Server) -> bool {
    match &server.reach {
        Reach::Http(http) => !http.headers.is_empty(),
        Reach::Stdio(_) => false,
    }
}

/// What `--timeout` sets.
const TIMEOUTS: [&str; 5] = [
    "connect_timeout",
    "handshake_timeout",
    "start_timeout",
    "call_idle_timeout",
    "call_timeout",
];

/// The folders of this process.
pub(crate) fn folders() -> Outcome<Folders> {
    Folders::of_this_process().map_err(|error| {
        Problem::new(Code::ConfigUnreadable, "the working folder cannot be read")
            .because(error.to_string())
    })
}

/// The state folder: the one that was typed, or the usual one.
pub(crate) fn state_folder(typed: Option<&Path>) -> Outcome<PathBuf> {
    match typed {
        Some(typed) => Ok(typed.to_owned()),
        None => folders()?.state.ok_or_else(|| {
            Problem::usage("there is no folder to keep things in: this user has no home")
                .hint("name one with --state-dir FOLDER")
        }),
    }
}

/// Where records of sessions are kept in a state folder, unless a setting says otherwise.
pub(crate) fn records_in(state: &Path) -> PathBuf {
    state.join("sessions")
}

/// A name for a command: what it starts, not what starts it.
fn command_name(program: &str, args: &[&str]) -> String {
    let stem = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.trim_end_matches(".js")
            .trim_end_matches(".py")
            .to_owned()
    };
    let starter = stem(program);
    let started = match starter.as_str() {
        "npx" | "pnpx" | "bunx" | "uvx" | "node" | "python" | "python3" => {
            let package = args.iter().find(|word| !word.starts_with('-'));
            package.map(|word| without_version(word).to_owned())
        },
        _ => None,
    };
    let plain = started.as_deref().map(|word| match word.rsplit_once('/') {
        // `@someone/mcp` says nothing without its scope; `@someone/server-time` does.
        Some((scope, "mcp" | "server" | "mcp-server")) if scope.starts_with('@') => word.to_owned(),
        _ => stem(word),
    });
    plain
        .as_deref()
        .and_then(plain_name)
        .or_else(|| plain_name(&starter))
        .unwrap_or_else(|| "server".to_owned())
}

/// A package without the version behind it.
fn without_version(package: &str) -> &str {
    match package.rsplit_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        _ => package,
    }
}

/// What somebody who typed an unknown name may have wanted.
fn looks_like(name: &str) -> Option<String> {
    if name.contains(' ') {
        return Some("a command goes last, behind `--`, unquoted".to_owned());
    }
    let host = name.split(['/', ':']).next().unwrap_or_default();
    let is_host = host == "localhost" || (host.contains('.') && !host.starts_with('.'));
    is_host.then(|| format!("a URL begins with `https://` or `http://`: `http://{name}`"))
}

/// Other files that declare the same name, and are not used.
fn others(
    config: &Config,
    used: &ConfigFile,
    declaration: &Declaration,
    store: &TrustStore,
) -> Vec<Note> {
    let name = &declaration.written;
    config
        .declarations()
        .filter(|(file, other)| other.name == declaration.name && file.path() != used.path())
        .map(|(file, _)| {
            let other = file.path().display();
            match file.is_trusted(store) {
                true => Note::Origin(format!("`{name}` is also declared in {other}, not used")),
                false => Note::Warning(format!(
                    "`{name}` is also declared in {other}, which is not trusted; {} is used",
                    used.path().display()
                )),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hurry_leaves_a_program_the_time_to_start() {
        let words = ["sh".into(), "-c".into(), "exit".into()];
        let mut target = Target::of_command(&words).unwrap();
        let allowed = target.server.times.start;
        let limit = allowed / 2;
        target.hurry(limit);
        let times = &target.server.times;
        assert_eq!((times.start, times.handshake), (allowed, limit));
    }

    #[test]
    fn a_command_is_named_after_what_it_starts() {
        #[rustfmt::skip]
        let table: [(&str, &[&str], &str); 9] = [
            ("npx", &["-y", "@playwright/mcp@latest"], "playwright-mcp"),
            ("npx", &["-y", "@modelcontextprotocol/server-everything"], "server-everything"),
            ("npx", &["-y", "@modelcontextprotocol/server-time@1.2.3"], "server-time"),
            ("npx", &["-y", "some-server"],            "some-server"),
            ("uvx", &["mcp-server-git"],               "mcp-server-git"),
            ("python3", &["/opt/things/server.py"],    "server"),
            ("/usr/bin/thing", &["--stdio"],           "thing"),
            ("node", &[],                              "node"),
            ("…", &[],                                 "server"),
        ];
        for (program, args, name) in table {
            assert_eq!(command_name(program, args), name);
        }
    }

    #[test]
    fn a_slip_is_recognised() {
        assert!(looks_like("localhost:8400/mcp").is_some());
        assert!(looks_like("example.com").is_some());
        assert!(looks_like("npx -y thing").is_some());
        assert!(looks_like("github").is_none());
    }
}
