//! `warmline serve`: a gateway in front of servers, from the first line to the last.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use warmline::config::ConfigError;
use warmline::core::code::Code;
use warmline::metrics::{Counter, ServerState};
use warmline::settings::OpsListen;
use warmline_gateway::reload::{Fixed, NotReloaded, Wanted};
use warmline_gateway::settings::blamed;
use warmline_gateway::{AskedToReload, Gateway, NotStarted, Options};

use crate::args;
use crate::gate::rereading::{Read, Rereading};
use crate::gate::{Kept, Source, descriptors, stopping};
use crate::interrupt::{Signals, Told};
use crate::log;
use crate::problem::{Outcome, Problem};
use crate::report::Report;
use crate::target::state_folder;

mod alone;
mod announcing;

use announcing::{Announced, Known};

/// Serves until somebody stops it.
pub(super) async fn run(typed: &args::Serve, report: &Report) -> Outcome<u8> {
    let mut signals = Signals::hear();
    let source = Source::of(&typed.served)?
        .listening(typed.listen, typed.auth)
        .watched(typed.ops, typed.admin.clone());
    let goes_by_files = source.goes_by_files();
    let mut reading = Rereading::of(source);
    let Some((wanted, cautions)) = reading.first(&mut signals).await? else {
        return Ok(0);
    };
    let log_lost = log::start_by(&wanted.gateway);
    for caution in &cautions {
        tell_caution(caution, report);
    }
    descriptors::raise();
    let state = state_folder(typed.served.state_dir.as_deref())?;
    let (fixed, drain) = (Fixed::of(&wanted), wanted.engine.ceilings);
    let kept = Kept::open(&state, wanted)?;
    let place = alone::take_place(&state).unwrap_or_else(|caution| {
        tell_caution(&caution, report);
        None
    });
    let listening = kept.listen_unless_told(log_lost, report, &mut reading, &mut signals);
    let listening = listening.await;
    let Some(gateway) = listening.map_err(|problem| as_typed(problem, typed))? else {
        return Ok(stopping::stop_unbegun(&kept.warm, drain, &mut signals).await);
    };
    let announced = Announced {
        scheme: kept.settings.scheme(),
        address: gateway.address(),
        ops: gateway.ops_address(),
        admin: kept.settings.admin.clone(),
        servers: standing(&gateway, |state| state != ServerState::Off),
        switched_off: standing(&gateway, |state| state == ServerState::Off),
        auth: kept.settings.auth,
        token: kept.tokens.local_file(),
        known: Known {
            by_files: goes_by_files && kept.settings.listen == gateway.address(),
            config: typed.served.config.clone(),
            state_dir: typed.served.state_dir.clone(),
        },
    };
    // Before anybody is told where to ask.
    let asking = gateway.asked_to_reload();
    announced.tell(report);
    kept.follow((&gateway, asking), reading, &fixed, &mut signals)
        .await;
    let exit = stopping::stop(gateway, drain, &mut signals, Some(report)).await;
    drop(place);
    Ok(exit)
}

/// The names of servers that stand so.
fn standing(gateway: &Gateway, so: impl Fn(ServerState) -> bool) -> Vec<String> {
    let standing = gateway.warm().snapshot().standing.into_iter();
    let meant = standing.filter(|line| so(line.state));
    meant.map(|line| line.server.to_string()).collect()
}

impl Kept {
    /// Listens, once every required server answered; nothing where somebody says to stop meanwhile.
    async fn listen_unless_told(
        &self,
        log_lost: Option<Arc<Counter>>,
        report: &Report,
        reading: &mut Rereading,
        signals: &mut Signals,
    ) -> Outcome<Option<Gateway>> {
        let mut listening = pin!(self.listen(log_lost, report));
        loop {
            tokio::select! {
                gateway = listening.as_mut() => return gateway.map(Some),
                told = signals.next() => match told {
                    Told::Stop => return Ok(None),
                    Told::Reload => reading.begin(),
                },
            }
        }
    }

