//! One listen at a server for all clients of an identity that want to hear of its lists.
//!
//! Asked by: [`listen`](super::listen) and [`gathered`](super::gathered), for listens that want
//! nothing else. Those that name resources, or something we do not know, are passed on as they are.
//!
//! The server is asked for all kinds of lists once; each client is told of the kinds it wanted, as
//! if the server had been asked for these alone. The stream ends when the last client has left.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::{Error, Listener, ListsOf, News, ServerHandle, clock};

use super::listen::{ACKNOWLEDGED, METHOD, STAYS};

/// The kinds of lists, as a client asks for their changes and as a server tells of them.
const KINDS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    (
        "resourcesListChanged",
        "notifications/resources/list_changed",
    ),
];

/// The kinds of lists that somebody wants to hear of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists([bool; KINDS.len()]);

impl Lists {
    /// What a listen wants to hear of, if that is lists and nothing else.
    pub(super) fn alone(params: &Params) -> Option<Self> {
        let of_params = serde_json::from_slice::<Map<String, Value>>(params.raw()).ok()?;
        let is_known = |name: &String| name == "notifications" || name == "_meta";
        let wanted = of_params.get("notifications")?.as_object()?;
        let mut lists = Self::default();
        for (name, value) in wanted {
            let place = KINDS.iter().position(|(kind, _)| kind == name)?;
            *lists.0.get_mut(place)? = value.as_bool()?;
        }
        (of_params.keys().all(is_known) && lists != Self::default()).then_some(lists)
    }

    fn wants(self, method: &str) -> bool {
        let mut kinds = KINDS.iter().zip(self.0);
        kinds.any(|((_, told), wanted)| wanted && *told == method)
    }

    /// What a server agreed to, for somebody who wanted only these.
    fn of_agreed(self, agreed: &Bytes) -> Bytes {
        let read: Value = serde_json::from_slice(agreed).unwrap_or_default();
        let kinds = KINDS.iter().zip(self.0).filter(|(_, wanted)| *wanted);
        let kinds = kinds.filter_map(|((kind, _), _)| {
            let value = read["notifications"].get(kind)?;
            Some(((*kind).to_owned(), value.clone()))
        });
        let kinds = Value::Object(kinds.collect()).to_string();
        let mut out = Vec::with_capacity(agreed.len());
        let edits = [Edit::Set("notifications", kinds.as_bytes())];
        match splice::edit_object(agreed, &edits, &mut out) {
            Ok(()) => out.into(),
            Err(_) => agreed.clone(),
        }
    }
}

/// The listens that are held for several.
#[derive(Clone, Default)]
pub(crate) struct Together(Arc<Mutex<HashMap<ListsOf, Arc<One>>>>);

impl fmt::Debug for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Together")
            .field(&self.0.lock().len())
            .finish()
    }
}

/// One listen at a server.
struct One {
    state: Mutex<State>,
    /// How it ended, once it has.
    over: watch::Sender<Option<Result<Bytes, Error>>>,
}

#[derive(Default)]
struct State {
    /// What the server agreed to, once it has.
    agreed: Option<Bytes>,
    members: Vec<Member>,
    next: u64,
    task: Option<JoinHandle<()>>,
}

/// Somebody who hears of lists by it.
struct Member {
    number: u64,
    lists: Lists,
    ear: Arc<dyn Listener>,
}

