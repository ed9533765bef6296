//! Runs that commands left to their records: their names, and how each can be ended.
//!
//! A record knows its run by a digest alone. A note beside it knows the name, and how the command line
//! named the server. It is sealed like the record, because a URL may hold a secret, and it is valid
//! only as long as the record exists.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use warmline_core::delivery::Delivery;
use warmline_core::record::Record;
use warmline_engine::Caller;
use warmline_engine::admin::CallerAdmin as _;
use warmline_platform::{clock, private_file};
use warmline_store::keyring::{Keyring, Purpose};
use warmline_store::{FileStore, Records};

use crate::gateway_host::GatewayArgs;
use crate::output::{CliResult, Problem};
use crate::target::{ConnectArgs, Target, TargetArgs, TargetSpec, process_folders};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftoverRun {
    pub(crate) run: String,
    /// The server's name for people.
    #[serde(rename = "shown")]
    pub(crate) display_name: String,
    /// The working folder of the command.
    folder: PathBuf,
    /// The record's key of the run.
    #[serde(rename = "id")]
    run_digest: String,
    /// The holder's name of the server.
    pub(crate) server: String,
    pub(crate) records: PathBuf,
    #[serde(rename = "reached")]
    target: TargetAddress,
    #[serde(default, rename = "by")]
    pub(crate) holder: SessionHolder,
}

/// Who held the session, which decides whose it is: a header of the command line makes another caller
/// for a command, but not for a gateway, which knows one user only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SessionHolder {
    #[default]
    Command,
    Gateway,
    /// A client of `stdio`, whose server is reached as gateways reach it: they read its credential
    /// each time.
    #[serde(rename = "Pipe")]
    StdioClient,
}

#[derive(Debug)]
pub(crate) struct RunSessionInfo<'h> {
    pub(crate) holder: SessionHolder,
    pub(crate) run: &'h str,
    /// The holder's name of the server.
    pub(crate) server: &'h str,
    pub(crate) caller: &'h Caller,
    pub(crate) vault: &'h Keyring,
    pub(crate) records_folder: &'h Path,
}

/// How the command line named the server. No value of a header is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum TargetAddress {
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
    /// With `--header`, whose value is not kept.
    WithHeader,
}

#[derive(Debug)]
pub(crate) struct ResumableRun {
    pub(crate) leftover: LeftoverRun,
    pub(crate) opened_at: u64,
    pub(crate) used_at: u64,
}

#[derive(Debug)]
pub(crate) struct LeftoverRunStore {
    folder: PathBuf,
    vault: Arc<Keyring>,
}

impl LeftoverRun {
    /// The note of a session; none for a program, which leaves nothing.
    pub(crate) fn new(
        display_name: &str,
        spec: &TargetSpec,
        connect: &ConnectArgs,
        session: &RunSessionInfo<'_>,
    ) -> Option<Self> {
        let working = process_folders().ok()?.working;
        let absolute = |path: &PathBuf| working.join(path);
        let header_env = connect.header_env.clone();
        let target = match spec {
            TargetSpec::Command(_) => return None,
            _ if !connect.header.is_empty() => TargetAddress::WithHeader,
            TargetSpec::Name(name) => TargetAddress::Name {
                name: name.clone(),
                config: connect.config.as_ref().map(absolute),
                header_env,
            },
            TargetSpec::Url(url) => TargetAddress::Url {
                url: url.clone(),
                ca_file: connect.ca_file.as_ref().map(absolute),
                header_env,
            },
        };
        let caller = session.caller.digest();
        let parts: [&[u8]; 2] = [caller.as_bytes(), session.run.as_bytes()];
        Some(Self {
            run: session.run.to_owned(),
            display_name: display_name.to_owned(),
            run_digest: session.vault.digest(Purpose::Run, &parts).to_hex(),
            server: session.server.to_owned(),
            records: working.join(session.records_folder),
            folder: working,
            target,
            holder: session.holder,
        })
    }

