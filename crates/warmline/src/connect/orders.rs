//! Orders: what was said to a session and has to be said again to the one that replaces it.
//!
//! Told by: the calls that give them, when they were answered.  Asked by: whoever moves a new
//! session in, whoever holds a stream for what they ask for, and calls before they give one.
//!
//! Several clients may share a session. What one of them takes back another may still want, so who
//! wants what is kept for those that say who they are. Whoever sends no session id stands for all
//! clients of its identity, and for nobody else: where identities share a session it goes by its
//! identity instead.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::key::{Digest, Identity};
use warmline_core::protocol::meta::LOG_LEVELS;
use warmline_core::protocol::params::Params;
use warmline_core::record::Record;

use super::saying::{LEVEL, Said};
use super::{Line, Setup};
use crate::engine::Who;

/// So many subscriptions are known after a restart, at most.
const MAX_RECORDED: usize = 1_000;

/// What was said to a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) log_level: Option<String>,
    /// Whether nobody knows who wants that level.
    is_somebodys_level: bool,
    pub(crate) subscriptions: BTreeSet<String>,
    wishes: BTreeMap<Digest, Wish>,
    /// Those of them of which nobody knows all who want them.
    of_somebody: BTreeSet<String>,
    /// Who asks for one at this moment: it is theirs before the answer is here.
    asking: Vec<AskedFor>,
    /// How many were given so far.
    given: u64,
}

/// The resource that a notice says was updated, if it says so.
pub(crate) fn updated(method: &str, params: &[u8]) -> Option<String> {
    if method != "notifications/resources/updated" {
        return None;
    }
    let params = Params::parse(Bytes::copy_from_slice(params)).ok();
    let uri = params.as_ref().and_then(Params::uri);
    Some(uri.unwrap_or_default().into_owned())
}

/// Whether a resource is another one, or a part of it (mcp-spec 8.7.2).
fn is_part_of(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole).is_some_and(|rest| {
        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '?', '#'])
    })
}

/// Who asks for updates of which resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskedFor {
    client: Digest,
    who: Identity,
    uri: String,
}

/// Who gives an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Giver {
    /// A client of an identity that goes by this name.
    Known(Digest, Identity),
    /// Somebody who stands for all clients of the session.
    All,
    /// Somebody who never comes back, in a session that is not theirs: nothing of them is kept.
    Passing,
    /// Nobody: it is taken back because nobody wants it any more.
    Nobody,
}

/// What one client wants. After a restart nobody knows who wanted what was said.
#[derive(Clone, Debug)]
struct Wish {
    who: Identity,
    /// Its last order, by its number.
    last: u64,
    /// Its place among the levels.
    level: Option<usize>,
    uris: BTreeSet<String>,
}

/// What an order means for its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    /// It is passed on as it is.
    AsSaid,
    /// Nothing: somebody else wants what is.
    Granted,
    /// Another level than the one that was asked for: somebody else wants that much.
    Level(&'static str),
}

impl Giver {
    /// Whether it is the client of this name.
    fn is(self, name: Digest) -> bool {
        matches!(self, Self::Known(known, _) if known == name)
    }
}

impl Wish {
    const fn of(who: Identity) -> Self {
        Self {
            who,
            last: 0,
            level: None,
            uris: BTreeSet::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.level.is_none() && self.uris.is_empty()
    }
}

impl Setup {
    /// The name that a client is kept by: that of its client session. None: it stands for all.
    fn name(&self, client: Option<Digest>, who: Identity) -> Option<Digest> {
        client.or_else(|| self.is_everybodys().then_some(who.0))
    }

    /// Who gives an order, if it is of a client session of this name.
    pub(crate) fn giver(&self, client: Option<Digest>, who: &Who) -> Giver {
        match self.name(client, who.id) {
            Some(_) if client.is_none() && !who.said.comes_back() => Giver::Passing,
            Some(name) => Giver::Known(name, who.id),
            None => Giver::All,
        }
    }

