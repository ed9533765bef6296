//! Lists that change between calls, for a client that wants to hear of it.

use warmline::events::{Event, Heard, Subscription};

use crate::wire::{self, Incoming};

/// Hears of changed lists, if somebody gave it ears.
#[derive(Debug, Default)]
pub(crate) struct ListNews(Option<Subscription>);

impl ListNews {
    pub(crate) fn of(events: Subscription) -> Self {
        Self(Some(events))
    }

    /// The lists of a server that changed; waits for ever where nothing can be heard.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn changed(&mut self, server: &str) -> Vec<Incoming> {
        loop {
            let Some(events) = &mut self.0 else {
                return std::future::pending().await;
            };
            match events.next().await {
                Some(Heard::Event(Event::ListChanged {
                    server: whose,
                    list,
                })) if *whose == *server => return told(&[list]),
                Some(Heard::Event(_)) => {},
                // Which ones is not known any more. To read a list too often harms nobody.
                Some(Heard::Missed(_)) => return told(&["tools", "prompts", "resources"]),
                None => self.0 = None,
            }
        }
    }
}

fn told(lists: &[&str]) -> Vec<Incoming> {
    let message =
        |list: &&str| wire::notification(&format!("notifications/{list}/list_changed"), b"{}");
    lists.iter().filter_map(message).collect()
}
