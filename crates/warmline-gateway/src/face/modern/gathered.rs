//! `subscriptions/listen` at the place of all servers: one stream for the client, one at each
//! server behind it.
//!
//! Asked by: [`merged`](super::merged).  What the servers agreed to within their shares of time is
//! acknowledged ([`promise`](super::promise)). A server that cannot be heard is tried again; when it
//! is there, or when there are other servers than before, whatever may have changed is said to have
//! changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all, try_join_all};
use futures_util::{StreamExt as _, stream};
use http::Response;
use http::request::Parts;
use tokio::sync::watch;
use warmline::core::era::Era;
use warmline::core::protocol::params::Params;
use warmline::upstream::Roomy;
use warmline::{Code, Listener, News, ServerHandle, clock};

use super::Way;
use super::listen::{
    ACKNOWLEDGED, COMPLETE, Ear, FIRST_PAUSE, LONGEST_PAUSE, METHOD, STOOD, hear, no_room,
    not_as_json, stopped, while_live,
};
use super::promise::{Came, Everybody, Promise, Told, Wanted};
use super::together::Together;
use crate::Shared;
use crate::body::Body;
use crate::door::limits::NO_BURDEN;
use crate::face::{self, Visit};
use crate::flow::{self, Accepts, Calling, Leaving, Manner};
use crate::lane::{Keep, Lane};
use crate::merge::changes::Changes;
use crate::merge::owner::Seeker;
use crate::merge::{self, Member, absent};
use crate::path::Target;
use crate::who::{Peer, Subject};

/// More resources of one listen are not looked for at the servers themselves where no list names
/// them.
const MAX_LOOKED_FOR: usize = 64;
/// So many are looked for at a time.
const AT_ONCE: usize = 8;

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
    let lane = Arc::new(Lane::new(Keep::Nothing).counted(&visit.shared.counts));
    // It is a stream, whenever there is something to say.
    lane.begin();
    let line = visit.noted(METHOD, params);
    let ear = Arc::new(Ear::new(&lane, id).noted_in(line));
    let place = Place {
        shared: Arc::clone(visit.shared),
        subject: visit.subject.clone(),
        peer: visit.peer,
        run: visit.target.run.map(str::to_owned),
        head: visit.head.clone(),
        params: params.clone(),
        way,
        promise: Arc::new(Promise::new(Wanted::of(params), Arc::clone(&ear))),
    };
    let mut stopping = visit.shared.stopping.clone();
    let turned_out = visit.turned_out();
    let calling: Calling = Box::pin(async move {
        tokio::select! {
            _ = while_live(place.way.run.as_ref(), place.stay()) => {},
            () = stopped(&mut stopping) => {},
            () = turned_out => {},
        }
        drop(taken);
        ear.ended(COMPLETE)
    });
    let manner = Manner {
        accepts,
        leaving: Leaving::Cancels,
        stream: None,
    };
    flow::respond(calling, lane, manner, visit.take_burden().bytes_alone()).await
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
    promise: Arc<Promise>,
}

impl Place {
    /// Stays with all servers that are declared, until its run is over.
    async fn stay(&self) {
        let mut changes = Changes::of(&self.shared);
        let uris = self.uris().await;
        let mut staying = Box::pin(self.stay_with_all(uris));
        loop {
            tokio::select! {
                RunEnded = &mut staying => return,
                () = changes.next() => {},
            }
            // Those that were there are heard until the others are: nothing is missed in between,
            // and to be told twice does no harm.
            let uris = tokio::select! {
                RunEnded = &mut staying => return,
                uris = self.uris() => uris,
            };
            let mut next = Box::pin(self.stay_with_all(uris));
            self.promise.anything_may_have_changed();
            tokio::select! {
                RunEnded = &mut staying => return,
                RunEnded = &mut next => return,
                () = clock::sleep(OVERLAP) => {},
            }
            staying = next;
        }
    }

