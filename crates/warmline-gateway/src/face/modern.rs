//! The modern face: 2026-07-28 over Streamable HTTP. Nothing is opened, everything is said in each
//! request.
//!
//! Asked by: [`face`](crate::face).  Whoever closes the response cancels the call.
//!
//! | question | file |
//! |---|---|
//! | What must a request say, and what is told first where it does not? | `check.rs` |
//! | What does the server say of itself? | `discover.rs` |
//! | How is a client told what changes? | `listen.rs`; of lists, many by one: `together.rs` |
//! | Whose is a request at the place of all servers? | `merged.rs`, `gathered.rs` |
//! | Whose is the state of a request that asked something? | `state.rs` |
//! | Whose is a task? | `task.rs` |

mod check;
mod discover;
mod gathered;
pub(crate) mod listen;
mod merged;
mod promise;
mod state;
mod task;
pub(crate) mod together;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use warmline::core::code::{Code, Reason};
use warmline::core::era::Era;
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::PARAM_PREFIX;
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::upstream::Roomy;
use warmline::{Error, IdentityHandle, Listener, News, Run, ServerHandle};

use self::state::{Binding, Occasion};
use self::task::{Extensions, Tasks};
use super::{Headless, PartingWords, Visit, method_named, raw_id};
use crate::body::Body;
use crate::door::replies::{CallRoom, ReplyRoom};
use crate::failure::{self, Candour};
use crate::flow::{Accepts, Calling, Ended, Flow, Leaving, Manner};
use crate::lane::{Keep, Lane};
use crate::reply::{self, RpcCode};
use crate::trace;
use crate::which::{self, BadName, RUN_META};
use crate::who::{self, Split, Subject};

/// Answers a message of a modern client.
pub(crate) async fn message(visit: &Visit<'_>, message: Message, params: Params) -> Response<Body> {
    reply::told_if_only_legacy(answered(visit, message, params).await)
}

async fn answered(visit: &Visit<'_>, message: Message, params: Params) -> Response<Body> {
    if let Err(refusal) = check::check(visit.head, &message, &params) {
        // An answer has the id of a question, which is nobody's request.
        let own_id = message.raw_id().filter(|_| message.method().is_some());
        return refusal.response(own_id);
    }
    if message.kind() == Kind::Notification {
        // The protocol knows none that a client of this era sends over HTTP.
        return reply::accepted();
    }
    if visit.target.server.is_none() {
        return Box::pin(merged::message(visit, message, params)).await;
    }
    let said = visit.shared.audit.is_some().then(|| params.clone());
    let asked = match Asked::of(visit, &message, params) {
        Ok(asked) => asked,
        Err(refused) => {
            if let Some(said) = said {
                refused.note(visit, message.method().unwrap_or_default(), &said);
            }
            return refused.response(message.raw_id(), visit.candour());
        },
    };
    match message.method() {
        Some("server/discover") => Box::pin(discover::answer(visit, asked)).await,
        Some(listen::METHOD) => listen::answer(visit, asked).await,
        method => {
            let method = method_named(method.unwrap_or_default());
            call(visit, asked, method).await
        },
    }
}

