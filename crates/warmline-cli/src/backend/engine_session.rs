//! The session of a run in an engine in this process: resumed from the record of an earlier command,
//! replaced if the server forgot it, and left to the next command.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use warmline_config::ServerHandoff;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_core::exchange::Request;
use warmline_core::policy::SessionScope;
use warmline_engine::events::{Event, EventItem, EventSubscription};
use warmline_engine::relay::RelayCall as _;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Caller, Error, Run, Server, ServerHandle, Warmline, WarmlineBuilder};
use warmline_gateway::LOCAL_IDENTITY;
use warmline_platform::clock;
use warmline_store::FileStore;
use warmline_store::keyring::{Keyring, Purpose};
use warmline_upstream::{ClientProfile, ListKind, ServerFacts, Transport, TransportConfig};

use super::reply::{RequestFailure, ServerNames};
use super::selected_run::SelectedRun;
use super::{Backend, OpenedSession, open_failure};
use crate::leftover_runs::{self, LeftoverRun, RunSessionInfo, SessionHolder};
use crate::output::{CliResult, Note, Problem};
use crate::prompt::PromptListener;
use crate::target::{Target, TargetSource, TargetSpec, process_folders};

/// A server as a run of this user calls it.
pub(super) struct EngineSession {
    warmline: Warmline,
    run: Run,
    server: ServerHandle,
    transport: Transport,
    events: EventSubscription,
    selected_run: SelectedRun,
    /// The note for the next command, if the session outlives this one.
    leftover_run: Option<LeftoverRun>,
    record_failed: bool,
}

impl EngineSession {
    pub(super) async fn open(
        target: &Target,
        selected: &SelectedRun,
        profile: &ClientProfile,
    ) -> CliResult<OpenedSession> {
        let names = ServerNames {
            plain: selected.server_name_for(target),
            display: target.server.name.clone(),
        };
        let local = |error: Error| Problem::from(error).map_texts(|text| names.rename(text));
        let builder = build_engine(target, selected, profile)?;
        let warmline = builder.build().map_err(local)?;
        let mut events = warmline.events();
        let run = caller(&warmline, selected).named_run(&selected.name);
        let run = run.map_err(local)?;
        let server = run.server(&names.plain).map_err(local)?;
        let facts = match server.info().await {
            Ok(facts) => facts,
            Err(error) => {
                leave_run(warmline, run, false).await;
                let problem = open_failure(error.diagnostic(), target);
                return Err(problem.map_texts(|text| names.rename(text)));
            },
        };
        let mut notes = record_failures(&mut events, selected).await;
        let record_failed = !notes.is_empty();
        let scope = non_run_scope(target.settings.policy.session_per);
        notes.extend(not_kept_note(&facts, scope, selected, &names.display));
        let holder = (SessionHolder::Command, names.plain.as_str());
        Ok(OpenedSession {
            run_name: Some(run.name().to_owned()),
            is_warm: facts.keeps_session && facts.open_duration.is_zero(),
            notes,
            facts: (*facts).clone(),
            backend: Backend::Engine(Box::new(Self {
                leftover_run: leftover_run(&warmline, &facts, (target, selected), holder),
                warmline,
                run,
                server,
                transport: facts.transport,
                events,
                selected_run: selected.clone(),
                record_failed,
            })),
            names: Some(names),
        })
    }

    pub(super) fn generation(&self) -> Option<u32> {
        self.server.current_session().map(|held| held.generation)
    }

    pub(super) async fn call(
        &self,
        request: &Request,
        listener: &Arc<PromptListener>,
    ) -> Result<Bytes, RequestFailure> {
        let deadlines = request.deadlines;
        let call = self
            .server
            .request_raw(request.method.clone(), request.params.clone())
            .timeout(deadlines.total)
            .idle_timeout(deadlines.idle)
            .shared_listener(Arc::<PromptListener>::clone(listener));
        Ok(call.await?)
    }

    pub(super) async fn list(&self, list: ListKind) -> Result<Vec<Bytes>, RequestFailure> {
        Ok(self.server.list(list).await?)
    }