    /// The visit of the client, as long as it lasts.
    fn visit(&self) -> Visit<'_> {
        let target = Target {
            run: self.run.as_deref(),
            server: None,
        };
        let who = (self.subject.clone(), self.peer);
        Visit::new(&self.shared, who, target, &self.head, &NO_BURDEN)
    }

    /// All servers that are declared, as this client reaches them.
    fn members(&self) -> Vec<Member> {
        let visit = self.visit();
        let reach = |server: &str| self.way.to(&visit, server);
        merge::members(&self.shared, &self.subject, reach)
    }

    async fn stay_with_all(&self, mut uris: BTreeMap<String, Vec<String>>) -> RunEnded {
        let members = self.members();
        let all = members.len();
        let heard = members.into_iter().filter_map(|member| {
            let uris = uris.remove(&member.name).unwrap_or_default();
            Some(self.heard(member.reached.ok()?, uris))
        });
        let heard: Vec<Heard> = heard.collect();
        let is_anybody_away = heard.len() < all;
        let promising = async {
            let said = join_all(heard.iter().map(Heard::said)).await;
            let is_late = said.contains(&Everybody::NotYet);
            self.promise.give(match is_anybody_away || is_late {
                true => Everybody::NotYet,
                false => Everybody::Said,
            });
        };
        let staying = heard.iter().map(|one| one.stay(&self.shared.together));
        let staying = async {
            let (staying, ()) = join(try_join_all(staying), promising).await;
            staying
        };
        match staying.await {
            Err(ended) => ended,
            // Nobody is left who could tell anything; other servers may come.
            Ok(_) => std::future::pending().await,
        }
    }

    /// The resources that are to be heard of, by the server that has them.
    async fn uris(&self) -> BTreeMap<String, Vec<String>> {
        let visit = self.visit();
        let seeker = Seeker {
            visit: &visit,
            era: Era::Modern,
        };
        let uris = self.promise.wanted().uris();
        let looked_for = uris.into_iter().enumerate().map(|(number, uri)| {
            let members = self.members();
            async move {
                let owner = match number < MAX_LOOKED_FOR {
                    true => seeker.holder(members, &uri).await,
                    false => {
                        let mut found = seeker.find(members, &uri).await;
                        found.pop().filter(|_| found.is_empty())
                    },
                };
                (owner, uri)
            }
        });
        let mut looked_for = stream::iter(looked_for).buffered(AT_ONCE);
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        while let Some((owner, uri)) = looked_for.next().await {
            if let Some(owner) = owner {
                let of_it = found.entry(owner.name().to_owned());
                of_it.or_default().push(uri);
            }
        }
        found
    }

    /// A server that is to be heard.
    fn heard(&self, server: ServerHandle, uris: Vec<String>) -> Heard {
        let absences = &self.shared.absences;
        let whom = absent::whom(&self.subject, Era::Modern, server.name());
        let most = self.shared.options.list_share;
        let share = absences.share_of(&server, &whom, most);
        Heard {
            params: self.promise.wanted().for_server(&self.params, &uris),
            share: share.unwrap_or_default(),
            ear: Arc::new(MemberEar {
                promise: Arc::clone(&self.promise),
                uris: uris.into(),
                is_again: AtomicBool::new(false),
                said: watch::Sender::new(None),
            }),
            server,
        }
    }
}

/// So long those servers are heard that were there before others came or went.
const OVERLAP: Duration = Duration::from_secs(1);

/// The run of a listen is over, and the listen with it: whoever names the run next begins another.
struct RunEnded;

/// A server that is heard for a listen of all.
struct Heard {
    server: ServerHandle,
    /// What it is asked for; none where there is nothing to ask.
    params: Option<Params>,
    /// How long is waited for what it agrees to.
    share: Duration,
    ear: Arc<MemberEar>,
}

impl Heard {
    /// Waits until it said what it agrees to, or its share is over.
    async fn said(&self) -> Everybody {
        if self.params.is_none() {
            return Everybody::Said;
        }
        let mut said = self.ear.said.subscribe();
        let said = clock::timeout(self.share, said.wait_for(Option::is_some)).await;
        let said = said.ok().and_then(|said| said.ok().and_then(|said| *said));
        said.unwrap_or_else(|| {
            self.ear.says(Everybody::NotYet);
            Everybody::NotYet
        })
    }

    /// Stays with it; ends where it knows no such thing.
    ///
    /// # Errors
    /// The run is over.
    async fn stay(&self, together: &Together) -> Result<(), RunEnded> {
        let Some(params) = &self.params else {
            return Ok(());
        };
        let ear = &self.ear;
        let mut pause = FIRST_PAUSE;
        loop {
            let began = clock::now();
            let listener = Arc::<MemberEar>::clone(ear);
            let heard = hear(together, &self.server, params, listener).await;
            match heard {
                Err(error) if error.code() == Code::RunEnded => return Err(RunEnded),
                Err(error) if error.server_error().is_some() => {
                    ear.says(Everybody::Said);
                    return Ok(());
                },
                Ok(_) | Err(_) => {},
            }
            ear.says(Everybody::NotYet);
            if began.elapsed() >= STOOD {
                pause = FIRST_PAUSE;
            }
            clock::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
}

/// Hears one server for a listen of all.
struct MemberEar {
    promise: Arc<Promise>,
    /// The resources that it was asked to tell of.
    uris: Arc<[String]>,
    /// Whether it was heard before.
    is_again: AtomicBool,
    /// Whether it said what it agrees to, once that is known.
    said: watch::Sender<Option<Everybody>>,
}

impl MemberEar {
    fn says(&self, said: Everybody) {
        self.said.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(said);
            is_first
        });
    }
}

impl Listener for MemberEar {
    fn news(&self, news: News) {
        // Nothing else may be told here.
        let News::Other(method, params) = news else {
            return;
        };
        if method == ACKNOWLEDGED {
            let is_again = self.is_again.swap(true, Ordering::AcqRel);
            let was_away = *self.said.borrow() == Some(Everybody::NotYet);
            let came = match (is_again, was_away) {
                (true, _) => Came::Again,
                (false, true) => Came::Late,
                (false, false) => Came::InTime,
            };
            self.promise.agreed(&params, came);
            self.says(Everybody::Said);
        } else {
            let uris = Arc::clone(&self.uris);
            self.promise.heard(Told {
                uris,
                method,
                params,
            });
        }
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.promise.ear().behind()
    }

    fn missed(&self, notices: u64) {
        self.promise.ear().missed(notices);
    }
}
