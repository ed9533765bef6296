//! `subscriptions/listen`: a stream on which a client hears what changes, for as long as it stays.
//!
//! Asked by: the modern face.  One that wants to hear of lists alone shares a stream of the server
//! with others ([`together`](super::together)); any other is passed on to the server as it is. What
//! is told is told under the client's id. When the server's stream breaks it is opened anew, and whatever may have changed
//! meanwhile is said to have changed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use warmline::core::key::Digest;
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::Edit;
use warmline::upstream::Roomy;
use warmline::{Code, Error, Listener, News, Run, ServerHandle, clock};

use super::task::Tasks;
use super::together::{Lists, Together};
use super::{Asked, failed, notification};
use crate::audit::Line;
use crate::body::Body;
use crate::face::Visit;
use crate::failure::Candour;
use crate::flow::{self, Accepts, Calling, Ended, Leaving, Manner};
use crate::lane::{Keep, Lane};
use crate::reply::{self, RpcCode};

pub(super) const METHOD: &str = "subscriptions/listen";
pub(super) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The result of a listen that ends in good order.
pub(super) const COMPLETE: &[u8] = b"{\"resultType\":\"complete\"}";

/// More are not open at a time, in all and for one caller.
const MAX_ALL: u32 = 1024;
const MAX_OF_ONE: u32 = 64;
/// A server may stay silent on such a stream for as long as nothing changes.
pub(super) const STAYS: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A stream that breaks is opened again after a pause that doubles.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A stream that stood for so long was a good one.
pub(super) const STOOD: Duration = Duration::from_secs(60);

/// Answers `subscriptions/listen`.
pub(super) async fn answer(visit: &Visit<'_>, asked: Asked) -> Response<Body> {
    let shared = visit.shared;
    if asked.accepts == Accepts::Json {
        return not_as_json(&asked.id);
    }
    let Some(place) = shared.listens.take(asked.who) else {
        return no_room(&asked.id);
    };
    let lane = Arc::new(Lane::new(Keep::Nothing).counted(&shared.counts));
    let line = visit.noted(METHOD, &asked.params);
    let ear = Ear::new(&lane, asked.id).of_tasks(asked.tasks);
    let ear = Arc::new(ear.noted_in(line));
    let mut stopping = shared.stopping.clone();
    let (turned_out, candour) = (visit.turned_out(), visit.candour());
    let (server, params, run) = (asked.server, asked.params, asked.run);
    let together = shared.together.clone();
    let calling: Calling = Box::pin(async move {
        let staying = stay((&together, &server), &params, (&ear, candour));
        let ended = tokio::select! {
            ended = while_live(run.as_ref(), staying) => {
                ended.unwrap_or_else(|| ear.ended(COMPLETE))
            },
            () = stopped(&mut stopping) => ear.ended(COMPLETE),
            () = turned_out => ear.ended(COMPLETE),
        };
        drop(place);
        ended
    });
    let manner = Manner {
        accepts: asked.accepts,
        leaving: Leaving::Cancels,
        stream: None,
    };
    flow::respond(calling, lane, manner, visit.take_burden().bytes_alone()).await
}

/// What changes can only be told on a stream.
pub(super) fn not_as_json(id: &[u8]) -> Response<Body> {
    let what = "Not Acceptable: what changes comes as text/event-stream";
    reply::unreadable(Some(id), what)
}

/// Too many listen already.
pub(super) fn no_room(id: &[u8]) -> Response<Body> {
    let what = "Subscription limit reached";
    let refusal = reply::error(StatusCode::OK, Some(id), RpcCode::Internal, what);
    reply::called(refusal, reply::OVERLOADED)
}

