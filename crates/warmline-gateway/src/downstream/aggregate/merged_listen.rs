//! `subscriptions/listen` at the aggregate endpoint: one stream for the client, one listen at each server.
//!
//! The acknowledgement holds what the servers agreed to within their shares of the time. A listen that breaks is opened
//! again. When a server comes back, or servers or rules change, the client is notified of everything
//! that may have changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all, try_join_all};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_core::exchange::Notification;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_engine::{Error, ServerHandle};
use warmline_platform::clock;
use warmline_upstream::{CapacityFuture, Listener};

use super::AggregateMember;
use super::absent::MemberQuery;
use super::resources::ResourceLocator;
use crate::downstream::aggregate::AggregateChanges;
use crate::downstream::list_changes::LIST_CHANGES;
use crate::downstream::modern::listen::{
    self, ACKNOWLEDGED, ListenRequest, ListenSink, PreparedListen, RESOURCES_MEMBER,
    acked_notifications, subscribed_uris,
};
use crate::downstream::modern::server_call::ModernCaller;
use crate::downstream::modern::shared_listen::SharedListens;
use crate::downstream::{OwnedContext, RequestContext};
use crate::response::rejection::RequestRejection;

const MAX_RESOURCE_LOOKUPS: usize = 64;
const LOOKUP_CONCURRENCY: usize = 8;

pub(in crate::downstream) async fn prepare(
    context: &RequestContext<'_>,
    request: ListenRequest,
) -> Result<PreparedListen, RequestRejection> {
    super::modern_members(context, &request.caller).await?;
    // It is a stream, whenever its first event comes.
    request.queue.mark_streaming();
    let sink = Arc::new(ListenSink::new(&request.queue, request.id));
    let filter = ListenFilter::from_params(&request.params);
    let listen = MergedListen {
        request: context.to_owned(),
        params: request.params,
        caller: request.caller,
        ack: Arc::new(MergedListenAck::new(filter, Arc::clone(&sink))),
    };
    let running = async move {
        listen.run().await;
        listen.ack.sink.complete_response()
    };
    Ok(PreparedListen {
        sink,
        running: Box::pin(running),
    })
}

struct MergedListen {
    request: OwnedContext,
    params: Params,
    caller: ModernCaller,
    ack: Arc<MergedListenAck>,
}

impl MergedListen {
    /// Listens to all declared servers until the run is over.
    async fn run(&self) {
        let mut changes = AggregateChanges::new(&self.request.shared);
        let uris = self.resource_uris_by_server().await;
        let mut staying = Box::pin(self.listen_to_all(uris));
        loop {
            tokio::select! {
                RunEnded = &mut staying => return,
                () = changes.changed() => {},
            }
            // The old listens go on until the new ones are open, so that nothing is lost in between.
            // A duplicate does no harm.
            let uris = tokio::select! {
                RunEnded = &mut staying => return,
                uris = self.resource_uris_by_server() => uris,
            };
            let mut next = Box::pin(self.listen_to_all(uris));
            self.ack.notify_possible_changes();
            tokio::select! {
                RunEnded = &mut staying => return,
                RunEnded = &mut next => return,
                () = clock::sleep(OVERLAP) => {},
            }
            staying = next;
        }
    }

    fn members(&self) -> Vec<AggregateMember> {
        let context = self.request.context();
        super::members(&context, |server| {
            Ok(self.caller.server(&context, server)?)
        })
    }

