//! A legacy client session in memory: its routes to servers and its requests in flight.
//!
//! It is made from a ticket, or for a single request that carries none.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use smallvec::SmallVec;
use tokio::sync::Notify;
use warmline_core::era::Version;
use warmline_core::exchange::ServerRequestKind;
use warmline_core::message::params::Params;
use warmline_core::pool_key::Digest;
use warmline_core::protocol::meta::LOG_LEVELS;
use warmline_engine::ServerHandle;
use warmline_engine::admin::CallerAdmin as _;
use warmline_engine::relay::RelayHandle as _;
use warmline_upstream::ListKind;

use super::get_stream::GetStreamState;
use super::route::{NamedRoute, caller, route_digest};
use super::server_requests::PendingServerRequests;
use super::session_ticket::SessionTicket;
use crate::downstream::list_changes::ListRequestCounts;
use crate::downstream::message::is_same_id;
use crate::downstream::{RequestContext, strip_run};
use crate::response::event_queue::EventQueue;
use crate::response::rejection::RequestRejection;
use crate::response::replay_store::ReplayStreamKind;
use crate::response::stream::{DisconnectPolicy, PrimingEvent, ResponseMode};

#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(super) ticket: Option<SessionTicket>,
    /// Who opened it; `None` without authentication, where the ticket alone keeps its holder apart.
    identity: Option<Digest>,
    target: (Option<Box<str>>, Option<Box<str>>),
    /// Its declared capabilities, where the ticket says less and it is bound to one server.
    pub(super) capabilities: Option<Bytes>,
    /// Its routes to servers, by the run that a request names.
    pub(super) routes: Mutex<SmallVec<[NamedRoute; 1]>>,
    in_flight: Mutex<SmallVec<[InFlightRequest; 2]>>,
    pub(crate) server_requests: PendingServerRequests,
    /// The lowest level of log lines that it wants, from one; 0 where it is unknown.
    log_level: AtomicU8,
    pub(super) list_requests: ListRequestCounts,
    pub(crate) missing_servers: MissingServers,
    pub(super) get_stream: Mutex<Option<GetStreamState>>,
    pub(crate) run_restarted: Notify,
    /// Numbers streams and server requests. It starts at random, so that numbers from an earlier process
    /// or session object mean nothing.
    next_number: AtomicU64,
    /// Whether it was used since the last sweep.
    recently_used: AtomicBool,
}

#[derive(Debug)]
struct InFlightRequest {
    /// The client's own id, raw.
    id: Bytes,
    queue: Arc<EventQueue>,
}

impl ClientSession {
    pub(crate) fn from_request(
        context: &RequestContext<'_>,
    ) -> Result<Arc<Self>, RequestRejection> {
        let Some(shown) = context.head.session else {
            // Clients that never send the id back differ by identity and run alone.
            return Ok(Arc::new(Self::new(context, None)));
        };
        let clients = &context.shared.clients;
        let known = clients.active.pin().get(shown).cloned();
        if let Some(known) = known.filter(|known| known.belongs_to(context)) {
            // A store would take the cache line from other cores even if it changed nothing.
            if !known.recently_used.load(Ordering::Relaxed) {
                known.recently_used.store(true, Ordering::Relaxed);
            }
            return Ok(known);
        }
        let vault = context.shared.warmline.vault();
        let ticket = SessionTicket::open(vault, shown.as_bytes())
            .ok_or_else(RequestRejection::unknown_session)?;
        let identity = caller(context, None, Some(&ticket)).digest();
        let is_over = clients.is_ended(Some(ticket.session_key));
        if is_over || ticket.identity != identity || ticket.route != route_digest(context) {
            return Err(RequestRejection::unknown_session());
        }
        let client = Arc::new(Self::new(context, Some(ticket)));
        let kept = clients.insert(shown, client);
        // A concurrent end of the session either finds it here or is found here.
        if clients.is_ended(kept.session_key()) {
            clients.active.pin().remove(shown);
            return Err(RequestRejection::unknown_session());
        }
        Ok(kept)
    }

    pub(super) fn new(context: &RequestContext<'_>, ticket: Option<SessionTicket>) -> Self {
        Self {
            ticket,
            identity: context.identity,
            target: (
                context.target.run.map(Box::from),
                context.target.server.map(Box::from),
            ),
            capabilities: None,
            routes: Mutex::default(),
            in_flight: Mutex::default(),
            server_requests: PendingServerRequests::default(),
            log_level: AtomicU8::new(0),
            list_requests: ListRequestCounts::default(),
            missing_servers: MissingServers::default(),
            get_stream: Mutex::default(),
            run_restarted: Notify::new(),
            next_number: AtomicU64::new(random_first_number()),
            recently_used: AtomicBool::new(true),
        }
    }

