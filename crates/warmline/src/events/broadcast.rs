//! How events reach whoever subscribed: a bounded broadcast that never waits.
//!
//! Told by: the engine, through [`Events::tell`].  Asked by: subscribers. Somebody who does not
//! keep up loses the oldest events and hears how many; nobody else notices.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::stream::{self, Stream};
use tokio::sync::broadcast;

use super::Event;
use super::often::Often;

/// Events that are kept for a subscriber that is behind.
const KEPT: usize = 1024;

/// Where events are told. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// Subscribers there are. Asked first, so that nobody pays for what nobody hears.
    subscribers: Arc<AtomicUsize>,
    /// Lines that were told lately.
    often: Often,
    /// Made for the first subscriber.
    channel: OnceLock<broadcast::Sender<Event>>,
}

impl Events {
    /// Something happened: it is written to the log, once, and told to all who subscribed.
    pub fn tell(&self, event: Event) {
        super::log::write(&event, &self.0.often);
        if self.0.subscribers.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(channel) = self.0.channel.get() {
            // The last subscriber may just have left: then there is nobody to tell.
            drop(channel.send(event));
        }
    }

    /// Hears everything from now on.
    pub fn subscribe(&self) -> Subscription {
        let channel = self.0.channel.get_or_init(|| broadcast::channel(KEPT).0);
        self.0.subscribers.fetch_add(1, Ordering::Relaxed);
        Subscription {
            receiver: channel.subscribe(),
            counted: Counted(Arc::clone(&self.0.subscribers)),
        }
    }
}

/// One who hears events.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Event>,
    #[expect(dead_code, reason = "its destructor counts")]
    counted: Counted,
}

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something happened.
    Event(Event),
    /// That many events were lost, because they came faster than they were taken.
    Missed(u64),
}

impl Subscription {
    /// The next thing that happened; none once the engine is gone. May be dropped at any time
    /// without losing anything.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.receiver.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Heard> + Send {
        stream::unfold(self, |mut subscription| async {
            let heard = subscription.next().await?;
            Some((heard, subscription))
        })
    }
}

#[cfg(test)]
impl Events {
    /// Whether nobody ever subscribed.
    pub(super) fn has_no_channel(&self) -> bool {
        self.0.channel.get().is_none()
    }
}

#[cfg(test)]
impl Subscription {
    /// Whether there is nothing to hear now.
    pub(super) fn has_nothing(&self) -> bool {
        self.receiver.is_empty()
    }
}

/// A subscriber that is counted, until it is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