/// Waits until the gateway stops; for ever, where nobody is left to say so.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Stays with the server until it ends the stream in good order, or is there no more. One that
/// cannot be reached is tried for as long as somebody listens.
async fn stay(
    (together, server): (&Together, &ServerHandle),
    params: &Params,
    (ear, candour): (&Arc<Ear>, Candour),
) -> Ended {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = clock::now();
        let listener = Arc::<Ear>::clone(ear);
        let error = match hear(together, server, params, listener).await {
            Ok(result) => return ear.ended(&result),
            Err(error) => error,
        };
        if began.elapsed() >= STOOD {
            pause = FIRST_PAUSE;
        }
        if error.code() == Code::RunEnded {
            // Whoever names the run next begins another.
            return ear.ended(COMPLETE);
        }
        let is_gone = matches!(error.code(), Code::ServerUnknown | Code::Closed);
        if is_gone || error.server_error().is_some() || !ear.is_acknowledged() {
            ear.note(Err(error.clone()));
            return failed(server, &ear.id, (&error, 0), candour).await;
        }
        clock::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Stays for as long as the run that a listen belongs to: a stream that is held for many goes on
/// without it. Whoever names the run next begins another.
pub(super) async fn while_live<F: Future>(run: Option<&Run>, staying: F) -> Option<F::Output> {
    match run {
        Some(run) => run.while_live(staying).await,
        None => Some(staying.await),
    }
}

/// Hears one stream of a server to its end: one for many where lists alone are wanted, else its
/// own.
pub(super) async fn hear(
    together: &Together,
    server: &ServerHandle,
    params: &Params,
    ear: Arc<dyn Listener>,
) -> Result<Bytes, Error> {
    if let (Some(lists), Some(of_lists)) = (Lists::alone(params), server.of_lists()) {
        return together.listen(of_lists, lists, ear).await;
    }
    server
        .request_raw(METHOD, params.clone())
        .relayed()
        .timeout(STAYS)
        .idle_timeout(STAYS)
        .listened_by(ear)
        .await
}

/// Hears one stream of a server for one listen of a client.
pub(super) struct Ear {
    lane: Arc<Lane>,
    /// The client's own id, raw.
    id: Bytes,
    /// The tasks that it is for.
    tasks: Tasks,
    acknowledged: AtomicBool,
    /// The line of the audit, until it is known how the listen began.
    line: Mutex<Option<Line>>,
}

/// What the server agreed to tell.
#[derive(Default, Deserialize)]
struct Agreed {
    #[serde(default)]
    notifications: Kinds,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kinds {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

impl Listener for Ear {
    fn news(&self, news: News) {
        // Nothing else may be told here.
        let News::Other(method, params) = news else {
            return;
        };
        if method == ACKNOWLEDGED {
            if self.acknowledged.swap(true, Ordering::AcqRel) {
                return self.anything_may_have_changed(&params);
            }
            self.note(Ok(Bytes::new()));
        }
        self.tell(&method, &params);
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.lane.behind()
    }

    fn missed(&self, notices: u64) {
        self.lane.missed(notices);
    }
}

impl Ear {
    pub(super) fn new(lane: &Arc<Lane>, id: Bytes) -> Self {
        Self {
            lane: Arc::clone(lane),
            id,
            tasks: Tasks::default(),
            acknowledged: AtomicBool::new(false),
            line: Mutex::new(None),
        }
    }

    /// The same for one that hears of tasks.
    pub(super) fn of_tasks(mut self, tasks: Tasks) -> Self {
        self.tasks = tasks;
        self
    }

    /// The same, with a line of the audit that says how the listen began.
    pub(super) fn noted_in(mut self, line: Option<Line>) -> Self {
        self.line = Mutex::new(line);
        self
    }

    /// It is known how the listen began: it stands, or it never will.
    pub(super) fn note(&self, outcome: Result<Bytes, Error>) {
        let line = self.line.lock().take();
        if let Some(line) = line {
            line.ended(&outcome);
        }
    }

    fn is_acknowledged(&self) -> bool {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub(super) fn tell(&self, method: &str, params: &Bytes) {
        let Some(told) = self.tasks.told(method, params) else {
            return;
        };
        let named = self.named(&told);
        self.lane.tell(notification(method, &named));
    }

    /// The stream was opened anew: what happened in between is not told again by anybody.
    pub(super) fn anything_may_have_changed(&self, params: &[u8]) {
        let agreed = serde_json::from_slice::<Agreed>(params).unwrap_or_default();
        let kinds = agreed.notifications;
        let lists = [
            ("tools", kinds.tools_list_changed),
            ("prompts", kinds.prompts_list_changed),
            ("resources", kinds.resources_list_changed),
        ];
        for (list, _) in lists.iter().filter(|(_, agreed)| *agreed) {
            let method = format!("notifications/{list}/list_changed");
            self.tell(&method, &Bytes::from_static(b"{}"));
        }
        for uri in kinds.resource_subscriptions {
            let params = json!({ "uri": uri }).to_string();
            self.tell("notifications/resources/updated", &params.into());
        }
    }

    /// The end in good order, with the server's result.
    pub(super) fn ended(&self, result: &[u8]) -> Ended {
        let named = self.named(&Bytes::copy_from_slice(result));
        Ended {
            status: StatusCode::OK,
            message: reply::response_message(Some(&self.id), "result", &named),
        }
    }

    /// The same object, saying that it belongs to the client's listen.
    fn named(&self, object: &Bytes) -> Bytes {
        let Ok(params) = Params::parse(object.clone()) else {
            return object.clone();
        };
        let mut out = Vec::with_capacity(object.len() + self.id.len() + 64);
        params.write_with(&mut out, &[], &[Edit::Set(meta::SUBSCRIPTION_ID, &self.id)]);
        out.into()
    }
}

/// How many listens are open, and whose.
#[derive(Default)]
pub(crate) struct Listens(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    all: u32,
    of: HashMap<Digest, u32>,
}

impl fmt::Debug for Listens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listens").field(&self.0.lock().all).finish()
    }
}

impl Listens {
    /// A place for one more, if there is one.
    pub(super) fn take(&self, who: Digest) -> Option<Place> {
        let mut open = self.0.lock();
        if open.all >= MAX_ALL {
            return None;
        }
        let of_one = open.of.entry(who).or_default();
        if *of_one >= MAX_OF_ONE {
            return None;
        }
        *of_one += 1;
        open.all += 1;
        Some(Place {
            open: Arc::clone(&self.0),
            who,
        })
    }
}

/// The place of one listen, free again when it is dropped.
pub(super) struct Place {
    open: Arc<Mutex<Open>>,
    who: Digest,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.all = open.all.saturating_sub(1);
        let left = open.of.get_mut(&self.who).map(|of_one| {
            *of_one = of_one.saturating_sub(1);
            *of_one
        });
        if left == Some(0) {
            open.of.remove(&self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_take_all_places_and_each_is_free_again() {
        let listens = Listens::default();
        let (greedy, other) = (Digest::new([1; 16]), Digest::new([2; 16]));
        let mut held: Vec<Place> = std::iter::from_fn(|| listens.take(greedy)).collect();
        assert_eq!(held.len(), usize::try_from(MAX_OF_ONE).unwrap());
        assert!(listens.take(other).is_some());
        held.pop();
        held.extend(listens.take(greedy));
        assert!(listens.take(greedy).is_none());
        held.clear();
        assert_eq!(listens.0.lock().all, 0);
        assert!(listens.0.lock().of.is_empty());
        for number in 0..=u8::MAX {
            let who = Digest::new([number; 16]);
            held.extend((0..8).filter_map(|_| listens.take(who)));
        }
        assert_eq!(held.len(), usize::try_from(MAX_ALL).unwrap());
    }
}