    /// What an order means for the session, where other clients share it.
    pub(crate) fn meant(&self, giver: Giver, method: &str, params: &Params) -> Meant {
        match self.aside.get() {
            Some(aside) if Orders::are_given_by(method) => {
                aside.orders.lock().meant(giver, method, params)
            },
            _ => Meant::AsSaid,
        }
    }

    /// Notes that a client asks for updates of a resource, if the method says so: until that is
    /// [over](Self::has_asked).
    pub(crate) fn asks_for(&self, giver: Giver, method: &str, params: &Params) -> Option<AskedFor> {
        let Giver::Known(client, who) = giver else {
            return None;
        };
        if method != "resources/subscribe" {
            return None;
        }
        let uri = params.uri()?.into_owned();
        let what = AskedFor { client, who, uri };
        self.aside().orders.lock().asking.push(what.clone());
        Some(what)
    }

    /// A client does not ask any more, whatever came of it. Gives what has to be said to a session
    /// where another took it back meanwhile, and nobody wants it now.
    pub(crate) fn has_asked(self: &Arc<Self>, what: &AskedFor) -> Vec<Said> {
        let aside = self.aside();
        let unwanted = aside.orders.lock().asked(what);
        if !unwanted.is_empty() {
            aside.audience.changed();
            self.renews();
        }
        unwanted
    }

    /// Whether a client of this key is to hear that a resource was updated: one that asked for it.
    /// What nobody asked for is for all, as its server decided; but nothing is for all where
    /// sessions are shared by several identities.
    pub(crate) fn is_for(&self, client: Option<Digest>, who: Identity, updated: &str) -> bool {
        let Some(client) = self.name(client, who) else {
            return true;
        };
        let orders = self.aside.get().map(|aside| aside.orders.lock());
        let wants = orders.and_then(|orders| orders.wants(client, updated));
        wants.unwrap_or_else(|| !self.is_everybodys())
    }

    /// A session moves in, and these were given to it.
    pub(super) fn has_told(&self, line: &Arc<Line>, orders: Orders) {
        *self.aside().told.lock() = Some((Arc::downgrade(line), orders));
    }

    /// What was said to a session when it moved in, if that is known still.
    pub(super) fn take_told(&self, line: &Arc<Line>) -> Option<Orders> {
        let is_it = |(whom, _): &mut (Weak<Line>, Orders)| whom.as_ptr() == Arc::as_ptr(line);
        let told = self.aside.get()?.told.lock().take_if(is_it);
        told.map(|(_, orders)| orders)
    }

    /// The level that a client wants log lines from, by its place.
    pub(crate) fn level_wanted_by(&self, client: Digest) -> Option<usize> {
        let orders = self.aside.get()?.orders.lock();
        orders.wishes.get(&client)?.level
    }

    /// A client is gone, and wants nothing any more: no session that comes later is told what it
    /// wanted. Gives what has to be said to the one that was told.
    pub(crate) fn left_by(self: &Arc<Self>, client: Digest) -> Vec<Said> {
        let Some(aside) = self.aside.get() else {
            return Vec::new();
        };
        let Some(unwanted) = aside.orders.lock().left(client) else {
            return Vec::new();
        };
        aside.audience.changed();
        self.renews();
        unwanted
    }
}

impl Orders {
    /// Those that a record tells of.
    pub(super) fn recorded(record: &Record) -> Self {
        let subscriptions: BTreeSet<String> = record.subscriptions.iter().cloned().collect();
        Self {
            log_level: record.log_level.clone(),
            of_somebody: subscriptions.clone(),
            subscriptions,
            ..Self::default()
        }
    }

    /// These count too, where nothing else was said here.
    pub(super) fn join(&mut self, others: &Self) {
        if self.log_level.is_none() {
            self.log_level.clone_from(&others.log_level);
            self.is_somebodys_level = true;
        }
        let uris = others.subscriptions.iter().take(MAX_RECORDED);
        self.subscriptions.extend(uris.clone().cloned());
        self.of_somebody.extend(uris.cloned());
    }

