//! Runs that commands left to their records: what they are called, and how each can be ended.
//!
//! Asked by: `ps` and `end`.  Told by: whoever leaves a session of a named run to its record:
//! commands, also those that go through the background gateway, and clients of `stdio --run`.
//!
//! A record knows its run by a digest alone. A note beside it knows the name, and how the server was
//! named on the command line. It is sealed like the record, because a URL may hold a secret, and it
//! counts only as long as the record is there.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use warmline::IdentityHandle;
use warmline::core::delivery::Delivery;
use warmline::core::record::Record;
use warmline::seal::{Purpose, Vault};
use warmline::store::{FileStore, Records};
use warmline::upstream::Reach;
use warmline::{clock, private};

use crate::args::{self, Connect};
use crate::gate::Served;
use crate::problem::{Outcome, Problem};
use crate::run::ChosenRun;
use crate::target::{Aim, Target, TargetSource, folders};

/// A run, as a command left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) run: String,
    /// What people call the server.
    pub(crate) shown: String,
    /// Where the command was typed.
    pub(crate) folder: PathBuf,
    /// How the record knows run and server.
    id: String,
    server: String,
    /// The folder of the record.
    records: PathBuf,
    reached: Reached,
    #[serde(default)]
    by: Holder,
}

/// Who held the session. It decides whose it is: a header that somebody typed makes them another
/// to a command, and not to a gateway, which knows one user alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Holder {
    #[default]
    Command,
    Gateway,
    /// A client that came by `stdio`: the server was reached as gateways reach it, which ask for
    /// its credential each time.
    Pipe,
}

/// A session of a run, as whoever holds it knows it.
#[derive(Debug)]
pub(crate) struct Holding<'h> {
    pub(crate) by: Holder,
    pub(crate) run: &'h str,
    /// What the holder calls the server.
    pub(crate) server: &'h str,
    pub(crate) who: &'h IdentityHandle,
    pub(crate) vault: &'h Vault,
    /// The folder of the record.
    pub(crate) records: &'h Path,
}

/// How the server was named on the command line. No value of a header is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Reached {
    Url {
        url: String,
        header_env: Vec<String>,
        ca_file: Option<PathBuf>,
    },
    Name {
        name: String,
        config: Option<PathBuf>,
        header_env: Vec<String>,
    },
    /// With a header that was typed out.
    WithHeader,
}

/// A run that the next command can go on with.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) note: Note,
    pub(crate) opened_at: u64,
    pub(crate) used_at: u64,
}

/// The notes in a state folder.
#[derive(Debug)]
pub(crate) struct Notes {
    folder: PathBuf,
    vault: Arc<Vault>,
}

impl Note {
    /// What there is to note of a run that a command is in.
    pub(crate) fn of(
        target: &Target,
        typed: &Connect,
        holding: &Holding<'_>,
    ) -> Outcome<Option<Self>> {
        let Reach::Http(http) = &target.server.reach else {
            return Ok(None);
        };
        let header_env = typed.header_env.clone();
        let reached = match &target.source {
            _ if !typed.header.is_empty() => Reached::WithHeader,
            TargetSource::Configured { .. } => Reached::Name {
                name: target.server.name.clone(),
                config: typed.config.as_deref().map(absolute).transpose()?,
                header_env,
            },
            TargetSource::Typed | TargetSource::Around => Reached::Url {
                url: http.url.to_string(),
                ca_file: typed.ca_file.as_deref().map(absolute).transpose()?,
                header_env,
            },
        };
        Self::new(target.server.name.clone(), reached, holding).map(Some)
    }

    /// The same of a run that a client of ours was in: its server was typed so, or has that name in
    /// a configuration.
    pub(crate) fn of_served(
        served: &Served,
        config: Option<&Path>,
        holding: &Holding<'_>,
    ) -> Outcome<Option<Self>> {
        let reached = match &served.aim {
            Aim::Url(url) => Reached::Url {
                url: url.clone(),
                ca_file: None,
                header_env: Vec::new(),
            },
            Aim::Name(name) => Reached::Name {
                name: name.clone(),
                config: config.map(absolute).transpose()?,
                header_env: Vec::new(),
            },
            Aim::Command(_) => return Ok(None),
        };
        Self::new(served.shown.clone(), reached, holding).map(Some)
    }

