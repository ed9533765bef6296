//! What is asked of a server beside single calls: lists, its facts, a session to hold.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::Era;
use warmline_core::exchange::Words;
use warmline_core::key::{DeclaredId, Scope, Transport};
use warmline_core::loss::{self, Reaction};
use warmline_core::pool::{Outcome, Want};
use warmline_core::protocol::params::Params;

use super::{Job, Way, carry};
use crate::clock;
use crate::connect::{Connect, Line};
use crate::engine::Caller;
use crate::entry::{Entry, Greeter, Items, NO_CREDENTIAL, ToolsOf, Whose};
use crate::error::{Error, Result};
use crate::handle::HeldSession;
use crate::pool::{CellOf, Lease, Seen};
use crate::route::{self, Route};
use crate::tools::{Age, Outlives, Read, Stated, ToolList};
use crate::upstream::{Facts, List, Pages, is_usable};

/// How fresh a list has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// It holds until its horizon, or until the server says that it changed.
    UntilHorizon,
    /// The same, and no call came in between that may have changed it unheard.
    SinceCalls,
    /// The same, and not longer than the server says that it is good.
    Now,
}

/// As whom the server is spoken to.
fn tools_of(caller: &Caller, entry: &Entry) -> ToolsOf {
    let vault = &caller.engine.shared().vault;
    let credential = entry.credential(&caller.who, vault);
    let id = credential.map_or(NO_CREDENTIAL, |credential| credential.id());
    (caller.who.id, id)
}

/// Whose list it is that the sessions of a cell give.
pub(super) fn whose(caller: &Caller, entry: &Entry, cell: Option<&CellOf<Connect>>) -> Whose {
    let run = cell.and_then(|cell| cell.key().run());
    Whose {
        of: tools_of(caller, entry),
        scope: run.map_or(Scope::Shared(caller.said.shared_by), Scope::Run),
        era: caller.era,
    }
}

/// The same as far as the way to the server is known.
pub(super) fn whose_so_far(caller: &Caller, entry: &Entry) -> Whose {
    let cell = route::remembered(caller, entry);
    whose(caller, entry, cell.as_deref())
}

/// Whose list a caller reads, and how old it may be. None where the way to the server cannot be
/// found: whoever reads the list then says why.
async fn asked(
    caller: &Caller,
    entry: &Arc<Entry>,
    (list, fresh): (List, Fresh),
) -> Option<(Whose, Age)> {
    let any = match fresh {
        Fresh::Now => Age::AS_STATED,
        Fresh::SinceCalls | Fresh::UntilHorizon => Age::ANY,
    };
    if caller.run.is_none() {
        return Some((whose(caller, entry, None), any));
    }
    let finding = route::route(caller, entry, None);
    let found = clock::timeout(entry.policy().patience.total, finding).await;
    let route = found.ok()?.ok()?;
    let cell = route.cell();
    let age = cell.and_then(|cell| age(cell, list, fresh)).unwrap_or(any);
    Some((whose(caller, entry, cell), age))
}

/// How old a list of a cell may be, where a call may change it.
fn age(cell: &CellOf<Connect>, list: List, fresh: Fresh) -> Option<Age> {
    let leg = cell.setup().leg;
    // What many share, or what a modern server lists, no call of one of them changes.
    if cell.key().run().is_none() || leg.era == Era::Modern {
        return None;
    }
    // Over HTTP a server may say it on a stream that nobody holds.
    let is_told = || leg.transport != Transport::Http && tells_changes(cell, list);
    Some(Age {
        calls: cell.setup().calls(),
        outlives: match fresh {
            Fresh::SinceCalls | Fresh::Now if !is_told() => Outlives::NoCall,
            Fresh::SinceCalls | Fresh::Now | Fresh::UntilHorizon => Outlives::AnyCall,
        },
        stated: Stated::Aside,
    })
}

