//! What shall be served: targets that were typed, or what the configuration says, read as often as
//! it changes.

use std::net::SocketAddr;
use std::path::PathBuf;

use warmline::config::{Config, Folders};
use warmline::settings::{AuthWord, OpsListen};
use warmline::trust::TrustStore;
use warmline_gateway::reload::Wanted;

use super::reading::{Read, Served};
use crate::args::{self, Connect};
use crate::problem::{Outcome, Problem, first_of_all};
use crate::target::{Aim, aim_of, folders};

/// What shall be served, and what the command line says about it.
#[derive(Debug)]
pub(crate) struct Source {
    aims: Vec<Aim>,
    /// What was typed for the command behind `--`.
    beside: Connect,
    config: Option<PathBuf>,
    listen: Option<SocketAddr>,
    auth: Option<AuthWord>,
    ops: Option<OpsListen>,
    admin: Option<PathBuf>,
    least: Least,
    folders: Folders,
    seen: Seen,
    /// Servers that no file declares, by the names that they are served under.
    typed: Vec<(String, Served)>,
}

/// What the configuration said when it was last read. What is in use must not vanish by a slip of
/// the hand: what would stop nobody at a start is an error then.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Files of the working folder that counted.
    pub(super) files: Vec<PathBuf>,
    /// Servers that are served.
    pub(super) servers: Vec<String>,
    /// Those that had all they need.
    pub(super) complete: Vec<String>,
}

/// Whether there has to be something to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Least {
    One,
    Nothing,
}

impl Source {
    pub(crate) fn of(typed: &args::Served) -> Outcome<Self> {
        let aims: Outcome<Vec<Aim>> = typed.words.iter().map(|word| aim_of(word)).collect();
        let mut aims = aims?;
        if !typed.command.is_empty() {
            aims.push(Aim::Command(typed.command.clone()));
        }
        Ok(Self {
            aims,
            beside: beside(typed)?,
            config: typed.config.clone(),
            listen: None,
            auth: None,
            ops: None,
            admin: None,
            least: Least::One,
            folders: folders()?,
            seen: Seen::default(),
            typed: Vec::new(),
        })
    }

    /// What the user's and the system's files say, or the one that is named, and be it nothing:
    /// the working folder has no word here.
    pub(crate) fn of_user(config: Option<PathBuf>) -> Outcome<Self> {
        let folders = folders()?;
        // Files are looked for beside those of the user, where none of a project lie.
        let working = folders
            .user
            .clone()
            .unwrap_or_else(|| folders.system.clone());
        Ok(Self {
            aims: Vec::new(),
            beside: Connect::default(),
            config,
            listen: None,
            auth: None,
            ops: None,
            admin: None,
            least: Least::Nothing,
            folders: Folders { working, ..folders },
            seen: Seen::default(),
            typed: Vec::new(),
        })
    }

    /// The same, listening where the command line says, and asking who somebody is as it says.
    pub(crate) fn listening(mut self, listen: Option<SocketAddr>, auth: Option<AuthWord>) -> Self {
        (self.listen, self.auth) = (listen, auth);
        self
    }

    /// The same, watched and looked after where the command line says.
    pub(crate) fn watched(mut self, ops: Option<OpsListen>, admin: Option<PathBuf>) -> Self {
        (self.ops, self.admin) = (ops, admin);
        self
    }

    /// Whether files alone say what is served, and where.
    pub(crate) fn goes_by_files(&self) -> bool {
        let named = self.aims.iter().all(|aim| matches!(aim, Aim::Name(_)));
        named && self.listen.is_none()
    }

    /// How somebody named a server that is served.
    pub(crate) fn served(&self, name: &str) -> Served {
        let typed = self.typed.iter().find(|(served, _)| served == name);
        match typed {
            Some((_, served)) => served.clone(),
            None => Served {
                shown: name.to_owned(),
                aim: Aim::Name(name.to_owned()),
            },
        }
    }

    /// Files that count, or would if they were there.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        match &self.config {
            Some(given) => vec![given.clone()],
            None => {
                let places = self.folders.places().into_iter();
                places.map(|(path, _)| path).collect()
            },
        }
    }

    /// What is wanted now, and what somebody should know about it.
    pub(crate) fn read(&mut self) -> Outcome<(Wanted, Vec<String>)> {
        let store = TrustStore::in_state_folder(self.folders.state.as_deref());
        let config = Config::read_to_use(self.config.as_deref(), &self.folders, &store);
        let config = config.map_err(first_of_all)?;
        let read = Read {
            config: &config,
            store: &store,
            seen: &self.seen,
            beside: &self.beside,
        };
        let mut cautions = read.untrusted()?;
        let chosen = match self.aims.as_slice() {
            [] => read.all(self.least)?,
            aims => read.chosen(aims)?,
        };
        cautions.extend(chosen.cautions.iter().cloned());
        self.typed.clone_from(&chosen.typed);
        let files = read.trusted_of_the_folder();
        let complete = chosen.complete.clone();
        let (servers, accesses) = chosen.into_parts();
        let mut engine = config.engine(&store);
        engine.take_process_environment()?;
        engine.settle()?;
        let mut gateway = config.gateway(&store);
        gateway.take_process_environment()?;
        if let Some(listen) = self.listen {
            gateway.listen = listen;
            gateway.built("gateway.listen");
        }
        if let Some(auth) = self.auth {
            gateway.auth = auth;
            gateway.built("gateway.auth");
        }
        if let Some(ops) = self.ops {
            gateway.ops = ops;
            gateway.built("ops.listen");
        }
        if let Some(admin) = &self.admin {
            gateway.admin = Some(admin.clone());
            gateway.built("admin.socket");
        }
        gateway.settle()?;
        self.seen = Seen {
            files,
            servers: servers.iter().map(|one| one.name().to_owned()).collect(),
            complete,
        };
        let wanted = Wanted {
            servers,
            engine,
            gateway,
            accesses,
        };
        Ok((wanted, cautions))
    }
}

/// Variables that were typed for the command behind `--`: there has to be one.
fn beside(typed: &args::Served) -> Outcome<Connect> {
    let given = [
        (!typed.env.is_empty(), "--env"),
        (!typed.env_pass.is_empty(), "--env-pass"),
    ];
    let given = given.iter().find(|(is_given, _)| *is_given);
    if let Some((_, option)) = given.filter(|_| typed.command.is_empty()) {
        let what = format!("`{option}` is for a command behind `--`, and there is none");
        return Err(Problem::usage(what).hint(
            "a server of a file has its variables there: `env_pass = [\"NAME\"]`, or `env`",
        ));
    }
    Ok(Connect {
        env: typed.env.clone(),
        env_pass: typed.env_pass.clone(),
        ..Connect::default()
    })
}
