//! What a listen at the place of all servers is promised: what the servers behind it agreed to.
//!
//! Asked by: [`gathered`](super::gathered).  Told by: those who hear the servers. Nothing is told to
//! the client before the promise is given, and nothing afterwards that it does not hold.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::Edit;

use super::listen::{ACKNOWLEDGED, Ear};

/// The member that names resources.
const RESOURCES: &str = "resourceSubscriptions";
/// Changes of lists, as a client asks for them and as it is told of them.
const LISTS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    (
        "resourcesListChanged",
        "notifications/resources/list_changed",
    ),
];
/// More news than these are not held until the promise is given; what may have changed is told
/// then.
const MAX_HELD: usize = 256;

/// What a client wants to hear of.
pub(super) struct Wanted(Map<String, Value>);

impl Wanted {
    pub(super) fn of(params: &Params) -> Self {
        let raw = params.member("notifications").unwrap_or(b"{}");
        let mut raw: Map<String, Value> = serde_json::from_slice(raw).unwrap_or_default();
        // Tasks are not spoken of at this place.
        raw.remove("taskIds");
        Self(raw)
    }

    /// The resources it names.
    pub(super) fn uris(&self) -> Vec<String> {
        named(&self.0).map(str::to_owned).collect()
    }

    /// The parameters for one server, which hears of its own resources alone. None where there is
    /// nothing to ask it for.
    pub(super) fn for_server(&self, params: &Params, uris: &[String]) -> Option<Params> {
        let mut wanted = self.0.clone();
        wanted.remove(RESOURCES);
        if !uris.is_empty() {
            wanted.insert(RESOURCES.to_owned(), json!(uris));
        }
        if wanted.is_empty() {
            return None;
        }
        let wanted = Value::Object(wanted).to_string();
        let mut raw = Vec::with_capacity(params.raw().len());
        let edits = [Edit::Set("notifications", wanted.as_bytes())];
        params.write_with(&mut raw, &edits, &[]);
        // Edits of a checked object make a checked object.
        Params::parse(raw.into()).ok()
    }
}

fn named(wanted: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let uris = wanted.get(RESOURCES).and_then(Value::as_array);
    uris.into_iter().flatten().filter_map(Value::as_str)
}

/// What one client is promised.
pub(super) struct Promise {
    wanted: Wanted,
    ear: Arc<Ear>,
    state: Mutex<State>,
}

enum State {
    /// Servers are still asked.
    Open {
        agreed: Map<String, Value>,
        held: Vec<Told>,
    },
    Given(Map<String, Value>),
}

/// What a server said that was asked to tell of these resources.
pub(super) struct Told {
    pub(super) uris: Arc<[String]>,
    pub(super) method: String,
    pub(super) params: Bytes,
}

/// When a server said what it agrees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// In time.
    InTime,
    /// After its share was over, or when it was there at last.
    Late,
    /// It was heard before, and what happened in between is told by nobody.
    Again,
}

/// Whether all servers said what they agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Everybody {
    Said,
    /// One of them may come later, and its lists with it: that is told by this place itself.
    NotYet,
}

impl Promise {
    /// Who tells the client.
    pub(super) fn ear(&self) -> &Ear {
        &self.ear
    }