    fn new(shown: String, reached: Reached, holding: &Holding<'_>) -> Outcome<Self> {
        let whose = holding.who.digest();
        let parts: [&[u8]; 2] = [whose.bytes(), holding.run.as_bytes()];
        Ok(Self {
            run: holding.run.to_owned(),
            shown,
            folder: folders()?.working,
            id: holding.vault.digest(Purpose::Run, &parts).hex(),
            server: holding.server.to_owned(),
            records: absolute(holding.records)?,
            reached,
            by: holding.by,
        })
    }

    /// The server as it was named, and the run, to be ended.
    pub(crate) fn to_end(&self, state: &Path) -> Outcome<(Target, ChosenRun)> {
        let (aim, connect) = match self.reached.clone() {
            Reached::Url {
                url,
                header_env,
                ca_file,
            } => (
                Aim::Url(url),
                Connect {
                    header_env,
                    ca_file,
                    ..Connect::default()
                },
            ),
            Reached::Name {
                name,
                config,
                header_env,
            } => (
                Aim::Name(name),
                Connect {
                    config,
                    header_env,
                    ..Connect::default()
                },
            ),
            Reached::WithHeader => {
                let (run, shown) = (&self.run, &self.shown);
                let what =
                    format!("run `{run}` has a session of `{shown}` that a `--header` began");
                let first = match self.by {
                    Holder::Command => "",
                    // Only there it is the session of whoever shows that header.
                    Holder::Gateway | Holder::Pipe => "`warmline up`, then ",
                };
                return Err(Problem::usage(what)
                    .because("what was typed there is not kept")
                    .hint(format!(
                        "{first}`warmline request SERVER ping --run {run} --header … --end-run`, \
                         with the server and the header that it began with"
                    )));
            },
        };
        let target = Target::find(&aim, &connect).map_err(|problem| self.pointing_home(problem))?;
        let chosen = ChosenRun::to_end(self, state, connect);
        Ok((target, chosen))
    }

    /// A file that declares the server may lie where the run was begun.
    pub(crate) fn pointing_home(&self, problem: Problem) -> Problem {
        let folder = self.folder.display();
        match self.reached {
            Reached::Name { .. } => problem.hint(format!("it was begun in {folder}: end it there")),
            Reached::Url { .. } | Reached::WithHeader => problem,
        }
    }

    /// The server as it would be served; none where something was typed beside it.
    pub(crate) fn as_served(&self) -> Option<args::Served> {
        let (word, config, header_env) = match &self.reached {
            Reached::Url {
                url,
                header_env,
                ca_file: None,
            } => (url, None, header_env),
            Reached::Name {
                name,
                config,
                header_env,
            } => (name, config.clone(), header_env),
            Reached::Url { .. } | Reached::WithHeader => return None,
        };
        header_env.is_empty().then(|| args::Served {
            words: vec![word.clone()],
            command: Vec::new(),
            config,
            state_dir: None,
            env: Vec::new(),
            env_pass: Vec::new(),
        })
    }

    /// What whoever held the session called its server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn records(&self) -> &Path {
        &self.records
    }

    pub(crate) const fn holder(&self) -> Holder {
        self.by
    }

    fn is_of(&self, record: &Record) -> bool {
        let run = record.key.run().map(|run| run.0.hex());
        run.as_ref() == Some(&self.id) && *record.key.place().server == *self.server
    }
}

impl Notes {
    /// Those in a state folder; none where nothing was ever kept.
    pub(crate) fn in_state(state: &Path) -> Outcome<Option<Self>> {
        let folder = state.join("runs");
        if !folder.is_dir() {
            return Ok(None);
        }
        let vault = Vault::in_folder(state)
            .map_err(|trouble| Problem::of_trouble(&trouble, Delivery::Unsent))?;
        Ok(Some(Self {
            folder,
            vault: Arc::new(vault),
        }))
    }

