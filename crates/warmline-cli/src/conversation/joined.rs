//! A conversation inside a run, through the engine: the session that an earlier command left to
//! its record is taken up again, healed where the server forgot it, and left to the next command.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use warmline::config::{Configured, Handed};
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::{Reply, Request, Trouble};
use warmline::core::loss;
use warmline::core::policy::SessionPer;
use warmline::core::protocol::envelope::RpcError;
use warmline::events::{Event, Heard, Subscription};
use warmline::seal::{Purpose, Vault};
use warmline::store::FileStore;
use warmline::upstream::{Declared, Facts, List, Reach, Transport};
use warmline::{Error, IdentityHandle, Run, Server, ServerHandle, Warmline};

use warmline_gateway::LOCAL;

use super::line::{Unlisted, Unopened};
use crate::ask::Person;
use crate::background::of_rpc_error;
use crate::kept::{self, Holder, Holding, Note};
use crate::problem::{Outcome, Problem, renamed};
use crate::run::{ChosenRun, Keeping, Then};
use crate::target::{Target, folders};

/// A server, as a run of this user calls it.
#[derive(Debug)]
pub(super) struct Joined {
    warm: Warmline,
    run: Run,
    server: ServerHandle,
    facts: Arc<Facts>,
    names: Names,
    events: Subscription,
    chosen: ChosenRun,
    /// What the next command has to know of it, where there is something to go on with.
    note: Option<Note>,
    /// Something went wrong with its record, and was told.
    stumbled: bool,
}

/// What the server is called: by the engine, whose names are plain, and to people.
#[derive(Clone, Debug)]
struct Names {
    plain: String,
    shown: String,
}

/// Something to be said beside the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) code: Option<Code>,
    pub(super) what: String,
    pub(super) why: Option<String>,
    pub(super) hint: Option<String>,
}