    /// Whether a method gives one.
    pub(crate) fn are_given_by(method: &str) -> bool {
        matches!(
            method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        )
    }

    /// What an order means, with what others than its giver want.
    pub(super) fn meant(&self, giver: Giver, method: &str, params: &Params) -> Meant {
        match giver {
            Giver::Known(..) | Giver::Passing => {},
            Giver::All => return Meant::AsSaid,
            Giver::Nobody => return self.still_meant(method, params),
        }
        let is_other = |who| !giver.is(who);
        let others = self.wishes.iter().filter(|(who, _)| is_other(**who));
        let mut others = others.map(|(_, wish)| wish);
        match method {
            "resources/unsubscribe" => {
                let uri = params.uri().unwrap_or_default();
                // What another asks for at this moment is theirs before the answer is here.
                let mut asking = self.asking.iter();
                let is_asked_for = asking.any(|one| is_other(one.client) && one.uri == *uri);
                let is_wanted = is_asked_for || others.any(|wish| wish.uris.contains(&*uri));
                // Who passes by never asked for it, whoever did.
                let is_theirs = giver != Giver::Passing || !self.subscriptions.contains(&*uri);
                (is_wanted || !is_theirs).then_some(Meant::Granted)
            },
            "logging/setLevel" => {
                let most = others.filter_map(|wish| wish.level).min();
                let wanted = most.zip(level(params));
                let more = wanted.filter(|(most, asked)| most < asked);
                let name = more.and_then(|(most, _)| LOG_LEVELS.get(most));
                name.map(|name| match self.log_level.as_deref() == Some(name) {
                    true => Meant::Granted,
                    false => Meant::Level(name),
                })
            },
            _ => None,
        }
        .unwrap_or(Meant::AsSaid)
    }

    /// What it means to take something back that nobody wanted a moment ago.
    fn still_meant(&self, method: &str, params: &Params) -> Meant {
        if method == "resources/unsubscribe" {
            let uri = params.uri().unwrap_or_default();
            return match self.subscriptions.contains(&*uri) || self.is_wanted(&uri) {
                true => Meant::Granted,
                false => Meant::AsSaid,
            };
        }
        let level = self.log_level.as_deref().and_then(place);
        let name = level.and_then(|level| LOG_LEVELS.get(level));
        name.map_or(Meant::Granted, |name| Meant::Level(name))
    }

    /// The level of the client that wants to hear most.
    fn most(&self) -> Option<String> {
        let most = self.wishes.values().filter_map(|wish| wish.level).min()?;
        LOG_LEVELS.get(most).map(|name| (*name).to_owned())
    }

    /// Notes one.
    pub(super) fn note(&mut self, giver: Giver, method: &str, params: &Params) {
        let client = match giver {
            Giver::Known(client, who) => Some((client, who)),
            Giver::All => None,
            Giver::Passing | Giver::Nobody => return,
        };
        let wish = client.map(|client| self.wish(client));
        if method == "logging/setLevel" {
            if let Some(wish) = wish {
                wish.level = level(params);
            }
            let said = params.member("level");
            let said = said.and_then(|raw| serde_json::from_slice(raw).ok());
            let most = client.and_then(|_| self.most());
            self.is_somebodys_level = client.is_none();
            self.log_level = most.or(said);
            return;
        }
        let Some(uri) = params.uri() else { return };
        if method == "resources/unsubscribe" {
            if let Some(wish) = wish {
                wish.uris.remove(&*uri);
            }
            self.wishes.retain(|_, wish| !wish.is_empty());
            if client.is_none() || !self.is_wanted(&uri) {
                self.subscriptions.remove(&*uri);
                self.of_somebody.remove(&*uri);
            }
        } else {
            let uri = uri.into_owned();
            match wish {
                Some(wish) => wish.uris.insert(uri.clone()),
                None => self.of_somebody.insert(uri.clone()),
            };
            self.subscriptions.insert(uri);
        }
    }

