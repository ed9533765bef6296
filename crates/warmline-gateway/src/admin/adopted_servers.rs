//! Servers that commands of the local user declared, each under one name.
//!
//! A program starts in the folder and with the environment of the command that first used it in its
//! run; later commands of the run share the process. Commands of other runs with another folder or
//! environment get another process, under another name.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use warmline_config::{ServerHandoff, normalize_name};
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Digest;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Caller, Error, Result, Server, Warmline};

const MAX_ADOPTED: usize = 256;

/// Whether commands may declare servers while the gateway runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdoptionPolicy {
    /// Only configured servers exist.
    #[default]
    Refused,
    /// Commands of the local user may: they could start the program themselves.
    Allowed,
}

pub(crate) struct AdoptedServers {
    policy: AdoptionPolicy,
    servers: Mutex<Vec<AdoptedServer>>,
}

struct AdoptedServer {
    /// Commands that are about to use it hold a clone.
    name: Arc<str>,
    target_digest: Digest,
    declaration_digest: Digest,
    settings_digest: Digest,
    server: Server,
}

impl AdoptedServers {
    pub(crate) fn new(policy: AdoptionPolicy) -> Self {
        Self {
            policy,
            servers: Mutex::default(),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.policy == AdoptionPolicy::Allowed
    }

    /// Adds the adopted servers. They win over configured ones of the same name.
    pub(crate) fn merged_with(&self, configured: Vec<Server>) -> Vec<Server> {
        let all = self.servers.lock();
        let own = all.iter().map(|adopted| adopted.server.clone());
        let is_free = |server: &Server| all.iter().all(|adopted| *adopted.name != *server.name());
        let mut servers: Vec<Server> = configured.into_iter().filter(is_free).collect();
        servers.extend(own);
        servers
    }

    /// Adopts the server of a run, unless it is known, and returns its name. The server stays while
    /// the name is held.
    pub(crate) fn adopt(
        &self,
        handoff: &ServerHandoff,
        run: &str,
        (warm, caller): (&Warmline, &Caller),
    ) -> Result<Arc<str>> {
        let mut all = self.servers.lock();
        let target = handoff.server_digest(warm.vault());
        let whole = handoff.full_digest(warm.vault());
        let is_same = |adopted: &AdoptedServer| adopted.declaration_digest == whole;
        let known = find_used_by_run(&all, target, run, caller);
        let known = known.or_else(|| all.iter().position(is_same));
        if let Some(adopted) = known.and_then(|at| all.get_mut(at)) {
            adopted.update_settings(handoff, whole, warm)?;
            return Ok(Arc::clone(&adopted.name));
        }
        evict_unused(&mut all, warm)?;
        let name: Arc<str> = free_name(&all, handoff, target, warm).into();
        let server = build_server(&name, handoff)?;
        warm.add_server(server.clone())?;
        all.retain(|adopted| adopted.name != name);
        all.push(AdoptedServer {
            name: Arc::clone(&name),
            target_digest: target,
            declaration_digest: whole,
            settings_digest: handoff.settings_digest(warm.vault()),
            server,
        });
        Ok(name)
    }
}

impl AdoptedServer {
    fn is_pending(&self) -> bool {
        Arc::strong_count(&self.name) > 1
    }

    /// A later command may change the settings of the same declaration. A command with another
    /// folder or environment joins the running program, and changes nothing.
    fn update_settings(
        &mut self,
        handoff: &ServerHandoff,
        whole: Digest,
        warm: &Warmline,
    ) -> Result<()> {
        let settings = handoff.settings_digest(warm.vault());
        if self.declaration_digest == whole && self.settings_digest != settings {
            self.server = build_server(&self.name, handoff)?;
            warm.add_server(self.server.clone())?;
            self.settings_digest = settings;
        }
        Ok(())
    }
}

fn build_server(name: &str, handoff: &ServerHandoff) -> Result<Server> {
    let configured = handoff.to_target();
    let mut configured = configured.map_err(|error| Error::from(Diagnostic::from(error)))?;
    name.clone_into(&mut configured.target.name);
    Ok(Server::from(configured))
}

/// The server with this target that a live run has a session with.
fn find_used_by_run(
    all: &[AdoptedServer],
    target: Digest,
    run: &str,
    caller: &Caller,
) -> Option<usize> {
    let run = caller.join_run(run).ok()?;
    let is_open = |name: &str| {
        run.server(name)
            .is_ok_and(|server| server.current_session().is_some())
    };
    all.iter()
        .position(|adopted| adopted.target_digest == target && is_open(&adopted.name))
}

/// The name of the declaration, with a number if another server has it.
fn free_name(
    all: &[AdoptedServer],
    handoff: &ServerHandoff,
    target: Digest,
    warm: &Warmline,
) -> String {
    let plain = normalize_name(&handoff.name).unwrap_or_else(|| "server".to_owned());
    let another = |number: usize| {
        let short: String = plain.chars().take(20).collect();
        format!("{short}-{number}")
    };
    let declared = warm.server_names();
    let in_use = servers_in_use(warm);
    let is_free = |name: &String| {
        if !declared.contains(name) {
            return true;
        }
        let adopted = all.iter().find(|adopted| *adopted.name == **name);
        let is_same =
            adopted.is_none_or(|adopted| adopted.target_digest == target && !adopted.is_pending());
        is_same && !in_use.contains(name)
    };
    let mut names = std::iter::once(plain.clone()).chain((2..=MAX_ADOPTED + 1).map(another));
    names.find(is_free).unwrap_or(plain)
}

fn servers_in_use(warm: &Warmline) -> Vec<String> {
    let snapshot = warm.snapshot();
    let sessions = snapshot.sessions.iter();
    sessions.map(|session| session.server.to_string()).collect()
}

fn evict_unused(all: &mut Vec<AdoptedServer>, warm: &Warmline) -> Result<()> {
    if all.len() < MAX_ADOPTED {
        return Ok(());
    }
    let in_use = servers_in_use(warm);
    all.retain(|adopted| {
        let stays = adopted.is_pending() || in_use.iter().any(|name| **name == *adopted.name);
        if !stays {
            warm.remove_server(&adopted.name);
        }
        stays
    });
    if all.len() < MAX_ADOPTED {
        return Ok(());
    }
    let what = format!("commands use {MAX_ADOPTED} servers already");
    let mut diagnostic = Diagnostic::new(Reason::Overloaded, what)
        .with_hint("end runs that you no longer need: `warmline ps`");
    diagnostic.retry_after = Some(Duration::from_secs(1));
    Err(Error::from(diagnostic))
}