    /// How the server was named, and the options beside it; none with `--header`.
    fn spec_and_args(&self) -> Option<(TargetSpec, ConnectArgs)> {
        let mut connect = ConnectArgs::default();
        let spec = match self.target.clone() {
            TargetAddress::Url {
                url,
                header_env,
                ca_file,
            } => {
                (connect.header_env, connect.ca_file) = (header_env, ca_file);
                TargetSpec::Url(url)
            },
            TargetAddress::Name {
                name,
                config,
                header_env,
            } => {
                (connect.header_env, connect.config) = (header_env, config);
                TargetSpec::Name(name)
            },
            TargetAddress::WithHeader => return None,
        };
        Some((spec, connect))
    }

    pub(crate) fn resolve_target(&self) -> CliResult<(Target, ConnectArgs)> {
        let parts = self.spec_and_args();
        let (spec, connect) = parts.ok_or_else(|| self.with_header_error())?;
        let target = Target::resolve(&spec, &connect);
        let target = target.map_err(|problem| self.with_folder_hint(problem))?;
        Ok((target, connect))
    }

    fn with_header_error(&self) -> Problem {
        let (run, server) = (&self.run, &self.display_name);
        let first = match self.holder {
            SessionHolder::Command => "",
            // Only there the session belongs to the caller that sends that header.
            SessionHolder::Gateway | SessionHolder::StdioClient => "`warmline up`, then ",
        };
        Problem::usage(format!(
            "the session of run `{run}` with `{server}` was opened with `--header`"
        ))
        .with_cause("the values of headers are not kept")
        .with_hint(format!(
            "{first}`warmline request SERVER ping --run {run} --header … --end-run`, with the same \
             server and header"
        ))
    }

    /// The file that declares the server may be in the folder where the run was begun.
    pub(crate) fn with_folder_hint(&self, problem: Problem) -> Problem {
        let folder = self.folder.display();
        match self.target {
            TargetAddress::Name { .. } => {
                problem.with_hint(format!("the run was begun in {folder}: end it there"))
            },
            TargetAddress::Url { .. } | TargetAddress::WithHeader => problem,
        }
    }

    /// The server as a gateway would serve it; none if options were given with it.
    pub(crate) fn to_gateway_args(&self) -> Option<GatewayArgs> {
        let (spec, connect) = self.spec_and_args()?;
        let (TargetSpec::Url(word) | TargetSpec::Name(word)) = spec else {
            return None;
        };
        let has_options = !connect.header_env.is_empty() || connect.ca_file.is_some();
        (!has_options).then(|| GatewayArgs {
            target: TargetArgs {
                words: vec![word],
                command: Vec::new(),
            },
            config: connect.config,
            ..GatewayArgs::default()
        })
    }

    fn matches_record(&self, record: &Record) -> bool {
        let run = record.key.run().map(|run| run.0.to_hex());
        run.as_ref() == Some(&self.run_digest) && *record.key.target.server == *self.server
    }
}

impl LeftoverRunStore {
    /// The notes in a state folder; none if nothing was ever kept there.
    pub(crate) fn in_state_folder(state: &Path) -> CliResult<Option<Self>> {
        let folder = state.join("runs");
        if !folder.is_dir() {
            return Ok(None);
        }
        let vault = Keyring::in_folder(state)
            .map_err(|diagnostic| Problem::from_diagnostic(&diagnostic, Delivery::Unsent))?;
        Ok(Some(Self {
            folder,
            vault: Arc::new(vault),
        }))
    }

