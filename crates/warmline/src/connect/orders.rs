//! Orders: what was said to a session and has to be said again to the one that replaces it.
//!
//! Told by: the calls that give them, when they were answered.  Asked by: whoever moves a new
//! session in, and whoever holds a stream for what they ask for.

use std::collections::BTreeSet;

use warmline_core::protocol::params::Params;

/// So many subscriptions are said again, at most.
const MAX_SUBSCRIPTIONS: usize = 1_000;

/// What was said to a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) log_level: Option<String>,
    pub(crate) subscriptions: BTreeSet<String>,
}

impl Orders {
    /// Whether a method gives one.
    pub(super) fn are_given_by(method: &str) -> bool {
        matches!(
            method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        )
    }

    /// Notes one.
    pub(super) fn note(&mut self, method: &str, params: &Params) {
        if method == "logging/setLevel" {
            let level = params.member("level");
            self.log_level = level.and_then(|raw| serde_json::from_slice(raw).ok());
            return;
        }
        let Some(uri) = params.uri() else { return };
        if method == "resources/unsubscribe" {
            self.subscriptions.remove(&*uri);
        } else if self.subscriptions.len() < MAX_SUBSCRIPTIONS {
            self.subscriptions.insert(uri.into_owned());
        }
    }

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.log_level.is_none() && self.subscriptions.is_empty()
    }
}