    fn belongs_to(&self, context: &RequestContext<'_>) -> bool {
        self.identity == context.identity
            && self.target.0.as_deref() == context.target.run
            && self.target.1.as_deref() == context.target.server
    }

    /// The run that the client named at `initialize`, as far as it is known.
    pub(super) fn run(&self) -> Option<&str> {
        self.ticket.as_ref()?.run.as_deref()
    }

    pub(super) fn own_run_name(&self) -> Option<String> {
        self.ticket.as_ref().map(SessionTicket::own_run_name)
    }

    pub(crate) fn session_key(&self) -> Option<Digest> {
        self.ticket.as_ref().map(|ticket| ticket.session_key)
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.ticket.as_ref().map(|ticket| ticket.version)
    }

    /// How a request is answered. A call goes on when its client leaves: the client may come back.
    pub(super) fn response_mode(&self, context: &RequestContext<'_>) -> ResponseMode {
        ResponseMode {
            accepts: context.head.accepts,
            on_disconnect: DisconnectPolicy::Continue,
            stream_id: self.can_resume(context).then(|| self.new_number()),
            priming: self.priming(context),
        }
    }

    /// Whether the client can resume a stream: it has a session, and a stream for each request.
    pub(super) fn can_resume(&self, context: &RequestContext<'_>) -> bool {
        self.ticket.is_some() && !context.head.is_single_stream()
    }

    /// Only the newest version begins a stream with an event id to resume from.
    pub(super) fn priming(&self, context: &RequestContext<'_>) -> PrimingEvent {
        match self.version() {
            Some(Version::V2025_11_25) if !context.head.is_single_stream() => PrimingEvent::Pending,
            _ => PrimingEvent::Disabled,
        }
    }

    /// Retains a stream of this client, for as long as its identity does not hold too much.
    pub(crate) fn retain_stream(
        &self,
        context: &RequestContext<'_>,
        stream_id: u64,
        queue: &Arc<EventQueue>,
        kind: ReplayStreamKind,
    ) {
        if let Some(ticket) = &self.ticket {
            let store = &context.shared.clients.replay;
            let key = (ticket.session_key, stream_id);
            store.retain(ticket.identity, key, queue, kind);
        }
    }

    /// Whether tasks are hidden from the client: its server would show it those of other clients
    /// (mcp-spec 5.7).
    pub(in crate::downstream) async fn hides_tasks(
        &self,
        context: &RequestContext<'_>,
        params: &Params,
    ) -> bool {
        let Ok(route) = self.route(context, Some(params)) else {
            return false;
        };
        let facts = route.server.cached_info().await;
        facts.is_ok_and(|facts| route.server.shares_session_state(&facts))
    }

    pub(crate) fn set_log_level(&self, level: u8) {
        self.log_level.store(level, Ordering::Relaxed);
    }

    /// Takes the level from the server's session, where the client has set one before.
    pub(super) fn restore_log_level(&self, server: &ServerHandle) {
        let known = self
            .session_key()
            .and_then(|name| server.client_log_level(name));
        if let Some(level) = known.and_then(|index| u8::try_from(index + 1).ok()) {
            self.set_log_level(level);
        }
    }

    pub(crate) fn wants_log(&self, line: &[u8]) -> bool {
        let wanted = self.log_level.load(Ordering::Relaxed);
        wanted == 0 || log_level(line).is_none_or(|level| level >= wanted)
    }

    pub(super) fn can_answer(&self, question: ServerRequestKind) -> bool {
        let ticket = self.ticket.as_ref();
        ticket.is_some_and(|ticket| ticket.capabilities.can_answer(question))
    }

    pub(super) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers a call until the guard is dropped.
    ///
    /// Over Streamable HTTP each answer is the response to its own request, so equal ids do no harm.
    /// Where all answers share one stream, the second request is rejected.
    pub(super) fn begin_call(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
        id: Bytes,
        queue: &Arc<EventQueue>,
    ) -> Result<InFlightGuard, RequestRejection> {
        let mut calls = self.in_flight.lock();
        if context.head.is_single_stream() && calls.iter().any(|call| is_same_id(&call.id, &id)) {
            return Err(RequestRejection::id_in_flight());
        }
        calls.push(InFlightRequest {
            id,
            queue: Arc::clone(queue),
        });
        drop(calls);
        Ok(InFlightGuard {
            client: Arc::clone(self),
            queue: Arc::clone(queue),
        })
    }