    /// Every resumable run, by name. Notes without a record are removed.
    pub(crate) async fn list_resumable(&self) -> CliResult<Vec<ResumableRun>> {
        let notes = self.read_all();
        let folders: BTreeSet<&PathBuf> = notes.iter().map(|(_, note)| &note.records).collect();
        let mut records = Vec::new();
        for folder in folders {
            records.extend(self.read_records(folder).await?);
        }
        let mut resumable = Vec::new();
        for (file, note) in notes {
            match records.iter().find(|record| note.matches_record(record)) {
                Some(record) => resumable.push(ResumableRun {
                    leftover: note,
                    opened_at: record.opened_at,
                    used_at: record.last_used_at.max(left_at(&file).unwrap_or(0)),
                }),
                // It may be gone already.
                None => drop(std::fs::remove_file(file)),
            }
        }
        resumable.sort_by(|one: &ResumableRun, other| {
            let name = |run: &LeftoverRun| (run.run.clone(), run.display_name.clone());
            name(&one.leftover).cmp(&name(&other.leftover))
        });
        Ok(resumable)
    }

    /// Whether the next command could still resume the session. Then its note stays.
    pub(crate) async fn has_record(&self, note: &LeftoverRun) -> CliResult<bool> {
        let records = self.read_records(&note.records).await?;
        let has = records.iter().any(|record| note.matches_record(record));
        if let Some(state) = self.folder.parent().filter(|_| has) {
            save(note, state, &self.vault);
        }
        Ok(has)
    }

    async fn read_records(&self, folder: &Path) -> CliResult<Vec<Record>> {
        let store = Arc::new(FileStore::in_folder(folder));
        let records = Records::new(store, Arc::clone(&self.vault), READ_TIMEOUT);
        let listed = records.list().await;
        listed.map_err(|diagnostic| Problem::from_diagnostic(&diagnostic, Delivery::Unsent))
    }

    fn read_all(&self) -> Vec<(PathBuf, LeftoverRun)> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten();
        let files = files.flatten().map(|entry| entry.path()).take(MAX_NOTES);
        let read = |file: PathBuf| {
            let plain = unseal(&file, &self.vault)?;
            Some((file, serde_json::from_slice(&plain).ok()?))
        };
        files.filter_map(read).collect()
    }
}

fn unseal(file: &Path, vault: &Keyring) -> Option<Vec<u8>> {
    let name = file.file_name()?.to_str()?;
    let sealed = decode_hex(private_file::read(file)?.trim())?;
    vault.unseal(Purpose::Note, name.as_bytes(), &sealed).ok()
}

/// Writes a note, or renews the time of the same note. A run is kept without it too.
pub(crate) fn save(note: &LeftoverRun, state: &Path, vault: &Keyring) {
    let file = note_path(note, state, vault);
    let plain = serde_json::to_vec(note).unwrap_or_default();
    if unseal(&file, vault).is_some_and(|old| old == plain) && update_left_time(&file) {
        return;
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let written = match vault.seal(Purpose::Note, name.as_bytes(), &plain) {
        Ok(sealed) => {
            private_file::replace(&file, &encode_hex(&sealed)).map_err(|error| error.to_string())
        },
        Err(diagnostic) => Err(diagnostic.to_string()),
    };
    if let Err(error) = written {
        tracing::debug!(error, "cannot note a leftover run");
    }
}

/// Sets the time of a note. Records are renewed too seldom to tell people when a run was left.
fn update_left_time(file: &Path) -> bool {
    let Ok(opened) = OpenOptions::new().append(true).open(file) else {
        return false;
    };
    let now = UNIX_EPOCH + Duration::from_secs(clock::wall_seconds());
    if let Err(error) = opened.set_modified(now) {
        tracing::debug!(%error, "cannot note when a run was left");
    }
    true
}

fn left_at(file: &Path) -> Option<u64> {
    let modified = std::fs::metadata(file).ok()?.modified().ok()?;
    Some(modified.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

pub(crate) fn delete(note: &LeftoverRun, state: &Path, vault: &Keyring) {
    drop(std::fs::remove_file(note_path(note, state, vault)));
}

fn note_path(note: &LeftoverRun, state: &Path, vault: &Keyring) -> PathBuf {
    let parts = [note.run_digest.as_bytes(), note.server.as_bytes()];
    let name = vault.digest(Purpose::Note, &parts).to_hex();
    state.join("runs").join(name)
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect()
}

const READ_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_NOTES: usize = 4_096;