/// Passes a request on to the server, and its answer back.
async fn call(visit: &Visit<'_>, asked: Asked, method: Cow<'static, str>) -> Response<Body> {
    let pass = match visit.pass(asked.server.name(), &method, &asked.params) {
        Ok(pass) => pass,
        Err(error) => {
            return reply::answer(failure::message(&asked.id, &error, visit.candour()));
        },
    };
    let lane = Arc::new(Lane::new(Keep::Nothing).counted(&visit.shared.counts));
    let trace = trace::passed_on(visit.head, &asked.params);
    let call = asked
        .server
        .request_raw(method, asked.params)
        .headers(trace);
    let call = match visit.head.extensions.get() {
        Some(Headless) => call.relayed(),
        None => call.relayed_with(of_arguments(visit.head)),
    };
    let mut ear = Ear::new(&lane, asked.token, asked.logs, visit.reply_room());
    ear.parting = visit.head.extensions.get().cloned();
    let ear = Arc::new(ear);
    let call = call.listened_by(Arc::<Ear>::clone(&ear));
    let (id, server, who, run) = (asked.id, asked.server, asked.who, asked.run);
    let (extensions, tasks, occasion) = (asked.extensions, asked.tasks, asked.occasion);
    let (shared, candour) = (Arc::clone(visit.shared), visit.candour());
    let calling: Calling = Box::pin(async move {
        let result = match pass.ended(&server, call.unboxed().await) {
            Ok(result) => result,
            Err(error) => {
                return failed(&server, &id, (&error, ear.heard()), candour).await;
            },
        };
        let result = match &occasion {
            Some(occasion) => Binding {
                vault: shared.warm.vault(),
                who,
                server: server.name(),
                run: run.as_ref().map(Run::name),
            }
            .seal(result, occasion, &extensions),
            None => state::understood(&result, &extensions).map(|()| tasks.named(result)),
        };
        Ended {
            status: StatusCode::OK,
            message: match result {
                Ok(result) => reply::response_message(Some(&id), "result", &result),
                Err(trouble) => state::not_passed_on(Some(&id), &trouble),
            },
        }
    });
    let manner = Manner {
        accepts: asked.accepts,
        leaving: Leaving::Cancels,
        stream: None,
    };
    let flow = Flow::of(calling, lane, manner, visit.take_burden());
    let begun = flow.begin().await;
    begun.response(|flow| visit.watched(flow))
}

/// How a request that failed ends for its client. Where the server does not speak this era, its
/// client hears what such a server would say, and goes on from there.
async fn failed(
    server: &ServerHandle,
    id: &[u8],
    (error, heard): (&Error, u16),
    candour: Candour,
) -> Ended {
    let is_ours = error.server_error().is_none();
    if is_ours && error.reason() == Reason::Version && server.lacks(Era::Modern).await {
        return Ended {
            status: StatusCode::BAD_REQUEST,
            message: reply::only_legacy(id),
        };
    }
    Ended {
        status: failure::modern_status(error, heard),
        message: failure::message(id, error, candour),
    }
}

/// The headers of arguments, as the client wrote them.
fn of_arguments(head: &Parts) -> impl Iterator<Item = (HeaderName, HeaderValue)> + '_ {
    let all = head.headers.iter();
    all.filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX))
        .map(|(name, value)| (name.clone(), value.clone()))
}

/// A request that may be passed on.
struct Asked {
    /// The client's own id, raw.
    id: Bytes,
    params: Params,
    server: ServerHandle,
    /// Whose it is, as far as anybody knows.
    who: Digest,
    run: Option<Run>,
    /// The tasks that it names.
    tasks: Tasks,
    /// What a state is for that its server may answer with; none where it may not.
    occasion: Option<Occasion>,
    extensions: Extensions,
    accepts: Accepts,
    /// What its reports of progress are to name.
    token: Option<Bytes>,
    logs: Logs,
}

/// Whether a request wants log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    Wanted,
    Not,
}

impl Asked {
    fn of(visit: &Visit<'_>, message: &Message, params: Params) -> Result<Self, NotPassed> {
        let name = visit.target.server.ok_or(NotPassed::NoServer)?;
        let way = Way::of(visit, &params)?;
        let server = way.to(visit, name).map_err(NotPassed::Failed)?;
        let who = way.who;
        let binding = Binding {
            vault: visit.shared.warm.vault(),
            who,
            server: name,
            run: way.run.as_ref().map(Run::name),
        };
        let method = message.method().unwrap_or_default();
        let token = params.meta_member(meta::PROGRESS_TOKEN);
        let wants_logs = params.meta_member(meta::LOG_LEVEL).is_some();
        let token = token.map(|token| params.raw().slice_ref(token));
        let extensions = Extensions::of(&params);
        let occasion = Occasion::of(method, &params, visit.came_at);
        let (params, tasks) = upward(binding, (method, occasion.as_ref()), params)?;
        Ok(Self {
            id: raw_id(message),
            server,
            who,
            run: way.run,
            tasks,
            occasion,
            extensions,
            accepts: super::accepts(visit.head).unwrap_or(Accepts::Both),
            token,
            logs: if wants_logs { Logs::Wanted } else { Logs::Not },
            params,
        })
    }
}

