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
use tokio::sync::watch;
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_core::exchange::Notification;
use warmline_core::message::params::Params;
use warmline_engine::{Error, ServerHandle};
use warmline_platform::clock;
use warmline_upstream::{CapacityFuture, Listener};

use super::AggregateMember;
use super::absent::MemberQuery;
use super::changes::AggregateChanges;
use super::listen_ack::{ListenFilter, MemberAck, MemberNotification, MergedListenAck};
use super::resources::ResourceLocator;
use crate::downstream::modern::listen::{
    self, ACKNOWLEDGED, ListenRequest, ListenSink, PreparedListen,
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
        let uris = self.ack.filter.resource_uris();
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

/// Receives what one server sends for a merged listen.
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
