//! What a server says of itself: its lists with all their pages, cached for those who may see them,
//! and the facts of its handshake.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use warmline_core::delivery::Delivery;
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::pool::LeaseOutcome;
use warmline_core::pool_key::{ClientProfileId, Transport};
use warmline_core::session_plan::ServerProfile;

use super::builder::CallRequest;
use super::route::{self, list_owner, server_principal};
use super::server_handle::CallerContext;
use super::{CallState, execute};
use crate::error::{Error, Result};
use crate::list_cache::{FetchedList, ListAgeLimit, ListCache, ListOwner};
use crate::server_state::{HandshakeKey, ServerState};
use crate::session_factory::{SessionEntry, SessionFactory};
use crate::tools::ToolList;
use warmline_platform::clock;
use warmline_pool::SessionSnapshot;
use warmline_upstream::{ListKind, ListReader, ServerFacts, is_usable_item};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListFreshness {
    /// Younger than the horizon, and the server reported no change.
    WithinTtl,
    /// The same, and no call that may have changed it without a report came in between.
    UnchangedByCalls,
    /// The same, and within the time that the server allows.
    WithinServerTtl,
}

/// The owner of the list that a caller reads, and how old it may be. None where no route is found:
/// reading the list reports why.
async fn list_lookup(
    caller: &CallerContext,
    entry: &Arc<ServerState>,
    (list, fresh): (ListKind, ListFreshness),
) -> Option<(ListOwner, ListAgeLimit)> {
    let any = match fresh {
        ListFreshness::WithinServerTtl => ListAgeLimit::WITHIN_SERVER_TTL,
        ListFreshness::UnchangedByCalls | ListFreshness::WithinTtl => ListAgeLimit::ANY,
    };
    if caller.run.is_none() {
        return Some((list_owner(caller, entry, None), any));
    }
    let finding = route::find_route(caller, entry, None);
    let found = clock::timeout(entry.settings.load().policy.deadlines.total, finding).await;
    let route = found.ok()?.ok()?;
    let cell = route.pool_entry();
    let age = cell
        .and_then(|cell| age_limit(cell, list, fresh))
        .unwrap_or(any);
    Some((list_owner(caller, entry, cell), age))
}

/// How old a list of a pool entry may be, where a call may change it.
fn age_limit(entry: &SessionEntry, list: ListKind, fresh: ListFreshness) -> Option<ListAgeLimit> {
    let profile = entry.setup.server_profile;
    // A call changes neither shared lists nor those of a modern server.
    if entry.key.run().is_none() || profile.era == Era::Modern {
        return None;
    }
    // Over HTTP the report may come on a stream that nobody holds.
    let reports_changes =
        || profile.transport != Transport::Http && declares_list_changed(entry, list);
    Some(ListAgeLimit {
        call_count: entry.setup.call_count(),
        is_invalidated_by_calls: fresh != ListFreshness::WithinTtl && !reports_changes(),
        honors_server_ttl: false,
    })
}

fn declares_list_changed(entry: &SessionEntry, list: ListKind) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListCapability {
        #[serde(default)]
        list_changed: bool,
    }
    let Some(newest) = newest_session(entry) else {
        return false;
    };
    let declared = &newest.session.shared_facts().capabilities;
    let declared: BTreeMap<String, Value> = serde_json::from_slice(declared).unwrap_or_default();
    let capability = match list {
        ListKind::Tools => "tools",
        ListKind::Prompts => "prompts",
        ListKind::Resources | ListKind::ResourceTemplates => "resources",
    };
    let capability = declared.get(capability).map(ListCapability::deserialize);
    capability.is_some_and(|read| read.is_ok_and(|read| read.list_changed))
}

/// A list from a cache, or read now, once for all who wait.
async fn read_through<K, V, F>(
    caller: &CallerContext,
    cache: &ListCache<K, V>,
    cached: Option<(K, ListAgeLimit)>,
    read: impl Fn() -> F,
) -> Result<V>
where
    K: Copy + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    F: Future<Output = Result<FetchedList<V>>> + Send + 'static,
{
    let Some((key, age)) = cached else {
        return Ok(read().await?.value);
    };
    let run = caller.run.clone();
    let is_wanted = move || run.as_ref().is_none_or(|run| !run.cancel.is_set());
    match cache.get_or_read(key, age, is_wanted, read()).await {
        // The caller that was reading for all of us was cancelled.
        Err(error)
            if error.reason() == Reason::RunEnded
                && caller.run.as_ref().is_none_or(|run| run.is_live()) =>
        {
            Ok(read().await?.value)
        },
        list => list,
    }
}

