//! `subscriptions/listen` at the place of all servers: one stream for the client, one at each
//! server behind it.
//!
//! Asked by: [`merged`](super::merged).  It is acknowledged at once. A server that cannot be heard
//! is tried again; when it is there, or when there are other servers than before, whatever may have
//! changed is said to have changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};
use warmline::core::era::Era;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::Edit;
use warmline::{Listener, News, ServerHandle, clock};

use super::Way;
use super::listen::{
    ACKNOWLEDGED, Ear, FIRST_PAUSE, LONGEST_PAUSE, METHOD, STOOD, hear, no_room, not_as_json,
    stopped,
};
use super::together::Together;
use crate::Shared;
use crate::body::Body;
use crate::door::limits::NO_BURDEN;
use crate::face::{self, Visit};
use crate::flow::{self, Accepts, Calling, Leaving, Manner};
use crate::lane::{Keep, Lane};
use crate::merge;
use crate::merge::changes::Changes;
use crate::merge::owner::Seeker;
use crate::path::Target;
use crate::who::{Peer, Subject};

/// Answers `subscriptions/listen`.
pub(super) async fn answer(
    visit: &Visit<'_>,
    way: Way,
    id: Bytes,
    params: &Params,
) -> Response<Body> {
    let accepts = face::accepts(visit.head).unwrap_or(Accepts::Both);
    if accepts == Accepts::Json {
        return not_as_json(&id);
    }
    let Some(taken) = visit.shared.listens.take(way.who) else {
        return no_room(&id);
    };
    let lane = Arc::new(Lane::new(Keep::Nothing));
    let line = visit.noted(METHOD, params);
    let ear = Arc::new(Ear::new(&lane, id).noted_in(line));
    let wanted = Wanted::of(params);
    ear.tell(ACKNOWLEDGED, &wanted.acknowledgement());
    ear.note(Ok(Bytes::new()));
    let place = Place {
        shared: Arc::clone(visit.shared),
        subject: visit.subject.clone(),
        peer: visit.peer,
        run: visit.target.run.map(str::to_owned),
        head: visit.head.clone(),
        params: params.clone(),
        way,
        wanted,
        ear,
    };
    let mut stopping = visit.shared.stopping.clone();
    let turned_out = visit.turned_out();
    let calling: Calling = Box::pin(async move {
        tokio::select! {
            () = place.stay() => {},
            () = stopped(&mut stopping) => {},
            () = turned_out => {},
        }
        drop(taken);
        place.ear.ended(b"{\"resultType\":\"complete\"}")
    });
    let manner = Manner {
        accepts,
        leaving: Leaving::Cancels,
        stream: None,
    };
    flow::respond(calling, lane, manner, visit.take_burden().bytes_alone()).await
}

/// What a client wants to hear of.
struct Wanted {
    /// The raw object.
    raw: Value,
    uris: Vec<String>,
}

impl Wanted {
    fn of(params: &Params) -> Self {
        let raw = params.member("notifications").unwrap_or(b"{}");
        let mut raw: Value = serde_json::from_slice(raw).unwrap_or_default();
        // Tasks are not spoken of at this place.
        raw.as_object_mut().map(|raw| raw.remove("taskIds"));
        let uris = raw["resourceSubscriptions"]
            .as_array()
            .into_iter()
            .flatten();
        let uris = uris.filter_map(Value::as_str).map(str::to_owned).collect();
        Self { raw, uris }
    }

    /// All of it can be had here.
    fn acknowledgement(&self) -> Bytes {
        json!({ "notifications": self.raw }).to_string().into()
    }

    /// The parameters for one server, which hears of its own resources alone.
    fn for_server(&self, params: &Params, uris: &[String]) -> Params {
        let mut wanted = self.raw.clone();
        if let Some(wanted) = wanted.as_object_mut() {
            wanted.remove("resourceSubscriptions");
            if !uris.is_empty() {
                wanted.insert("resourceSubscriptions".to_owned(), json!(uris));
            }
        }
        let wanted = wanted.to_string();
        let mut raw = Vec::with_capacity(params.raw().len());
        let edits = [Edit::Set("notifications", wanted.as_bytes())];
        params.write_with(&mut raw, &edits, &[]);
        // Edits of a checked object make a checked object.
        Params::parse(raw.into()).unwrap_or_else(|_| params.clone())
    }
}

/// The place of a client at all servers: what its visit said, for as long as it stays.
struct Place {
    shared: Arc<Shared>,
    subject: Subject,
    peer: Peer,
    run: Option<String>,
    head: Parts,
    params: Params,
    way: Way,
    wanted: Wanted,
    ear: Arc<Ear>,
}

impl Place {
    /// Stays with all servers that are declared, for ever.
    async fn stay(&self) {
        let mut changes = Changes::of(&self.shared);
        loop {
            tokio::select! {
                () = self.stay_with_all() => {},
                () = changes.next() => {},
            }
            self.ear
                .anything_may_have_changed(&self.wanted.acknowledgement());
        }
    }

    async fn stay_with_all(&self) {
        let target = Target {
            run: self.run.as_deref(),
            server: None,
        };
        let who = (self.subject.clone(), self.peer);
        let visit = Visit::new(&self.shared, who, target, &self.head, &NO_BURDEN);
        let reach = |server: &str| self.way.to(&visit, server);
        let members = || merge::members(&self.shared, &self.subject, reach);
        let seeker = Seeker {
            shared: &self.shared,
            subject: &self.subject,
            era: Era::Modern,
        };
        let mut uris: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for uri in &self.wanted.uris {
            if let Some(owner) = seeker.find(members(), uri).await.owner {
                uris.entry(owner).or_default().push(uri.clone());
            }
        }
        let staying = members().into_iter().filter_map(|member| {
            let uris = uris.remove(&member.name).unwrap_or_default();
            let params = self.wanted.for_server(&self.params, &uris);
            let together = &self.shared.together;
            Some(stay_with(together, member.reached.ok()?, params, &self.ear))
        });
        join_all(staying).await;
        // Nobody is left who could tell anything; other servers may come.
        std::future::pending::<()>().await;
    }
}

/// Stays with one server; ends where it knows no such thing.
async fn stay_with(together: &Together, server: ServerHandle, params: Params, ear: &Arc<Ear>) {
    let ear = Arc::new(MemberEar {
        ear: Arc::clone(ear),
        is_again: AtomicBool::new(false),
    });
    let mut pause = FIRST_PAUSE;
    loop {
        let began = clock::now();
        let listener = Arc::<MemberEar>::clone(&ear);
        let heard = hear(together, &server, &params, listener).await;
        if heard.is_err_and(|error| error.server_error().is_some()) {
            return;
        }
        ear.is_again.store(true, Ordering::Release);
        if began.elapsed() >= STOOD {
            pause = FIRST_PAUSE;
        }
        clock::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Hears one server for a listen of all.
struct MemberEar {
    ear: Arc<Ear>,
    /// Whether it was tried before.
    is_again: AtomicBool,
}

impl Listener for MemberEar {
    fn news(&self, news: News) {
        // Nothing else may be told here.
        let News::Other(method, params) = news else {
            return;
        };
        if method != ACKNOWLEDGED {
            self.ear.tell(&method, &params);
        } else if self.is_again.load(Ordering::Acquire) {
            self.ear.anything_may_have_changed(&params);
        }
    }
}
