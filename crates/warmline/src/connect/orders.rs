//! Orders: what was said to a session and has to be said again to the one that replaces it.
//!
//! Told by: the calls that give them, when they were answered.  Asked by: whoever moves a new
//! session in, whoever holds a stream for what they ask for, and calls before they give one.
//!
//! Several clients may share a session. What one of them takes back another may still want, so who
//! wants what is kept for those that say who they are. Whoever sends no session id stands for all
//! clients of its identity, and for nobody else: where identities share a session it goes by its
//! identity instead.

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

/// So many subscriptions are said again, at most.
const MAX_SUBSCRIPTIONS: usize = 1_000;
/// So many clients of a session are told apart, at most.
const MAX_CLIENTS: usize = 1_000;

/// What was said to a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) log_level: Option<String>,
    pub(crate) subscriptions: BTreeSet<String>,
    wishes: BTreeMap<Digest, Wish>,
    /// Those of them of which nobody knows all who want them.
    of_somebody: BTreeSet<String>,
    /// Who asks for one at this moment: it is theirs before the answer is here.
    asking: Vec<(Digest, String)>,
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

/// A client asks for a subscription until this is dropped.
pub(crate) struct AsksFor {
    setup: Arc<Setup>,
    what: (Digest, String),
}

impl Drop for AsksFor {
    fn drop(&mut self) {
        let mut orders = self.setup.aside().orders.lock();
        let place = orders.asking.iter().position(|asked| *asked == self.what);
        place.map(|place| orders.asking.swap_remove(place));
    }
}

/// Who gives an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Giver {
    /// A client that goes by this name.
    Known(Digest),
    /// Somebody who stands for all clients of the session.
    All,
    /// Somebody who never comes back, in a session that is not theirs: nothing of them is kept.
    Passing,
}

/// What one client wants. After a restart nobody knows who wanted what was said.
#[derive(Clone, Debug, Default)]
struct Wish {
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

impl Wish {
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
            Some(name) => Giver::Known(name),
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