impl Joined {
    /// Joins the run and opens its session, or takes up the one it left. Remarks are things that
    /// a person would want to know.
    pub(super) async fn open(
        target: &Target,
        chosen: &ChosenRun,
        declared: &Declared,
    ) -> Result<(Self, Vec<Remark>), Unopened> {
        let names = Names::of(target, chosen);
        let warm = engine(target, chosen, declared, &names).map_err(Unopened::Here)?;
        let mut events = warm.events();
        let run = who(&warm, chosen).named(&chosen.name);
        let run = run.map_err(|error| Unopened::Here(names.problem(&error)))?;
        let server = run.server(&names.plain);
        let server = server.map_err(|error| Unopened::Here(names.problem(&error)))?;
        let facts = match server.facts().await {
            Ok(facts) => facts,
            Err(error) => {
                leave(warm, run, Then::GoesOn).await;
                return Err(Unopened::There(Box::new(names.told(error.trouble()))));
            },
        };
        let mut remarks = stumbles(&mut events, chosen).await;
        let stumbled = !remarks.is_empty();
        let of_run = (chosen.name.as_str(), chosen.then);
        let shared = not_of_a_run(target.settings.policy.session_per);
        remarks.extend(not_kept(&facts, shared, of_run, &names.shown));
        let holder = (Holder::Command, names.plain.as_str());
        let note = noted(&warm, &facts, (target, chosen), holder);
        let joined = Self {
            warm,
            run,
            server,
            facts,
            names,
            events,
            chosen: chosen.clone(),
            note,
            stumbled,
        };
        Ok((joined, remarks))
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The name of the run.
    pub(super) fn run(&self) -> &str {
        self.run.name()
    }

    /// Whether the session was there already.
    pub(super) fn is_warm(&self) -> bool {
        self.facts.keeps_session && self.facts.opened_in.is_zero()
    }

    /// The number of the session within its run, as far as one is held.
    pub(super) fn generation(&self) -> Option<u32> {
        self.server.session().map(|held| held.generation)
    }

    pub(super) async fn call(
        &self,
        request: &Request,
        person: &Arc<Person>,
    ) -> Result<Reply, Problem> {
        let method = request.method().to_owned();
        let patience = request.patience();
        let call = self
            .server
            .request_raw(method, request.params().clone())
            .timeout(patience.total)
            .idle_timeout(patience.idle)
            .listened_by(Arc::<Person>::clone(person));
        match call.await {
            Ok(result) => Ok(Reply::Result(self.names.in_sentence(result))),
            Err(error) => match error.server_error().map(raw) {
                // A gateway of ours at the other end knows what became of the call.
                Some(said) => of_rpc_error(&said).map_or(Ok(Reply::Error(said)), Err),
                None => Err(self.names.problem(&error)),
            },
        }
    }

    pub(super) async fn list(&self, list: List) -> Result<Vec<Bytes>, Unlisted> {
        let listed = self.server.list(list).await;
        listed.map_err(|error| match error.server_error().map(raw) {
            Some(said) => of_rpc_error(&said).map_or(Unlisted::SaidNo(said), Unlisted::Failed),
            None => Unlisted::Failed(self.names.problem(&error)),
        })
    }

    /// Leaves the run to its record, or ends it, and says what went wrong with the record since
    /// the session was opened.
    pub(super) async fn close(mut self) -> Vec<Remark> {
        let then = match self.facts.transport {
            // What was lost before was told: nobody is told of a program, or a stream, that went
            // as it should.
            Transport::Stdio | Transport::HttpSse => Then::Ends,
            Transport::Http => self.chosen.then,
        };
        if let (Some(note), Ok(Some(state))) = (&self.note, self.chosen.state()) {
            match then {
                Then::GoesOn => kept::write_down(note, &state, self.warm.vault()),
                Then::Ends => kept::cross_out(note, &state, self.warm.vault()),
            }
        }
        leave(self.warm, self.run, then).await;
        let later = stumbles(&mut self.events, &self.chosen).await;
        later.into_iter().filter(|_| !self.stumbled).collect()
    }
}

/// What is to be noted of a run whose session outlives this command, and who holds it under which
/// name. Where that fails, the run is kept all the same.
pub(super) fn noted(
    warm: &Warmline,
    facts: &Facts,
    (target, chosen): (&Target, &ChosenRun),
    (by, server): (Holder, &str),
) -> Option<Note> {
    let is_a_runs = not_of_a_run(target.settings.policy.session_per).is_none();
    if facts.transport != Transport::Http || !facts.keeps_session || !is_a_runs {
        return None;
    }
    let who = match by {
        Holder::Command => who(warm, chosen),
        Holder::Gateway | Holder::Pipe => warm.identity(LOCAL),
    };
    let holding = Holding {
        by,
        run: &chosen.name,
        server,
        who: &who,
        vault: warm.vault(),
        records: &chosen.keeping(target).ok()?.records,
    };
    let noted = Note::of(target, chosen.typed(), &holding);
    noted.ok().flatten()
}

async fn leave(warm: Warmline, run: Run, then: Then) {
    match then {
        Then::Ends => run.end().await,
        Then::GoesOn => run.detach(),
    }
    warm.close().await;
}

/// The engine of one command: one server, and a store where sessions can be kept in one.
fn engine(
    target: &Target,
    chosen: &ChosenRun,
    declared: &Declared,
    names: &Names,
) -> Outcome<Warmline> {
    let mut builder = Warmline::builder()
        .server(Server::from(configured(target, chosen, names)?))
        .declared(declared.clone())
        .limits(|ceilings| *ceilings = target.engine.ceilings);
    let keeping = match target.server.reach {
        Reach::Http(_) => Some(chosen.keeping(target)?),
        // It ends with this command, and leaves nothing. What a gateway that is gone wrote down of
        // its own says that something is lost.
        Reach::Stdio(_) => {
            let keeping = chosen.keeping(target).ok();
            keeping.filter(|keeping| keeping.records.is_dir())
        },
    };
    if let Some(Keeping { secrets, records }) = keeping {
        let vault = Vault::in_folder(&secrets).map_err(|trouble| {
            Problem::of_trouble(&trouble, Delivery::Unsent)
                .hint("a run is kept there between commands; name another folder with --state-dir")
        })?;
        builder = builder.store(FileStore::in_folder(records)).vault(vault);
    }
    builder.build().map_err(|error| names.problem(&error))
}

/// The server as it is opened. A program is put together as a gateway gets it, so that both mean
/// the same one.
fn configured(target: &Target, chosen: &ChosenRun, names: &Names) -> Outcome<Configured> {
    let mut server = target.server.clone();
    server.name.clone_from(&names.plain);
    let configured = Configured {
        server,
        settings: target.settings.clone(),
    };
    match target.server.reach {
        Reach::Http(_) => Ok(configured),
        Reach::Stdio(_) => {
            let working = folders()?.working;
            let handed = Handed::of(&configured, &working, chosen.asking_as());
            Ok(handed.configured()?)
        },
    }
}

/// Who is asking: the user of this machine, as the background gateway knows them too, or somebody
/// of whom more was typed.
fn who(warm: &Warmline, chosen: &ChosenRun) -> IdentityHandle {
    let typed = chosen.asking_as();
    let parts: Vec<&[u8]> = typed.iter().map(|part| part.as_bytes()).collect();
    if parts.is_empty() {
        return warm.identity(LOCAL);
    }
    let digest = warm.vault().digest(Purpose::Identity, &parts);
    warm.identity(&digest.hex())
}

/// What a server's sessions are held for, if that is decided, and it is no run.
fn not_of_a_run(decided: Option<SessionPer>) -> Option<&'static str> {
    match decided? {
        SessionPer::Run => None,
        SessionPer::Identity => Some("identity"),
        SessionPer::Call => Some("call"),
        SessionPer::Server => Some("server"),
    }
}