impl Together {
    /// Hears of changes of lists until the server ends the stream, or it breaks.
    ///
    /// # Cancel safety
    /// Dropping it leaves; the last one who leaves ends the stream.
    pub(super) async fn listen(
        &self,
        (whose, server): (ListsOf, ServerHandle),
        lists: Lists,
        ear: Arc<dyn Listener>,
    ) -> Result<Bytes, Error> {
        let seat = self.join(whose, server, lists, ear);
        let mut over = seat.one.over.subscribe();
        loop {
            if let Some(outcome) = over.borrow_and_update().clone() {
                return outcome;
            }
            if over.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn join(
        &self,
        whose: ListsOf,
        server: ServerHandle,
        lists: Lists,
        ear: Arc<dyn Listener>,
    ) -> Seat {
        let mut all = self.0.lock();
        let one = all.entry(whose).or_insert_with(|| {
            let one = Arc::new(One {
                state: Mutex::default(),
                over: watch::Sender::new(None),
            });
            let task = clock::spawn(
                "listen for many",
                self.clone().stay(whose, server, Arc::clone(&one)),
            );
            one.state.lock().task = Some(task);
            one
        });
        let one = Arc::clone(one);
        let number = one.state.lock().join(lists, ear);
        Seat {
            all: self.clone(),
            whose,
            one,
            number,
        }
    }

    async fn stay(self, whose: ListsOf, server: ServerHandle, one: Arc<One>) {
        let asked: Map<String, Value> = KINDS
            .iter()
            .map(|(kind, _)| ((*kind).to_owned(), Value::Bool(true)))
            .collect();
        let outcome = match Params::parse(json!({ "notifications": asked }).to_string().into()) {
            Ok(params) => {
                let heard = server.request_raw(METHOD, params);
                let heard = heard.timeout(STAYS).idle_timeout(STAYS);
                heard.listened_by(Arc::new(Ears(Arc::clone(&one)))).await
            },
            // An object of ours is an object.
            Err(_) => return,
        };
        // Whoever comes from now on begins another one.
        self.forget(whose, &one);
        one.over.send_replace(Some(outcome));
    }

    fn forget(&self, whose: ListsOf, one: &Arc<One>) {
        let mut all = self.0.lock();
        if all.get(&whose).is_some_and(|known| Arc::ptr_eq(known, one)) {
            all.remove(&whose);
        }
    }
}

impl State {
    /// One more member, who hears at once what was agreed on.
    fn join(&mut self, lists: Lists, ear: Arc<dyn Listener>) -> u64 {
        if let Some(agreed) = &self.agreed {
            let agreed = lists.of_agreed(agreed);
            ear.news(News::Other(ACKNOWLEDGED.to_owned(), agreed));
        }
        let number = self.next;
        self.next += 1;
        self.members.push(Member { number, lists, ear });
        number
    }
}

/// The place of a member; dropping it leaves it.
struct Seat {
    all: Together,
    whose: ListsOf,
    one: Arc<One>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Nobody joins meanwhile: that takes this lock first.
        let mut all = self.all.0.lock();
        let mut state = self.one.state.lock();
        state.members.retain(|member| member.number != self.number);
        if !state.members.is_empty() {
            return;
        }
        if let Some(task) = state.task.take() {
            task.abort();
        }
        let known = all.get(&self.whose);
        if known.is_some_and(|known| Arc::ptr_eq(known, &self.one)) {
            all.remove(&self.whose);
        }
    }
}

/// Hears the server for all members.
struct Ears(Arc<One>);

impl Listener for Ears {
    fn news(&self, news: News) {
        let News::Other(method, params) = news else {
            return;
        };
        let mut state = self.0.state.lock();
        if method == ACKNOWLEDGED {
            for member in &state.members {
                let agreed = member.lists.of_agreed(&params);
                member.ear.news(News::Other(method.clone(), agreed));
            }
            state.agreed = Some(params);
            return;
        }
        let wanting = state.members.iter().filter(|it| it.lists.wants(&method));
        for member in wanting {
            member.ear.news(News::Other(method.clone(), params.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_for_lists_alone_is_told_from_others() {
        let rows = [
            (json!({}), None),
            (json!({ "notifications": {} }), None),
            (
                json!({ "notifications": { "toolsListChanged": true }, "_meta": {} }),
                Some([true, false, false]),
            ),
            (
                json!({ "notifications": {
                    "promptsListChanged": true, "resourcesListChanged": true, "toolsListChanged": false,
                } }),
                Some([false, true, true]),
            ),
            (
                json!({ "notifications": { "toolsListChanged": false } }),
                None,
            ),
            (json!({ "notifications": { "toolsListChanged": 1 } }), None),
            (
                json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": [] } }),
                None,
            ),
            (
                json!({ "notifications": { "toolsListChanged": true }, "x/more": 1 }),
                None,
            ),
        ];
        for (params, expected) in rows {
            let read = Params::parse(params.to_string().into()).unwrap();
            assert_eq!(Lists::alone(&read), expected.map(Lists), "{params}");
        }
    }

    #[test]
    fn each_is_told_what_was_agreed_of_what_it_wanted() {
        let agreed = json!({
            "notifications": { "toolsListChanged": true, "promptsListChanged": true },
            "_meta": { "a": 1 },
        });
        let agreed = Bytes::from(agreed.to_string());
        let rows = [
            ([true, false, true], json!({ "toolsListChanged": true })),
            ([false, false, true], json!({})),
        ];
        for (wanted, expected) in rows {
            let told: Value = serde_json::from_slice(&Lists(wanted).of_agreed(&agreed)).unwrap();
            assert_eq!(told["notifications"], expected);
            assert_eq!(told["_meta"]["a"], 1);
        }
    }
}
