//! The run a command belongs to: its name, where it is kept until the next command, what then.
//!
//! Asked by: `call`, `request` and `tools`.  Told by: `--run`, or by whoever started us, with
//! `WARMLINE_RUN`.

use std::fmt;
use std::path::{Path, PathBuf};

use warmline::Run;
use warmline::config::plain_name;
use warmline::settings::{process_text, run_from_env};

use crate::args::{Connect, Together};
use crate::kept::{Holder, Note};
use crate::problem::{Outcome, Problem};
use crate::target::{Target, folders, records_in};

/// The run a command belongs to.
#[derive(Clone, Debug)]
pub(crate) struct ChosenRun {
    pub(crate) name: String,
    pub(crate) then: Then,
    state_dir: Option<PathBuf>,
    /// Where its record is, if somebody knows.
    records: Option<PathBuf>,
    /// What its record calls the server, if somebody knows.
    server: Option<String>,
    /// What was typed about reaching the server.
    typed: Connect,
    /// What was typed about who is asking: it splits one person's runs.
    asking_as: Vec<String>,
    inside: Option<Surrounding>,
}

/// The gateway of the program that started us, if `warmline run` is around it.
#[derive(Clone)]
pub(crate) struct Surrounding {
    /// What URLs of the run begin with.
    pub(crate) url: String,
    /// What lets us in.
    pub(crate) token: String,
    /// The names of the servers that it serves.
    pub(crate) servers: Vec<String>,
}

impl fmt::Debug for Surrounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surrounding")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What becomes of the run after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next command may go on with it.
    GoesOn,
    /// It is over, and its session is closed.
    Ends,
}

/// Where runs are kept between commands.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    /// The folder of the secrets that seal records.
    pub(crate) secrets: PathBuf,
    /// The folder of the records.
    pub(crate) records: PathBuf,
}

impl ChosenRun {
    /// The run that was named, if one was.
    pub(crate) fn of(typed: &Together, connect: &Connect) -> Outcome<Option<Self>> {
        let (named_by, name) = match (&typed.run, run_from_env()?) {
            (Some(name), _) => ("--run", name.clone()),
            (None, Some(name)) => ("WARMLINE_RUN", name),
            (None, None) if typed.end_run => {
                return Err(Problem::usage("`--end-run` is given, and no run is named")
                    .hint("name it with --run NAME"));
            },
            (None, None) => return Ok(None),
        };
        Run::check_name(&name).map_err(|error| {
            let shown: String = name.chars().take(40).collect();
            let what = format!(
                "`{}` of {named_by} cannot be the name of a run",
                shown.escape_debug()
            );
            Problem::usage(what).hint(error.hint().unwrap_or_default())
        })?;
        let inside = surrounding(&name)?.filter(|_| is_plain(typed, connect));
        Ok(Some(Self {
            name,
            then: if typed.end_run {
                Then::Ends
            } else {
                Then::GoesOn
            },
            state_dir: typed.state_dir.clone(),
            records: None,
            server: None,
            typed: connect.clone(),
            asking_as: asking_as(connect),
            inside,
        }))
    }

    /// A run that somebody left, to be ended.
    pub(crate) fn to_end(note: &Note, state: &Path, typed: Connect) -> Self {
        Self {
            name: note.run.clone(),
            then: Then::Ends,
            state_dir: Some(state.to_owned()),
            records: Some(note.records().to_owned()),
            server: Some(note.server().to_owned()),
            asking_as: match note.holder() {
                Holder::Command => asking_as(&typed),
                Holder::Gateway | Holder::Pipe => Vec::new(),
            },
            typed,
            inside: None,
        }
    }

    /// The plain name of the server: what the record of the run calls it, or what it would be
    /// called.
    pub(crate) fn plain(&self, target: &Target) -> String {
        let known = self.server.clone();
        let known = known.or_else(|| plain_name(&target.server.name));
        known.unwrap_or_else(|| "server".to_owned())
    }

    /// The state folder, if there is one.
    pub(crate) fn state(&self) -> Outcome<Option<PathBuf>> {
        match &self.state_dir {
            Some(typed) => Ok(Some(typed.clone())),
            None => Ok(folders()?.state),
        }
    }

    /// Where the run is kept: the folder that was typed, that of the settings, or the usual one.
    pub(crate) fn keeping(&self, target: &Target) -> Outcome<Keeping> {
        let Some(state) = self.state()? else {
            return Err(Problem::usage(
                "there is no folder to keep a run in: this user has no home",
            )
            .hint("name one with --state-dir FOLDER"));
        };
        let set = target.engine.store.clone();
        let set = set.filter(|_| self.state_dir.is_none());
        let records = self.records.clone().or(set);
        Ok(Keeping {
            records: records.unwrap_or_else(|| records_in(&state)),
            secrets: state,
        })
    }

    /// The gateway around the program that started us, if this is its run.
    pub(crate) fn inside(&self) -> Option<&Surrounding> {
        self.inside.as_ref()
    }

    /// What was typed about reaching the server.
    pub(crate) fn typed(&self) -> &Connect {
        &self.typed
    }

    /// What tells one asker from another beside the user; nothing, where nothing was typed.
    pub(crate) fn asking_as(&self) -> &[String] {
        &self.asking_as
    }
}

/// The run of the program that started us, if `warmline run` is around it: a gateway of its own has
/// it, and ends it with the program.
pub(crate) fn run_around() -> Outcome<Option<String>> {
    let Some(name) = run_from_env()? else {
        return Ok(None);
    };
    Ok(surrounding(&name)?.map(|_| name))
}

/// The gateway around the program that started us, if the run is the one it was started for.
fn surrounding(run: &str) -> Outcome<Option<Surrounding>> {
    let (url, token) = (
        process_text("WARMLINE_URL")?,
        process_text("WARMLINE_TOKEN")?,
    );
    let servers = process_text("WARMLINE_SERVERS")?.unwrap_or_default();
    let url = url.filter(|url| url.ends_with(&format!("/runs/{run}")));
    Ok(url.zip(token).map(|(url, token)| Surrounding {
        url,
        token,
        servers: servers.split(' ').map(str::to_owned).collect(),
    }))
}

/// Whether nothing was typed that the gateway around us knows nothing of.
fn is_plain(typed: &Together, connect: &Connect) -> bool {
    let words = [
        &connect.header,
        &connect.header_env,
        &connect.env,
        &connect.env_pass,
    ];
    let paths = [
        &connect.config,
        &connect.ca_file,
        &connect.cwd,
        &typed.state_dir,
    ];
    words.iter().all(|words| words.is_empty()) && paths.iter().all(|path| path.is_none())
}

/// A header that was typed says who is asking, by its value or by the variable it comes from:
/// another one must never be shown the same session.
fn asking_as(connect: &Connect) -> Vec<String> {
    let typed = connect
        .header
        .iter()
        .map(|header| format!("header {header}"));
    let named = connect.header_env.iter().map(|name| format!("env {name}"));
    typed.chain(named).collect()
}
