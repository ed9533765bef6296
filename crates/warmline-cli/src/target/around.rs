//! A target that the gateway around the program that started us serves: it is known there, and no
//! file is looked at to find it.
//!
//! Asked by: `call`, `request` and `tools`.  Told by: the run, which knows the gateway around it.

use std::time::Duration;

use http::header::AUTHORIZATION;
use url::Url;
use warmline::config::{bearer, nearest, plain_name};
use warmline::core::code::Code;
use warmline::core::exchange::Patience;
use warmline::upstream::{Reach, Server, Sizes, Times};

use super::{Aim, General, Target, TargetSource};
use crate::args::Connect;
use crate::problem::{Outcome, Problem};
use crate::run::{ChosenRun, Surrounding};

impl Target {
    /// Looks a target up for a command of a run: a name that the gateway around us serves is that
    /// server, whatever files say.
    pub(crate) fn find_in(run: Option<&ChosenRun>, aim: &Aim, connect: &Connect) -> Outcome<Self> {
        let around = run.and_then(ChosenRun::inside);
        let served = around.and_then(|around| Self::of_gateway(around, aim));
        match served {
            Some(target) => target.decided(connect),
            None => Self::find(aim, connect).map_err(|problem| match (aim, around) {
                (Aim::Name(name), Some(around)) => pointing_at(around, name, problem),
                _ => problem,
            }),
        }
    }

    /// The server as the gateway around us has it. None that was typed, and none that it does not
    /// serve: that need not be all that is configured.
    fn of_gateway(around: &Surrounding, aim: &Aim) -> Option<Self> {
        let Aim::Name(written) = aim else {
            return None;
        };
        let served = |name: &String| around.servers.contains(name);
        let plain = || plain_name(written).filter(served);
        let name = Some(written.clone()).filter(served).or_else(plain)?;
        let url = Url::parse(&format!("{}/servers/{name}/mcp", around.url)).ok()?;
        let mut server = Server::http(name, url);
        if let Reach::Http(http) = &mut server.reach {
            http.headers.push((AUTHORIZATION, bearer(&around.token)?));
        }
        let mut target = Self::typed(server);
        target.source = TargetSource::Around;
        target.general = General::Silent;
        // The gateway knows what is decided about the server. Nobody here is in more of a hurry
        // than it is, or wants less than it lets through.
        target.settings.times = Times {
            handshake: LONGEST,
            ..Times::default()
        };
        target.settings.policy.patience = Patience {
            idle: LONGEST,
            total: LONGEST,
        };
        target.settings.sizes = Sizes {
            reply: LARGEST,
            event: LARGEST,
            ..Sizes::default()
        };
        Some(target)
    }
}

/// Somebody who typed a name that nobody knows may have meant one of the gateway around us.
fn pointing_at(around: &Surrounding, name: &str, problem: Problem) -> Problem {
    if problem.parts().code != Code::ServerUnknown {
        return problem;
    }
    match nearest(name, around.servers.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem,
    }
}

/// How long the gateway around us may take, unless somebody decided otherwise.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// How much it may say at once.
const LARGEST: usize = 256 << 20;
