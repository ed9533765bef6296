//! Servers that our own user handed in: each under one name, for as long as it is used.
//!
//! Asked by: [`joining`](super::joining).  A program is started in the folder and with the
//! variables of the command that first used it in its run; later commands of that run get that
//! process, from wherever they come. Commands of another run that come from elsewhere get a
//! process of their own, under another name.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use warmline::config::{Handed, plain_name};
use warmline::core::code::Reason;
use warmline::core::exchange::Trouble;
use warmline::core::key::Digest;
use warmline::{Error, IdentityHandle, Result, Server, Warmline};

/// Most servers that are handed in at a time.
const MOST: usize = 256;

/// Whether servers may be handed in while the gateway runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handing {
    /// What is configured is all there is.
    #[default]
    Refused,
    /// By our own user: a command that they typed is one that they could have started.
    Taken,
}

/// The servers that were handed in.
pub(crate) struct Registry {
    handing: Handing,
    all: Mutex<Vec<Entered>>,
}

/// A server that was handed in.
struct Entered {
    name: String,
    meant: Digest,
    whole: Digest,
    /// What was decided about it last.
    decided: Digest,
    server: Server,
    /// Commands that are about to use it.
    awaited: usize,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("handing", &self.handing)
            .finish_non_exhaustive()
    }
}

/// A name that stays what it is until this is dropped.
pub(crate) struct Awaited<'r> {
    pub(crate) name: String,
    registry: &'r Registry,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut all = self.registry.all.lock();
        if let Some(entered) = all.iter_mut().find(|entered| entered.name == self.name) {
            entered.awaited = entered.awaited.saturating_sub(1);
        }
    }
}

impl Registry {
    pub(crate) fn new(handing: Handing) -> Self {
        Self {
            handing,
            all: Mutex::default(),
        }
    }

    /// Whether anything may be handed in.
    pub(crate) fn takes(&self) -> bool {
        self.handing == Handing::Taken
    }

    /// These servers and those that were handed in, which win where both have a name.
    pub(crate) fn beside(&self, configured: Vec<Server>) -> Vec<Server> {
        let all = self.all.lock();
        let handed = all.iter().map(|entered| entered.server.clone());
        let is_free = |server: &Server| all.iter().all(|entered| entered.name != server.name());
        let mut servers: Vec<Server> = configured.into_iter().filter(is_free).collect();
        servers.extend(handed);
        servers
    }

    /// The name of a server that is handed in for a run, taken in where it is not there yet.
    pub(crate) fn enter(
        &self,
        handed: &Handed,
        run: &str,
        (warm, identity): (&Warmline, &IdentityHandle),
    ) -> Result<Awaited<'_>> {
        let mut all = self.all.lock();
        let (meant, whole) = (handed.meant(warm.vault()), handed.whole(warm.vault()));
        let known = used_in(&all, meant, run, identity)
            .or_else(|| all.iter().position(|entered| entered.whole == whole));
        if let Some(entered) = known.and_then(|at| all.get_mut(at)) {
            entered.decide(handed, whole, warm)?;
            entered.awaited += 1;
            return Ok(self.awaited(&entered.name));
        }
        make_room(&mut all, warm)?;
        let name = free_name(&all, handed, meant, warm);
        let server = called(&name, handed)?;
        warm.add(server.clone())?;
        all.retain(|entered| entered.name != name);
        all.push(Entered {
            name: name.clone(),
            meant,
            whole,
            decided: handed.decided(warm.vault()),
            server,
            awaited: 1,
        });
        Ok(self.awaited(&name))
    }

    fn awaited(&self, name: &str) -> Awaited<'_> {
        Awaited {
            name: name.to_owned(),
            registry: self,
        }
    }
}

impl Entered {
    /// Another command may decide otherwise about the same server, from then on. One that comes
    /// from elsewhere to a program that runs already has no say in it.
    fn decide(&mut self, handed: &Handed, whole: Digest, warm: &Warmline) -> Result<()> {
        let decided = handed.decided(warm.vault());
        if self.whole == whole && self.decided != decided {
            self.server = called(&self.name, handed)?;
            warm.add(self.server.clone())?;
            self.decided = decided;
        }
        Ok(())
    }
}

/// What was handed in, under the name it has here.
fn called(name: &str, handed: &Handed) -> Result<Server> {
    let configured = handed.configured();
    let mut configured = configured.map_err(|error| Error::unsent(error.into()))?;
    name.clone_into(&mut configured.server.name);
    Ok(Server::from(configured))
}

/// The server that a live run uses already, wherever it was named from.
fn used_in(all: &[Entered], meant: Digest, run: &str, identity: &IdentityHandle) -> Option<usize> {
    let run = identity.join(run).ok()?;
    let is_held = |name: &str| {
        run.server(name)
            .is_ok_and(|server| server.session().is_some())
    };
    all.iter()
        .position(|entered| entered.meant == meant && is_held(&entered.name))
}

/// The name it is called by, or one like it, where that is another server's.
fn free_name(all: &[Entered], handed: &Handed, meant: Digest, warm: &Warmline) -> String {
    let plain = plain_name(&handed.name).unwrap_or_else(|| "server".to_owned());
    let another = |number: usize| {
        let short: String = plain.chars().take(20).collect();
        format!("{short}-{number}")
    };
    let declared = warm.servers();
    let in_use = in_use(warm);
    let is_free = |name: &String| {
        if !declared.contains(name) {
            return true;
        }
        let entered = all.iter().find(|entered| entered.name == *name);
        let is_meant = entered.is_none_or(|entered| entered.meant == meant && entered.awaited == 0);
        is_meant && !in_use.contains(name)
    };
    let mut names = std::iter::once(plain.clone()).chain((2..=MOST + 1).map(another));
    names.find(is_free).unwrap_or(plain)
}

/// Servers with an open session.
fn in_use(warm: &Warmline) -> Vec<String> {
    let snapshot = warm.snapshot();
    let sessions = snapshot.sessions.iter();
    sessions.map(|session| session.server.to_string()).collect()
}

/// Lets go of servers that nobody uses, where there are too many.
fn make_room(all: &mut Vec<Entered>, warm: &Warmline) -> Result<()> {
    if all.len() < MOST {
        return Ok(());
    }
    let in_use = in_use(warm);
    all.retain(|entered| {
        let stays = entered.awaited > 0 || in_use.contains(&entered.name);
        if !stays {
            warm.remove(&entered.name);
        }
        stays
    });
    if all.len() < MOST {
        return Ok(());
    }
    let what = format!("{MOST} servers are used by commands already");
    let mut trouble =
        Trouble::new(Reason::Overloaded, what).hint("end runs that are over: `warmline ps`");
    trouble.retry_after = Some(Duration::from_secs(1));
    Err(Error::unsent(trouble))
}
