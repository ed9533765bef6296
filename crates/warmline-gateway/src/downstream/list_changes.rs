//! The lists whose changes clients can hear of, and how often a client has read them.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct ListChange {
    methods: &'static [&'static str],
    /// The member of a listen that asks for its changes.
    pub(crate) subscription: &'static str,
    pub(crate) notification: &'static str,
}

pub(crate) const LIST_CHANGES: [ListChange; 3] = [
    ListChange {
        methods: &["tools/list"],
        subscription: "toolsListChanged",
        notification: "notifications/tools/list_changed",
    },
    ListChange {
        methods: &["prompts/list"],
        subscription: "promptsListChanged",
        notification: "notifications/prompts/list_changed",
    },
    ListChange {
        // Templates have no notification of their own.
        methods: &["resources/list", "resources/templates/list"],
        subscription: "resourcesListChanged",
        notification: "notifications/resources/list_changed",
    },
];

/// How often a client has read each list. A client that was notified of a change and has not read the
/// list since need not be notified again.
#[derive(Debug, Default)]
pub(super) struct ListRequestCounts([AtomicU32; LIST_CHANGES.len()]);

impl ListRequestCounts {
    /// Counts a request, if it reads a list.
    pub(super) fn record_request(&self, method: &str) {
        let counters = LIST_CHANGES.iter().zip(&self.0);
        for (_, counter) in counters.filter(|(list, _)| list.methods.contains(&method)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the client has read the list that a notification is about.
    pub(super) fn count_for_notification(&self, notification: &str) -> Option<u32> {
        let mut counters = LIST_CHANGES.iter().zip(&self.0);
        let (_, counter) = counters.find(|(list, _)| list.notification == notification)?;
        Some(counter.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_list_is_counted_for_its_notice() {
        let rows = [
            ("tools/list", [1, 0, 0]),
            ("tools/call", [1, 0, 0]),
            ("prompts/list", [1, 1, 0]),
            ("resources/list", [1, 1, 1]),
            ("resources/templates/list", [1, 1, 2]),
            ("tasks/list", [1, 1, 2]),
        ];
        let lists = ListRequestCounts::default();
        for (method, expected) in rows {
            lists.record_request(method);
            let notices = ["tools", "prompts", "resources"];
            let asked = notices.map(|list| {
                let notice = format!("notifications/{list}/list_changed");
                lists.count_for_notification(&notice).unwrap()
            });
            assert_eq!(asked, expected, "{method}");
        }
        assert_eq!(
            lists.count_for_notification("notifications/resources/updated"),
            None
        );
    }
}
