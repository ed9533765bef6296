//! Sessions that a gateway holds: the one of the enclosing `warmline run`, or the background gateway,
//! which keeps the session open after the command.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;
use warmline_config::ServerHandoff;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Code;
use warmline_engine::Warmline;
use warmline_gateway::admin::socket_client::BASE_URL;
use warmline_store::keyring::Keyring;
use warmline_upstream::{ClientProfile, Evidence, ServerFacts, ServerTarget, Session, Transport};

use super::engine_session::{leftover_run, stateless_note};
use super::reply::ServerNames;
use super::selected_run::SelectedRun;
use super::{Backend, OpenedSession, open_failure, open_session};
use crate::background::{BackgroundGateway, VERSION, parse_open_failure};
use crate::leftover_runs::{self, SessionHolder};
use crate::output::{CliResult, Note, Problem};
use crate::target::{Target, process_folders};

/// Opens a session with the enclosing gateway. State on the server belongs to that program's run and
/// ends with it.
pub(super) async fn open_enclosing(
    target: &Target,
    run: &SelectedRun,
    profile: &ClientProfile,
) -> CliResult<OpenedSession> {
    // Legacy has sessions: in it the commands of the program share what the server keeps.
    let mut legacy = target.server.clone();
    let mut session = None;
    if legacy.era.replace(Era::Legacy).is_none() {
        session = open_session(&legacy, profile).await.ok();
    }
    let session = match session {
        Some(session) => session,
        None => open_session(&target.server, profile)
            .await
            .map_err(|diagnostic| open_failure(&diagnostic, target))?,
    };
    let mut opened = OpenedSession::direct(session);
    if run.ends {
        let message = format!(
            "run `{}` goes on: only the `warmline run` that began it ends it",
            run.name
        );
        opened.notes.push(Note::new(message));
    }
    opened.run_name = Some(run.name.clone());
    Ok(opened)
}