    /// Leaves the run to its record, or ends it. Reports failures of the record since the start.
    pub(super) async fn close(mut self) -> Vec<Note> {
        // Other sessions end with this process; the user was told at the start.
        let ends = self.transport != Transport::Http || self.selected_run.ends;
        if let Some(note) = &self.leftover_run
            && let Ok(Some(state)) = self.selected_run.state_folder()
        {
            match ends {
                true => leftover_runs::delete(note, &state, self.warmline.vault()),
                false => leftover_runs::save(note, &state, self.warmline.vault()),
            }
        }
        leave_run(self.warmline, self.run, ends).await;
        let failures = record_failures(&mut self.events, &self.selected_run).await;
        match self.record_failed {
            true => Vec::new(),
            false => failures,
        }
    }
}

/// The note for `ps` and `end`, if the session outlives the command. `holder` is who holds it, and the
/// server's name there.
pub(super) fn leftover_run(
    warmline: &Warmline,
    facts: &ServerFacts,
    (target, selected): (&Target, &SelectedRun),
    (holder, server): (SessionHolder, &str),
) -> Option<LeftoverRun> {
    let is_per_run = non_run_scope(target.settings.policy.session_per).is_none();
    let TransportConfig::Http(http) = &target.server.transport else {
        return None;
    };
    if facts.transport != Transport::Http || !facts.keeps_session || !is_per_run {
        return None;
    }
    let name = &target.server.name;
    let spec = match target.source {
        TargetSource::Configured { .. } => TargetSpec::Name(name.clone()),
        TargetSource::CommandLine | TargetSource::EnclosingGateway => {
            TargetSpec::Url(http.url.to_string())
        },
    };
    let caller = match holder {
        SessionHolder::Command => caller(warmline, selected),
        SessionHolder::Gateway | SessionHolder::StdioClient => warmline.identity(LOCAL_IDENTITY),
    };
    let (_, records_folder) = selected.storage(target).ok()?;
    let info = RunSessionInfo {
        holder,
        run: &selected.name,
        server,
        caller: &caller,
        vault: warmline.vault(),
        records_folder: &records_folder,
    };
    LeftoverRun::new(name, &spec, &selected.connect_args, &info)
}

async fn leave_run(warmline: Warmline, run: Run, ends: bool) {
    match ends {
        true => run.end().await,
        false => run.detach(),
    }
    warmline.close().await;
}

fn build_engine(
    target: &Target,
    selected: &SelectedRun,
    profile: &ClientProfile,
) -> CliResult<WarmlineBuilder> {
    let mut configured = selected.configured_server(target);
    let storage = match target.server.transport {
        TransportConfig::Http(_) => Some(selected.storage(target)?),
        TransportConfig::Stdio(_) => {
            // As through a gateway, so that both mean the same program.
            let working = process_folders()?.working;
            let callers = &selected.caller_discriminators;
            configured = ServerHandoff::new(&configured, &working, callers).to_target()?;
            // A program leaves no record. One that a gateway left tells what was lost.
            let storage = selected.storage(target).ok();
            storage.filter(|(_, records)| records.is_dir())
        },
    };
    let mut builder = Warmline::builder()
        .server(Server::from(configured))
        .client_profile(profile.clone())
        .limits(|limits| *limits = target.engine.limits);
    if let Some((state, records)) = storage {
        let vault = Keyring::in_folder(&state).map_err(|diagnostic| {
            Problem::from_diagnostic(&diagnostic, Delivery::Unsent).with_hint(
                "runs are kept there between commands; choose another folder with --state-dir",
            )
        })?;
        builder = builder.store(FileStore::in_folder(records)).vault(vault);
    }
    Ok(builder)
}

/// The user of this machine; a separate caller if headers were given on the command line.
fn caller(warmline: &Warmline, selected: &SelectedRun) -> Caller {
    let parts = selected.caller_discriminators.iter();
    let parts: Vec<&[u8]> = parts.map(|part| part.as_bytes()).collect();
    if parts.is_empty() {
        return warmline.identity(LOCAL_IDENTITY);
    }
    let digest = warmline.vault().digest(Purpose::Identity, &parts);
    warmline.identity(&digest.to_hex())
}

fn non_run_scope(scope: Option<SessionScope>) -> Option<&'static str> {
    let scope = scope.filter(|scope| *scope != SessionScope::Run);
    scope.map(SessionScope::as_str)
}