    async fn listen_to_all(&self, mut uris: BTreeMap<String, Vec<String>>) -> RunEnded {
        let members = self.members();
        let all = members.len();
        let listens = members.into_iter().filter_map(|member| {
            let uris = uris.remove(&member.name).unwrap_or_default();
            Some(self.member_listen(member.handle.ok()?, uris))
        });
        let listens: Vec<MemberListen> = listens.collect();
        let is_any_away = listens.len() < all;
        let promising = async {
            let acks = join_all(listens.iter().map(MemberListen::wait_for_ack)).await;
            let is_any_missed = acks.contains(&MemberAck::Missed);
            self.ack.send_ack(is_any_away || is_any_missed);
        };
        let shared = &self.request.shared.shared_listens;
        let staying = listens.iter().map(|listen| listen.run(shared));
        match join(try_join_all(staying), promising).await.0 {
            Err(ended) => ended,
            // No server is left, but others may be declared.
            Ok(_) => std::future::pending().await,
        }
    }

    async fn resource_uris_by_server(&self) -> BTreeMap<String, Vec<String>> {
        let context = self.request.context();
        let seeker = ResourceLocator {
            context: &context,
            era: Era::Modern,
        };
        let uris = subscribed_uris(&self.ack.filter.0).map(str::to_owned);
        let uris: Vec<String> = uris.collect();
        let looked_for = uris.into_iter().enumerate().map(|(number, uri)| {
            let members = self.members();
            async move {
                let owner = match number < MAX_RESOURCE_LOOKUPS {
                    true => seeker.find_owner(members, &uri).await,
                    false => {
                        let mut found = seeker.find_candidates(members, &uri).await;
                        found.pop().filter(|_| found.is_empty())
                    },
                };
                (owner, uri)
            }
        });
        let mut looked_for = stream::iter(looked_for).buffered(LOOKUP_CONCURRENCY);
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        while let Some((owner, uri)) = looked_for.next().await {
            if let Some(owner) = owner {
                let of_it = found.entry(owner.name().to_owned());
                of_it.or_default().push(uri);
            }
        }
        found
    }

    fn member_listen(&self, server: ServerHandle, uris: Vec<String>) -> MemberListen {
        let query = MemberQuery::new(&self.request.context(), Era::Modern);
        let wait_limit = query.wait_limit(&server);
        MemberListen {
            params: self.ack.filter.for_server(&self.params, &uris),
            ack_timeout: wait_limit.unwrap_or_default(),
            sink: Arc::new(MemberListenSink {
                ack: Arc::clone(&self.ack),
                uris: uris.into(),
                state: watch::Sender::new(MemberAck::Pending),
            }),
            server,
        }
    }
}

/// How long the old listens go on after a change.
const OVERLAP: Duration = Duration::from_secs(1);

/// The run of a listen is over, and the listen with it.
struct RunEnded;

struct MemberListen {
    server: ServerHandle,
    /// `None` where there is nothing to ask this server for.
    params: Option<Params>,
    ack_timeout: Duration,
    sink: Arc<MemberListenSink>,
}

impl MemberListen {
    async fn wait_for_ack(&self) -> MemberAck {
        if self.params.is_none() {
            return MemberAck::Settled;
        }
        let mut state = self.sink.state.subscribe();
        let settled = state.wait_for(|state| *state != MemberAck::Pending);
        match clock::timeout(self.ack_timeout, settled).await {
            Ok(Ok(state)) => *state,
            Ok(Err(_)) | Err(_) => {
                self.sink.set_missed();
                MemberAck::Missed
            },
        }
    }

    /// Listens to it until the run is over; ends before where it does not support listens.
    async fn run(&self, shared: &SharedListens) -> Result<(), RunEnded> {
        let Some(params) = &self.params else {
            return Ok(());
        };
        let sink = Arc::<MemberListenSink>::clone(&self.sink);
        let ended = |outcome: Result<Bytes, Error>| match outcome {
            Err(error) if error.code() == Code::RunEnded => Some(Err(RunEnded)),
            Err(error) if error.server_error().is_some() => {
                self.sink.state.send_replace(MemberAck::Settled);
                Some(Ok(()))
            },
            Ok(_) | Err(_) => {
                self.sink.set_missed();
                None
            },
        };
        listen::keep_listening(shared, &self.server, params, sink, ended).await
    }
}