    /// Whether a client wants to hear of a resource, or only others do. None: nobody can tell.
    fn wants(&self, client: Digest, uri: &str) -> Option<bool> {
        let wishes = self.wishes.iter();
        let wished = wishes.flat_map(|(who, wish)| wish.uris.iter().map(move |uri| (who, uri)));
        let asking = self.asking.iter().map(|one| (&one.client, &one.uri));
        let all = wished.chain(asking);
        let mut wanting = all.filter(|(_, wanted)| is_part_of(uri, wanted)).peekable();
        let is_wanted = wanting.peek().is_some();
        let somebody = || self.of_somebody.iter().any(|one| is_part_of(uri, one));
        if wanting.any(|(who, _)| *who == client) {
            Some(true)
        } else if is_wanted && !somebody() {
            Some(false)
        } else {
            None
        }
    }

    /// A client has asked. What another took back meanwhile was kept for it alone.
    fn asked(&mut self, what: &AskedFor) -> Vec<Said> {
        let place = self.asking.iter().position(|asked| asked == what);
        place.map(|place| self.asking.swap_remove(place));
        let uri = &what.uri;
        let is_kept = self.is_wanted(uri) || self.of_somebody.contains(uri);
        if is_kept || !self.subscriptions.contains(uri) {
            return Vec::new();
        }
        let before = self.clone();
        self.subscriptions.remove(uri);
        self.beyond(Some(&before))
    }

    fn wish(&mut self, (client, who): (Digest, Identity)) -> &mut Wish {
        self.given += 1;
        let wish = self.wishes.entry(client).or_insert_with(|| Wish::of(who));
        wish.last = self.given;
        wish
    }

    /// A client is gone, and wants nothing any more. Gives what has to be said to a session that was
    /// told what was wanted before. None: it never wanted anything.
    fn left(&mut self, client: Digest) -> Option<Vec<Said>> {
        let before = self.clone();
        self.forget(client)?;
        Some(self.beyond(Some(&before)))
    }

    /// Nothing is wanted by a client any more.
    fn forget(&mut self, client: Digest) -> Option<()> {
        let gone = self.wishes.remove(&client)?;
        for uri in &gone.uris {
            if !self.is_wanted(uri) {
                self.subscriptions.remove(uri);
                self.of_somebody.remove(uri);
            }
        }
        // Where nobody wants any level, none is said: a server has no word for that.
        if gone.level.is_some() && !self.is_somebodys_level {
            self.log_level = self.most();
        }
        Some(())
    }

    /// Whether a client that is known wants to hear of a resource.
    fn is_wanted(&self, uri: &str) -> bool {
        let is_asked_for = self.asking.iter().any(|one| one.uri == uri);
        is_asked_for || self.wishes.values().any(|wish| wish.uris.contains(uri))
    }

    /// What has to be said to a session that was told this, or nothing.
    pub(super) fn beyond(&self, told: Option<&Self>) -> Vec<Said> {
        let mut all = Vec::new();
        let mut say = |method: &'static str, params: Value| {
            // A string is always fine.
            if let Ok(params) = Params::of(&params) {
                all.push((method, params));
            }
        };
        let level = told.and_then(|told| told.log_level.as_ref());
        if let Some(wanted) = &self.log_level
            && level != Some(wanted)
        {
            say(LEVEL, json!({ "level": wanted }));
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

    /// Those subscriptions that a record has room for.
    pub(super) fn recordable(self) -> Vec<String> {
        self.subscriptions.into_iter().take(MAX_RECORDED).collect()
    }

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.log_level.is_none() && self.subscriptions.is_empty()
    }
}

/// The place of the level that is asked for.
fn level(params: &Params) -> Option<usize> {
    let said: String = serde_json::from_slice(params.member("level")?).ok()?;
    place(&said)
}

fn place(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}

#[cfg(test)]
mod tests;
