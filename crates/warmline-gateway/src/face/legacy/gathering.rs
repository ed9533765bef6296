//! The standing stream at the place of all servers: what each of them says outside any call, and
//! that there are other servers than before.
//!
//! Begun by: [`standing`](super::standing).  Told by: the lists of the client, of servers that were
//! left out. As long as somebody reads, they are looked for, and announced when they are there.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use warmline::clock::{self, Instant};
use warmline::upstream::Notices as _;
use warmline::{Attending, Code, List, ServerHandle};

use super::asking::StandingEar;
use super::client::{Client, attend};
use super::merged;
use crate::Shared;
use crate::door::limits::NO_BURDEN;
use crate::face::Visit;
use crate::merge::Member;
use crate::merge::absent::{LeftOut, Why};
use crate::merge::changes::Changes;
use crate::merge::lists;
use crate::path::Target;
use crate::who::{Peer, Subject};

/// A server that is not there is looked for again after a pause that doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What may be another when servers come and go.
const LISTS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];

/// The servers that were left out of the lists of a client, by the list.
#[derive(Debug, Default)]
pub(super) struct Missed {
    servers: Mutex<HashMap<List, BTreeSet<String>>>,
    more: Notify,
}

impl Missed {
    /// A list was read, and these were left out. One that speaks another era stays out, and so does
    /// one that is there and refuses this list.
    pub(super) fn note(&self, list: List, left_out: &[LeftOut]) {
        let may_come = |absent: &&LeftOut| match &absent.why {
            Why::Late => true,
            Why::Failed(error) => {
                error.code() != Code::EraUnknown && error.server_error().is_none()
            },
        };
        let missed: BTreeSet<String> = left_out
            .iter()
            .filter(may_come)
            .map(|absent| absent.server.clone())
            .collect();
        if self.servers.lock().insert(list, missed.clone()) != Some(missed) {
            self.more.notify_one();
        }
    }

    /// All that are missed, in whichever list.
    fn all(&self) -> BTreeSet<String> {
        self.servers.lock().values().flatten().cloned().collect()
    }

    /// The lists that a server is missed in.
    fn lists_without(&self, server: &str) -> Vec<List> {
        let servers = self.servers.lock();
        let without = servers.iter().filter(|(_, missed)| missed.contains(server));
        without.map(|(list, _)| *list).collect()
    }

    /// Whether a server was missed in this list until now.
    fn found(&self, list: List, server: &str) -> bool {
        let mut servers = self.servers.lock();
        let missed = servers.get_mut(&list);
        missed.is_some_and(|missed| missed.remove(server))
    }
}

/// All servers are attended until this is dropped.
#[derive(Debug)]
pub(super) struct Gathering(JoinHandle<()>);

impl Drop for Gathering {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Gathering {
    /// Who takes a stream up says since when nobody read it.
    pub(super) fn begin(
        visit: &Visit<'_>,
        client: &Arc<Client>,
        (ear, away): (Arc<StandingEar>, Option<Instant>),
    ) -> Self {
        let place = Place {
            shared: Arc::clone(visit.shared),
            subject: visit.subject.clone(),
            peer: visit.peer,
            run: visit.target.run.map(str::to_owned),
            head: visit.head.clone(),
            client: Arc::clone(client),
            ear,
        };
        Self(clock::spawn(
            "gather",
            async move { place.stay(away).await },
        ))
    }
}

/// What is seen of a server that was missed in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    ItsItems,
    /// It is there, and refuses this list.
    ARefusal,
}

/// The place of a client at all servers: what its visit said, for as long as it stays.
struct Place {
    shared: Arc<Shared>,
    subject: Subject,
    peer: Peer,
    run: Option<String>,
    head: Parts,
    client: Arc<Client>,
    ear: Arc<StandingEar>,
}

impl Place {
    async fn stay(&self, away: Option<Instant>) {
        let mut changes = Changes::of(&self.shared);
        let mut attended = self.attend(away);
        let mut looking = pin!(self.look_for_missed());
        loop {
            tokio::select! {
                () = changes.next() => {
                    // One that is reached otherwise now is another, though its name is the same.
                    drop(attended);
                    attended = self.attend(None);
                    self.announce();
                },
                // Its servers are reached in another run of the same name.
                () = self.client.run_anew.notified() => {
                    drop(attended);
                    attended = self.attend(None);
                },
                never = &mut looking => match never {},
            }
        }
    }

    /// Tells the client to read its lists again.
    fn announce(&self) {
        for list in LISTS {
            self.ear.notice(list, b"{}");
        }
    }

    /// Attends all servers that are there.
    fn attend(&self, away: Option<Instant>) -> Vec<Attending> {
        let members = self.members().into_iter();
        let reached = members.filter_map(|member| member.reached.ok());
        let attend = |server| attend(&server, &self.ear, away);
        reached.filter_map(attend).collect()
    }

    /// Looks for servers that were missed, each for itself: one that hangs holds up no other.
    async fn look_for_missed(&self) -> Infallible {
        let missed = &self.client.missed;
        let mut looking = FuturesUnordered::new();
        let mut looked_for = BTreeSet::new();
        loop {
            for server in missed.all() {
                if looked_for.insert(server.clone()) {
                    looking.push(self.look_for(server));
                }
            }
            tokio::select! {
                () = missed.more.notified() => {},
                Some(server) = looking.next() => drop(looked_for.remove(&server)),
            }
        }
    }

    /// Looks for a server until it is missed in no list any more, and announces it.
    async fn look_for(&self, server: String) -> String {
        let missed = &self.client.missed;
        let mut pause = FIRST_PAUSE;
        loop {
            let lists = missed.lists_without(&server);
            if lists.is_empty() {
                return server;
            }
            clock::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            let member = self.members().into_iter().find(|it| it.name == server);
            let Some(handle) = member.and_then(|it| it.reached.ok()) else {
                continue;
            };
            let looks = lists.iter().map(|list| self.look_into(*list, &handle));
            let seen = join_all(looks).await;
            let found: Vec<Seen> = lists
                .into_iter()
                .zip(seen)
                .filter(|(list, seen)| *seen != Seen::Nothing && missed.found(*list, &server))
                .map(|(_, seen)| seen)
                .collect();
            // No wait in between: what is forgotten is announced, whoever leaves.
            if found.contains(&Seen::ItsItems) {
                self.announce();
            }
        }
    }

    /// Looks for a server in a list that it was missed in.
    async fn look_into(&self, list: List, server: &ServerHandle) -> Seen {
        let share = self.shared.options.list_share;
        match clock::timeout(share, lists::items(server, list)).await {
            Ok(Ok(_)) => Seen::ItsItems,
            Ok(Err(error)) if error.server_error().is_some() => Seen::ARefusal,
            Ok(Err(_)) | Err(_) => Seen::Nothing,
        }
    }

    fn members(&self) -> Vec<Member> {
        let target = Target {
            run: self.run.as_deref(),
            server: None,
        };
        let who = (self.subject.clone(), self.peer);
        let visit = Visit::new(&self.shared, who, target, &self.head, &NO_BURDEN);
        // A run that cannot be entered was refused when the stream began.
        merged::members(&visit, &self.client, None).unwrap_or_default()
    }
}
