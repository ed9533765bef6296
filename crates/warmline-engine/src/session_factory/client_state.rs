//! What clients want of a session: its log level and their resource subscriptions. It is sent again
//! to the session that replaces it, and to the sessions beside it. A session works also if these
//! requests get no answer.
//!
//! Several clients may share a session, and one may take back what another still wants. So the wishes
//! of each known client are kept apart. A client without a session id stands for all clients of its
//! identity; where identities share a session, it goes by its identity.

mod quota;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use warmline_core::exchange::{AttemptResult, Deadlines, Diagnostic, Request};
use warmline_core::message::params::Params;
use warmline_core::pool::Sharing;
use warmline_core::pool_key::{Digest, Identity};
use warmline_core::protocol::meta::LOG_LEVELS;
use warmline_core::record::Record;

use super::{PooledSession, SessionSetup};
use warmline_platform::clock;
use warmline_upstream::Session;

const MAX_RECORDED_SUBSCRIPTIONS: usize = 1_000;

/// What clients want of the sessions of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientState {
    pub(crate) log_level: Option<String>,
    /// No known client asked for that level.
    is_unowned_level: bool,
    pub(crate) subscriptions: BTreeSet<String>,
    interests: BTreeMap<Digest, ClientInterest>,
    /// Subscriptions that unknown clients may want.
    unowned_subscriptions: BTreeSet<String>,
    /// Subscribe requests under way: they count before they are answered.
    pub(super) pending: Vec<PendingSubscription>,
    /// The number of the last request.
    sequence: u64,
}

/// The resource whose update a notification reports.
pub(crate) fn updated_resource_uri(method: &str, params: &[u8]) -> Option<String> {
    if method != "notifications/resources/updated" {
        return None;
    }
    let params = Params::parse(Bytes::copy_from_slice(params)).ok();
    let uri = params.as_ref().and_then(Params::uri);
    Some(uri.unwrap_or_default().into_owned())
}