    pub(super) fn new(wanted: Wanted, ear: Arc<Ear>) -> Self {
        Self {
            wanted,
            ear,
            state: Mutex::new(State::Open {
                agreed: Map::new(),
                held: Vec::new(),
            }),
        }
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// A server agreed to something; this is what it says then.
    pub(super) fn agreed(&self, params: &Bytes, came: Came) {
        let mut said = of_agreement(params);
        match (&mut *self.state.lock(), came) {
            (State::Open { agreed, .. }, _) => self.add(agreed, said),
            (State::Given(_), Came::InTime) => {},
            (State::Given(promised), Came::Again) => self.changed(promised, &said),
            (State::Given(promised), Came::Late) => {
                // What it lists was not there before.
                said.extend(promised.clone());
                said.remove(RESOURCES);
                self.changed(promised, &said);
            },
        }
    }

    /// Adds what a server agreed to, as far as it is wanted.
    fn add(&self, agreed: &mut Map<String, Value>, said: Map<String, Value>) {
        let known: Vec<String> = named(agreed)
            .chain(named(&said))
            .map(str::to_owned)
            .collect();
        let is_wanted = |(kind, value): &(String, Value)| {
            self.wanted.0.contains_key(kind) && *value != Value::Bool(false)
        };
        agreed.extend(said.into_iter().filter(is_wanted));
        let uris = named(&self.wanted.0).filter(|uri| known.iter().any(|known| known == uri));
        let uris: Vec<&str> = uris.collect();
        agreed.remove(RESOURCES);
        if !uris.is_empty() {
            agreed.insert(RESOURCES.to_owned(), json!(uris));
        }
    }

    /// Something was said by a server.
    pub(super) fn heard(&self, told: Told) {
        match &mut *self.state.lock() {
            State::Open { held, .. } if held.len() < MAX_HELD => held.push(told),
            State::Open { .. } => {},
            State::Given(promised) => self.tell(promised, &told),
        }
    }

    fn tell(&self, promised: &Map<String, Value>, told: &Told) {
        let is_its = || named(promised).any(|uri| told.uris.iter().any(|own| own == uri));
        let is_promised = match LISTS.iter().find(|(_, method)| *method == told.method) {
            Some((kind, _)) => promised.contains_key(*kind),
            // It may name a part of what was asked for.
            None if told.method == "notifications/resources/updated" => is_its(),
            None => true,
        };
        if is_promised {
            self.ear.tell(&told.method, &told.params);
        }
    }

    /// Tells the client what it is promised, unless it was told already.
    pub(super) fn give(&self, everybody: Everybody) {
        let mut state = self.state.lock();
        let State::Open { agreed, held } = &mut *state else {
            return;
        };
        let (mut promised, held) = (std::mem::take(agreed), std::mem::take(held));
        if everybody == Everybody::NotYet {
            let wanted = self.wanted.0.iter();
            let lists = wanted.filter(|(kind, value)| {
                LISTS.iter().any(|(list, _)| list == kind) && **value == Value::Bool(true)
            });
            promised.extend(lists.map(|(kind, value)| (kind.clone(), value.clone())));
        }
        let said = json!({ "notifications": promised });
        self.ear.tell(ACKNOWLEDGED, &said.to_string().into());
        self.ear.note(Ok(Bytes::new()));
        for told in &held {
            self.tell(&promised, told);
        }
        if held.len() >= MAX_HELD {
            self.changed(&promised, &promised);
        }
        *state = State::Given(promised);
    }

    /// Other servers stand here than before, or other rules.
    pub(super) fn anything_may_have_changed(&self) {
        if let State::Given(promised) = &*self.state.lock() {
            self.changed(promised, promised);
        }
    }

    /// What may have changed of all that is promised, where a server agreed to this.
    fn changed(&self, promised: &Map<String, Value>, agreed: &Map<String, Value>) {
        let mut both = promised.clone();
        both.retain(|kind, _| agreed.contains_key(kind));
        let uris = named(promised).filter(|uri| named(agreed).any(|agreed| agreed == *uri));
        let uris: Vec<&str> = uris.collect();
        both.insert(RESOURCES.to_owned(), json!(uris));
        let both = json!({ "notifications": both }).to_string();
        self.ear.anything_may_have_changed(both.as_bytes());
    }
}

fn of_agreement(params: &[u8]) -> Map<String, Value> {
    let said: Value = serde_json::from_slice(params).unwrap_or_default();
    said["notifications"]
        .as_object()
        .cloned()
        .unwrap_or_default()
}