/// Why the next command will find nothing, where that is so.
fn not_kept(
    facts: &Facts,
    shared: Option<&str>,
    (run, then): (&str, Then),
    server: &str,
) -> Option<Remark> {
    if then == Then::Ends {
        return None;
    }
    let what = match (facts.transport, facts.keeps_session) {
        (Transport::Stdio, _) => format!(
            "`{server}` is a program and ends with this command: run `{run}` keeps nothing of it yet"
        ),
        (Transport::HttpSse, _) => format!(
            "the session of `{server}` ends with its stream: run `{run}` keeps nothing of it yet"
        ),
        (Transport::Http, keeps) => {
            return match shared.filter(|_| keeps) {
                Some(per) => Some(held_otherwise(server, run, per)),
                None => keeps_nothing(facts, (run, then), server),
            };
        },
    };
    Some(Remark {
        code: None,
        what,
        why: Some("nothing holds it between commands; `warmline up` starts what does".to_owned()),
        hint: None,
    })
}

/// The session of a run is left to its record; one that belongs to no run ends with its process.
fn held_otherwise(server: &str, run: &str, per: &str) -> Remark {
    Remark {
        code: None,
        what: format!(
            "the session of `{server}` is not the run's and ends with this command: run `{run}` keeps nothing of it"
        ),
        why: Some(format!("its declaration says `session_per = \"{per}\"`")),
        hint: Some("say `session_per = \"run\"`, or leave it out".to_owned()),
    }
}

/// Says so where there is nothing that a run could keep.
pub(super) fn keeps_nothing(
    facts: &Facts,
    (run, then): (&str, Then),
    server: &str,
) -> Option<Remark> {
    let keeps = facts.keeps_session || facts.transport != Transport::Http;
    if keeps || then == Then::Ends {
        return None;
    }
    Some(Remark {
        code: None,
        what: format!(
            "`{server}` keeps nothing per session: there is nothing for run `{run}` to keep"
        ),
        why: None,
        hint: None,
    })
}