struct MemberListenSink {
    ack: Arc<MergedListenAck>,
    uris: Arc<[String]>,
    state: watch::Sender<MemberAck>,
}

impl MemberListenSink {
    fn set_missed(&self) {
        self.state.send_if_modified(|state| {
            let is_pending = *state == MemberAck::Pending;
            if is_pending {
                *state = MemberAck::Missed;
            }
            is_pending
        });
    }
}

impl Listener for MemberListenSink {
    fn on_notification(&self, news: Notification) {
        // Nothing else belongs on this stream.
        let Notification::Other(method, params) = news else {
            return;
        };
        if method == ACKNOWLEDGED {
            let before = *self.state.borrow();
            self.ack.add_member_ack(&params, before);
            self.state.send_replace(MemberAck::Settled);
        } else {
            let uris = Arc::clone(&self.uris);
            self.ack.on_notification(MemberNotification {
                uris,
                method,
                params,
            });
        }
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.ack.sink.catch_up()
    }

    fn on_notifications_dropped(&self, notices: u64) {
        self.ack.sink.on_notifications_dropped(notices);
    }
}

/// The most notifications that are held back until the acknowledgement. If there are more, the client is
/// notified of everything that may have changed.
const MAX_HELD_BACK: usize = 256;

struct ListenFilter(Map<String, Value>);

impl ListenFilter {
    fn from_params(params: &Params) -> Self {
        let raw = params.member("notifications").unwrap_or(b"{}");
        let mut raw: Map<String, Value> = serde_json::from_slice(raw).unwrap_or_default();
        // This endpoint has no tasks.
        raw.remove("taskIds");
        Self(raw)
    }

    /// The parameters for one server, with its own resources alone. `None` where nothing is left.
    fn for_server(&self, params: &Params, uris: &[String]) -> Option<Params> {
        let mut wanted = self.0.clone();
        wanted.remove(RESOURCES_MEMBER);
        if !uris.is_empty() {
            wanted.insert(RESOURCES_MEMBER.to_owned(), json!(uris));
        }
        if wanted.is_empty() {
            return None;
        }
        let wanted = Value::Object(wanted).to_string();
        Some(params.edited(&[Edit::Set("notifications", wanted.as_bytes())], &[]))
    }
}

/// What the servers agreed to, together. The client gets nothing before the acknowledgement, and nothing
/// afterwards that it does not name.
struct MergedListenAck {
    filter: ListenFilter,
    sink: Arc<ListenSink>,
    state: Mutex<AckState>,
}

enum AckState {
    Collecting {
        acked: Map<String, Value>,
        held_back: Vec<MemberNotification>,
    },
    Sent(Map<String, Value>),
}

/// A notification of a server that was asked for these resources.
struct MemberNotification {
    uris: Arc<[String]>,
    method: String,
    params: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberAck {
    Pending,
    /// Not within its share of the time: it may come later, and until then the gateway itself
    /// notifies of its lists.
    Missed,
    /// It did, or does not support listens.
    Settled,
}

impl MergedListenAck {
    fn new(filter: ListenFilter, sink: Arc<ListenSink>) -> Self {
        Self {
            filter,
            sink,
            state: Mutex::new(AckState::Collecting {
                acked: Map::new(),
                held_back: Vec::new(),
            }),
        }
    }

    /// A server acknowledged with these parameters, after `before`.
    fn add_member_ack(&self, params: &Bytes, before: MemberAck) {
        let mut said = acked_notifications(params);
        match (&mut *self.state.lock(), before) {
            (AckState::Collecting { acked, .. }, _) => self.merge_acked(acked, said),
            (AckState::Sent(_), MemberAck::Pending) => {},
            (AckState::Sent(promised), MemberAck::Missed) => {
                // Its lists are new to the client.
                said.extend(promised.clone());
                said.remove(RESOURCES_MEMBER);
                self.notify_changes_within(promised, &said);
            },
            // Its stream broke, and notifications in between are lost.
            (AckState::Sent(promised), MemberAck::Settled) => {
                self.notify_changes_within(promised, &said);
            },
        }
    }