/// Whether a resource is `whole` or a part of it (mcp-spec 8.7.2).
fn is_part_of(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole).is_some_and(|rest| {
        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '?', '#'])
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingSubscription {
    pub(super) client: Digest,
    pub(super) identity: Identity,
    pub(super) uri: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestingClient {
    /// A known client of an identity.
    Client(Digest, Identity),
    /// A client that stands for all clients of the session.
    AllClients,
    /// A client that never comes back, on a shared session: nothing of it is kept.
    OneCall,
    /// The engine: no client wants it any more.
    Internal,
}

/// What one client wants. A restart forgets it.
#[derive(Clone, Debug)]
struct ClientInterest {
    identity: Identity,
    /// The number of its last request.
    last_change: u64,
    /// Its index among the levels.
    level: Option<usize>,
    uris: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientStateAction {
    Forward,
    /// Nothing changes: another client wants the present state.
    AnswerLocally,
    /// It is forwarded with the more verbose level that another client wants.
    ForwardWithLevel(&'static str),
}

impl RequestingClient {
    fn is_client(self, name: Digest) -> bool {
        matches!(self, Self::Client(known, _) if known == name)
    }
}

impl ClientState {
    pub(super) fn from_record(record: &Record) -> Self {
        let subscriptions: BTreeSet<String> = record.subscriptions.iter().cloned().collect();
        Self {
            log_level: record.log_level.clone(),
            unowned_subscriptions: subscriptions.clone(),
            subscriptions,
            ..Self::default()
        }
    }

    /// Adds what another process recorded; what clients asked for here wins.
    pub(super) fn merge(&mut self, others: &Self) {
        if self.log_level.is_none() {
            self.log_level.clone_from(&others.log_level);
            self.is_unowned_level = true;
        }
        let uris = others.subscriptions.iter().take(MAX_RECORDED_SUBSCRIPTIONS);
        self.subscriptions.extend(uris.clone().cloned());
        self.unowned_subscriptions.extend(uris.cloned());
    }

    /// What a request means, with what other clients want.
    pub(crate) fn action_for(
        &self,
        requester: RequestingClient,
        method: &str,
        params: &Params,
    ) -> ClientStateAction {
        match requester {
            RequestingClient::Client(..) | RequestingClient::OneCall => {},
            RequestingClient::AllClients => return ClientStateAction::Forward,
            RequestingClient::Internal => return self.internal_action_for(method, params),
        }
        let is_other = |who| !requester.is_client(who);
        let others = self.interests.iter().filter(|(who, _)| is_other(**who));
        let mut others = others.map(|(_, wish)| wish);
        match method {
            "resources/unsubscribe" => {
                let uri = params.uri().unwrap_or_default();
                // A subscribe request under way counts already.
                let mut asking = self.pending.iter();
                let is_asked_for = asking.any(|one| is_other(one.client) && one.uri == *uri);
                let is_wanted = is_asked_for || others.any(|wish| wish.uris.contains(&*uri));
                // A client of one call never subscribed to it.
                let is_theirs =
                    requester != RequestingClient::OneCall || !self.subscriptions.contains(&*uri);
                (is_wanted || !is_theirs).then_some(ClientStateAction::AnswerLocally)
            },
            "logging/setLevel" => {
                let most = others.filter_map(|wish| wish.level).min();
                let wanted = most.zip(requested_level(params));
                let more = wanted.filter(|(most, asked)| most < asked);
                let name = more.and_then(|(most, _)| LOG_LEVELS.get(most));
                name.map(|name| match self.log_level.as_deref() == Some(name) {
                    true => ClientStateAction::AnswerLocally,
                    false => ClientStateAction::ForwardWithLevel(name),
                })
            },
            _ => None,
        }
        .unwrap_or(ClientStateAction::Forward)
    }

    /// What an internal request means by now.
    fn internal_action_for(&self, method: &str, params: &Params) -> ClientStateAction {
        if method == "resources/unsubscribe" {
            let uri = params.uri().unwrap_or_default();
            return match self.subscriptions.contains(&*uri) || self.is_wanted(&uri) {
                true => ClientStateAction::AnswerLocally,
                false => ClientStateAction::Forward,
            };
        }
        let level = self.log_level.as_deref().and_then(level_index);
        let name = level.and_then(|level| LOG_LEVELS.get(level));
        name.map_or(ClientStateAction::AnswerLocally, |name| {
            ClientStateAction::ForwardWithLevel(name)
        })
    }

    pub(crate) fn log_level_of(&self, client: Digest) -> Option<usize> {
        self.interests.get(&client)?.level
    }

    fn most_verbose_level(&self) -> Option<String> {
        let most = self
            .interests
            .values()
            .filter_map(|wish| wish.level)
            .min()?;
        LOG_LEVELS.get(most).map(|name| (*name).to_owned())
    }

    /// Notes a request that was answered.
    pub(super) fn apply_request(
        &mut self,
        requester: RequestingClient,
        method: &str,
        params: &Params,
    ) {
        let client = match requester {
            RequestingClient::Client(client, who) => Some((client, who)),
            RequestingClient::AllClients => None,
            RequestingClient::OneCall | RequestingClient::Internal => return,
        };
        let wish = client.map(|client| self.interest_mut(client));
        if method == "logging/setLevel" {
            if let Some(wish) = wish {
                wish.level = requested_level(params);
            }
            let said = params.member("level");
            let said = said.and_then(|raw| serde_json::from_slice(raw).ok());
            let most = client.and_then(|_| self.most_verbose_level());
            self.is_unowned_level = client.is_none();
            self.log_level = most.or(said);
            return;
        }
        let Some(uri) = params.uri() else { return };
        if method == "resources/unsubscribe" {
            if let Some(wish) = wish {
                wish.uris.remove(&*uri);
            }
            self.interests
                .retain(|_, wish| wish.level.is_some() || !wish.uris.is_empty());
            if client.is_none() || !self.is_wanted(&uri) {
                self.subscriptions.remove(&*uri);
                self.unowned_subscriptions.remove(&*uri);
            }
        } else {
            let uri = uri.into_owned();
            match wish {
                Some(wish) => wish.uris.insert(uri.clone()),
                None => self.unowned_subscriptions.insert(uri.clone()),
            };
            self.subscriptions.insert(uri);
        }
    }

    /// Whether a client, or only other clients, want updates of a resource. None if that is unknown.
    pub(super) fn is_interested(&self, client: Digest, uri: &str) -> Option<bool> {
        let wishes = self.interests.iter();
        let wished = wishes.flat_map(|(who, wish)| wish.uris.iter().map(move |uri| (who, uri)));
        let asking = self.pending.iter().map(|one| (&one.client, &one.uri));
        let all = wished.chain(asking);
        let mut wanting = all.filter(|(_, wanted)| is_part_of(uri, wanted)).peekable();
        let is_wanted = wanting.peek().is_some();
        let somebody = || {
            self.unowned_subscriptions
                .iter()
                .any(|one| is_part_of(uri, one))
        };
        if wanting.any(|(who, _)| *who == client) {
            Some(true)
        } else if is_wanted && !somebody() {
            Some(false)
        } else {
            None
        }
    }

    pub(super) fn finish_pending(&mut self, what: &PendingSubscription) -> Vec<RestoreRequest> {
        let place = self.pending.iter().position(|asked| asked == what);
        place.map(|place| self.pending.swap_remove(place));
        let uri = &what.uri;
        let is_kept = self.is_wanted(uri) || self.unowned_subscriptions.contains(uri);
        if is_kept || !self.subscriptions.contains(uri) {
            return Vec::new();
        }
        let before = self.clone();
        self.subscriptions.remove(uri);
        self.requests_since(Some(&before))
    }

    fn interest_mut(&mut self, (client, who): (Digest, Identity)) -> &mut ClientInterest {
        self.sequence += 1;
        let wish = self
            .interests
            .entry(client)
            .or_insert_with(|| ClientInterest {
                identity: who,
                last_change: 0,
                level: None,
                uris: BTreeSet::new(),
            });
        wish.last_change = self.sequence;
        wish
    }

    /// None if the client never wanted anything.
    pub(super) fn remove_client(&mut self, client: Digest) -> Option<Vec<RestoreRequest>> {
        let before = self.clone();
        self.forget_client(client)?;
        Some(self.requests_since(Some(&before)))
    }

    fn forget_client(&mut self, client: Digest) -> Option<()> {
        let gone = self.interests.remove(&client)?;
        for uri in &gone.uris {
            if !self.is_wanted(uri) {
                self.subscriptions.remove(uri);
                self.unowned_subscriptions.remove(uri);
            }
        }
        // Without any wish no level is sent: the protocol has no request for that.
        if gone.level.is_some() && !self.is_unowned_level {
            self.log_level = self.most_verbose_level();
        }
        Some(())
    }

    /// Whether a known client wants updates of a resource.
    fn is_wanted(&self, uri: &str) -> bool {
        let is_asked_for = self.pending.iter().any(|one| one.uri == uri);
        is_asked_for || self.interests.values().any(|wish| wish.uris.contains(uri))
    }

    /// The requests for a session that was sent `told`, or nothing.
    pub(super) fn requests_since(&self, told: Option<&Self>) -> Vec<RestoreRequest> {
        let mut all = Vec::new();
        let mut say = |method: &'static str, params: Value| {
            // Strings always serialize.
            if let Ok(params) = Params::from_serialize(&params) {
                all.push((method, params));
            }
        };
        let level = told.and_then(|told| told.log_level.as_ref());
        if let Some(wanted) = &self.log_level
            && level != Some(wanted)
        {
            say(SET_LEVEL_METHOD, json!({ "level": wanted }));
        }
        let nothing = BTreeSet::new();
        let heard = told.map_or(&nothing, |told| &told.subscriptions);
        for uri in heard.difference(&self.subscriptions) {
            say("resources/unsubscribe", json!({ "uri": uri }));
        }
        for uri in self.subscriptions.difference(heard) {
            say("resources/subscribe", json!({ "uri": uri }));
        }
        all
    }

    pub(super) fn into_recorded(self) -> Vec<String> {
        self.subscriptions
            .into_iter()
            .take(MAX_RECORDED_SUBSCRIPTIONS)
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log_level.is_none() && self.subscriptions.is_empty()
    }
}

fn requested_level(params: &Params) -> Option<usize> {
    let said: String = serde_json::from_slice(params.member("level")?).ok()?;
    level_index(&said)
}

fn level_index(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}

/// Requests that are sent at a time where calls run side by side.
const MAX_CONCURRENT: usize = 8;

/// A request that is sent again: method and parameters.
pub(crate) type RestoreRequest = (&'static str, Params);

/// Sends a joining session what the one before it got.
pub(super) async fn restore_client_state(setup: &SessionSetup, session: &Arc<PooledSession>) {
    let wanted = setup.client_state();
    if !wanted.is_empty() {
        send_requests(setup, session, wanted.requests_since(None)).await;
        setup.set_last_sent(session, wanted);
    }
}

impl SessionSetup {
    /// Sends what clients asked for since then to a session beside the one that was told.
    pub(crate) async fn sync_session(&self, session: Arc<PooledSession>, before: &ClientState) {
        let missed = self.client_state().requests_since(Some(before));
        if !missed.is_empty() {
            send_requests(self, &session, missed).await;
        }
    }
}

/// Sends, in the background, what clients asked for while the session joined.
pub(super) fn send_missed_state(setup: &Arc<SessionSetup>, session: &Arc<PooledSession>) {
    let mut sent = setup.take_last_sent(session);
    let wanted = setup.client_state();
    if wanted.requests_since(sent.as_ref()).is_empty() {
        return;
    }
    // The record was written before that.
    setup.schedule_record_renewal();
    let (setup, session) = (Arc::clone(setup), Arc::clone(session));
    clock::spawn_if_running("client state", async move {
        loop {
            let wanted = setup.client_state();
            let missed = wanted.requests_since(sent.as_ref());
            if missed.is_empty() {
                return;
            }
            send_requests(&setup, &session, missed).await;
            sent = Some(wanted);
        }
    });
}

/// Sends all of them within one time limit. Those that failed are one line in the log.
async fn send_requests(setup: &SessionSetup, session: &Session, all: Vec<RestoreRequest>) {
    let limit = setup.server.settings.load().policy.health_check_timeout;
    let concurrent = match setup.sharing() {
        Some(Sharing::SideBySide) => MAX_CONCURRENT,
        Some(Sharing::Serial | Sharing::OnePerCaller) | None => 1,
    };
    let count = all.len();
    let (mut sent, mut diagnostic) = (0, None);
    let sending = async {
        // The level first: what follows may cause a log line.
        let (first, rest): (Vec<RestoreRequest>, Vec<RestoreRequest>) = all
            .into_iter()
            .partition(|(method, _)| *method == SET_LEVEL_METHOD);
        for some in [first, rest] {
            let mut requests: Vec<BoxFuture<'_, _>> = Vec::with_capacity(some.len());
            for request in some {
                requests.push(Box::pin(send_request(session, request, limit)));
            }
            let mut replies = stream::iter(requests).buffer_unordered(concurrent);
            while let Some(reply) = replies.next().await {
                match reply {
                    Ok(()) => sent += 1,
                    Err(failed) => diagnostic = Some(failed),
                }
            }
        }
    };
    let late = clock::timeout(limit, sending).await.is_err();
    if sent < count {
        let unsaid = count - sent;
        let server = &setup.server.name;
        let diagnostic = diagnostic.map(|diagnostic| diagnostic.to_string());
        tracing::warn!(%server, unsaid, late, diagnostic, "a new session did not get all that clients want of it");
    }
}

const SET_LEVEL_METHOD: &str = "logging/setLevel";

async fn send_request(
    session: &Session,
    (method, params): RestoreRequest,
    limit: Duration,
) -> Result<(), Diagnostic> {
    let deadlines = Deadlines {
        idle: limit,
        total: limit,
    };
    let request = Request::new(method, params).with_deadlines(deadlines);
    match session.call(request, &()).await {
        AttemptResult::Answered(_) => Ok(()),
        AttemptResult::Failed(failure) => Err(failure.diagnostic),
    }
}

#[cfg(test)]
mod tests;