/// The tools that may be called.
///
/// Boxed, because a call may list tools, and listing is a call.
pub(crate) fn tool_list<'a>(
    caller: &'a CallerContext,
    entry: &'a Arc<ServerState>,
    fresh: ListFreshness,
) -> Pin<Box<dyn Future<Output = Result<Arc<ToolList>>> + Send + 'a>> {
    Box::pin(async move {
        let cached = list_lookup(caller, entry, (ListKind::Tools, fresh)).await;
        let principal = cached.map(|(owner, _)| owner.principal);
        let read = || {
            let (caller, server) = (caller.clone(), Arc::clone(entry));
            async move {
                let pages = fetch_pages(&caller, &server, ListKind::Tools).await?;
                let rules = caller.engine.ruling_settings(&server);
                Ok(pages.map(|items| {
                    let card = &server.declaration.card;
                    let mut tools = ToolList::from_listing(card, items, &rules.policy);
                    if let Some(principal) = principal {
                        server.tool_annotations.compare(principal, &mut tools);
                    }
                    Arc::new(tools)
                }))
            }
        };
        read_through(caller, &entry.tool_lists, cached, read).await
    })
}

pub(crate) async fn cached_list(
    caller: &CallerContext,
    entry: &Arc<ServerState>,
    (which, fresh): (ListKind, ListFreshness),
) -> Result<Arc<[Bytes]>> {
    let cached = list_lookup(caller, entry, (which, fresh)).await;
    let cached = cached.map(|(owner, age)| ((owner, which), age));
    let read = || {
        let (caller, server) = (caller.clone(), Arc::clone(entry));
        async move { Ok(fetch_pages(&caller, &server, which).await?.map(Arc::from)) }
    };
    read_through(caller, &entry.other_lists, cached, read).await
}

/// A list with all its pages and the time for which its server allows caching, read on the session
/// that a call would use.
pub(super) async fn fetch_pages(
    caller: &CallerContext,
    entry: &Arc<ServerState>,
    list: ListKind,
) -> Result<FetchedList<Vec<Bytes>>> {
    let request = |params| CallRequest::new(Cow::Borrowed(list.method()), params);
    let mut pages = ListReader::new(list, &entry.name);
    let mut profile: Option<ServerProfile> = None;
    while let Some(params) = pages.next_params() {
        let page = Box::pin(execute(caller, entry, None, request(params))).await?;
        pages.add_page(&page.result).map_err(|diagnostic| {
            Error::new(diagnostic, Delivery::Answered).with_context(page.error_context())
        })?;
        profile = Some(page.server_profile);
    }
    let is_modern = profile.is_some_and(|profile| profile.era == Era::Modern);
    // Without a TTL, the list of a modern server is valid for this moment only.
    let server_ttl = is_modern.then(|| pages.ttl().unwrap_or_default());
    let mut items = pages.into_items();
    if is_modern && profile.is_some_and(|profile| profile.transport != Transport::Stdio) {
        items.retain(|item| is_usable_item(list, item));
    }
    Ok(FetchedList {
        bytes: items.iter().map(Bytes::len).sum(),
        value: items,
        server_ttl,
    })
}

pub(crate) async fn session_facts(
    caller: &CallerContext,
    server: &Arc<ServerState>,
) -> Result<Arc<ServerFacts>> {
    Ok(facts_and_profile(caller, server).await?.0)
}

/// The same with the client profile of the handshake: callers that share a session made one.
async fn facts_and_profile(
    caller: &CallerContext,
    server: &Arc<ServerState>,
) -> Result<(Arc<ServerFacts>, ClientProfileId)> {
    let mut call = CallState::begin(caller, server, CallRequest::lease(), None)?;
    let (route, lease) = call.acquire_without_request().await?;
    let facts = Arc::clone(lease.session.shared_facts());
    lease.settle(LeaseOutcome::Unused);
    Ok((facts, route.setup().client_profile.id))
}

/// The facts of the last handshake with such a caller, or of one made now.
pub(crate) async fn handshake_facts(
    caller: &CallerContext,
    server: &Arc<ServerState>,
) -> Result<Arc<ServerFacts>> {
    let (identity, credential) = server_principal(caller, server);
    let key = HandshakeKey {
        identity,
        credential,
        client_profile_id: caller.client_profile.id,
        era: caller.era,
    };
    caller.engine.check_open().map_err(Error::unsent)?;
    if let Some(known) = server.cached_handshake(&key) {
        return Ok(known);
    }
    let (facts, client_profile) = facts_and_profile(caller, server).await?;
    // A reply to another client profile says nothing to this one.
    if client_profile == key.client_profile_id {
        server.cache_handshake(key, &facts);
    }
    Ok(facts)
}

pub(crate) fn newest_session(entry: &SessionEntry) -> Option<SessionSnapshot<SessionFactory>> {
    let sessions = entry.sessions().into_iter();
    sessions.max_by_key(|seen| seen.generation)
}
