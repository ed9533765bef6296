//! One listen at a server, shared by all clients of an identity that listen for lists alone.
//!
//! It asks the server for changes of all lists. Each client gets the changes it asked for. The stream
//! ends when the last client has left.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use warmline_core::exchange::Notification;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_engine::relay::RelayCall as _;
use warmline_engine::{Error, ListScope, ServerHandle};
use warmline_upstream::Listener;

use super::listen::{ACKNOWLEDGED, LISTEN_TIMEOUT, METHOD};
use crate::downstream::list_changes::LIST_CHANGES;
use crate::downstream::message::edited;

/// The lists whose changes a client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListKinds([bool; LIST_CHANGES.len()]);

impl ListKinds {
    /// The lists of a listen; `None` if it asks for anything else as well.
    pub(crate) fn parse_lists_only(params: &Params) -> Option<Self> {
        let of_params = serde_json::from_slice::<Map<String, Value>>(params.raw()).ok()?;
        let is_known = |name: &String| name == "notifications" || name == "_meta";
        let wanted = of_params.get("notifications")?.as_object()?;
        let mut lists = Self::default();
        for (name, value) in wanted {
            let place = LIST_CHANGES
                .iter()
                .position(|list| list.subscription == name)?;
            *lists.0.get_mut(place)? = value.as_bool()?;
        }
        (of_params.keys().all(is_known) && lists != Self::default()).then_some(lists)
    }

    fn includes(self, method: &str) -> bool {
        let mut lists = LIST_CHANGES.iter().zip(self.0);
        lists.any(|(list, wanted)| wanted && list.notification == method)
    }

    /// A server's acknowledgement, cut down to these lists.
    fn filter_ack(self, agreed: &Bytes) -> Bytes {
        let read: Value = serde_json::from_slice(agreed).unwrap_or_default();
        let lists = LIST_CHANGES
            .iter()
            .zip(self.0)
            .filter(|(_, wanted)| *wanted);
        let kinds = lists.filter_map(|(list, _)| {
            let value = read["notifications"].get(list.subscription)?;
            Some((list.subscription.to_owned(), value.clone()))
        });
        let kinds = Value::Object(kinds.collect()).to_string();
        let edits = [Edit::Set("notifications", kinds.as_bytes())];
        edited(agreed, &edits).unwrap_or_else(|| agreed.clone())
    }
}

#[derive(Default)]
pub(crate) struct SharedListens(Mutex<HashMap<ListScope, SharedListen>>);

/// One listen at a server.
struct SharedListen {
    sink: Arc<SharedListenSink>,
    /// Its members drive it, and dropping the last of them cancels it.
    listening: WeakShared<BoxFuture<'static, Result<Bytes, Error>>>,
}

impl SharedListens {
    /// Listens for changes of lists until the stream ends or breaks.
    ///
    /// # Cancel safety
    /// Dropping it leaves. The last member that leaves ends the stream.
    pub(crate) async fn listen(
        &self,
        (scope, server): (ListScope, ServerHandle),
        lists: ListKinds,
        sink: Arc<dyn Listener>,
    ) -> Result<Bytes, Error> {
        let (shared_sink, mut listening) = self.join(scope, server);
        let number = shared_sink.state.lock().add_member(lists, sink);
        let member = SharedListenMember {
            sink: shared_sink,
            number,
        };
        loop {
            // Who was driving the listen when it left wakes nobody else.
            let mut left = pin!(member.sink.member_left.notified());
            left.as_mut().enable();
            tokio::select! {
                biased;
                result = &mut listening => return result,
                () = left => {},
            }
        }
    }

    /// The listen of this scope that is running, or a new one.
    fn join(
        &self,
        scope: ListScope,
        server: ServerHandle,
    ) -> (
        Arc<SharedListenSink>,
        Shared<BoxFuture<'static, Result<Bytes, Error>>>,
    ) {
        let mut all = self.0.lock();
        // One that has ended has a result, or no member is left.
        let running = |one: &SharedListen| {
            let listening = one.listening.upgrade();
            listening.filter(|listening| listening.peek().is_none())
        };
        all.retain(|_, one| running(one).is_some());
        if let Some(one) = all.get(&scope)
            && let Some(listening) = running(one)
        {
            return (Arc::clone(&one.sink), listening);
        }
        let sink = Arc::<SharedListenSink>::default();
        let listening = listen_for_all_lists(server, Arc::clone(&sink));
        let listening = listening.boxed().shared();
        if let Some(listening) = listening.downgrade() {
            let sink = Arc::clone(&sink);
            all.insert(scope, SharedListen { sink, listening });
        }
        (sink, listening)
    }
}

async fn listen_for_all_lists(
    server: ServerHandle,
    sink: Arc<SharedListenSink>,
) -> Result<Bytes, Error> {
    let lists = LIST_CHANGES
        .iter()
        .map(|list| (list.subscription.to_owned(), Value::Bool(true)));
    let params = json!({ "notifications": Map::from_iter(lists) });
    server
        .request(METHOD, params)
        .timeout(LISTEN_TIMEOUT)
        .idle_timeout(LISTEN_TIMEOUT)
        .shared_listener(sink)
        .await
}

#[derive(Default)]
struct SharedListenSink {
    state: Mutex<SharedListenState>,
    member_left: Notify,
}

#[derive(Default)]
struct SharedListenState {
    /// The server's acknowledgement, once there is one.
    ack: Option<Bytes>,
    /// The clients by number, each with the lists whose changes it asked for.
    members: BTreeMap<u64, (ListKinds, Arc<dyn Listener>)>,
    next_number: u64,
}

impl SharedListenState {
    /// Adds a member, and acknowledges at once if the server has.
    fn add_member(&mut self, lists: ListKinds, sink: Arc<dyn Listener>) -> u64 {
        if let Some(agreed) = &self.ack {
            let agreed = lists.filter_ack(agreed);
            sink.on_notification(Notification::Other(ACKNOWLEDGED.to_owned(), agreed));
        }
        let number = self.next_number;
        self.next_number += 1;
        self.members.insert(number, (lists, sink));
        number
    }
}

/// Membership of a client; dropping it leaves.
struct SharedListenMember {
    sink: Arc<SharedListenSink>,
    number: u64,
}

impl Drop for SharedListenMember {
    fn drop(&mut self) {
        self.sink.state.lock().members.remove(&self.number);
        self.sink.member_left.notify_waiters();
    }
}

impl Listener for SharedListenSink {
    fn on_notification(&self, news: Notification) {
        let Notification::Other(method, params) = news else {
            return;
        };
        let mut state = self.state.lock();
        let is_ack = method == ACKNOWLEDGED;
        for (lists, sink) in state.members.values() {
            let params = match is_ack {
                true => lists.filter_ack(&params),
                false if lists.includes(&method) => params.clone(),
                false => continue,
            };
            sink.on_notification(Notification::Other(method.clone(), params));
        }
        if is_ack {
            state.ack = Some(params);
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
            assert_eq!(
                ListKinds::parse_lists_only(&read),
                expected.map(ListKinds),
                "{params}"
            );
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
            let told: Value =
                serde_json::from_slice(&ListKinds(wanted).filter_ack(&agreed)).unwrap();
            assert_eq!(told["notifications"], expected);
            assert_eq!(told["_meta"]["a"], 1);
        }
    }
}
