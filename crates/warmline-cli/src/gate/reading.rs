//! Which servers a configuration gives: what cannot be used is left out and told, unless it is in
//! use already or has to be there.
//!
//! Asked by: [`Source`](super::Source).

use std::path::PathBuf;

use warmline::Server;
use warmline::config::{
    Access, Config, ConfigError, ConfigFile, Configured, Declaration, LeftOut, Origin, Trusted,
    plain_name,
};
use warmline::settings::ProcessVariables;
use warmline::trust::TrustStore;
use warmline::upstream::{self, Reach};
use warmline_gateway::settings::Accesses;

use super::source::{Least, Seen};
use crate::args::Connect;
use crate::problem::{Outcome, Problem};
use crate::program::Sought;
use crate::target::{Aim, General, Target};

/// A configuration as it was read, and whom of the working folder somebody trusted.
pub(super) struct Read<'c> {
    pub(super) config: &'c Config,
    pub(super) store: &'c TrustStore,
    pub(super) seen: &'c Seen,
    /// What was typed for the command behind `--`.
    pub(super) beside: &'c Connect,
}

/// Servers to be served, each with what its declaration says about callers.
#[derive(Default)]
pub(super) struct Chosen {
    servers: Vec<(Server, Access)>,
    /// Names of those that have all they need.
    pub(super) complete: Vec<String>,
    /// What somebody should know of them.
    pub(super) cautions: Vec<String>,
    /// Those that no file declares.
    pub(super) typed: Vec<(String, Served)>,
}

/// How somebody named a server that is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// What people call it.
    pub(crate) shown: String,
    pub(crate) aim: Aim,
}

impl Chosen {
    fn has(&self, name: &str) -> bool {
        self.servers.iter().any(|(known, _)| known.name() == name)
    }

    fn add(&mut self, server: Server, access: Access) {
        self.servers.push((server, access));
    }

    /// Says so where the program of a server is not there. It may come, and the login shell may
    /// know it: so it is served all the same.
    fn look_at(&mut self, server: &upstream::Server) {
        if let Reach::Stdio(stdio) = &server.reach
            && let Sought::Missing(says) = Sought::of(stdio)
        {
            let caution = format!("`{}` may not start: {says}", server.name);
            self.cautions.push(caution);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Server>, Accesses) {
        let said = self.servers.iter();
        let said = said.filter(|(_, access)| !access.is_nothing());
        let named = said.map(|(server, access)| (server.name().to_owned(), access.clone()));
        let accesses = named.collect();
        let servers = self.servers.into_iter().map(|(server, _)| server);
        (servers.collect(), accesses)
    }
}

impl Read<'_> {
    /// Files of the working folder that nobody looked at as they are now: they are left out, and
    /// that is told. One that is in use is an error: what it said before must not vanish.
    pub(super) fn untrusted(&self) -> Outcome<Vec<String>> {
        let mut cautions = Vec::new();
        for file in self.config.files() {
            let Err(error) = file.trusted(self.store) else {
                continue;
            };
            let path = file.path();
            if self.seen.files.iter().any(|seen| seen == path) {
                return Err(error.into());
            }
            let why = match self.store.knows(path) {
                true => "changed since it was trusted",
                false => "is not trusted",
            };
            let path = path.display();
            cautions.push(format!("{path} {why}, and is not used: `warmline trust`"));
        }
        for LeftOut { path, error, .. } in self.config.left_out() {
            if self.seen.files.contains(path) {
                return Err(error.clone().into());
            }
            let path = path.display();
            cautions.push(format!(
                "{path} is not trusted, has a mistake, and is not used: `warmline check`"
            ));
        }
        Ok(cautions)
    }

    /// Files of the working folder that count.
    pub(super) fn trusted_of_the_folder(&self) -> Vec<PathBuf> {
        let files = self.config.files().iter();
        let counting =
            files.filter(|file| file.origin() == Origin::Folder && file.is_trusted(self.store));
        counting.map(|file| file.path().to_owned()).collect()
    }

    /// Every server of every trusted file, the nearest of each name.
    pub(super) fn all(&self, least: Least) -> Outcome<Chosen> {
        let mut chosen = Chosen::default();
        let mut known: Vec<&str> = Vec::new();
        let mut first = None;
        for file in self.config.files() {
            let Ok(trusted) = file.trusted(self.store) else {
                continue;
            };
            for declaration in file.declarations() {
                if known.contains(&declaration.name.as_str()) {
                    continue;
                }
                known.push(&declaration.name);
                if let Err(error) = self.take(trusted, declaration, &mut chosen)? {
                    first = first.or(Some(error));
                }
            }
        }
        match first {
            _ if !chosen.servers.is_empty() || least == Least::Nothing => Ok(chosen),
            Some(error) => Err(error.into()),
            None => Err(self.nothing()),
        }
    }

