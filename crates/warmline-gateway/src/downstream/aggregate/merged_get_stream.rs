//! The GET stream at the aggregate endpoint: what each server says outside calls, and changes of the
//! servers themselves. Servers that are missing in the client's lists are probed, and announced when
//! they are back.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use warmline_core::retry::backoff::Backoff;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{ServerHandle, Subscription};
use warmline_platform::clock::{self, Instant};
use warmline_upstream::{ListKind, UnsolicitedListener as _};

use super::AggregateMember;
use super::lists::{self, ListFreshness};
use crate::downstream::aggregate::AggregateChanges;
use crate::downstream::legacy::server_requests::GetStreamSink;
use crate::downstream::list_changes::LIST_CHANGES;
use crate::downstream::{OwnedContext, RequestContext};

const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Dropping it unsubscribes.
#[derive(Debug)]
pub(in crate::downstream) struct MergedGetStream(JoinHandle<()>);

impl Drop for MergedGetStream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl MergedGetStream {
    pub(in crate::downstream) fn spawn(
        context: &RequestContext<'_>,
        (sink, away): (Arc<GetStreamSink>, Option<Instant>),
    ) -> Self {
        let place = MergedGetStreamTask {
            request: context.to_owned(),
            sink,
        };
        Self(clock::spawn("merged-get-stream", async move {
            place.run(away).await;
        }))
    }
}

struct MergedGetStreamTask {
    request: OwnedContext,
    sink: Arc<GetStreamSink>,
}

impl MergedGetStreamTask {
    async fn run(&self, away: Option<Instant>) {
        let mut changes = AggregateChanges::new(&self.request.shared);
        let mut attended = self.subscribe_members(away);
        let mut looking = pin!(self.probe_missing());
        loop {
            tokio::select! {
                () = changes.changed() => {
                    // The same name may be another server now.
                    drop(attended);
                    attended = self.subscribe_members(None);
                    self.notify_list_changes();
                },
                // The servers are reached in another run of the same name.
                () = self.sink.client.run_restarted.notified() => {
                    drop(attended);
                    attended = self.subscribe_members(None);
                },
                never = &mut looking => match never {},
            }
        }
    }

    fn notify_list_changes(&self) {
        for list in &LIST_CHANGES {
            self.sink.on_notification(list.notification, b"{}");
        }
    }

    fn subscribe_members(&self, away: Option<Instant>) -> Vec<Subscription> {
        let members = self.members().into_iter();
        let reached = members.filter_map(|member| member.handle.ok());
        let attend = |server: ServerHandle| {
            server.subscribe_shared(Arc::<GetStreamSink>::clone(&self.sink), away)
        };
        reached.filter_map(attend).collect()
    }

    /// Probes missing servers, each on its own, so that one that hangs delays no other.
    async fn probe_missing(&self) -> Infallible {
        let missed = &self.sink.client.missing_servers;
        let mut looking = FuturesUnordered::new();
        let mut looked_for = BTreeSet::new();
        loop {
            for server in missed.all() {
                if looked_for.insert(server.clone()) {
                    looking.push(self.probe_server(server));
                }
            }
            tokio::select! {
                () = missed.changed.notified() => {},
                Some(server) = looking.next() => drop(looked_for.remove(&server)),
            }
        }
    }

    /// Probes a server until it is missing in no list, and announces it.
    async fn probe_server(&self, server: String) -> String {
        let missed = &self.sink.client.missing_servers;
        let mut pauses = Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY);
        loop {
            let lists = missed.lists_missing(&server);
            if lists.is_empty() {
                return server;
            }
            clock::sleep(pauses.next_pause()).await;
            let member = self.members().into_iter().find(|it| it.name == server);
            let Some(handle) = member.and_then(|it| it.handle.ok()) else {
                continue;
            };
            let probes = lists.iter().map(|list| self.probe_list(*list, &handle));
            let found = join_all(probes).await.into_iter().flatten();
            // Nothing is awaited in between, so what was removed is announced.
            let mut is_new = false;
            for (list, has_items) in found {
                is_new |= missed.remove(list, &server) && has_items;
            }
            if is_new {
                self.notify_list_changes();
            }
        }
    }

    /// Whether a list that a server is missing in has items; none while the server is absent.
    async fn probe_list(&self, list: ListKind, server: &ServerHandle) -> Option<(ListKind, bool)> {
        let reading = lists::list_items(server, list, ListFreshness::Current);
        let share = self.request.shared.options.list_share;
        match clock::timeout(share, reading).await.ok()? {
            Ok(_) => Some((list, true)),
            // It is back, and rejects this list.
            Err(error) => error.server_error().is_some().then_some((list, false)),
        }
    }

    fn members(&self) -> Vec<AggregateMember> {
        super::session_members(&self.request.context(), &self.sink.client, None)
    }
}
