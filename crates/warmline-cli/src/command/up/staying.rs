//! The background gateway itself: it stays until it is told to end, or until nobody needs it.

use std::path::Path;
use std::time::Duration;

use warmline::clock;
use warmline::core::code::Code;
use warmline_gateway::reload::Fixed;
use warmline_gateway::{Gateway, Handing, Options};

use crate::args;
use crate::background::Home;
use crate::command::serve::reload;
use crate::gate::rereading::Rereading;
use crate::gate::{Kept, Source, descriptors, stopping};
use crate::interrupt::{Signals, Told};
use crate::log;
use crate::problem::{Outcome, Problem};

/// How long nobody may need it.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Is the gateway of this home, unless another is already.
pub(super) async fn stay(typed: &args::Up, state: &Path, home: &Home) -> Outcome<u8> {
    let mut signals = Signals::hear();
    let mut reading = Rereading::of(Source::of_user(typed.config.clone())?);
    let Some((wanted, _)) = reading.first(&mut signals).await? else {
        return Ok(0);
    };
    let log_lost = log::start_by(&wanted.gateway);
    // Held to the end: whoever has it may put a socket of a gateway that died out of the way.
    let Some(claim) = home.claim()? else {
        tracing::info!("another gateway was faster");
        return Ok(0);
    };
    leave_the_terminal();
    descriptors::raise();
    let (fixed, ceilings) = (Fixed::of(&wanted), wanted.engine.ceilings);
    let kept = Kept::open(state, wanted)?;
    // On its socket alone, where only its user comes in: what the configuration says of addresses
    // and tokens is for `serve`.
    let options = Options {
        socket: Some(home.socket()),
        admin: Some(home.socket()),
        handing: Handing::Taken,
        log_lost,
        ..Options::anywhere(&kept.settings, &kept.accesses)?
    };
    let gateway = Gateway::start_here(kept.warm.clone(), options).map_err(|error| {
        Problem::new(Code::ConfigBadValue, "the background gateway cannot listen")
            .because(error.to_string())
    })?;
    tracing::info!(socket = %home.socket().display(), "up");
    let idle = typed.idle.unwrap_or(IDLE);
    let why = follow(&gateway, reading, &fixed, &mut signals, idle).await;
    tracing::info!(why, "going down");
    let exit = stopping::stop(gateway, ceilings, &mut signals, None).await;
    drop(claim);
    Ok(exit)
}

/// Nothing that happens to the terminal it was started from concerns it, and no folder is held.
fn leave_the_terminal() {
    // It fails only for the first of a group, which has no terminal to lose.
    rustix::process::setsid().ok();
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::debug!(%error, "the working folder stays");
    }
}

/// Goes by what files, signals and commands say, until one of them says to end.
async fn follow(
    gateway: &Gateway,
    mut reading: Rereading,
    fixed: &Fixed,
    signals: &mut Signals,
    idle: Duration,
) -> &'static str {
    let mut asked = gateway.asked_to_reload();
    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::Stop => return "a signal",
                Told::Reload => reading.begin(),
            },
            _ = gateway.asked_to_end() => return "asked to",
            Some(somebody) = asked.recv() => reading.begin_for(somebody),
            read = reading.next() => reading.came(&reload(gateway, read, fixed, |wanted| {
                Options::anywhere(&wanted.gateway, &wanted.accesses)
            })),
            () = unused(gateway, idle) => return "nobody needs it",
        }
    }
}

/// Ends when nobody has needed the gateway for so long.
async fn unused(gateway: &Gateway, limit: Duration) {
    loop {
        match gateway.idle_for() {
            Some(idle) if idle >= limit => return,
            Some(idle) => clock::sleep(limit.saturating_sub(idle)).await,
            // A run lives: how long nobody needs anything counts from its end on.
            None => clock::sleep(limit.min(LOOK_EVERY)).await,
        }
    }
}

/// How often it is looked whether runs live still.
const LOOK_EVERY: Duration = Duration::from_secs(15);
