//! Notices: what a server tells that belongs to no call, and who hears it.
//!
//! Told by: whoever reads a server's words (a call's stream, a standing stream, a child's output),
//! never under a lock.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use warmline_core::protocol::envelope::{Kind, Message};

/// Hears what a server tells that belongs to no call: a list changed, a resource was updated, a
/// log line between calls.
///
/// Called by whoever reads the server's words, which waits meanwhile: it must be quick. A list
/// that changed and a resource that was updated are told here also when they come in the middle
/// of a call, whose listener hears them too.
pub trait Notices: Send + Sync + fmt::Debug {
    /// Something was told; `params` is a raw JSON object.
    fn notice(&self, method: &str, params: &[u8]);
}

/// Whom a notice concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// Everybody, whatever it came with.
    Everybody,
    /// The call it came with, else whoever hears the rest.
    SomeCall,
    /// The call that it names, and nobody else.
    ItsCall,
}

/// Whom a message concerns, if it is a notice.
pub(crate) fn concerns(message: &Message) -> Option<Concerns> {
    if message.kind() != Kind::Notification {
        return None;
    }
    Some(match message.method().unwrap_or_default() {
        "notifications/tools/list_changed"
        | "notifications/resources/list_changed"
        | "notifications/prompts/list_changed"
        | "notifications/resources/updated" => Concerns::Everybody,
        "notifications/progress" | "notifications/cancelled" => Concerns::ItsCall,
        _ => Concerns::SomeCall,
    })
}

/// Who hears the notices of a session; mostly nobody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hearing(Option<Arc<dyn Notices>>);

impl Hearing {
    pub(crate) fn new(notices: Option<Arc<dyn Notices>>) -> Self {
        Self(notices)
    }

    /// Tells a notice.
    pub(crate) fn tell(&self, message: &Message) {
        let (Some(notices), Some(method)) = (&self.0, message.method()) else {
            return;
        };
        let params = message.params();
        let params = params.unwrap_or_else(|| Bytes::from_static(b"{}"));
        notices.notice(method, &params);
    }

    /// Tells it if it concerns everybody.
    pub(crate) fn tell_if_for_all(&self, message: &Message) {
        if self.0.is_some() && concerns(message) == Some(Concerns::Everybody) {
            self.tell(message);
        }
    }
}
