//! A conversation inside a run, through the background gateway: it holds the session, and goes on
//! holding it when this command is over.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;
use warmline::Warmline;
use warmline::config::{Configured, Handed};
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::era::{Era, Version};
use warmline::core::exchange::{Patience, Reply, Request};
use warmline::core::loss;
use warmline::seal::Vault;
use warmline::upstream::{Declared, Evidence, Facts, List, Server, Session, Transport, Upstream};
use warmline_gateway::local::BASE;

use super::joined::{Remark, keeps_nothing, noted};
use super::line::{Unlisted, Unopened};
use super::relayed;
use crate::ask::Person;
use crate::background::{Home, VERSION, unopened};
use crate::kept::{self, Holder};
use crate::problem::{Outcome, Problem, renamed};
use crate::run::{ChosenRun, Then};
use crate::target::{Target, folders};

/// A server, as a run of this user calls it through the background gateway.
#[derive(Debug)]
pub(super) struct Through {
    session: Session,
    facts: Facts,
    home: Home,
    chosen: ChosenRun,
    met: Met,
    /// What people call the server.
    shown: String,
}

/// What the gateway says of the session of the run.
#[derive(Debug, Deserialize)]
struct Met {
    server: String,
    path: String,
    warm: bool,
    generation: Option<u32>,
    era: String,
    version: String,
    transport: String,
    keeps_session: bool,
    opened_in_us: u64,
    evidence: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    step: String,
    answer: String,
}

impl Through {
    /// Joins the run there, if a gateway is up.
    pub(super) async fn open(
        target: &Target,
        chosen: &ChosenRun,
        declared: &Declared,
    ) -> Result<Option<(Self, Vec<Remark>)>, Unopened> {
        let Some(state) = chosen.state().map_err(Unopened::Here)? else {
            return Ok(None);
        };
        let home = Home::of(&state);
        let Some(met) = join(&home, target, chosen, declared).await? else {
            return Ok(None);
        };
        let session = speak(&home, target, &met, declared).await?;
        let facts = met.facts(session.facts());
        if chosen.then == Then::GoesOn {
            note_down(&state, (target, chosen), &met.server, &facts);
        }
        let kept = keeps_nothing(&facts, (&chosen.name, chosen.then), &target.server.name);
        let remarks = kept
            .into_iter()
            .chain(met.other_era(target, chosen))
            .collect();
        let through = Self {
            session,
            facts,
            home,
            chosen: chosen.clone(),
            met,
            shown: target.server.name.clone(),
        };
        Ok(Some((through, remarks)))
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The name of the run.
    pub(super) fn run(&self) -> &str {
        &self.chosen.name
    }

    /// Whether the session was there already.
    pub(super) fn is_warm(&self) -> bool {
        self.met.warm
    }

    /// The number of the session within its run.
    pub(super) fn generation(&self) -> Option<u32> {
        self.met.generation
    }

    pub(super) async fn call(
        &self,
        request: Request,
        person: &Arc<Person>,
    ) -> Result<Reply, Problem> {
        match relayed::call(&self.session, request, person).await {
            Ok(Reply::Result(raw)) => Ok(Reply::Result(self.in_sentence(raw))),
            Ok(Reply::Error(raw)) => Ok(Reply::Error(raw)),
            Err(problem) => Err(self.as_shown(problem)),
        }
    }

    pub(super) async fn list(
        &self,
        list: List,
        patience: Patience,
    ) -> Result<Vec<Bytes>, Unlisted> {
        let listed = relayed::list(&self.session, list, patience).await;
        listed.map_err(|not_listed| match not_listed {
            Unlisted::Failed(problem) => Unlisted::Failed(self.as_shown(problem)),
            Unlisted::SaidNo(raw) => Unlisted::SaidNo(raw),
        })
    }

    /// A problem that calls the server as people do, and advises whom the gateway belongs to.
    fn as_shown(&self, problem: Problem) -> Problem {
        problem
            .calling(&self.met.server, &self.shown)
            .advising_its_user()
    }

    /// Leaves the session to the run, or ends the run.
    pub(super) async fn close(self) -> Vec<Remark> {
        self.session.close().await;
        if self.chosen.then == Then::GoesOn {
            return Vec::new();
        }
        let path = format!("/runs/{}", self.chosen.name);
        let ended = self.home.ask(Method::DELETE, &path).await;
        match ended {
            Ok(_) => Vec::new(),
            Err(problem) => vec![Remark {
                code: Some(problem.parts().code),
                what: format!("run `{}` could not be ended", self.chosen.name),
                why: problem.parts().why.clone(),
                hint: None,
            }],
        }
    }

    /// A result whose sentence on lost state, if it has one, calls the server as people do.
    fn in_sentence(&self, result: Bytes) -> Bytes {
        let sentence = loss::sentence(&self.met.server);
        match std::str::from_utf8(&result) {
            Ok(text) if text.contains(&sentence) => {
                Bytes::from(text.replacen(&sentence, &loss::sentence(&self.shown), 1))
            },
            Ok(_) | Err(_) => result,
        }
    }
}

/// Notes the run for `ps` and `end`: it is left to its record when the gateway goes, which knows no
/// more of the server than it was handed, and nothing of where that was written.
fn note_down(state: &Path, of: (&Target, &ChosenRun), server: &str, facts: &Facts) {
    let noted = Vault::in_folder(state).ok().and_then(|vault| {
        let warm = Warmline::builder().vault(vault).build().ok()?;
        let note = noted(&warm, facts, of, (Holder::Gateway, server))?;
        Some((warm, note))
    });
    if let Some((warm, note)) = noted {
        kept::write_down(&note, state, warm.vault());
    }
}

/// Hands the server in and joins the run; none where no gateway is up.
async fn join(
    home: &Home,
    target: &Target,
    chosen: &ChosenRun,
    declared: &Declared,
) -> Result<Option<Met>, Unopened> {
    let body = joining(target, chosen, declared).map_err(Unopened::Here)?;
    let handed = home.hand("/admin/join", body).await;
    let Some(answered) = handed.map_err(Unopened::Here)? else {
        return Ok(None);
    };
    let met = home.understood(&answered).map_err(|problem| {
        let ours = answered.version.as_deref() == Some(VERSION);
        match unopened(&answered.body).filter(|_| ours) {
            Some((trouble, name)) => {
                let trouble = renamed(&trouble, &name, &target.server.name);
                Unopened::There(Box::new(trouble))
            },
            None => Unopened::Here(problem),
        }
    })?;
    serde_json::from_value(met).map(Some).map_err(|error| {
        let what = "the background gateway cannot be understood";
        let problem = Problem::new(Code::Bug, what).because(error.to_string());
        Unopened::Here(problem.delivered(Delivery::Unsent))
    })
}

/// What is handed in: the server, the run, and what can be answered here.
fn joining(target: &Target, chosen: &ChosenRun, declared: &Declared) -> Outcome<Bytes> {
    let mut server = target.server.clone();
    server.name = chosen.plain(target);
    let configured = Configured {
        server,
        settings: target.settings.clone(),
    };
    let handed = Handed::of(&configured, &folders()?.working, chosen.asking_as());
    let capabilities: Value = serde_json::from_slice(&declared.capabilities).unwrap_or_default();
    let joining = json!({
        "version": VERSION,
        "run": chosen.name,
        "server": handed,
        "capabilities": capabilities,
    });
    Ok(Bytes::from(joining.to_string()))
}

/// A session with the gateway, in the era that it speaks with the server.
async fn speak(
    home: &Home,
    target: &Target,
    met: &Met,
    declared: &Declared,
) -> Result<Session, Unopened> {
    let url = Url::parse(&format!("{BASE}{}", met.path)).map_err(|error| {
        let problem = Problem::new(Code::Bug, "the background gateway names no path");
        Unopened::Here(problem.because(error.to_string()))
    })?;
    let mut server = Server::http(target.server.name.clone(), url);
    server.era = Some(met.era());
    server.dial = Some(Arc::new(home.gateway().dial()));
    server.sizes = target.server.sizes;
    let opened = Upstream::new().open(&server, declared).await;
    opened.map_err(|trouble| Unopened::There(Box::new(trouble)))
}

impl Met {
    fn era(&self) -> Era {
        match self.era.as_str() {
            "modern" => Era::Modern,
            _ => Era::Legacy,
        }
    }

