//! Delivers events to subscribers through a bounded channel that never waits. A slow subscriber loses
//! the oldest events and learns how many; others do not notice.

use std::sync::{Arc, OnceLock};

use futures_util::stream::{self, Stream};
use tokio::sync::broadcast;

use super::Event;
use super::log_throttle::LogThrottle;

/// The events that are kept for a slow subscriber.
const CHANNEL_CAPACITY: usize = 1024;

/// Emits events. Clones are cheap and share everything.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<EventsInner>);

#[derive(Debug, Default)]
struct EventsInner {
    throttle: LogThrottle,
    /// Made for the first subscriber, so that events without subscribers cost nothing.
    channel: OnceLock<broadcast::Sender<Event>>,
}

impl Events {
    /// Logs an event once, and sends it to all subscribers.
    pub fn emit(&self, event: Event) {
        super::event_log::log_event(&event, &self.0.throttle);
        if let Some(channel) = self.0.channel.get() {
            // It fails only without subscribers.
            drop(channel.send(event));
        }
    }

    /// Receives every event from now on.
    pub fn subscribe(&self) -> EventSubscription {
        let make = || broadcast::channel(CHANNEL_CAPACITY).0;
        EventSubscription(self.0.channel.get_or_init(make).subscribe())
    }
}

/// A subscriber of events.
#[derive(Debug)]
pub struct EventSubscription(broadcast::Receiver<Event>);

/// An item that a subscriber receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventItem {
    /// An event.
    Event(Event),
    /// The number of events that were lost: the subscriber was too slow.
    Missed(u64),
}

impl EventSubscription {
    /// The next event; none once the engine is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<EventItem> {
        match self.0.recv().await {
            Ok(event) => Some(EventItem::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(EventItem::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The events as a stream.
    pub fn into_stream(self) -> impl Stream<Item = EventItem> + Send {
        stream::unfold(self, |mut subscription| async {
            let heard = subscription.next().await?;
            Some((heard, subscription))
        })
    }
}

#[cfg(test)]
impl Events {
    pub(super) fn has_no_channel(&self) -> bool {
        self.0.channel.get().is_none()
    }
}

#[cfg(test)]
impl EventSubscription {
    pub(super) fn has_nothing(&self) -> bool {
        self.0.is_empty()
    }
}