/// Whether a server says that it tells when a list changed.
fn tells_changes(cell: &CellOf<Connect>, list: List) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ability {
        #[serde(default)]
        list_changed: bool,
    }
    let Some(newest) = newest(cell) else {
        return false;
    };
    let said = &newest.session.shared_facts().capabilities;
    let said: BTreeMap<String, Value> = serde_json::from_slice(said).unwrap_or_default();
    let ability = match list {
        List::Tools => "tools",
        List::Prompts => "prompts",
        List::Resources | List::Templates => "resources",
    };
    let ability = said.get(ability).map(Ability::deserialize);
    ability.is_some_and(|said| said.is_ok_and(|said| said.list_changed))
}

/// The tools that may be called: from the cache, or read now, once for all who ask.
///
/// On the heap and under a type of its own, because a call may list tools, and listing is a call.
pub(crate) fn tools<'a>(caller: &'a Caller, entry: &'a Arc<Entry>, fresh: Fresh) -> Listing<'a> {
    Box::pin(async move {
        let Some((whose, age)) = asked(caller, entry, (List::Tools, fresh)).await else {
            return tools_now(caller, entry).await.map(Arc::new);
        };
        let (reader, of) = (caller.clone(), Arc::clone(entry));
        let work = async move { tools_now(&reader, &of).await };
        match entry.tools.list(whose, age, is_wanted(caller), work).await {
            // Whoever read it for all of us was cut; that is no ending of ours.
            Err(error) if error.reason() == Reason::RunEnded && is_live(caller) => {
                tools_now(caller, entry).await.map(Arc::new)
            },
            read => read,
        }
    })
}

async fn tools_now(caller: &Caller, entry: &Arc<Entry>) -> Result<ToolList> {
    let read = read(caller, entry, List::Tools).await?;
    let card = &entry.server.card;
    Ok(entry.with_rules(&caller.engine, |ruling| {
        ToolList::of(card, read, &ruling.policy())
    }))
}

/// Whether a list is still worth keeping once it was read: of a run that is over it is not.
fn is_wanted(caller: &Caller) -> impl Fn() -> bool + Send + use<> {
    let run = caller.run.clone();
    move || run.as_ref().is_none_or(|run| !run.is_cut())
}

fn is_live(caller: &Caller) -> bool {
    caller.run.as_ref().is_none_or(|run| run.is_live())
}

type Listing<'a> = Pin<Box<dyn Future<Output = Result<Arc<ToolList>>> + Send + 'a>>;

/// A list with all its pages, over the session that a call of this caller would use.
pub(crate) async fn list(caller: &Caller, entry: &Arc<Entry>, list: List) -> Result<Vec<Bytes>> {
    Ok(read(caller, entry, list).await?.items)
}

/// The same, and how long it is good by the word of its server.
async fn read(caller: &Caller, entry: &Arc<Entry>, list: List) -> Result<Read> {
    let job = |params: Params| Job {
        method: Cow::Borrowed(list.method()),
        params,
        ..no_job(entry)
    };
    let mut pages = Pages::new(list, &entry.name);
    let mut leg = None;
    while let Some(params) = pages.next() {
        let page = Box::pin(carry(caller, entry, None, job(params))).await?;
        pages
            .take(&page.result)
            .map_err(|trouble| Error::new(trouble, Delivery::Answered).at(page.at()))?;
        leg = Some(page.leg);
    }
    let is_modern = leg.is_some_and(|leg| leg.era == Era::Modern);
    // A modern server that says nothing of it says that it is good for this moment.
    let good_for = is_modern.then(|| pages.good_for().unwrap_or_default());
    let mut items = pages.into_items();
    if is_modern && leg.is_some_and(|leg| leg.transport != Transport::Stdio) {
        items.retain(|item| is_usable(list, item));
    }
    Ok(Read { items, good_for })
}

/// The same from the cache where it holds, or read now, once for all who ask.
pub(crate) async fn listed(
    caller: &Caller,
    entry: &Arc<Entry>,
    (which, fresh): (List, Fresh),
) -> Result<Items> {
    let Some((whose, age)) = asked(caller, entry, (which, fresh)).await else {
        return Ok(list(caller, entry, which).await?.into());
    };
    let (reader, of) = (caller.clone(), Arc::clone(entry));
    let work = async move { read(&reader, &of, which).await };
    let reading = (entry.listed).list((whose, which), age, is_wanted(caller), work);
    match reading.await {
        // Whoever read it for all of us was cut; that is no ending of ours.
        Err(error) if error.reason() == Reason::RunEnded && is_live(caller) => {
            Ok(list(caller, entry, which).await?.into())
        },
        read => read,
    }
}