    async fn listen(&self, log_lost: Option<Arc<Counter>>, report: &Report) -> Outcome<Gateway> {
        let mut options = Options::of(&self.settings, &self.accesses, &self.tokens)?;
        options.log_lost = log_lost;
        let address = options.listen;
        let started = match Gateway::start(self.warm.clone(), options.clone()).await {
            // Nobody asked for these pages: the gateway is worth more than they are.
            Err(NotStarted::Ops((taken, _))) if self.settings.ops == OpsListen::Beside => {
                let caution =
                    format!("{taken} is taken: nobody can watch this gateway; decide `ops.listen`");
                tell_caution(&caution, report);
                options.ops = None;
                Gateway::start(self.warm.clone(), options).await
            },
            started => started,
        };
        started.map_err(|error| {
            if let NotStarted::Required(error) = &error {
                return Problem::of_trouble(error.trouble(), error.delivery())
                    .hint("`required = true` says that nothing starts without it");
            }
            if let Some(blamed) = blamed(&self.settings, &error) {
                return Problem::from(blamed);
            }
            if let NotStarted::Socket(..) = error {
                let hint = "another gateway may listen there, or the folder is not there";
                return Problem::new(Code::ConfigBadValue, "a socket cannot be listened on")
                    .because(error.to_string())
                    .hint(hint);
            }
            let (address, option) = if let NotStarted::Ops((address, _)) = error {
                (address, "--ops")
            } else {
                (address, "--listen")
            };
            cannot_listen(address, option, &error.to_string())
        })
    }

    /// Goes by what files and signals say, until one of them says to stop.
    async fn follow(
        &self,
        (gateway, mut asking): (&Gateway, mpsc::Receiver<AskedToReload>),
        mut reading: Rereading,
        fixed: &Fixed,
        signals: &mut Signals,
    ) {
        if !self.settings.watch {
            reading.look_no_more();
        }
        loop {
            tokio::select! {
                told = signals.next() => match told {
                    Told::Stop => return,
                    Told::Reload => reading.begin(),
                },
                Some(somebody) = asking.recv() => reading.begin_for(somebody),
                read = reading.next() => reading.came(&reload(gateway, read, fixed, |wanted| {
                    Options::of(&wanted.gateway, &wanted.accesses, &self.tokens)
                })),
                _ = gateway.asked_to_end() => return,
            }
        }
    }
}

/// A problem whose hint goes on from what was typed: commands look into the same folder, and what was
/// said by an option is mended by one.
fn as_typed(problem: Problem, typed: &args::Serve) -> Problem {
    let Some(mut hint) = problem.parts().hint.clone() else {
        return problem;
    };
    if let Some(folder) = &typed.served.state_dir {
        hint = hint.replace(NEW_TOKEN, &new_token(Some(folder)));
    }
    if typed.listen.is_some() || typed.auth.is_some() {
        hint = hint.replace(
            "decide `gateway.auth = \"tokens\"`",
            "serve with `--auth tokens`",
        );
    }
    problem.hint(hint)
}

const NEW_TOKEN: &str = "warmline token new NAME";

/// The command that makes a token where a gateway looks for it.
fn new_token(state_dir: Option<&Path>) -> String {
    let Some(folder) = state_dir.map(|folder| folder.display().to_string()) else {
        return NEW_TOKEN.to_owned();
    };
    let folder = shell_words::quote(&folder);
    format!("{NEW_TOKEN} --state-dir {folder}")
}

/// What is to be known of how this is set up: a line of the log where that is read by programs.
fn tell_caution(caution: &str, report: &Report) {
    match log::is_json() {
        true => log_caution(caution),
        false => report.caution_aside(caution),
    }
}

fn log_caution(caution: &str) {
    tracing::warn!(caution, "the setup deserves a look");
}

/// Goes by a configuration that was read again: whole or not at all.
pub(super) fn reload(
    gateway: &Gateway,
    read: Outcome<Read>,
    fixed: &Fixed,
    options: impl FnOnce(&Wanted) -> Result<Options, ConfigError>,
) -> Outcome<()> {
    let came = read.and_then(|(wanted, cautions)| {
        cautions.iter().for_each(|caution| log_caution(caution));
        let reloaded = gateway.reload(wanted, fixed, options);
        reloaded.map_err(|error| match error {
            NotReloaded::Gateway(error) => Problem::from(*error),
            NotReloaded::Server(error) => Problem::of_trouble(error.trouble(), error.delivery()),
        })
    });
    if let Err(problem) = &came {
        gateway.not_reloaded();
        let parts = problem.parts();
        tracing::error!(
            code = %parts.code,
            what = parts.what,
            place = parts.place,
            why = parts.why,
            hint = parts.hint,
            "configuration not read again, what runs goes on"
        );
    }
    came.map(drop)
}

fn cannot_listen(address: SocketAddr, option: &str, error: &str) -> Problem {
    let what = format!("`{address}` cannot be listened on");
    Problem::new(Code::ConfigBadValue, what)
        .because(error)
        .hint(format!(
            "another program may listen there; {option} 127.0.0.1:0 takes a free port"
        ))
}