    /// Every run that is kept, by name. Notes whose records are gone are removed.
    pub(crate) async fn kept(&self) -> Outcome<Vec<Kept>> {
        let notes = self.all();
        let folders: BTreeSet<&PathBuf> = notes.iter().map(|(_, note)| &note.records).collect();
        let mut records = Vec::new();
        for folder in folders {
            records.extend(self.records(folder).await?);
        }
        let mut kept = Vec::new();
        for (file, note) in notes {
            match records.iter().find(|record| note.is_of(record)) {
                Some(record) => kept.push(Kept {
                    note,
                    opened_at: record.opened_at,
                    used_at: record.used_at.max(left_at(&file).unwrap_or(0)),
                }),
                // It may be gone already, and nobody is told of it again either way.
                None => drop(std::fs::remove_file(file)),
            }
        }
        kept.sort_by(|one, other| {
            let name = |kept: &Kept| (kept.note.run.clone(), kept.note.shown.clone());
            name(one).cmp(&name(other))
        });
        Ok(kept)
    }

    /// Whether the next command could still go on with what is noted. Then it stays noted.
    pub(crate) async fn still_has(&self, note: &Note) -> Outcome<bool> {
        let records = self.records(&note.records).await?;
        let has = records.iter().any(|record| note.is_of(record));
        if let Some(state) = self.folder.parent().filter(|_| has) {
            write_down(note, state, &self.vault);
        }
        Ok(has)
    }

    async fn records(&self, folder: &Path) -> Outcome<Vec<Record>> {
        let store = Arc::new(FileStore::in_folder(folder));
        let records = Records::new(store, Arc::clone(&self.vault), PATIENCE);
        let kept = records.kept().await;
        kept.map_err(|trouble| Problem::of_trouble(&trouble, Delivery::Unsent))
    }

    fn all(&self) -> Vec<(PathBuf, Note)> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten();
        let files = files.flatten().map(|entry| entry.path()).take(MOST);
        let read = |file: PathBuf| {
            let name = file.file_name()?.to_str()?.to_owned();
            let sealed = unhex(private::read(&file)?.trim())?;
            let plain = self
                .vault
                .unseal(Purpose::Note, name.as_bytes(), &sealed)
                .ok()?;
            let note = serde_json::from_slice(&plain).ok()?;
            Some((file, note))
        };
        files.filter_map(read).collect()
    }
}

/// Writes a note down. Where it stands already, only its time is new. Without it a run is kept all
/// the same.
pub(crate) fn write_down(note: &Note, state: &Path, vault: &Vault) {
    let file = file_of(note, state, vault);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let plain = serde_json::to_vec(note).unwrap_or_default();
    // Whoever was there last knows how it is reached now.
    let stands = private::read(&file).and_then(|text| unhex(text.trim()));
    let stands = stands.and_then(|it| vault.unseal(Purpose::Note, name.as_bytes(), &it).ok());
    if stands.is_some_and(|it| it[..] == plain[..]) && marked_as_left(&file) {
        return;
    }
    let written = match vault.seal(Purpose::Note, name.as_bytes(), &plain) {
        Ok(sealed) => private::replace(&file, &hex(&sealed)).map_err(|error| error.to_string()),
        Err(trouble) => Err(trouble.to_string()),
    };
    if let Err(error) = written {
        tracing::debug!(error, "the name of a kept run is not noted");
    }
}

/// Marks that somebody left the run just now, where that is noted already; says whether it is. A record is renewed once
/// in a while, which is too seldom for people, and to write a whole one for them is too much.
fn marked_as_left(file: &Path) -> bool {
    let Ok(opened) = OpenOptions::new().append(true).open(file) else {
        return false;
    };
    let now = UNIX_EPOCH + Duration::from_secs(clock::wall_seconds());
    if let Err(error) = opened.set_modified(now) {
        tracing::debug!(%error, "when a run was left is not noted");
    }
    true
}

/// When somebody left the run that is noted in a file, in seconds since 1970.
fn left_at(file: &Path) -> Option<u64> {
    let modified = std::fs::metadata(file).ok()?.modified().ok()?;
    Some(modified.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Takes a note back: the run is ended.
pub(crate) fn cross_out(note: &Note, state: &Path, vault: &Vault) {
    // It may never have been there.
    drop(std::fs::remove_file(file_of(note, state, vault)));
}

fn file_of(note: &Note, state: &Path, vault: &Vault) -> PathBuf {
    let parts = [note.id.as_bytes(), note.server.as_bytes()];
    let name = vault.digest(Purpose::Note, &parts).hex();
    state.join("runs").join(name)
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    Ok(folders()?.working.join(path))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect()
}

/// How long one record may take to read.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many notes are read at most.
const MOST: usize = 4_096;
