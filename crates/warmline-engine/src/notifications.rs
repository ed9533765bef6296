//! Subscribers: who receives what a server says outside any call.
//!
//! A server keeps all of its subscribers ([`ServerSubscribers`]); a pool key keeps those that its
//! sessions serve ([`Subscribers`]). Sessions deliver through `session_factory/notification_target`;
//! `subscription` holds the streams that servers need for this.

pub(crate) mod dedup;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use warmline_core::exchange::{ServerRequest, ServerRequestKind, ServerRequestReply};
use warmline_core::pool_key::Identity;

use self::dedup::{LISTS, ListChangeDedup, ListChangeSource, list_index};
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_upstream::{ReplyFuture, UnsolicitedListener};

/// The subscribers of one session answer at most this many server requests at a time.
const MAX_PENDING_REQUESTS: usize = 32;
/// At most this many sessions of one server are opened at a time for subscribers alone.
const MAX_OPENINGS: usize = 8;

#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) identity: Identity,
    number: u64,
    pub(crate) sink: Arc<dyn UnsolicitedListener>,
    pub(crate) has_stream: AtomicBool,
    /// Whether it receives list changes for all subscribers of its identity.
    is_list_listener: AtomicBool,
    pub(crate) dedup: ListChangeDedup,
    /// Wakes its task: a session joined, the client state changed, or a stream ended.
    pub(crate) wake: Notify,
}

impl Subscriber {
    pub(crate) fn deliver_if_new(&self, method: &str, params: &[u8], by: ListChangeSource) {
        let asked = self.sink.list_request_count(method);
        if self.dedup.is_new(method, by, asked) {
            self.sink.on_notification(method, params);
        }
    }

    /// Whether it receives list changes for all subscribers of its identity.
    pub(crate) fn is_list_listener(&self) -> bool {
        self.is_list_listener.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct ServerSubscribers {
    all: Mutex<BTreeMap<(Identity, u64), Arc<Subscriber>>>,
    next_number: AtomicU64,
    pub(crate) opening_permits: Semaphore,
    /// When a session last reported a change of each list.
    lists_changed_at: Mutex<[Option<Instant>; LISTS.len()]>,
    pub(crate) created_at: Instant,
}

impl Default for ServerSubscribers {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            next_number: AtomicU64::new(0),
            opening_permits: Semaphore::new(MAX_OPENINGS),
            lists_changed_at: Mutex::default(),
            created_at: clock::now(),
        }
    }
}

impl ServerSubscribers {
    pub(crate) fn add(
        &self,
        identity: Identity,
        sink: Arc<dyn UnsolicitedListener>,
    ) -> Arc<Subscriber> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let added = Arc::new(Subscriber {
            identity,
            number,
            sink,
            has_stream: AtomicBool::new(false),
            is_list_listener: AtomicBool::new(false),
            dedup: ListChangeDedup::default(),
            wake: Notify::new(),
        });
        let mut all = self.all.lock();
        all.insert((identity, number), Arc::clone(&added));
        added
    }

    pub(crate) fn remove(&self, gone: &Subscriber) {
        self.all.lock().remove(&(gone.identity, gone.number));
        self.release_list_listener(gone);
    }

    fn select(
        &self,
        identity: Identity,
        wanted: impl Fn(&Arc<Subscriber>) -> bool,
    ) -> Vec<Arc<Subscriber>> {
        let all = self.all.lock();
        let of_identity = all.range((identity, 0)..=(identity, u64::MAX));
        let wanted = of_identity.map(|(_, one)| one).filter(|one| wanted(one));
        wanted.cloned().collect()
    }

    /// Notes a list change for subscribers that are away.
    pub(crate) fn note_list_change(&self, method: &str) {
        if let Some(list) = list_index(method)
            && let Some(changed) = self.lists_changed_at.lock().get_mut(list)
        {
            *changed = Some(clock::now());
        }
    }

    pub(crate) fn lists_changed_since(
        &self,
        then: Instant,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let changed = *self.lists_changed_at.lock();
        let all = LISTS.into_iter().zip(changed);
        all.filter_map(move |(list, at)| (at? >= then).then_some(list))
    }

    /// Makes a subscriber the one that receives list changes for its identity, unless another is.
    pub(crate) fn claim_list_listener(&self, claimant: &Subscriber) -> bool {
        let all = self.all.lock();
        let identity = claimant.identity;
        let mut of_identity = all.range((identity, 0)..=(identity, u64::MAX));
        if of_identity.any(|(_, one)| one.number != claimant.number && one.is_list_listener()) {
            return false;
        }
        claimant.is_list_listener.store(true, Ordering::Relaxed);
        true
    }

    /// Lets another subscriber of the identity receive list changes.
    pub(crate) fn release_list_listener(&self, holder: &Subscriber) {
        if !holder.is_list_listener.swap(false, Ordering::Relaxed) {
            return;
        }
        for other in self.select(holder.identity, |_| true) {
            other.dedup.reset();
            other.wake.notify_one();
        }
    }

    /// Delivers a list change to the subscribers of an identity that hold no stream and did not
    /// receive it yet.
    pub(crate) fn notify_without_stream(
        &self,
        identity: Identity,
        received: &[Arc<Subscriber>],
        (method, params): (&str, &[u8]),
        by: ListChangeSource,
    ) {
        let without = self.select(identity, |one| {
            let has_received = received.iter().any(|other| Arc::ptr_eq(other, one));
            !one.has_stream.load(Ordering::Relaxed) && !has_received
        });
        for one in without {
            one.deliver_if_new(method, params, by);
        }
    }
}