    /// Takes a server in; one that wants a variable that is not set is left out, and told, unless
    /// it must not be missing.
    fn take(
        &self,
        trusted: Trusted<'_>,
        declaration: &Declaration,
        chosen: &mut Chosen,
    ) -> Outcome<Result<(), ConfigError>> {
        let name = &declaration.name;
        let policy = trusted.settings(declaration)?.policy;
        let unset = trusted.unset(declaration, &ProcessVariables)?;
        let unset: Vec<String> = unset.iter().map(|name| format!("`{name}`")).collect();
        let missing = match unset.as_slice() {
            [one] => format!("{one} is not set"),
            all => format!("{} are not set", all.join(", ")),
        };
        let is_in_use = self.seen.servers.contains(name);
        match trusted.served(declaration, &ProcessVariables, &None) {
            Ok(server) => {
                if policy.enabled && !unset.is_empty() {
                    if self.seen.complete.contains(name) {
                        // It says which token is missing now.
                        trusted.server(declaration, &ProcessVariables)?;
                    }
                    let caution = format!("`{name}` has no token to show: {missing}");
                    chosen.cautions.push(caution);
                } else {
                    chosen.complete.push(name.clone());
                }
                chosen.add(server, declaration.access.clone());
                if policy.enabled
                    && let Ok(configured) = trusted.server(declaration, &ProcessVariables)
                {
                    chosen.look_at(&configured.server);
                }
                Ok(Ok(()))
            },
            Err(error) => {
                if unset.is_empty() || policy.required || is_in_use {
                    return Err(error.into());
                }
                let caution = format!("`{name}` is left out: {missing}");
                chosen.cautions.push(caution);
                Ok(Err(error))
            },
        }
    }

    /// Why there is nothing to serve.
    fn nothing(&self) -> Problem {
        let untrusted = self.config.files().iter();
        let untrusted = untrusted.filter_map(|file| file.trusted(self.store).err());
        let broken = self.config.left_out().iter().map(|left| left.error.clone());
        match untrusted.chain(broken).next() {
            Some(error) => error.into(),
            None => Problem::usage("there is nothing to serve: no server is configured").hint(
                "`warmline add NAME URL` adds one, or `warmline add NAME -- COMMAND`; `warmline init` takes over those of desktop clients",
            ),
        }
    }

    /// The servers that were typed.
    pub(super) fn chosen(&self, aims: &[Aim]) -> Outcome<Chosen> {
        let general = match aims {
            [_] => General::Speaks,
            _ => General::Silent,
        };
        let mut chosen = Chosen::default();
        for aim in aims {
            match aim {
                Aim::Name(name) => self.named(name, &mut chosen)?,
                Aim::Url(_) => typed(aim, &Connect::default(), general, &mut chosen)?,
                Aim::Command(_) => typed(aim, self.beside, general, &mut chosen)?,
            }
        }
        Ok(chosen)
    }

    fn named(&self, name: &str, chosen: &mut Chosen) -> Outcome<()> {
        let (file, declaration): (&ConfigFile, &Declaration) =
            self.config.find(name, self.store)?;
        let trusted = file.trusted(self.store)?;
        if chosen.has(&declaration.name) {
            return Ok(());
        }
        // Whoever names a server wants it, and not the others alone.
        self.take(trusted, declaration, chosen)??;
        Ok(())
    }
}

/// A server that no file declares, under a name of its own.
fn typed(aim: &Aim, beside: &Connect, general: General, chosen: &mut Chosen) -> Outcome<()> {
    let target = Target::find_among(aim, beside, general)?;
    let mut server = target.server;
    let served = Served {
        shown: server.name.clone(),
        aim: aim.clone(),
    };
    let plain = plain_name(&server.name).unwrap_or_else(|| "server".to_owned());
    let another = |number: usize| {
        let short: String = plain.chars().take(20).collect();
        format!("{short}-{number}")
    };
    let mut names = std::iter::once(plain.clone()).chain((2..).map(another));
    server.name = names.find(|name| !chosen.has(name)).unwrap_or(plain);
    chosen.typed.push((server.name.clone(), served));
    chosen.look_at(&server);
    let configured = Configured {
        server,
        settings: target.settings,
    };
    chosen.add(Server::from(configured), Access::default());
    Ok(())
}