fn not_kept_note(
    facts: &ServerFacts,
    scope: Option<&str>,
    run: &SelectedRun,
    server: &str,
) -> Option<Note> {
    if run.ends {
        return None;
    }
    let (why, cause, hint) = match (facts.transport, scope) {
        (Transport::Stdio, _) => ("is a program and ends with this command", None, None),
        (Transport::HttpSse, _) => ("has a session that ends with its stream", None, None),
        (Transport::Http, Some(scope)) if facts.keeps_session => (
            "has no session per run",
            Some(format!("its declaration says `session_per = \"{scope}\"`")),
            Some("write `session_per = \"run\"`, or remove the setting".to_owned()),
        ),
        (Transport::Http, _) => return stateless_note(facts, run, server),
    };
    let cause = cause.unwrap_or_else(|| {
        "nothing holds it between commands; `warmline up` starts a gateway that does".to_owned()
    });
    Some(Note {
        cause: Some(cause),
        hint,
        ..Note::new(format!(
            "`{server}` {why}: run `{}` keeps nothing of it",
            run.name
        ))
    })
}

/// A server without sessions leaves a run nothing to keep.
pub(super) fn stateless_note(facts: &ServerFacts, run: &SelectedRun, server: &str) -> Option<Note> {
    let keeps = facts.keeps_session || facts.transport != Transport::Http;
    let run = (!keeps && !run.ends).then_some(&run.name)?;
    Some(Note::new(format!(
        "`{server}` keeps no state per session: run `{run}` has nothing to keep"
    )))
}

/// Failures of the record that stopped nothing; each kind once.
async fn record_failures(events: &mut EventSubscription, selected: &SelectedRun) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    let run = &selected.name;
    while let Ok(Some(item)) = clock::timeout(Duration::ZERO, events.next()).await {
        let (code, message, cause, hint) = match item {
            EventItem::Event(Event::SecretsReplaced { .. }) => (
                Code::RecordRefused,
                format!(
                    "the runs in this folder were sealed with other secrets: the state of run `{run}` is lost, and a new session was opened"
                ),
                "the file `secrets` was removed or replaced".into(),
                Some("put the old file back to resume them; otherwise nothing needs to be done"),
            ),
            EventItem::Event(Event::RecordRefused { what, .. }) => (
                Code::RecordRefused,
                format!(
                    "cannot use the record of run `{run}`: its state is lost, and a new session was opened"
                ),
                what,
                None,
            ),
            EventItem::Event(Event::StoreFailed { what, .. }) => (
                Code::StoreUnavailable,
                format!("cannot keep run `{run}` for the next command"),
                what,
                None,
            ),
            EventItem::Event(_) | EventItem::Missed(_) => continue,
        };
        if notes.iter().all(|note| note.code != Some(code)) {
            notes.push(Note {
                code: Some(code),
                cause: Some(cause.to_string()),
                hint: hint.map(str::to_owned),
                ..Note::new(message)
            });
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use warmline_core::era::{Era, Version};

    use super::*;
    use crate::backend::selected_run::RunSelectionArgs;
    use crate::target::ConnectArgs;

    #[test]
    fn what_cannot_be_kept_is_said_for_each_kind_of_session() {
        use Transport::{Http, HttpSse, Stdio};
        #[rustfmt::skip]
        let table = [
            (Stdio,   true,  false, Some("is a program and ends with this command")),
            (Stdio,   false, false, Some("is a program and ends with this command")),
            (HttpSse, true,  false, Some("ends with its stream")),
            (Http,    false, false, Some("keeps no state per session")),
            (Http,    true,  false, None),
            (Stdio,   true,  true,   None),
            (Http,    false, true,   None),
        ];
        for (transport, keeps_session, ends, says) in table {
            let facts = ServerFacts {
                era: Era::Legacy,
                version: Version::NEWEST_LEGACY,
                transport,
                keeps_session,
                server_info: None,
                capabilities: Bytes::from_static(b"{}"),
                instructions: None,
                evidence: Vec::new(),
                open_duration: Duration::ZERO,
                expires_in: None,
                handshake_result: None,
                learned_at: None,
            };
            let args = RunSelectionArgs {
                run: Some("trip".to_owned()),
                end_run: ends,
                ..RunSelectionArgs::default()
            };
            let selected = SelectedRun::from_args(&args, &ConnectArgs::default());
            let selected = selected.unwrap().unwrap();
            let said = not_kept_note(&facts, None, &selected, "demo").map(|note| note.message);
            assert_eq!(said.is_some(), says.is_some(), "{transport:?} {said:?}");
            assert!(
                said.unwrap_or_default().contains(says.unwrap_or_default()),
                "{transport:?}"
            );
        }
    }
}