    /// Adds what a server agreed to, as far as the client asked for it.
    fn merge_acked(&self, agreed: &mut Map<String, Value>, said: Map<String, Value>) {
        let known: Vec<String> = subscribed_uris(agreed)
            .chain(subscribed_uris(&said))
            .map(str::to_owned)
            .collect();
        let is_wanted = |(kind, value): &(String, Value)| {
            self.filter.0.contains_key(kind) && *value != Value::Bool(false)
        };
        agreed.extend(said.into_iter().filter(is_wanted));
        let uris =
            subscribed_uris(&self.filter.0).filter(|uri| known.iter().any(|known| known == uri));
        let uris: Vec<&str> = uris.collect();
        agreed.remove(RESOURCES_MEMBER);
        if !uris.is_empty() {
            agreed.insert(RESOURCES_MEMBER.to_owned(), json!(uris));
        }
    }

    fn on_notification(&self, told: MemberNotification) {
        match &mut *self.state.lock() {
            AckState::Collecting { held_back, .. } if held_back.len() < MAX_HELD_BACK => {
                held_back.push(told);
            },
            AckState::Collecting { .. } => {},
            AckState::Sent(promised) => self.forward(promised, &told),
        }
    }

    fn forward(&self, promised: &Map<String, Value>, told: &MemberNotification) {
        let is_its = || subscribed_uris(promised).any(|uri| told.uris.iter().any(|own| own == uri));
        let mut lists = LIST_CHANGES.iter();
        let is_promised = match lists.find(|list| list.notification == told.method) {
            Some(list) => promised.contains_key(list.subscription),
            // The URI may be a part of a resource that was asked for.
            None if told.method == "notifications/resources/updated" => is_its(),
            None => true,
        };
        if is_promised {
            self.sink.notify(&told.method, &told.params);
        }
    }

    /// Sends the acknowledgement, unless it was sent before. `is_partial` where a server missed it.
    fn send_ack(&self, is_partial: bool) {
        let mut state = self.state.lock();
        let AckState::Collecting { acked, held_back } = &mut *state else {
            return;
        };
        let (mut promised, held) = (std::mem::take(acked), std::mem::take(held_back));
        if is_partial {
            let wanted = self.filter.0.iter();
            let is_list = |kind: &str| LIST_CHANGES.iter().any(|list| list.subscription == kind);
            let lists =
                wanted.filter(|(kind, value)| is_list(kind) && value.as_bool() == Some(true));
            promised.extend(lists.map(|(kind, value)| (kind.clone(), value.clone())));
        }
        let said = json!({ "notifications": promised });
        self.sink.notify(ACKNOWLEDGED, &said.to_string().into());
        self.sink.record_audit(Ok(Bytes::new()));
        for told in &held {
            self.forward(&promised, told);
        }
        if held.len() >= MAX_HELD_BACK {
            self.notify_changes_within(&promised, &promised);
        }
        *state = AckState::Sent(promised);
    }

    fn notify_possible_changes(&self) {
        if let AckState::Sent(promised) = &*self.state.lock() {
            self.notify_changes_within(promised, promised);
        }
    }

    /// Notifies of everything in both the acknowledgement and what a server agreed to.
    fn notify_changes_within(&self, promised: &Map<String, Value>, agreed: &Map<String, Value>) {
        let mut both = promised.clone();
        both.retain(|kind, _| agreed.contains_key(kind));
        let uris = subscribed_uris(promised)
            .filter(|uri| subscribed_uris(agreed).any(|agreed| agreed == *uri));
        let uris: Vec<&str> = uris.collect();
        both.insert(RESOURCES_MEMBER.to_owned(), json!(uris));
        self.sink.notify_possible_changes(&both);
    }
}