/// What the server said of itself when the session of this caller was opened.
pub(crate) async fn facts(caller: &Caller, entry: &Arc<Entry>) -> Result<Arc<Facts>> {
    Ok(said_to(caller, entry).await?.0)
}

/// The same, and to whom it was said: a session that several share was greeted by one of them.
async fn said_to(caller: &Caller, entry: &Arc<Entry>) -> Result<(Arc<Facts>, DeclaredId)> {
    let mut way = Way::set_out(caller, entry, no_job(entry), None)?;
    let (route, lease) = way.taken().await?;
    let facts = Arc::clone(lease.session().shared_facts());
    lease.settle(Outcome::Unused);
    Ok((facts, route.setup().said.id))
}

/// What the server says of itself to such a caller: as it was heard last, else heard now.
pub(crate) async fn greeting(caller: &Caller, entry: &Arc<Entry>) -> Result<Arc<Facts>> {
    let (identity, credential) = tools_of(caller, entry);
    let greeter = Greeter {
        identity,
        credential,
        declared: caller.said.id,
        era: caller.era,
    };
    caller.engine.admit().map_err(Error::unsent)?;
    if let Some(known) = entry.greeting(&greeter) {
        return Ok(known);
    }
    let (facts, declared) = said_to(caller, entry).await?;
    // What was said to another is no word to those who greet as this one does.
    if declared == greeter.declared {
        entry.greeted(greeter, &facts);
    }
    Ok(facts)
}

/// A session for one holder alone, unless state was lost and the policy forbids going on.
pub(crate) async fn take_alone(
    caller: &Caller,
    entry: &Arc<Entry>,
) -> Result<(Route, Lease<Connect>)> {
    let mut way = Way::set_out(caller, entry, no_job(entry), None)?;
    way.want = Want::Exclusive;
    let (route, lease) = way.taken().await?;
    // It is taken to call tools on it.
    let reaction = loss::plan(entry.policy().state_loss(), "tools/call");
    if way.has_word(&lease) && matches!(reaction, Reaction::Fail | Reaction::EndRun) {
        return Err(way.goes_no_further(&route, lease, reaction));
    }
    Ok((route, lease))
}

impl Way<'_> {
    /// A lease for whoever sends nothing on it yet.
    async fn taken(&mut self) -> Result<(Route, Lease<Connect>)> {
        let caller = self.caller;
        let present = caller
            .enter()
            .map_err(|trouble| self.error(trouble, Delivery::Unsent))?;
        let taken = caller.until_cut(std::pin::pin!(self.lease())).await;
        drop(present);
        taken.unwrap_or_else(|| Err(self.cut(caller.was_cut())))
    }
}

/// What is said of a lease where a call says what is called.
pub(super) fn no_job(entry: &Entry) -> Job {
    Job {
        method: Cow::Borrowed("lease"),
        params: Params::empty(),
        patience: entry.policy().patience,
        headers: Vec::new(),
        said: None,
        call_id: None,
        tool: None,
        listener: None,
        words: Words::Ours,
        takes_back: false,
    }
}

/// The session that is held for this caller, if one is, to be told something.
pub(crate) fn line(caller: &Caller, entry: &Arc<Entry>) -> Option<Arc<Line>> {
    let cell = route::remembered(caller, entry)?;
    newest(&cell).map(|seen| seen.session)
}

pub(super) fn newest(cell: &CellOf<Connect>) -> Option<Seen<Connect>> {
    let sessions = cell.sessions().into_iter();
    sessions.max_by_key(|seen| seen.generation)
}

/// The session that is held for this caller, if one is. Asking changes nothing.
pub(crate) fn held(caller: &Caller, entry: &Arc<Entry>) -> Option<HeldSession> {
    let newest = newest(&*route::remembered(caller, entry)?)?;
    Some(HeldSession {
        id: newest.session.session_id().map(str::to_owned),
        generation: newest.generation.number(),
    })
}
