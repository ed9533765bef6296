//! The standing stream at the place of all servers: what each of them says outside any call, and
//! that there are other servers than before.
//!
//! Begun by: [`standing`](super::standing).  Told by: the lists of the client, of servers that were
//! left out. As long as somebody reads, they are looked for, and announced when they are there.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use warmline::upstream::Notices as _;
use warmline::{Attending, Code, List, ServerHandle, clock};

use super::asking::StandingEar;
use super::client::Client;
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

    /// Waits until there are some: of which list, and which.
    async fn some(&self) -> Vec<(List, String)> {
        loop {
            let noted = self.more.notified();
            let missed = self.all();
            if !missed.is_empty() {
                return missed;
            }
            noted.await;
        }
    }

    fn all(&self) -> Vec<(List, String)> {
        let servers = self.servers.lock();
        let each = servers.iter();
        each.flat_map(|(list, servers)| servers.iter().map(|server| (*list, server.clone())))
            .collect()
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
    pub(super) fn begin(visit: &Visit<'_>, client: &Arc<Client>, ear: Arc<StandingEar>) -> Self {
        let place = Place {
            shared: Arc::clone(visit.shared),
            subject: visit.subject.clone(),
            peer: visit.peer,
            run: visit.target.run.map(str::to_owned),
            head: visit.head.clone(),
            client: Arc::clone(client),
            ear,
        };
        Self(clock::spawn("gather", async move { place.stay().await }))
    }
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
    async fn stay(&self) {
        let mut changes = Changes::of(&self.shared);
        let mut attended = self.attend();
        loop {
            tokio::select! {
                () = changes.next() => {
                    // One that is reached otherwise now is another, though its name is the same.
                    drop(attended);
                    attended = self.attend();
                },
                // Its servers are reached in another run of the same name.
                () = self.client.run_anew.notified() => {
                    drop(attended);
                    attended = self.attend();
                    continue;
                },
                () = self.until_found() => {},
            }
            for list in LISTS {
                self.ear.notice(list, b"{}");
            }
        }
    }

    /// Attends all servers that are there.
    fn attend(&self) -> Vec<Attending> {
        let members = self.members().into_iter();
        let reached = members.filter_map(|member| member.reached.ok());
        let ear = || Arc::<StandingEar>::clone(&self.ear);
        reached.filter_map(|server| server.attend(ear())).collect()
    }

    /// Looks for servers that were missed, until one of them is in the list that it was missed in.
    async fn until_found(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let missed = self.client.missed.some().await;
            clock::sleep(pause).await;
            let members = self.members();
            let looking = missed.into_iter().filter_map(|(list, name)| {
                let member = members.iter().find(|member| member.name == name)?;
                Some(self.is_in(list, member.reached.as_ref().ok()?))
            });
            if join_all(looking).await.contains(&true) {
                return;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Whether a server that was missed in a list is in it now.
    async fn is_in(&self, list: List, server: &ServerHandle) -> bool {
        let share = self.shared.options.list_share;
        let reading = clock::timeout(share, lists::items(server, list)).await;
        let is_in = match reading {
            Ok(Ok(_)) => true,
            // It is there, and refuses this list.
            Ok(Err(error)) if error.server_error().is_some() => false,
            Ok(Err(_)) | Err(_) => return false,
        };
        self.client.missed.found(list, server.name()) && is_in
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