    /// Whether an answer with this id could be taken for that of a call in flight.
    pub(super) fn is_id_in_flight(&self, context: &RequestContext<'_>, id: &[u8]) -> bool {
        context.head.is_single_stream()
            && self
                .in_flight
                .lock()
                .iter()
                .any(|call| is_same_id(&call.id, id))
    }

    /// The client cancelled a call, which may be over.
    ///
    /// A client that never sends its session id back has no calls here, so its cancel is ignored, as
    /// the protocol allows (mcp-spec 2.5, X7). Two such programs of one identity look alike and both
    /// count ids from one, so a guess could cancel the other's call.
    pub(super) fn cancel_call(&self, params: &Params) {
        let Some(id) = params.member("requestId") else {
            return;
        };
        let mut calls = self.in_flight.lock();
        let index = calls.iter().position(|call| is_same_id(&call.id, id));
        // It gets no answer, so its id is free from here on.
        let cancelled = index.map(|index| calls.swap_remove(index));
        drop(calls);
        if let Some(call) = cancelled {
            let params = strip_run(params.clone());
            call.queue.cancel(Some(params.raw().clone()));
        }
    }

    /// Ends the session and its own run. A named run outlives it.
    pub(super) async fn end(&self, context: &RequestContext<'_>) {
        if let Some(queue) = self.get_stream_queue() {
            queue.finish(None);
        }
        self.server_requests.close_all();
        self.release_shared_sessions(context);
        for call in self.in_flight.lock().iter() {
            call.queue.cancel(None);
        }
        let Some(own) = self.own_run_name() else {
            return;
        };
        let identity = caller(context, None, self.ticket.as_ref());
        // It may have ended by itself, or never have begun.
        if let Ok(run) = identity.join_run(&own) {
            run.end().await;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.lock().is_empty()
            && self.get_stream.lock().is_none()
            && self.server_requests.is_empty()
    }

    /// Whether something is in flight, or was since the last call of this.
    pub(super) fn take_recently_used(&self) -> bool {
        self.recently_used.swap(false, Ordering::Relaxed) || !self.is_idle()
    }
}

/// A call in flight; dropping it removes the call.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    client: Arc<ClientSession>,
    pub(crate) queue: Arc<EventQueue>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut calls = self.client.in_flight.lock();
        calls.retain(|call| !Arc::ptr_eq(&call.queue, &self.queue));
    }
}

/// The servers that were left out of the lists of a client, by list.
#[derive(Debug, Default)]
pub(crate) struct MissingServers {
    by_list: Mutex<HashMap<ListKind, BTreeSet<String>>>,
    pub(crate) changed: Notify,
}

impl MissingServers {
    /// A list was read without these servers.
    pub(crate) fn record(&self, list: ListKind, missing: BTreeSet<String>) {
        if self.by_list.lock().insert(list, missing.clone()) != Some(missing) {
            self.changed.notify_one();
        }
    }

    pub(crate) fn all(&self) -> BTreeSet<String> {
        self.by_list.lock().values().flatten().cloned().collect()
    }

    pub(crate) fn lists_missing(&self, server: &str) -> Vec<ListKind> {
        let servers = self.by_list.lock();
        let without = servers
            .iter()
            .filter(|(_, missing)| missing.contains(server));
        without.map(|(list, _)| *list).collect()
    }

    /// Removes a server, and says whether it was missing in this list.
    pub(crate) fn remove(&self, list: ListKind, server: &str) -> bool {
        let mut servers = self.by_list.lock();
        let missing = servers.get_mut(&list);
        missing.is_some_and(|missing| missing.remove(server))
    }
}

/// The level in the raw parameters of a log line or of `logging/setLevel`, counted from one.
pub(crate) fn log_level(params: &[u8]) -> Option<u8> {
    #[derive(Deserialize)]
    struct LogMessage<'a> {
        #[serde(borrow)]
        level: Cow<'a, str>,
    }
    let LogMessage { level } = serde_json::from_slice(params).ok()?;
    let index = LOG_LEVELS.iter().position(|known| *known == level)?;
    u8::try_from(index + 1).ok()
}

/// Below 2^52, so that every client's number type holds it.
fn random_first_number() -> u64 {
    let [a, b, c, d, e, f, ..] = warmline_store::keyring::random_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}