/// The way of a caller to servers: as whom, and in which run.
struct Way {
    identity: IdentityHandle,
    run: Option<Run>,
    /// Whose it is, as far as anybody knows.
    who: Digest,
}

impl Way {
    fn of(visit: &Visit<'_>, params: &Params) -> Result<Self, NotPassed> {
        let shared = visit.shared;
        let terms = shared.terms.load();
        let (run_from, vault) = (&terms.run_from, shared.warm.vault());
        let run = which::run(visit.target.run, visit.head, Some(params), run_from, vault)
            .map_err(NotPassed::BadRun)?;
        let split = run.as_deref().map_or(Split::Once, Split::Run);
        let identity = who::identity(&shared.warm, &visit.subject, split);
        let who = match (&visit.subject, &run) {
            // Their identity is new with each request; what they have in common is that.
            (Subject::Anybody, None) => Digest::new([0; 16]),
            (Subject::Anybody, Some(_)) | (Subject::Known(_), _) => identity.digest(),
        };
        let run = match run {
            None => None,
            Some(name) => {
                let begun = identity.named(&name).map_err(NotPassed::Failed)?;
                let run = begun.clone();
                // It goes on without this request.
                begun.detach();
                Some(run)
            },
        };
        Ok(Self { identity, run, who })
    }

    fn to(&self, visit: &Visit<'_>, server: &str) -> Result<ServerHandle, Error> {
        let server = match &self.run {
            Some(run) => run.server(server)?,
            None => self.identity.server(server)?,
        };
        Ok(server.of_caller(&visit.head.headers).in_era(Era::Modern))
    }
}

/// The parameters as the server gets them: its own state and tasks back, and nothing that was said
/// to us.
fn upward(
    binding: Binding<'_>,
    (method, occasion): (&str, Option<&Occasion>),
    params: Params,
) -> Result<(Params, Tasks), NotPassed> {
    let state = match occasion {
        Some(occasion) => binding.open(&params, occasion),
        None => Ok(None),
    };
    let state = state.map_err(|state::NotOurs| NotPassed::BadState)?;
    let (tasks, named) = Tasks::of(binding, method, &params).map_err(|task::Unknown| {
        NotPassed::Wrong(RpcCode::Params, "Invalid params: unknown task".to_owned())
    })?;
    let names_run = params.meta_member(RUN_META).is_some();
    if state.is_none() && named.is_none() && !names_run {
        return Ok((params, tasks));
    }
    let state = state.as_deref().map(|raw| Edit::Set(state::MEMBER, raw));
    let named = named.as_ref().map(|(member, raw)| Edit::Set(member, raw));
    // No method has both.
    let edits = state.or(named);
    let meta_edits = names_run.then_some(Edit::Remove(RUN_META));
    let mut raw = Vec::with_capacity(params.raw().len());
    params.write_with(&mut raw, edits.as_slice(), meta_edits.as_slice());
    // Edits of a checked object make a checked object.
    Ok((Params::parse(raw.into()).unwrap_or(params), tasks))
}

/// Why a request goes to no server.
enum NotPassed {
    NoServer,
    BadRun(BadName),
    /// The state is none that we gave to this caller, or not any more.
    BadState,
    /// Not all servers of this place are known to speak this era.
    OnlyLegacy,
    /// What it asks for is not to be had here.
    Wrong(RpcCode, String),
    /// The rules keep it from its caller, who hears the same as of what is not there.
    Hidden(String),
    Failed(Error),
}