    /// The run speaks another era with the server than was asked for, because it began so.
    fn other_era(&self, target: &Target, chosen: &ChosenRun) -> Option<Remark> {
        let asked = target.server.era.filter(|asked| *asked != self.era())?;
        let (run, shown, held) = (&chosen.name, &target.server.name, self.era());
        Some(Remark {
            code: None,
            what: format!("run `{run}` goes on speaking {held} with `{shown}`, not {asked}"),
            why: Some("a run keeps the session that it began with".to_owned()),
            hint: Some(format!(
                "name another run, or end this one: `warmline end {run}`"
            )),
        })
    }

    /// What is known of the server's session; ours leads to the gateway alone.
    fn facts(&self, ours: &Facts) -> Facts {
        let transport = match self.transport.as_str() {
            "stdio" => Transport::Stdio,
            "http+sse" => Transport::HttpSse,
            _ => Transport::Http,
        };
        let evidence = self.evidence.iter().filter(|_| !self.warm);
        let opened_in = match self.warm {
            true => Duration::ZERO,
            false => Duration::from_micros(self.opened_in_us),
        };
        Facts {
            era: self.era(),
            version: Version::parse(&self.version).unwrap_or(ours.version),
            transport,
            keeps_session: self.keeps_session,
            evidence: evidence.map(Step::evidence).collect(),
            opened_in,
            ..ours.clone()
        }
    }
}

impl Step {
    fn evidence(&self) -> Evidence {
        let known = ["server/discover", "initialize", "GET"];
        let step = known.into_iter().find(|known| *known == self.step);
        Evidence {
            step: step.unwrap_or("handshake"),
            answer: self.answer.clone(),
        }
    }
}
