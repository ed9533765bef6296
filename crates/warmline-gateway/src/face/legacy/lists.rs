//! Lists: how often a client asked for each of them.
//!
//! Told by: its requests, before they go on.  Asked by: whoever is about to tell that a list changed
//! (`Notices::asked_for_list`), because who was told and has not asked since need not be told again.

use std::sync::atomic::{AtomicU32, Ordering};

/// How often a client asked for tools, prompts and resources.
#[derive(Debug, Default)]
pub(super) struct ListsAsked([AtomicU32; 3]);

impl ListsAsked {
    /// The client makes a request, maybe for a list.
    pub(super) fn note(&self, method: &str) {
        if let Some(asked) = method.strip_suffix("/list").and_then(|of| self.of(of)) {
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it asked for the list that a notice says has changed.
    pub(super) fn asked(&self, notice: &str) -> Option<u32> {
        let of = notice.strip_prefix("notifications/")?;
        let asked = self.of(of.strip_suffix("/list_changed")?)?;
        Some(asked.load(Ordering::Relaxed))
    }

    fn of(&self, what: &str) -> Option<&AtomicU32> {
        let [tools, prompts, resources] = &self.0;
        match what {
            "tools" => Some(tools),
            "prompts" => Some(prompts),
            // Templates have no notice of their own.
            "resources" | "resources/templates" => Some(resources),
            _ => None,
        }
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
        let lists = ListsAsked::default();
        for (method, expected) in rows {
            lists.note(method);
            let notices = ["tools", "prompts", "resources"];
            let asked = notices.map(|list| {
                let notice = format!("notifications/{list}/list_changed");
                lists.asked(&notice).unwrap()
            });
            assert_eq!(asked, expected, "{method}");
        }
        assert_eq!(lists.asked("notifications/resources/updated"), None);
    }
}