impl NotPassed {
    /// Tells the audit of a request that goes to no server for this.
    fn note(&self, visit: &Visit<'_>, method: &str, params: &Params) {
        let why = match self {
            Self::Failed(error) => return visit.failed(method, params, error),
            Self::NoServer => Code::ServerUnknown.word(),
            Self::BadRun(_) => which::BAD_RUN,
            Self::BadState => "bad-state",
            Self::OnlyLegacy => reply::ERA_UNKNOWN,
            Self::Wrong(code, _) => code.why(),
            Self::Hidden(_) => Code::NotAllowed.word(),
        };
        visit.turned_down(method, params, why);
    }

    fn response(&self, id: Option<&[u8]>, candour: Candour) -> Response<Body> {
        match self {
            Self::NoServer => reply::no_such_server(),
            Self::BadRun(bad) => bad.response(id),
            Self::BadState => {
                let what = "Invalid params: this requestState was not given to you, or is too old";
                reply::error(StatusCode::BAD_REQUEST, id, RpcCode::Params, what)
            },
            Self::OnlyLegacy => {
                let message = reply::only_legacy(id.unwrap_or(b"null"));
                reply::ended(StatusCode::BAD_REQUEST, message)
            },
            Self::Wrong(RpcCode::Method, what) => {
                reply::error(StatusCode::NOT_FOUND, id, RpcCode::Method, what)
            },
            Self::Wrong(code, what) => reply::error(StatusCode::OK, id, *code, what),
            Self::Hidden(what) => reply::error(StatusCode::OK, id, RpcCode::Params, what),
            Self::Failed(error) if error.code() == Code::ServerUnknown => reply::no_such_server(),
            Self::Failed(error) => {
                reply::answer(failure::message(id.unwrap_or(b"null"), error, candour))
            },
        }
    }
}

/// Hears what comes down during one call.
struct Ear {
    lane: Arc<Lane>,
    token: Option<Bytes>,
    logs: Logs,
    /// Where its client gives it up by a message.
    parting: Option<PartingWords>,
    /// The status of the server's answer, where it is another than 200.
    status: AtomicU16,
    /// What the reply takes up while it is read.
    room: CallRoom,
}

impl Ear {
    fn new(lane: &Arc<Lane>, token: Option<Bytes>, logs: Logs, room: ReplyRoom) -> Self {
        Self {
            room: CallRoom::new(room),
            lane: Arc::clone(lane),
            token,
            logs,
            parting: None,
            status: AtomicU16::new(0),
        }
    }

    fn heard(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }
}

impl Listener for Ear {
    fn answered_with(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn news(&self, news: News) {
        let (method, params) = match news {
            News::Progress(params) => {
                let Some(token) = &self.token else { return };
                let mut named = Vec::with_capacity(params.len() + token.len());
                let edits = [Edit::Set("progressToken", token)];
                if splice::edit_object(&params, &edits, &mut named).is_err() {
                    return;
                }
                ("notifications/progress".to_owned(), Bytes::from(named))
            },
            // Who did not ask for lines must not get any, whatever the server does.
            News::Log(_) if self.logs == Logs::Not => return,
            News::Log(params) => ("notifications/message".to_owned(), params),
            // Only who listens for a task hears of it, by an id that it can use.
            News::Other(method, _) if method == task::NOTICE => return,
            News::Other(method, params) => (method, params),
        };
        self.lane.tell(notification(&method, &params));
    }

    fn room(&self, bytes: usize) -> Option<Roomy<'_>> {
        self.room.wait(bytes)
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.lane.behind()
    }

    fn missed(&self, notices: u64) {
        self.lane.missed(notices);
    }

    fn stream_begun(&self) {
        self.lane.begin();
    }

    fn parting_words(&self) -> Option<Bytes> {
        self.parting.as_ref()?.said()
    }
}

fn notification(method: &str, params: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(64 + params.len());
    splice::write_notification(&mut out, method, Some(params));
    out.into()
}