    /// Notes that a client asks for updates of a resource, if the method says so.
    pub(crate) fn asks_for(
        self: &Arc<Self>,
        giver: Giver,
        method: &str,
        params: &Params,
    ) -> Option<AsksFor> {
        let Giver::Known(client) = giver else {
            return None;
        };
        if method != "resources/subscribe" {
            return None;
        }
        let what = (client, params.uri()?.into_owned());
        self.aside().orders.lock().asking.push(what.clone());
        let setup = Arc::clone(self);
        Some(AsksFor { setup, what })
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
    /// wanted. Gives the resources that nobody wants to hear of now.
    pub(crate) fn left_by(self: &Arc<Self>, client: Digest) -> Vec<String> {
        let Some(aside) = self.aside.get() else {
            return Vec::new();
        };
        let unwanted = aside.orders.lock().left(client);
        if !unwanted.is_empty() {
            aside.audience.changed();
            self.renews();
        }
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
        let level = self.log_level.take();
        self.log_level = level.or_else(|| others.log_level.clone());
        let room = MAX_SUBSCRIPTIONS.saturating_sub(self.subscriptions.len());
        let uris = others.subscriptions.iter().take(room);
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
        if giver == Giver::All {
            return Meant::AsSaid;
        }
        let is_other = |who: Digest| giver != Giver::Known(who);
        let others = self.wishes.iter().filter(|(who, _)| is_other(**who));
        let mut others = others.map(|(_, wish)| wish);
        match method {
            "resources/unsubscribe" => {
                let uri = params.uri().unwrap_or_default();
                // What another asks for at this moment is theirs before the answer is here.
                let mut asking = self.asking.iter();
                let is_asked_for = asking.any(|(who, asked)| is_other(*who) && *asked == *uri);
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

    /// Notes one.
    pub(super) fn note(&mut self, giver: Giver, method: &str, params: &Params) {
        let client = match giver {
            Giver::Known(client) => Some(client),
            Giver::All => None,
            Giver::Passing => return,
        };
        let wish = client.and_then(|client| self.wish(client));
        if method == "logging/setLevel" {
            if let Some(wish) = wish {
                wish.level = level(params);
            }
            let most = self.wishes.values().filter_map(|wish| wish.level).min();
            let most = most.filter(|_| client.is_some());
            let most = most
                .and_then(|most| LOG_LEVELS.get(most))
                .map(|name| (*name).to_owned());
            let said = params.member("level");
            let said = said.and_then(|raw| serde_json::from_slice(raw).ok());
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
        } else if self.subscriptions.len() < MAX_SUBSCRIPTIONS {
            let uri = uri.into_owned();
            match client.and_then(|client| self.wish(client)) {
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
        let asking = self.asking.iter().map(|(who, uri)| (who, uri));
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

    fn wish(&mut self, client: Digest) -> Option<&mut Wish> {
        let has_room = self.wishes.len() < MAX_CLIENTS || self.wishes.contains_key(&client);
        has_room.then(|| self.wishes.entry(client).or_default())
    }

    /// A client is gone, and wants nothing any more. Gives what nobody wants to hear of now.
    fn left(&mut self, client: Digest) -> Vec<String> {
        let uris = self.wishes.remove(&client).unwrap_or_default().uris;
        let unwanted: Vec<String> = uris
            .into_iter()
            .filter(|uri| !self.is_wanted(uri))
            .collect();
        for uri in &unwanted {
            self.subscriptions.remove(uri);
            self.of_somebody.remove(uri);
        }
        unwanted
    }

    /// Whether a client that is known wants to hear of a resource.
    fn is_wanted(&self, uri: &str) -> bool {
        let is_asked_for = self.asking.iter().any(|(_, asked)| asked == uri);
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

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.log_level.is_none() && self.subscriptions.is_empty()
    }
}

/// The place of the level that is asked for.
fn level(params: &Params) -> Option<usize> {
    let said: String = serde_json::from_slice(params.member("level")?).ok()?;
    LOG_LEVELS.iter().position(|level| *level == said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level_of(name: &str) -> Params {
        Params::of(&json!({ "level": name })).unwrap()
    }

    /// mcp-spec 8.7.2: of a resource, or a part of it, those hear who asked for it. Where not all of
    /// them are known, nobody can tell.
    #[test]
    fn who_wants_a_resource_is_told_from_who_does_not() {
        let [one, other] = [1, 2].map(|number| Digest::new([number; 16]));
        let mut orders = Orders::default();
        orders.note(Giver::Known(one), "resources/subscribe", &uri("note:///a"));
        orders.asking.push((one, "note:///b/".to_owned()));
        let rows = [
            ("note:///a", Some(true)),
            ("note:///a/part", Some(true)),
            ("note:///a#part", Some(true)),
            ("note:///ab", None),
            ("note:///b/part", Some(true)),
            ("note:///c", None),
        ];
        for (uri, expected) in rows {
            assert_eq!(orders.wants(one, uri), expected, "{uri}");
            let others = expected.map(|_| false);
            assert_eq!(orders.wants(other, uri), others, "{uri}");
        }
        // Somebody else wants it, and nobody knows who.
        orders.note(Giver::All, "resources/subscribe", &uri("note:///a"));
        assert_eq!(orders.wants(one, "note:///a"), Some(true));
        assert_eq!(orders.wants(other, "note:///a"), None);
        orders.note(Giver::All, "resources/unsubscribe", &uri("note:///a"));
        assert_eq!(orders.wants(other, "note:///a"), Some(false));
    }

    fn uri(uri: &str) -> Params {
        Params::of(&json!({ "uri": uri })).unwrap()
    }

    #[test]
    fn what_one_client_takes_back_another_may_still_want() {
        let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
        let mut orders = Orders::default();
        for client in [Giver::Known(one), Giver::Known(other), Giver::All] {
            orders.note(client, "resources/subscribe", &uri("a"));
        }
        let back = "resources/unsubscribe";
        assert_eq!(
            orders.meant(Giver::Known(one), back, &uri("a")),
            Meant::Granted
        );
        assert_eq!(
            orders.meant(Giver::Known(one), back, &uri("b")),
            Meant::AsSaid
        );
        orders.note(Giver::Known(one), back, &uri("a"));
        assert!(orders.subscriptions.contains("a"));
        assert_eq!(
            orders.meant(Giver::Known(other), back, &uri("a")),
            Meant::AsSaid
        );
        orders.note(Giver::Known(other), back, &uri("a"));
        assert!(orders.is_empty() && orders.wishes.is_empty());
    }

    #[test]
    fn whoever_leaves_takes_back_what_nobody_else_wants() {
        let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
        let mut orders = Orders::default();
        for (client, wanted) in [(one, "a"), (other, "a"), (one, "b")] {
            orders.note(Giver::Known(client), "resources/subscribe", &uri(wanted));
        }
        orders.note(Giver::Known(one), LEVEL, &level_of("debug"));
        let rows = [
            (one, vec!["b"], vec!["a"]),
            (one, vec![], vec!["a"]),
            (other, vec!["a"], vec![]),
        ];
        for (client, unwanted, left) in rows {
            assert_eq!(orders.left(client), unwanted);
            assert!(orders.subscriptions.iter().eq(&left), "{orders:?}");
        }
        assert!(orders.wishes.is_empty());
    }

    #[test]
    fn a_session_logs_for_the_one_who_wants_most() {
        let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
        let mut orders = Orders::default();
        for (client, said, meant, then) in [
            (one, "info", Meant::AsSaid, "info"),
            (other, "error", Meant::Granted, "info"),
            (one, "alert", Meant::Level("error"), "error"),
            (other, "debug", Meant::AsSaid, "debug"),
            (one, "debug", Meant::AsSaid, "debug"),
        ] {
            assert_eq!(
                orders.meant(Giver::Known(client), LEVEL, &level_of(said)),
                meant,
                "{said}"
            );
            orders.note(Giver::Known(client), LEVEL, &level_of(said));
            assert_eq!(orders.log_level.as_deref(), Some(then), "{said}");
        }
        // Who says not who it is stands for all.
        orders.note(Giver::All, LEVEL, &level_of("alert"));
        assert_eq!(orders.log_level.as_deref(), Some("alert"));
        // What is no level its server refuses.
        assert_eq!(
            orders.meant(Giver::Known(one), LEVEL, &level_of("loud")),
            Meant::AsSaid
        );
    }

    #[test]
    fn a_session_is_told_what_it_was_not_told_before() {
        let mut before = Orders::default();
        before.note(Giver::All, LEVEL, &level_of("info"));
        before.note(Giver::All, "resources/subscribe", &uri("kept"));
        before.note(Giver::All, "resources/subscribe", &uri("gone"));
        let mut now = before.clone();
        now.note(Giver::All, LEVEL, &level_of("debug"));
        now.note(Giver::All, "resources/unsubscribe", &uri("gone"));
        now.note(Giver::All, "resources/subscribe", &uri("new"));
        let said = |now: &Orders, told| {
            let methods = now.beyond(told).into_iter();
            let said = methods.map(|(method, params)| {
                let text = String::from_utf8_lossy(params.raw()).into_owned();
                format!("{method} {text}")
            });
            said.collect::<Vec<_>>()
        };
        assert_eq!(
            said(&now, Some(&before)),
            [
                r#"logging/setLevel {"level":"debug"}"#,
                r#"resources/unsubscribe {"uri":"gone"}"#,
                r#"resources/subscribe {"uri":"new"}"#,
            ]
        );
        assert_eq!(said(&now, None).len(), 3);
        assert_eq!(said(&now, Some(&now)), [""; 0]);
    }

    #[test]
    fn clients_beyond_the_limit_cost_nothing() {
        let mut orders = Orders::default();
        for number in 0..2 * MAX_CLIENTS {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            orders.note(Giver::Known(Digest::new(bytes)), LEVEL, &level_of("debug"));
        }
        assert_eq!(orders.wishes.len(), MAX_CLIENTS);
        for number in 0..2 * MAX_SUBSCRIPTIONS {
            let one = Giver::Known(Digest::new([0; 16]));
            orders.note(one, "resources/subscribe", &uri(&number.to_string()));
        }
        assert_eq!(orders.subscriptions.len(), MAX_SUBSCRIPTIONS);
    }
}