/// What went wrong with the record, and did not stop anything; each kind once.
async fn stumbles(events: &mut Subscription, chosen: &ChosenRun) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = Vec::new();
    let run = &chosen.name;
    while let Some(heard) = heard_already(events).await {
        let (code, what, why, hint) = match heard {
            Heard::Event(Event::SecretsReplaced { .. }) => (
                Code::RecordRefused,
                format!(
                    "the runs kept here were sealed with other secrets: whatever run `{run}` left is lost, and a new session was opened"
                ),
                "the file `secrets` was removed or replaced since".into(),
                Some("put the old file back, and they go on; else nothing is to be done"),
            ),
            Heard::Event(Event::RecordRefused { what: why, .. }) => (
                Code::RecordRefused,
                format!(
                    "the record of run `{run}` cannot be used: what it left is lost, and a new session was opened"
                ),
                why,
                None,
            ),
            Heard::Event(Event::StoreTrouble { what: why, .. }) => (
                Code::StoreUnavailable,
                format!("run `{run}` cannot be kept for the next command"),
                why,
                None,
            ),
            Heard::Event(_) | Heard::Missed(_) => continue,
        };
        if remarks.iter().all(|told| told.code != Some(code)) {
            remarks.push(Remark {
                code: Some(code),
                what,
                why: Some(why.to_string()),
                hint: hint.map(str::to_owned),
            });
        }
    }
    remarks
}

/// The next event, if there is one now.
async fn heard_already(events: &mut Subscription) -> Option<Heard> {
    tokio::select! {
        biased;
        heard = events.next() => heard,
        () = std::future::ready(()) => None,
    }
}

impl Names {
    fn of(target: &Target, chosen: &ChosenRun) -> Self {
        Self {
            plain: chosen.plain(target),
            shown: target.server.name.clone(),
        }
    }

    /// The trouble with the name that people know.
    fn told(&self, trouble: &Trouble) -> Trouble {
        renamed(trouble, &self.plain, &self.shown)
    }

    /// A result whose sentence on lost state, if it has one, calls the server as people do.
    fn in_sentence(&self, result: Bytes) -> Bytes {
        let sentence = loss::sentence(&self.plain);
        match std::str::from_utf8(&result) {
            Ok(text) if text.contains(&sentence) => {
                let shown = loss::sentence(&self.shown);
                Bytes::from(text.replacen(&sentence, &shown, 1))
            },
            Ok(_) | Err(_) => result,
        }
    }

    fn problem(&self, error: &Error) -> Problem {
        Problem::of_trouble(&self.told(error.trouble()), error.delivery())
    }
}

/// An error of the server as it stood on the wire.
fn raw(said: &RpcError) -> Bytes {
    let data = said.data.as_ref();
    let data: Option<Value> = data.and_then(|raw| serde_json::from_slice(raw).ok());
    let mut error = json!({ "code": said.code, "message": said.message });
    if let Some(data) = data {
        error["data"] = data;
    }
    Bytes::from(error.to_string())
}

#[cfg(test)]
mod tests {
    use warmline::core::era::{Era, Version};

    use super::*;

    #[test]
    fn what_cannot_be_kept_is_said_for_each_kind_of_session() {
        use Transport::{Http, HttpSse, Stdio};
        #[rustfmt::skip]
        let table = [
            (Stdio,   true,  Then::GoesOn, Some("is a program and ends with this command")),
            (Stdio,   false, Then::GoesOn, Some("is a program and ends with this command")),
            (HttpSse, true,  Then::GoesOn, Some("ends with its stream")),
            (Http,    false, Then::GoesOn, Some("keeps nothing per session")),
            (Http,    true,  Then::GoesOn, None),
            (Stdio,   true,  Then::Ends,   None),
            (Http,    false, Then::Ends,   None),
        ];
        for (transport, keeps_session, then, says) in table {
            let facts = Facts {
                era: Era::Legacy,
                version: Version::NEWEST_LEGACY,
                transport,
                keeps_session,
                server_info: None,
                capabilities: Bytes::from_static(b"{}"),
                instructions: None,
                evidence: Vec::new(),
                opened_in: std::time::Duration::ZERO,
                expires_in: None,
                said: None,
                heard: None,
            };
            let said = not_kept(&facts, None, ("trip", then), "demo").map(|remark| remark.what);
            assert_eq!(said.is_some(), says.is_some(), "{transport:?} {said:?}");
            assert!(
                said.unwrap_or_default().contains(says.unwrap_or_default()),
                "{transport:?}"
            );
        }
    }
}