/// The subscribers that the sessions of one key serve.
#[derive(Debug)]
pub(crate) struct Subscribers {
    all: Mutex<Vec<Arc<Subscriber>>>,
    request_permits: Arc<Semaphore>,
}

impl Default for Subscribers {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            request_permits: Arc::new(Semaphore::new(MAX_PENDING_REQUESTS)),
        }
    }
}

impl Subscribers {
    pub(crate) fn add(&self, subscriber: &Arc<Subscriber>) {
        self.all.lock().push(Arc::clone(subscriber));
    }

    pub(crate) fn remove(&self, gone: &Arc<Subscriber>) {
        self.all.lock().retain(|one| !Arc::ptr_eq(one, gone));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Subscriber>> {
        self.all.lock().clone()
    }

    pub(crate) fn any(&self, is_it: impl Fn(&Subscriber) -> bool) -> bool {
        self.all.lock().iter().any(|one| is_it(one))
    }

    /// Wakes the tasks of all subscribers: something changed for the sessions of their key.
    pub(crate) fn wake_all(&self) {
        for one in self.all.lock().iter() {
            one.wake.notify_one();
        }
    }

    pub(crate) fn forward_request(
        &self,
        to: &Subscriber,
        request: ServerRequest,
    ) -> Option<ReplyFuture<'static>> {
        let permit = Arc::clone(&self.request_permits).try_acquire_owned().ok()?;
        let reply = to.sink.on_request(request)?;
        Some(Box::pin(async move {
            let reply = reply.await;
            drop(permit);
            reply
        }))
    }
}

/// More subscribers are not asked for one reply.
const MAX_SUBSCRIBERS: usize = 16;

/// Roots are the one thing that needs no known asker: whatever client the server meant, what all of
/// them answer is true.
///
/// Asks all of them; `refused` runs if they do not agree. None if one of them cannot be asked: its
/// reply may differ.
pub(crate) fn merged_roots(
    subscribers: &Arc<Subscribers>,
    several: &[Arc<Subscriber>],
    request: &ServerRequest,
    refused: impl FnOnce() + Send + 'static,
) -> Option<ReplyFuture<'static>> {
    if request.kind != ServerRequestKind::Roots || several.len() > MAX_SUBSCRIBERS {
        return None;
    }
    let replies = several
        .iter()
        .map(|one| subscribers.forward_request(one, request.clone()));
    let replies: Vec<ReplyFuture<'static>> = replies.collect::<Option<_>>()?;
    Some(Box::pin(async move {
        common_reply(future::join_all(replies).await).unwrap_or_else(|| {
            refused();
            ServerRequestReply::Declined
        })
    }))
}

/// The reply that all of them gave; order of members and blanks do not matter.
fn common_reply(replies: Vec<ServerRequestReply>) -> Option<ServerRequestReply> {
    let read = |reply: &ServerRequestReply| match reply {
        ServerRequestReply::Result(raw) => serde_json::from_slice::<Value>(raw).ok(),
        ServerRequestReply::Error(_) | ServerRequestReply::Declined => None,
    };
    let all: Vec<Value> = replies.iter().map(read).collect::<Option<_>>()?;
    let are_equal = all.windows(2).all(|pair| pair.first() == pair.last());
    replies.into_iter().next().filter(|_| are_equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_agreed_on_where_all_say_the_same() {
        let said = |raw: &'static str| ServerRequestReply::Result(raw.into());
        let one = r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#;
        let same = r#"{ "roots": [{"name":"a", "uri":"file:///a"}] }"#;
        let other = r#"{"roots":[]}"#;
        let first = |answers| match common_reply(answers) {
            Some(ServerRequestReply::Result(raw)) => Some(raw),
            _ => None,
        };
        assert_eq!(first(vec![said(one), said(same)]).unwrap(), one);
        assert_eq!(first(vec![said(one), said(same), said(other)]), None);
        assert_eq!(first(vec![said(one), ServerRequestReply::Declined]), None);
        assert_eq!(
            first(vec![ServerRequestReply::Error("{}".into()), said(one)]),
            None
        );
        assert_eq!(first(vec![said("{"), said("{")]), None);
    }
}