pub(super) struct GatewayRun {
    gateway: BackgroundGateway,
    name: String,
    ends: bool,
    /// The number of the session within its run.
    pub(super) generation: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct JoinedRun {
    server: String,
    path: String,
    warm: bool,
    generation: Option<u32>,
    era: String,
    version: String,
    transport: String,
    keeps_session: bool,
    opened_in_us: u64,
    evidence: Vec<EvidenceStep>,
}

#[derive(Debug, Deserialize)]
struct EvidenceStep {
    step: String,
    answer: String,
}

pub(super) async fn join_background(
    target: &Target,
    run: &SelectedRun,
    profile: &ClientProfile,
) -> CliResult<Option<OpenedSession>> {
    let Some(state) = run.state_folder()? else {
        return Ok(None);
    };
    let gateway = BackgroundGateway::in_state_folder(&state);
    let Some(joined) = join_run(&gateway, target, run, profile).await? else {
        return Ok(None);
    };
    let session = open_joined(&gateway, target, &joined, profile).await?;
    let facts = joined.to_facts(session.facts());
    if !run.ends
        && let Ok(vault) = Keyring::in_folder(&state)
        && let Ok(warmline) = Warmline::builder().vault(vault).build()
    {
        // `ps` and `end` find the run by this note when the gateway is gone.
        let holder = (SessionHolder::Gateway, joined.server.as_str());
        if let Some(note) = leftover_run(&warmline, &facts, (target, run), holder) {
            leftover_runs::save(&note, &state, warmline.vault());
        }
    }
    let notes = stateless_note(&facts, run, &target.server.name).into_iter();
    let notes = notes.chain(joined.era_mismatch_note(target, run));
    Ok(Some(OpenedSession {
        notes: notes.collect(),
        facts,
        run_name: Some(run.name.clone()),
        is_warm: joined.warm,
        backend: Backend::Session(
            session,
            Some(GatewayRun {
                gateway,
                name: run.name.clone(),
                ends: run.ends,
                generation: joined.generation,
            }),
        ),
        names: Some(ServerNames {
            plain: joined.server,
            display: target.server.name.clone(),
        }),
    }))
}

impl GatewayRun {
    pub(super) async fn leave(self) -> Option<Note> {
        if !self.ends {
            return None;
        }
        let path = format!("/runs/{}", self.name);
        let ended = self.gateway.request(Method::DELETE, &path).await;
        ended.err().map(|problem| Note {
            code: Some(problem.parts().code),
            cause: problem.parts().cause.clone(),
            ..Note::new(format!("cannot end run `{}`", self.name))
        })
    }
}

async fn join_run(
    gateway: &BackgroundGateway,
    target: &Target,
    run: &SelectedRun,
    profile: &ClientProfile,
) -> CliResult<Option<JoinedRun>> {
    let configured = run.configured_server(target);
    let working = process_folders()?.working;
    let handoff = ServerHandoff::new(&configured, &working, &run.caller_discriminators);
    let capabilities: Value = serde_json::from_slice(&profile.capabilities).unwrap_or_default();
    let body = json!({
        "version": VERSION,
        "run": run.name,
        "server": handoff,
        "capabilities": capabilities,
    });
    let response = gateway.post("/admin/join", Bytes::from(body.to_string()));
    let Some(response) = response.await? else {
        return Ok(None);
    };
    let joined = gateway.parse_response(&response).map_err(|problem| {
        let is_our_version = response.version.as_deref() == Some(VERSION);
        match parse_open_failure(&response.body).filter(|_| is_our_version) {
            Some((diagnostic, plain)) => {
                let display = target.server.name.clone();
                let names = ServerNames { plain, display };
                open_failure(&diagnostic, target).map_texts(|text| names.rename(text))
            },
            None => problem,
        }
    })?;
    let what = "cannot read the reply of the background gateway";
    serde_json::from_value(joined)
        .map(Some)
        .map_err(Problem::caused(Code::Bug, what))
}

/// A session with the gateway, in the era that it speaks with the server.
async fn open_joined(
    gateway: &BackgroundGateway,
    target: &Target,
    joined: &JoinedRun,
    profile: &ClientProfile,
) -> CliResult<Session> {
    let what = "the background gateway named no path";
    let url = Url::parse(&format!("{BASE_URL}{}", joined.path));
    let url = url.map_err(Problem::caused(Code::Bug, what))?;
    let mut server = ServerTarget::http(target.server.name.clone(), url);
    server.era = Some(joined.era());
    server.dial = Some(Arc::new(gateway.socket_client()));
    server.size_limits = target.server.size_limits;
    let opened = open_session(&server, profile).await;
    opened.map_err(|diagnostic| open_failure(&diagnostic, target))
}

impl JoinedRun {
    fn era(&self) -> Era {
        Era::parse(&self.era).unwrap_or(Era::Legacy)
    }

    /// The run began in another era than the command asks for, and stays in it.
    fn era_mismatch_note(&self, target: &Target, run: &SelectedRun) -> Option<Note> {
        let requested = target.server.era.filter(|era| *era != self.era())?;
        let (run, server, era) = (&run.name, &target.server.name, self.era());
        Some(Note {
            cause: Some("a run keeps the session that it began with".to_owned()),
            hint: Some(format!(
                "name another run, or end this one: `warmline end {run}`"
            )),
            ..Note::new(format!(
                "run `{run}` keeps speaking {era} with `{server}`, not {requested}"
            ))
        })
    }

    /// Facts about the server's session; `own` is about our session with the gateway.
    fn to_facts(&self, own: &ServerFacts) -> ServerFacts {
        let steps = self.evidence.iter().filter(|_| !self.warm);
        let known = ["server/discover", "initialize", "GET"];
        let evidence = steps.map(|one| Evidence {
            step: known
                .into_iter()
                .find(|known| *known == one.step)
                .unwrap_or("handshake"),
            answer: one.answer.clone(),
        });
        ServerFacts {
            era: self.era(),
            version: Version::parse(&self.version).unwrap_or(own.version),
            transport: Transport::parse(&self.transport).unwrap_or(Transport::Http),
            keeps_session: self.keeps_session,
            evidence: evidence.collect(),
            open_duration: match self.warm {
                true => Duration::ZERO,
                false => Duration::from_micros(self.opened_in_us),
            },
            ..own.clone()
        }
    }
}
