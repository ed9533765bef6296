//! Lists that change between calls.

use warmline_engine::events::{Event, EventItem, EventSubscription};

use crate::convert::{self, MessageToClient};

/// Reports changed lists, if it has events.
#[derive(Debug, Default)]
pub(crate) struct ListChanges(Option<EventSubscription>);

impl ListChanges {
    pub(crate) fn from_events(events: EventSubscription) -> Self {
        Self(Some(events))
    }

    /// The lists of a server that changed; waits for ever without events.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next_changes(&mut self, server: &str) -> Vec<MessageToClient> {
        loop {
            let Some(events) = &mut self.0 else {
                return std::future::pending().await;
            };
            match events.next().await {
                Some(EventItem::Event(Event::ListChanged {
                    server: whose,
                    list,
                })) if *whose == *server => return list_changed_messages(&[list]),
                Some(EventItem::Event(_)) => {},
                // Any of them may have changed.
                Some(EventItem::Missed(_)) => {
                    return list_changed_messages(&["tools", "prompts", "resources"]);
                },
                None => self.0 = None,
            }
        }
    }
}

fn list_changed_messages(lists: &[&str]) -> Vec<MessageToClient> {
    let message = |list: &&str| {
        convert::notification_message(&format!("notifications/{list}/list_changed"), b"{}")
    };
    lists.iter().filter_map(message).collect()
}
