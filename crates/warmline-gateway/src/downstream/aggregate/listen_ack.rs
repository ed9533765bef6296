//! The acknowledgement of a merged listen: what the servers agreed to, together.
//!
//! The client gets nothing before the acknowledgement, and nothing afterwards that it does not name.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;

use crate::downstream::list_changes::LIST_CHANGES;
use crate::downstream::modern::listen::{
    ACKNOWLEDGED, ListenSink, RESOURCES_MEMBER, acked_notifications, subscribed_uris,
};

/// The most notifications that are held back until the acknowledgement. If there are more, the client is
/// notified of everything that may have changed.
const MAX_HELD_BACK: usize = 256;

pub(super) struct ListenFilter(Map<String, Value>);

impl ListenFilter {
    pub(super) fn from_params(params: &Params) -> Self {
        let raw = params.member("notifications").unwrap_or(b"{}");
        let mut raw: Map<String, Value> = serde_json::from_slice(raw).unwrap_or_default();
        // This endpoint has no tasks.
        raw.remove("taskIds");
        Self(raw)
    }

    pub(super) fn resource_uris(&self) -> Vec<String> {
        subscribed_uris(&self.0).map(str::to_owned).collect()
    }

    /// The parameters for one server, with its own resources alone. `None` where nothing is left.
    pub(super) fn for_server(&self, params: &Params, uris: &[String]) -> Option<Params> {
        let mut wanted = self.0.clone();
        wanted.remove(RESOURCES_MEMBER);
        if !uris.is_empty() {
            wanted.insert(RESOURCES_MEMBER.to_owned(), json!(uris));
        }
        if wanted.is_empty() {
            return None;
        }
        let wanted = Value::Object(wanted).to_string();
        Some(params.edited(&[Edit::Set("notifications", wanted.as_bytes())], &[]))
    }
}

pub(super) struct MergedListenAck {
    pub(super) filter: ListenFilter,
    pub(super) sink: Arc<ListenSink>,
    state: Mutex<AckState>,
}

enum AckState {
    Collecting {
        acked: Map<String, Value>,
        held_back: Vec<MemberNotification>,
    },
    Sent(Map<String, Value>),
}

/// A notification of a server that was asked for these resources.
pub(super) struct MemberNotification {
    pub(super) uris: Arc<[String]>,
    pub(super) method: String,
    pub(super) params: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberAck {
    Pending,
    /// Not within its share of the time: it may come later, and until then the gateway itself
    /// notifies of its lists.
    Missed,
    /// It did, or does not support listens.
    Settled,
}

impl MergedListenAck {
    pub(super) fn new(filter: ListenFilter, sink: Arc<ListenSink>) -> Self {
        Self {
            filter,
            sink,
            state: Mutex::new(AckState::Collecting {
                acked: Map::new(),
                held_back: Vec::new(),
            }),
        }
    }

    /// A server acknowledged with these parameters, after `before`.
    pub(super) fn add_member_ack(&self, params: &Bytes, before: MemberAck) {
        let mut said = acked_notifications(params);
        match (&mut *self.state.lock(), before) {
            (AckState::Collecting { acked, .. }, _) => self.merge_acked(acked, said),
            (AckState::Sent(_), MemberAck::Pending) => {},
            (AckState::Sent(promised), MemberAck::Missed) => {
                // Its lists are new to the client.
                said.extend(promised.clone());
                said.remove(RESOURCES_MEMBER);
                self.notify_changes_within(promised, &said);
            },
            // Its stream broke, and notifications in between are lost.
            (AckState::Sent(promised), MemberAck::Settled) => {
                self.notify_changes_within(promised, &said);
            },
        }
    }

    /// Adds what a server agreed to, as far as the client asked for it.
    fn merge_acked(&self, agreed: &mut Map<String, Value>, said: Map<String, Value>) {
        let known: Vec<String> = subscribed_uris(agreed)
            .chain(subscribed_uris(&said))
            .map(str::to_owned)
            .collect();
        let is_wanted = |(kind, value): &(String, Value)| {
            self.filter.0.contains_key(kind) && *value != Value::Bool(false)
        };
        agreed.extend(said.into_iter().filter(is_wanted));
        let uris =
            subscribed_uris(&self.filter.0).filter(|uri| known.iter().any(|known| known == uri));
        let uris: Vec<&str> = uris.collect();
        agreed.remove(RESOURCES_MEMBER);
        if !uris.is_empty() {
            agreed.insert(RESOURCES_MEMBER.to_owned(), json!(uris));
        }
    }

    pub(super) fn on_notification(&self, told: MemberNotification) {
        match &mut *self.state.lock() {
            AckState::Collecting { held_back, .. } if held_back.len() < MAX_HELD_BACK => {
                held_back.push(told);
            },
            AckState::Collecting { .. } => {},
            AckState::Sent(promised) => self.forward(promised, &told),
        }
    }

    fn forward(&self, promised: &Map<String, Value>, told: &MemberNotification) {
        let is_its = || subscribed_uris(promised).any(|uri| told.uris.iter().any(|own| own == uri));
        let mut lists = LIST_CHANGES.iter();
        let is_promised = match lists.find(|list| list.notification == told.method) {
            Some(list) => promised.contains_key(list.subscription),
            // The URI may be a part of a resource that was asked for.
            None if told.method == "notifications/resources/updated" => is_its(),
            None => true,
        };
        if is_promised {
            self.sink.notify(&told.method, &told.params);
        }
    }

    /// Sends the acknowledgement, unless it was sent before. `is_partial` where a server missed it.
    pub(super) fn send_ack(&self, is_partial: bool) {
        let mut state = self.state.lock();
        let AckState::Collecting { acked, held_back } = &mut *state else {
            return;
        };
        let (mut promised, held) = (std::mem::take(acked), std::mem::take(held_back));
        if is_partial {
            let wanted = self.filter.0.iter();
            let is_list = |kind: &str| LIST_CHANGES.iter().any(|list| list.subscription == kind);
            let lists =
                wanted.filter(|(kind, value)| is_list(kind) && value.as_bool() == Some(true));
            promised.extend(lists.map(|(kind, value)| (kind.clone(), value.clone())));
        }
        let said = json!({ "notifications": promised });
        self.sink.notify(ACKNOWLEDGED, &said.to_string().into());
        self.sink.record_audit(Ok(Bytes::new()));
        for told in &held {
            self.forward(&promised, told);
        }
        if held.len() >= MAX_HELD_BACK {
            self.notify_changes_within(&promised, &promised);
        }
        *state = AckState::Sent(promised);
    }

    pub(super) fn notify_possible_changes(&self) {
        if let AckState::Sent(promised) = &*self.state.lock() {
            self.notify_changes_within(promised, promised);
        }
    }

    /// Notifies of everything in both the acknowledgement and what a server agreed to.
    fn notify_changes_within(&self, promised: &Map<String, Value>, agreed: &Map<String, Value>) {
        let mut both = promised.clone();
        both.retain(|kind, _| agreed.contains_key(kind));
        let uris = subscribed_uris(promised)
            .filter(|uri| subscribed_uris(agreed).any(|agreed| agreed == *uri));
        let uris: Vec<&str> = uris.collect();
        both.insert(RESOURCES_MEMBER.to_owned(), json!(uris));
        self.sink.notify_possible_changes(&both);
    }
}
