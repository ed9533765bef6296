//! What shall be served: targets that were typed, or what the configuration says, read as often as
//! it changes.

use std::net::SocketAddr;
use std::path::PathBuf;

use warmline::Server;
use warmline::config::{Access, Config, Configured, Folders, plain_name};
use warmline::settings::{AuthWord, OpsListen, ProcessVariables};
use warmline::trust::TrustStore;
use warmline_gateway::reload::Wanted;
use warmline_gateway::settings::Accesses;

use crate::args::{Connect, Served};
use crate::problem::{Outcome, Problem};
use crate::target::{Aim, General, Target, aim_of, folders};

/// What shall be served, and what the command line says about it.
#[derive(Debug)]
pub(crate) struct Source {
    aims: Vec<Aim>,
    config: Option<PathBuf>,
    listen: Option<SocketAddr>,
    auth: Option<AuthWord>,
    ops: Option<OpsListen>,
    admin: Option<PathBuf>,
    least: Least,
    folders: Folders,
}

/// Whether there has to be something to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Least {
    One,
    Nothing,
}

/// A configuration as it was read, and whom of the working folder somebody trusted.
struct Read<'c> {
    config: &'c Config,
    store: &'c TrustStore,
}

/// Servers to be served, each with what its declaration says about callers.
#[derive(Default)]
struct Chosen(Vec<(Server, Access)>);

impl Chosen {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known.name() == name)
    }

    fn add(&mut self, server: Server, access: Access) {
        self.0.push((server, access));
    }

    fn into_parts(self) -> (Vec<Server>, Accesses) {
        let said = self.0.iter().filter(|(_, access)| !access.is_nothing());
        let named = said.map(|(server, access)| (server.name().to_owned(), access.clone()));
        let accesses = named.collect();
        let servers = self.0.into_iter().map(|(server, _)| server);
        (servers.collect(), accesses)
    }
}

impl Source {
    pub(crate) fn of(typed: &Served) -> Outcome<Self> {
        let aims: Outcome<Vec<Aim>> = typed.words.iter().map(|word| aim_of(word)).collect();
        let mut aims = aims?;
        if !typed.command.is_empty() {
            aims.push(Aim::Command(typed.command.clone()));
        }
        Ok(Self {
            aims,
            config: typed.config.clone(),
            listen: None,
            auth: None,
            ops: None,
            admin: None,
            least: Least::One,
            folders: folders()?,
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
            config,
            listen: None,
            auth: None,
            ops: None,
            admin: None,
            least: Least::Nothing,
            folders: Folders { working, ..folders },
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
    pub(crate) fn read(&self) -> Outcome<(Wanted, Vec<String>)> {
        let store = TrustStore::in_state_folder(self.folders.state.as_deref());
        let config = Config::read(self.config.as_deref(), &self.folders)?;
        let read = Read {
            config: &config,
            store: &store,
        };
        let cautions = read.untrusted()?;
        let (servers, accesses) = match self.aims.as_slice() {
            [] => read.all(self.least)?,
            aims => read.chosen(aims)?,
        }
        .into_parts();
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
        let wanted = Wanted {
            servers,
            engine,
            gateway,
            accesses,
        };
        Ok((wanted, cautions))
    }
}

impl Read<'_> {
    /// Files of the working folder that nobody looked at yet are left out, and that is told. One
    /// that was trusted and has changed is an error: what it said before must not vanish.
    fn untrusted(&self) -> Outcome<Vec<String>> {
        let mut cautions = Vec::new();
        for file in self.config.files() {
            if let Err(error) = file.trusted(self.store) {
                if self.store.knows(file.path()) {
                    return Err(error.into());
                }
                let path = file.path().display();
                let caution = format!("{path} is not trusted, and not used: `warmline trust`");
                cautions.push(caution);
            }
        }
        Ok(cautions)
    }

    /// Every server of every trusted file, the nearest of each name.
    fn all(&self, least: Least) -> Outcome<Chosen> {
        let mut servers = Chosen::default();
        for file in self.config.files() {
            let Ok(trusted) = file.trusted(self.store) else {
                continue;
            };
            for declaration in file.declarations() {
                if !servers.has(&declaration.name) {
                    let server = trusted.served(declaration, &ProcessVariables, &None)?;
                    servers.add(server, declaration.access.clone());
                }
            }
        }
        if servers.0.is_empty() && least == Least::One {
            return Err(self.nothing());
        }
        Ok(servers)
    }

    /// Why there is nothing to serve.
    fn nothing(&self) -> Problem {
        let untrusted = self.config.files().iter();
        let mut untrusted = untrusted.filter_map(|file| file.trusted(self.store).err());
        match untrusted.next() {
            Some(error) => error.into(),
            None => Problem::usage("there is nothing to serve: no server is configured").hint(
                "give a URL, or a command behind `--`; or write a `warmline.toml`: `warmline init`",
            ),
        }
    }

    /// The servers that were typed.
    fn chosen(&self, aims: &[Aim]) -> Outcome<Chosen> {
        let general = match aims {
            [_] => General::Speaks,
            _ => General::Silent,
        };
        let mut servers = Chosen::default();
        for aim in aims {
            let (server, access) = match aim {
                Aim::Name(name) => self.named(name)?,
                Aim::Url(_) | Aim::Command(_) => {
                    let taken = |name: &str| servers.has(name);
                    (typed(aim, general, taken)?, Access::default())
                },
            };
            if !servers.has(server.name()) {
                servers.add(server, access);
            }
        }
        Ok(servers)
    }

    fn named(&self, name: &str) -> Outcome<(Server, Access)> {
        let (file, declaration) = self.config.find(name, self.store)?;
        let trusted = file.trusted(self.store)?;
        let server = trusted.served(declaration, &ProcessVariables, &None)?;
        Ok((server, declaration.access.clone()))
    }
}

/// A server that no file declares, under a name of its own.
fn typed(aim: &Aim, general: General, taken: impl Fn(&str) -> bool) -> Outcome<Server> {
    let target = Target::find_among(aim, &Connect::default(), general)?;
    let mut server = target.server;
    let plain = plain_name(&server.name).unwrap_or_else(|| "server".to_owned());
    let another = |number: usize| {
        let short: String = plain.chars().take(20).collect();
        format!("{short}-{number}")
    };
    let mut names = std::iter::once(plain.clone()).chain((2..).map(another));
    server.name = names.find(|name| !taken(name)).unwrap_or(plain);
    Ok(Server::from(Configured {
        server,
        settings: target.settings,
    }))
}
